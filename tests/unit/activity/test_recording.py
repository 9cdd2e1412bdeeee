"""What a pipeline puts on record itself, through its worker's gate."""

from datetime import UTC, datetime
from pathlib import Path

from baton.activity.gate import Gate
from baton.activity.recording import entry_of
from baton.edge.keyring import Keyring
from baton.edge.ledger import Ledger
from baton.protocol.recording import EventKind, RecordedEvent

AT = datetime(2026, 11, 21, tzinfo=UTC)


async def test_what_an_earlier_version_recorded_holds_nobody_up(tmp_path: Path) -> None:
    """A pipeline waits until its event is on record: one that is told otherwise now is there beside the first."""
    earlier = RecordedEvent(kind=EventKind.DECISION, task_id="t-1", event_id="h.1", status="TOP_UP", actor="ann", at=AT)
    now = earlier.model_copy(update={"message": {"microUsd": 5}})
    async with Ledger(tmp_path / "ledger.db") as ledger:
        gate = Gate(Keyring.generate(), ledger)
        heads = [await gate.record(entry_of(event, None)) for event in (earlier, now, earlier, now)]
        records = (await ledger.trace("t-1")).records

    assert [one.body for one in records] == [{}, {"microUsd": 5}]
    assert heads[:2] == heads[2:]
