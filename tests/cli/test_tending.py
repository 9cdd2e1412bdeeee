"""`baton audit checkpoint` and `archive`, and `baton keys rewrap`, as they are typed."""

import asyncio
import contextlib
import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from pydantic import JsonValue
from typer.testing import CliRunner, Result

from baton.cli.app import make_app
from baton.client import Vault
from baton.core.verdict import HandoffStatus
from baton.keys.store_keyring import Key, KeyFile, Keyring, Purpose, read_file, write_file
from baton.ledger.entries import handoff_entry
from baton.ledger.records import AuditEntry
from baton.ledger.store import Ledger, LedgerOptions
from baton.ledger.store_evidence import AnchorFile
from tests.ledger.material import NOW, TASK, message


class Desk:
    """An operator with a ledger of two records, keys and an artifact store.

    Args:
        folder: Where everything is.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.keys, self.ledger, self.witness = folder / "keys.json", folder / "ledger.db", folder / "anchors.jsonl"
        made = tuple(Key.generate(purpose, NOW) for purpose in Purpose)
        write_file(self.keys, KeyFile(made), replace=False)
        self.keyring = Keyring.from_file(self.keys)

    def __call__(self, *words: str) -> Result:
        place = {
            "BATON_LEDGER": str(self.ledger),
            "BATON_KEYS": str(self.keys),
            "BATON_ARTIFACTS": str(self.folder / "artifacts"),
            "BATON_VAULT": str(self.folder / "vault.db"),
            "TEMPORAL_ADDRESS": "127.0.0.1:1",  # this machine may have a server, with runs of another ledger
            "COLUMNS": "160",
        }
        with contextlib.chdir(self.folder):  # the checkout may have a ledger of its own, with a witness
            return CliRunner().invoke(make_app(), list(words), env=place)

    async def add(self, *entries: AuditEntry) -> None:
        async with Ledger(self.ledger, LedgerOptions(signer=self.keyring.signer(), clock=lambda: NOW)) as ledger:
            await ledger.append_all(entries)


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    command = Desk(tmp_path)
    entries = [
        handoff_entry(message(at), task_id=TASK, status=HandoffStatus.ACCEPTED, timestamp=NOW) for at in range(2)
    ]
    asyncio.run(command.add(*entries))
    return command


class TestCheckpoint:
    def test_a_witness_keeps_it_and_the_ledger_is_verified_against_it(self, desk: Desk) -> None:
        """A missing chain is noticed, though no other chain changed (C-26)."""
        made = desk("audit", "checkpoint", "--witness", str(desk.witness))
        assert made.exit_code == 0, made.output
        assert [one.size for one in AnchorFile(desk.witness).checkpoints()] == [2]
        whole = desk("audit", "verify", "--all", "--anchors", str(desk.witness), "--json")
        assert json.loads(whole.stdout)["verdict"] == "valid"
        desk.ledger.unlink()
        asyncio.run(desk.add(handoff_entry(message(0), task_id="t2", status=HandoffStatus.ACCEPTED, timestamp=NOW)))
        gone = desk("audit", "verify", "--all", "--anchors", str(desk.witness), "--json")
        assert (gone.exit_code, json.loads(gone.stdout)["verdict"]) == (1, "invalid")

    def test_one_that_does_not_continue_the_last_is_refused(self, desk: Desk) -> None:
        """The witness is unchanged, and the operator learns that this is not the same ledger (C-26)."""
        assert desk("audit", "checkpoint", "--witness", str(desk.witness)).exit_code == 0
        desk.ledger.unlink()
        asyncio.run(desk.add(handoff_entry(message(0), task_id="t2", status=HandoffStatus.ACCEPTED, timestamp=NOW)))
        refused = desk("audit", "checkpoint", "--witness", str(desk.witness))
        assert refused.exit_code == 1
        assert len(AnchorFile(desk.witness).checkpoints()) == 1
        assert "checkpoint" not in desk("audit", "verify", "--all").stdout

    def test_unsigned_records_are_checkpointed_only_on_request(self, desk: Desk) -> None:
        """A scheduled checkpoint must not turn anybody's record into a proved one."""
        forged = handoff_entry(message(0), task_id="t2", status=HandoffStatus.ACCEPTED, timestamp=NOW)

        async def forge() -> None:
            async with Ledger(desk.ledger) as ledger:
                await ledger.append(forged)

        asyncio.run(forge())
        refused = desk("audit", "checkpoint")
        assert refused.exit_code == 1
        assert "would cover it" in refused.output
        assert desk("audit", "verify", "--all").exit_code == 4
        assert desk("audit", "checkpoint", "--unsigned").exit_code == 0


class TestArchive:
    def test_old_records_move_and_read_as_before(self, desk: Desk) -> None:
        """A trace is the same before and after; archiving again moves nothing."""
        before = json.loads(desk("audit", "trace", TASK, "--json").stdout)
        moved = desk("audit", "archive", "--older-than", "0", "--json")
        assert json.loads(moved.stdout)["records"] == 2
        assert json.loads(desk("audit", "trace", TASK, "--json").stdout)["records"] == before["records"]
        assert "0 records moved" in desk("audit", "archive").stdout

    def test_nothing_moves_to_where_it_would_be_lost(self, desk: Desk) -> None:
        """An in-memory store ends with the command."""
        refused = desk("audit", "archive", "--older-than", "0", "--artifacts", "memory:")

        assert refused.exit_code == 2
        assert "would be lost" in refused.output
        assert desk("audit", "verify", "--all", "--allow-unanchored").exit_code == 0

    def test_young_records_stay(self, desk: Desk) -> None:
        """Only records older than the given age move."""
        days = str(1 + timedelta(days=36_500).days)
        assert json.loads(desk("audit", "archive", "--older-than", days, "--json").stdout)["records"] == 0


class TestMigrate:
    def test_a_file_needs_none(self, desk: Desk) -> None:
        """The answer says why, and what to name instead."""
        refused = desk("audit", "migrate")
        assert refused.exit_code == 1
        assert "is migrated when it is opened" in refused.output

    @pytest.mark.parametrize(
        ("url", "why"),
        [
            pytest.param("postgresql://baton:secret#1@127.0.0.1/ledger", "percent-encoded", id="a sign of URLs"),
            pytest.param("postgresql:baton:secret@127.0.0.1/ledger", "percent-encoded", id="no slashes"),
            pytest.param(" postgresql://baton:secret@127.0.0.1/ledger", "is neither", id="a blank before it"),
            pytest.param("host=127.0.0.1 password=secret", "'host=… dbname=…' is neither", id="libpq's other form"),
            pytest.param("dbname=l\npassword = 'secret'", "'host=… dbname=…' is neither", id="the same on lines"),
        ],
    )
    def test_an_invalid_address_is_a_message(self, desk: Desk, url: str, why: str) -> None:
        """Without a traceback or the password."""
        refused = desk("audit", "migrate", "--ledger", url)
        assert refused.exit_code == 2
        assert why in refused.output
        assert "secret" not in refused.output

    def test_an_invalid_role_name_is_a_message(self, desk: Desk) -> None:
        """Without a traceback."""
        refused = desk("audit", "migrate", "--ledger", "postgresql://baton_owner@127.0.0.1:1/l", "--writer", "Writer")
        assert refused.exit_code == 2
        assert "'Writer' is not the name of a role" in refused.output


class TestRewrap:
    def test_keys_of_people_are_rewrapped(self, desk: Desk) -> None:
        """Personal data stays readable without the old wrapping key."""
        data = {"email": "ann@example.org"}

        async def sealed(keyring: Keyring) -> dict[str, JsonValue]:
            async with Vault(desk.folder / "vault.db", keyring) as vault:
                return await vault.seal("customer-7", TASK, data)

        async def opened(keyring: Keyring) -> list[object]:
            async with Vault(desk.folder / "vault.db", keyring) as vault:
                return list((await vault.open(payload, TASK)).values())

        payload = asyncio.run(sealed(desk.keyring))
        assert desk("keys", "rotate", "wrap").exit_code == 0
        assert "1 key rewrapped" in desk("keys", "rewrap").stdout
        content = read_file(desk.keys)
        kept = tuple(key for key in content.keys if key.purpose is not Purpose.WRAP or key.retired_at is None)
        write_file(desk.keys, replace(content, keys=kept), replace=True)
        assert asyncio.run(opened(Keyring.from_file(desk.keys))) == [data]
