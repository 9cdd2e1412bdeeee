"""What an auditor has before them, for the tests of `baton audit`."""

import asyncio
import contextlib
import sqlite3
from dataclasses import dataclass
from pathlib import Path

from typer.testing import CliRunner, Result

from baton.cli.app import make_app
from baton.client.faces import AuditCost
from baton.core.verdict import HandoffStatus
from baton.keys.store_keyring import Keyring
from baton.ledger.chain import ChainHead
from baton.ledger.entries import handoff_entry
from baton.ledger.records import AuditEntry, Kind
from baton.ledger.store import Ledger, LedgerOptions
from baton.ledger.store_evidence import AnchorFile
from tests.ledger.material import NOW, TASK, completion_entry, message

NOBODY = "127.0.0.1:1"
"""An address where no server can be."""


@dataclass(frozen=True)
class Desk:
    """What an auditor has before them: a ledger with two tasks, public keys, anchors.

    Attributes:
        folder: Where everything is.
        heads: The heads that the first task's appends gave.
        keyring: The keys that signed.
    """

    folder: Path
    heads: list[ChainHead]
    keyring: Keyring

    @property
    def ledger(self) -> Path:
        return self.folder / "ledger.db"

    def __call__(self, *words: str, ledger: Path | None = None) -> Result:
        place = {"BATON_LEDGER": str(ledger or self.ledger), "TEMPORAL_ADDRESS": NOBODY, "COLUMNS": "160"}
        with contextlib.chdir(self.folder):  # the checkout may have a ledger of its own, with a witness
            return CliRunner().invoke(make_app(), ["audit", *words], env=place)

    def keys(self) -> tuple[str, str]:
        file = self.folder / "public.jwks"
        file.write_text(self.keyring.public().to_json(), encoding="utf-8")
        return "--keys", str(file)

    def anchors(self) -> tuple[str, str]:
        """Return the option with the heads that were kept outside."""
        file = AnchorFile(self.folder / "anchors.jsonl")
        file.add_heads(self.heads)
        return "--anchors", str(file.path)

    def change(self, statement: str) -> None:
        """Change the ledger as the owner of its file can, triggers or not."""
        with sqlite3.connect(self.ledger, isolation_level=None) as database:
            triggers = database.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall()
            for (name,) in triggers:
                database.execute(f"DROP TRIGGER {name}")
            database.execute(statement)
        database.close()


def entries() -> list[AuditEntry]:
    """Return what happened to the task: two handoffs, the first refused once, and its end."""
    refused = handoff_entry(
        message(0),
        task_id=TASK,
        status=HandoffStatus.REJECTED,
        reason="SCHEMA_INVALID",
        details="a\x1b[31m",
        timestamp=NOW,
    )
    accepted = [
        handoff_entry(message(at), task_id=TASK, status=HandoffStatus.ACCEPTED, attempt=2 - at, timestamp=NOW)
        for at in range(2)
    ]
    end = completion_entry({"risk": "low"}, agent="agent-2", cost=AuditCost(spent_micro_usd=50_000))
    return [refused, *accepted, end]


def desk_in(folder: Path) -> Desk:
    """Return the command, in a folder with a signed ledger of two tasks."""
    keyring = Keyring.generate()

    async def fill() -> list[ChainHead]:
        async with Ledger(folder / "ledger.db", LedgerOptions(signer=keyring.signer())) as ledger:
            heads = await ledger.append_all(entries())
            other = AuditEntry(
                kind=Kind.HANDOFF, task_id="other", event_id="h-1", status="ACCEPTED", timestamp=NOW, message={}
            )
            await ledger.append(other)
            await ledger.checkpoint()
            return heads

    return Desk(folder, asyncio.run(fill()), keyring)
