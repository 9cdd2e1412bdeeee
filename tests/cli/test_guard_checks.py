"""What `baton doctor` finds of keys and ledger."""

import asyncio
from datetime import UTC, datetime
from pathlib import Path

import pytest

from baton.cli import storage_checks as guard_checks
from baton.client.faces import CheckMark as Mark
from baton.keys.store_keyring import Key, KeyFile, Keyring, Purpose, write_file
from baton.ledger.store import Ledger, LedgerOptions
from baton.ledger.store_evidence import AnchorFile
from tests.ledger.material import entry


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder in which the command is called."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def is_empty(folder: Path) -> bool:
    return list(folder.iterdir()) == []


class TestKeys:
    def test_checking_creates_no_keys(self, folder: Path) -> None:
        """Only a worker creates them, on a developer's machine."""
        finding = guard_checks.check_keys({})

        assert (finding.mark, finding.found.partition(";")[0]) == (Mark.OK, "none yet")
        assert "a worker with safeguards" in finding.found
        assert is_empty(folder)

    def test_a_developers_keys_are_reported_as_such(self, folder: Path) -> None:
        """In production they are refused, and so are none."""
        assert guard_checks.check_keys({"BATON_ENV": "production"}).mark is Mark.FAIL
        Keyring.development(Path(".baton"), {})

        assert "developer's machine" in guard_checks.check_keys({}).found
        assert guard_checks.check_keys({"BATON_ENV": "production"}).mark is Mark.FAIL

    def test_a_missing_file_has_a_remedy(self, folder: Path) -> None:
        """The check finds it before a worker fails."""
        finding = guard_checks.check_keys({"BATON_KEYS": "keys.toml"})

        assert (finding.mark, "keys.toml" in finding.found) == (Mark.FAIL, True)
        assert "make them with `baton keys new keys.toml`" in finding.found

    def test_a_purpose_without_a_current_key_fails(self, folder: Path) -> None:
        """A worker could not encrypt."""
        write_file(folder / "one.toml", KeyFile((Key.generate(Purpose.SEAL, datetime.now(UTC)),)), replace=False)
        finding = guard_checks.check_keys({"BATON_KEYS": str(folder / "one.toml")})

        assert (finding.mark, "no current key to" in finding.found) == (Mark.FAIL, True)


class TestLedger:
    async def test_checking_creates_no_ledger(self, folder: Path) -> None:
        """Only a worker creates it."""
        assert (await guard_checks.check_ledger()).mark is Mark.OK
        assert is_empty(folder)

    async def test_a_ledger_with_another_name_fails(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Its records would be refused, and runs would wait."""
        async with Ledger(folder / "ledger.db", LedgerOptions(name="ours")):
            pass
        monkeypatch.setenv("BATON_LEDGER", "ledger.db")
        assert (await guard_checks.check_ledger()).mark is Mark.FAIL

        monkeypatch.setenv("BATON_LEDGER_NAME", "ours")
        assert (await guard_checks.check_ledger()).mark is Mark.OK

    @pytest.mark.parametrize("where", ["file/ledger.db", "nosuch://ledger"])
    async def test_a_file_that_is_not_a_ledger_fails(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch, where: str
    ) -> None:
        """The remedy names the consequence for runs."""
        (folder / "file").mkdir()
        (folder / "file" / "ledger.db").write_bytes(b"no database" * 100)
        monkeypatch.setenv("BATON_LEDGER", where)

        finding = await guard_checks.check_ledger()

        assert (finding.mark, bool(finding.remedy)) == (Mark.FAIL, True)

    async def test_a_ledger_is_compared_with_its_witness(self, folder: Path) -> None:
        """Deleted, and begun anew."""
        file = Path(".baton/ledger.db")
        async with Ledger(file) as ledger, ledger.witnessed(AnchorFile(Path(".baton/witness.jsonl"))):
            await ledger.append(entry(0))
        intact = await guard_checks.check_ledger()
        await asyncio.to_thread(file.unlink)
        deleted = await guard_checks.check_ledger()
        async with Ledger(file) as ledger:
            await ledger.append(entry(1))
        anew = await guard_checks.check_ledger()

        assert [finding.mark for finding in (intact, deleted, anew)] == [Mark.OK, Mark.FAIL, Mark.FAIL]

    async def test_keys_that_did_not_sign_it_fail(self, folder: Path) -> None:
        """A worker started with them would be refused."""
        async with Ledger(Path(".baton/ledger.db"), LedgerOptions(signer=Keyring.generate().signer())) as ledger:
            await ledger.append(entry(0))
        Keyring.development(Path(".baton"), {})

        finding = await guard_checks.check_ledger()

        assert (finding.mark, "BATON_KEYS" in (finding.remedy or "")) == (Mark.FAIL, True)
