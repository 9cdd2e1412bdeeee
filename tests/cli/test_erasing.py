"""`baton erase` as it is typed, on a real vault and a real ledger."""

import asyncio
import json
from collections.abc import Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner, Result

from baton.cli.personal import erase
from baton.client import Vault
from baton.keys.store_keyring import DEVELOPMENT_FILE, Keyring
from baton.ledger.store import Ledger, LedgerOptions
from baton.personal.records import SEALED_ONLY

SUBJECT = "ann@example.org"


@dataclass(frozen=True)
class Desk:
    """A folder with keys, a vault that has data of a subject in two tasks, and an empty ledger."""

    folder: Path

    def __call__(self, *words: str, input: str | bytes | None = None, **env: str) -> Result:
        app = typer.Typer(add_completion=False)
        app.command("erase")(erase)
        place = {
            "BATON_KEYS": str(self.folder / DEVELOPMENT_FILE),
            "BATON_VAULT": str(self.folder / "vault.db"),
            "BATON_LEDGER": str(self.folder / "ledger.db"),
            "BATON_USER": "dpo",
            "COLUMNS": "160",
        }
        return CliRunner().invoke(app, list(words), env=place | env, input=input)

    def json(self, *words: str) -> Any:
        return json.loads(self(*words, "--json").stdout)


def run(work: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine on a loop of its own."""
    loop = asyncio.new_event_loop()
    loop.run_until_complete(work)
    loop.close()


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    keyring = Keyring.development(tmp_path)

    async def fill() -> None:
        options = LedgerOptions(signer=keyring.signer(), policy=SEALED_ONLY)
        async with Ledger(tmp_path / "ledger.db", options), Vault(tmp_path / "vault.db", keyring) as vault:
            for task in ("t-1", "t-2"):
                await vault.seal(SUBJECT, task, {"email": SUBJECT, "phone": "1"})

    run(fill())
    return Desk(tmp_path)


class TestErase:
    def test_it_reports_what_it_removed(self, desk: Desk) -> None:
        """Keys, places and tasks are counted, and the request is named (S3-12.3-a)."""
        result = desk(SUBJECT, "--yes", "--request-id", "r-1")

        assert result.exit_code == 0
        assert "erased sub-" in result.stdout
        assert "(r-1)\n  1 key destroyed, 4 places forgotten\n  recorded now in 2 tasks" in result.stdout
        assert SUBJECT not in result.output
        assert "already at" in desk(SUBJECT, "--yes").stdout

    def test_programs_get_the_report(self, desk: Desk) -> None:
        """`--json` has all of it (S3-12.3-a)."""
        report = desk.json(SUBJECT, "--yes", "--by", "me", "--request-id", "r-1")

        assert (report["status"], report["removed"], report["recorded"]) == ("ERASED", {"keys": 1, "places": 4}, True)
        assert report["task_ids"] == ["t-1", "t-2"]
        assert desk.json(SUBJECT, "--yes")["repeated"] is True

    def test_each_task_has_its_record(self, desk: Desk) -> None:
        """The record names who erased, and the pseudonym (S3-12.3-d, C-24)."""
        subject = desk.json(SUBJECT, "--yes", "--request-id", "r-1")["subject"]

        async def look() -> None:
            async with Ledger(desk.folder / "ledger.db", LedgerOptions(create=False)) as ledger:
                for task in ("t-1", "t-2"):
                    (record,) = (await ledger.trace(task)).records
                    assert (record.fields.actor, record.fields.event_id) == ("dpo", "r-1")
                    assert record.body["subject"] == subject

        run(look())

    def test_a_subject_can_be_read_from_stdin(self, desk: Desk) -> None:
        """The name stays out of the shell's history."""
        assert "holds no data" not in desk("-", "--dry-run", input=f"\ufeff{SUBJECT}\r\n").stdout
        assert "1 key destroyed" in desk("-", "--yes", input=f"{SUBJECT}\n").stdout

    def test_without_a_terminal_and_without_yes_nothing_is_erased(self, desk: Desk) -> None:
        """Nobody confirmed it; the same with --json."""
        for words in ((), ("--json",)):
            refused = desk(SUBJECT, *words)
            assert (refused.exit_code, refused.stdout) == (2, "")
        assert len(desk.json(SUBJECT, "--dry-run")["places"]) == 4

    def test_a_dry_run_only_shows_the_places(self, desk: Desk) -> None:
        """The index has the places of the subject's data (S3-12.3-c)."""
        output = desk(SUBJECT, "--dry-run").stdout

        assert [line.split() for line in output.splitlines()[2:]] == [["t-1", "2"], ["t-2", "2"]]
        assert len(desk.json(SUBJECT, "--dry-run")["places"]) == 4
        assert "holds no data" in desk("nobody", "--dry-run").stdout

    def test_an_unknown_subject_is_reported(self, desk: Desk) -> None:
        """Nothing was erased, and that is not a failure (S3-12.3-a)."""
        result = desk("nobody", "--yes")

        assert (result.exit_code, "nothing was erased" in result.stdout) == (0, True)

    def test_without_a_ledger_nothing_is_erased(self, desk: Desk) -> None:
        """An erasure that cannot be recorded does not start (S3-12.3-d)."""
        result = desk(SUBJECT, "--yes", BATON_LEDGER=str(desk.folder / "none.db"))

        assert (result.exit_code, "none.db" in result.stderr) == (1, True)
        assert len(desk.json(SUBJECT, "--dry-run")["places"]) == 4

    def test_only_one_name_is_accepted(self, desk: Desk) -> None:
        """Not none, not two, and only text (S3-12.3-a)."""
        assert desk("-", "--yes", input="\n").exit_code == 2
        assert desk("  ", "--yes").exit_code == 2
        assert desk("-", "--yes", input=b"j\xe4ne").exit_code == 2
        assert desk("-", "--yes", input=f"{SUBJECT}\nsomebody else\n").exit_code == 2
