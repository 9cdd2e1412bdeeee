"""What `baton doctor` finds of keys and ledger."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from baton.cli import doctor as guard_checks
from baton.cli.doctor import Mark
from baton.keys.store_keyring import Key, KeyFile, Keyring, Purpose, write_file
from baton.ledger.store import Ledger, LedgerOptions
from tests.ledger.material import entry


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder in which the command is called."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def is_empty(folder: Path) -> bool:
    return list(folder.iterdir()) == []


class TestKeys:
    def test_none_are_made_by_looking(self, folder: Path) -> None:
        """A worker makes them, on a developer's machine."""
        found = guard_checks.check_keys({})

        assert (found.mark, found.found.partition(";")[0]) == (Mark.OK, "none yet")
        assert "a worker with safeguards" in found.found
        assert is_empty(folder)

    def test_those_of_a_developers_machine_are_called_that(self, folder: Path) -> None:
        """In production they are refused, and so are none."""
        assert guard_checks.check_keys({"BATON_ENV": "production"}).mark is Mark.FAIL
        Keyring.development(Path(".baton"), {})

        assert "developer's machine" in guard_checks.check_keys({}).found
        assert guard_checks.check_keys({"BATON_ENV": "production"}).mark is Mark.FAIL

    def test_a_file_that_is_not_there_is_told_with_its_remedy(self, folder: Path) -> None:
        """Before a worker ends of it."""
        found = guard_checks.check_keys({"BATON_KEYS": "keys.toml"})

        assert (found.mark, "keys.toml" in found.found) == (Mark.FAIL, True)
        assert "make them with `baton keys new keys.toml`" in found.found

    def test_a_purpose_without_a_current_key_is_told(self, folder: Path) -> None:
        """A worker would seal, and could encrypt nothing."""
        write_file(folder / "one.toml", KeyFile((Key.generate(Purpose.SEAL, datetime.now(UTC)),)), replace=False)
        found = guard_checks.check_keys({"BATON_KEYS": str(folder / "one.toml")})

        assert (found.mark, "no current key to" in found.found) == (Mark.FAIL, True)


class TestLedger:
    async def test_none_is_made_by_looking(self, folder: Path) -> None:
        """A worker makes it."""
        assert (await guard_checks.check_ledger()).mark is Mark.OK
        assert is_empty(folder)

    async def test_one_of_another_name_is_told(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Its records would be refused, and runs wait."""
        async with Ledger(folder / "ledger.db", LedgerOptions(name="ours")):
            pass
        monkeypatch.setenv("BATON_LEDGER", "ledger.db")
        assert (await guard_checks.check_ledger()).mark is Mark.FAIL

        monkeypatch.setenv("BATON_LEDGER_NAME", "ours")
        assert (await guard_checks.check_ledger()).mark is Mark.OK

    @pytest.mark.parametrize("where", ["file/ledger.db", "nosuch://ledger"])
    async def test_what_is_none_is_told(self, folder: Path, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
        """With what it does to runs."""
        (folder / "file").mkdir()
        (folder / "file" / "ledger.db").write_bytes(b"no database" * 100)
        monkeypatch.setenv("BATON_LEDGER", where)

        found = await guard_checks.check_ledger()

        assert (found.mark, bool(found.remedy)) == (Mark.FAIL, True)

    async def test_other_keys_than_those_that_signed_it_fail(self, folder: Path) -> None:
        """A worker started with them would be refused."""
        async with Ledger(Path(".baton/ledger.db"), LedgerOptions(signer=Keyring.generate().signer())) as ledger:
            await ledger.append(entry(0))
        Keyring.development(Path(".baton"), {})

        found = await guard_checks.check_ledger()

        assert (found.mark, "BATON_KEYS" in (found.remedy or "")) == (Mark.FAIL, True)
