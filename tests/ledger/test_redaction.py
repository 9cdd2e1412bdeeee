"""Redaction by a data policy in every kind of record that a worker writes."""

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from baton import Spend
from baton.handoff.records import Handoff
from baton.handoff.store_gate import Gate
from baton.handoff.store_safeguards import Safeguards
from baton.handoff.store_signing import seal
from baton.keys.store_keyring import Key, Keyring, Purpose
from baton.ledger.chain import Verdict
from baton.ledger.entries import is_commitment
from baton.ledger.records import AuditEntry, Kind
from tests.handoff.material import EXAMPLE, RECEIVER, TASK_ID

KEYS = Keyring.generate()
NAME = "Jane Doe"
MESSAGE: dict[str, Any] = {
    **EXAMPLE,
    "currentState": {"extractedClauses": ["4.2"], "parties": [{"name": NAME, "role": "x"}]},
}
REDACT = frozenset({"/currentState/parties/*/name", "/output/name", "/patch/work_scope"})


@pytest.fixture
async def gate(tmp_path: Path) -> AsyncIterator[Gate]:
    """Return a gate whose worker has a data policy."""
    async with Safeguards(KEYS, tmp_path / "ledger.db", redact=REDACT).opened() as guarded:
        yield guarded.gate


async def on_record(gate: Gate) -> list[dict[str, Any]]:
    """Return the recorded messages of a verified chain."""
    trace = await gate.ledger.trace(TASK_ID, verifier=KEYS.public())
    assert trace.report.verdict in (Verdict.VALID, Verdict.UNANCHORED)
    return [record.body for record in trace.records]


class TestRedact:
    async def test_redacted_members_reach_the_receiver_but_not_the_ledger(self, gate: Gate) -> None:
        """The record is the full message without the fields that the data policy redacts (S3-6.2-b)."""
        receipt, judgement = await gate.accept(seal(MESSAGE, KEYS), RECEIVER)
        [recorded] = await on_record(gate)

        assert receipt.verdict
        assert judgement.handoff is not None
        assert judgement.handoff.to_json_object()["currentState"]["parties"][0]["name"] == NAME
        [party] = recorded["currentState"].pop("parties")
        assert (is_commitment(party["name"]), party["role"]) == (True, "x")
        assert recorded | {"currentState": 0} == {**judgement.message, "currentState": 0}

    async def test_the_same_message_has_one_record(self, gate: Gate) -> None:
        """A second delivery has the same commitments; another value has others (C-20, C-25)."""
        first, _ = await gate.accept(seal(MESSAGE, KEYS), RECEIVER)
        repeated, _ = await gate.accept(seal(MESSAGE, KEYS), RECEIVER)
        changed = {**MESSAGE, "currentState": {"extractedClauses": ["4.2"], "parties": [{"name": "Joe", "role": "x"}]}}
        forged, _ = await gate.accept(seal(changed, KEYS), RECEIVER)

        assert (repeated.anchor, bool(forged.verdict)) == (first.anchor, False)
        assert len(await on_record(gate)) == 2

    async def test_a_message_resent_after_an_index_key_rotation_has_one_record(self, tmp_path: Path) -> None:
        """With other commitments the retry would be rejected as a forgery."""
        keys = Keyring.generate()
        now = datetime.now(UTC)
        older = [replace(key, retired_at=now) if key.purpose is Purpose.INDEX else key for key in keys.all_keys()]
        newer = Keyring([*older, Key.generate(Purpose.INDEX, now)])
        async with Safeguards(keys, tmp_path / "ledger.db", redact=REDACT).opened() as guarded:
            first, _ = await guarded.gate.accept(seal(MESSAGE, keys), RECEIVER)
        async with Safeguards(newer, tmp_path / "ledger.db", redact=REDACT).opened() as guarded:
            repeated, _ = await guarded.gate.accept(seal(MESSAGE, keys), RECEIVER)
            forged, _ = await guarded.gate.accept(seal({**MESSAGE, "taskDescription": "Other"}, keys), RECEIVER)

        assert (repeated.anchor, repeated.again, bool(repeated.verdict)) == (first.anchor, True, True)
        assert not forged.verdict

    async def test_answers_and_decisions_are_redacted(self, gate: Gate) -> None:
        """This covers a stage's completion, and the patch of a person's edit (S3-6.2-b)."""
        await gate.record_return(
            Handoff.from_json_object(MESSAGE), 1, {"baton_patch": {}, "output": {"name": NAME, "n": 1}}, Spend()
        )
        timestamp = datetime(2026, 11, 21, tzinfo=UTC)
        edit = {"patch": {"work_scope": [NAME]}}
        entry = AuditEntry(
            kind=Kind.DECISION, task_id=TASK_ID, event_id="e", status="EDIT", timestamp=timestamp, message=edit
        )
        anchor = await gate.record(entry)
        returned, decided = await on_record(gate)

        assert (is_commitment(returned["output"]["name"]), returned["output"]["n"]) == (True, 1)
        assert is_commitment(decided["patch"]["work_scope"])
        assert await gate.record(entry) == anchor

    async def test_without_a_policy_the_whole_message_is_on_record(self, tmp_path: Path) -> None:
        """Nothing is redacted by default (S3-6.2-b)."""
        async with Safeguards(KEYS, tmp_path / "ledger.db").opened() as guarded:
            _, judgement = await guarded.gate.accept(seal(MESSAGE, KEYS), RECEIVER)
            assert await on_record(guarded.gate) == [judgement.message]

    @pytest.mark.parametrize("pointer", ["/step/inputs", "/step/*/draft", "/step"])
    async def test_excerpts_of_redacted_inputs_are_redacted(self, tmp_path: Path, pointer: str) -> None:
        """They stand a second time in `relevantContext`."""
        message = {**MESSAGE, "relevantContext": [{"source": "draft", "excerpt": "Jane Roe", "relevanceScore": 0.5}]}
        async with Safeguards(KEYS, tmp_path / "ledger.db", redact=frozenset({pointer})).opened() as guarded:
            await guarded.gate.accept(seal(message, KEYS), RECEIVER)
            [recorded] = await on_record(guarded.gate)

        assert is_commitment(recorded["relevantContext"][0]["excerpt"])
        assert recorded["relevantContext"][0]["source"] == "draft"

    def test_a_malformed_pointer_is_refused(self, tmp_path: Path) -> None:
        """It would silently redact nothing."""
        with pytest.raises(ValueError, match="redact holds 'output/name'; a JSON pointer begins with a slash"):
            Safeguards(KEYS, tmp_path / "ledger.db", redact=frozenset({"output/name", "/x"}))
