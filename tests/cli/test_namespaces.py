"""A ledger for each namespace, by one setting."""

from pathlib import Path

import pytest

from baton.cli.ledger_sources import find_witness, ledger_name, ledger_place
from baton.client import Connection, Ledger, LedgerError, LedgerOptions
from baton.worker import Settings
from tests.ledger.material import KEY, KEYS, TASK, entry

SETTINGS = {
    "BATON_LEDGER": "ledgers/{namespace}.db",
    "BATON_LEDGER_NAME": "baton-{namespace}",
    "BATON_WITNESS": "witnesses/{namespace}.jsonl",
}
TEAM_A = Connection(namespace="team-a")


async def test_workers_and_commands_find_the_ledger_of_their_namespace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both read one setting; the records of one namespace are in no other's ledger."""
    monkeypatch.chdir(tmp_path)
    for name, value in SETTINGS.items():
        monkeypatch.setenv(name, value)
    for namespace in ("team-a", "team-b.a1b2c"):
        worker = Settings.of(SETTINGS).in_namespace(namespace)
        connection = Connection(namespace=namespace)

        assert ledger_place(None, connection) == Path(worker.ledger)
        assert ledger_name(None, connection) == worker.ledger_name
        assert find_witness(None, connection) == worker.witness
        async with Ledger(worker.ledger, LedgerOptions(name=worker.ledger_name, signer=KEY)) as ledger:
            await ledger.append(entry(0))

    async with Ledger(ledger_place(None, TEAM_A), LedgerOptions(name=ledger_name(None, TEAM_A))) as ledger:
        assert (await ledger.verify(TASK, verifier=KEYS)).ledger == "baton-team-a"
    assert sorted(path.name for path in (tmp_path / "ledgers").glob("*.db")) == ["team-a.db", "team-b.a1b2c.db"]


def test_the_namespace_of_the_environment_counts_without_an_option(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is the namespace that the command connects to."""
    monkeypatch.setenv("TEMPORAL_NAMESPACE", "team-c")

    assert ledger_place("postgresql://db/ledger_{namespace}") == "postgresql://db/ledger_team-c"


@pytest.mark.parametrize("namespace", ["../other", "a/b", "", "-rf", "a" * 101])
def test_a_namespace_that_would_lead_elsewhere_is_refused(namespace: str) -> None:
    """Its name becomes part of a path, or of a database's address."""
    with pytest.raises(ValueError, match="cannot be part of the ledger's place"):
        Settings.of(SETTINGS).in_namespace(namespace)
    if namespace:
        with pytest.raises(LedgerError, match="cannot be part"):
            ledger_place(SETTINGS["BATON_LEDGER"], Connection(namespace=namespace))
