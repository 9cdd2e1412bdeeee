"""The records that a pipeline writes itself, through its worker's gate."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from baton.core.messages import StageReturn
from baton.handoff.activity_receive import record_failure, record_return
from baton.handoff.store_gate import Gate
from baton.handoff.store_safeguards import Safeguards
from baton.handoff.store_signing import seal
from baton.keys import store_keyring as keyring
from baton.keys.store_keyring import KeyFile, Keyring, Purpose, write_file
from baton.ledger.records import AuditEntry, Kind
from baton.ledger.store import Ledger
from tests.handoff.material import EXAMPLE, RECEIVER

AT = datetime(2026, 11, 21, tzinfo=UTC)


async def test_a_record_of_an_earlier_version_blocks_nobody(tmp_path: Path) -> None:
    """A changed message for the same event is recorded beside the first, so the pipeline does not wait forever."""
    earlier = AuditEntry(kind=Kind.DECISION, task_id="t-1", event_id="h.1", status="TOP_UP", actor="ann", timestamp=AT)
    now = earlier.model_copy(update={"message": {"microUsd": 5}})
    async with Ledger(tmp_path / "ledger.db") as ledger:
        gate = Gate(Keyring.generate(), ledger)
        heads = [await gate.record(event) for event in (earlier, now, earlier, now)]
        records = (await ledger.trace("t-1")).records

    assert [record.body for record in records] == [{}, {"microUsd": 5}]
    assert heads[:2] == heads[2:]


async def test_a_finished_stage_does_not_fail_without_a_signing_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It does not run again; the worker's log names the missing record and key."""
    file, keys = tmp_path / "keys.toml", Keyring.generate().all_keys()
    write_file(file, KeyFile(tuple(keys)), replace=False)
    returned = StageReturn(stage="score", seq=1, attempt=1)
    async with Safeguards(Keyring.from_file(file), tmp_path / "ledger.db").opened() as guarded:
        receipt, judgement = await guarded.gate.accept(seal(EXAMPLE, guarded.gate.keyring), RECEIVER)
        write_file(file, KeyFile(tuple(key for key in keys if key.purpose is not Purpose.SIGN)), replace=True)
        monkeypatch.setattr(keyring, "_RELOAD_SECONDS", -1.0)

        assert judgement.handoff is not None
        assert await record_return(guarded.gate, judgement.handoff, returned, receipt.anchor) == receipt.anchor
        await record_failure(guarded.gate, judgement.handoff, 1, ValueError("down"))

    assert "what score returned is not on record: the keyring has no current key to sign" in caplog.text
    assert "that a stage failed is not on record: the keyring has no current key to sign" in caplog.text
