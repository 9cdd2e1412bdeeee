"""The ledger's public interface, on an SQLite file."""

import asyncio
import re
import sqlite3
import stat
import sys
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import rfc8785

from baton.core.verdict import HandoffStatus
from baton.keys.claims import Claim
from baton.keys.store_keys import KeyringError
from baton.ledger.chain import Flaw, Verdict, head_statement
from baton.ledger.entries import RedactionPolicy, handoff_entry, redact
from baton.ledger.records import (
    AuditCost,
    ChainLink,
    Kind,
    LedgerConflictError,
    LedgerError,
    LedgerKeysError,
    LedgerUnavailableError,
)
from baton.ledger.store import Ledger, LedgerOptions
from baton.ledger.store_evidence import AnchorFile
from baton.testing import opened_past_guards
from baton.wire.base64url import from_base64url
from baton.wire.json_values import parse_digest
from tests.ledger.material import KEY, KEYS, NOW, TASK, Key, completion_entry, entry, message
from tests.ledger.proving import flaw

VALID, UNANCHORED, UNVERIFIED, INVALID = Verdict.VALID, Verdict.UNANCHORED, Verdict.UNVERIFIED, Verdict.INVALID


def files(folder: Path) -> list[Path]:
    return list(folder.iterdir())


def write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


class TestAppend:
    async def test_append_returns_the_head(self, ledger: Ledger) -> None:
        """It has the sequence, hash and signature of the chain's new end (C-26)."""
        first, second = await ledger.append(entry(0)), await ledger.append(entry(1))

        assert [(head.sequence, head.task_id, head.ledger) for head in (first, second)] == [
            (1, TASK, "baton"),
            (2, TASK, "baton"),
        ]
        link = ChainLink("baton", TASK, 2, parse_digest(second.record_hash))
        claim = Claim(KEY.key_id, head_statement(link, KEY.key_id), from_base64url(second.signature or ""), NOW)
        assert KEYS.check([claim]) == ["good"]
        assert await ledger.head(TASK) == second

    async def test_an_append_is_durable_when_it_returns(self, ledger: Ledger, path: Path) -> None:
        """Another process sees the record at once: it is written before the receiver starts (S3-6.2-a, P9)."""
        head = await ledger.append(entry(0))

        async with Ledger(path, LedgerOptions()) as reader:
            assert await reader.head(TASK) == head

    async def test_the_same_event_is_recorded_once(self, ledger: Ledger) -> None:
        """A retry after a lost answer returns the first head, even if the chain has grown (C-25)."""
        first = await ledger.append(entry(0))
        await ledger.append(entry(1))

        assert await ledger.append(entry(0)) == first
        assert len((await ledger.trace(TASK)).records) == 2

    async def test_a_retry_may_have_another_time(self, ledger: Ledger) -> None:
        """An event is identified by its id, attempt, status, kind and message, not by its time."""
        first = await ledger.append(entry(0))

        assert await ledger.append(entry(0, timestamp=NOW + timedelta(hours=1), details="again")) == first

    async def test_each_attempt_and_status_is_a_separate_event(self, ledger: Ledger) -> None:
        """(handoffId, attempt, status) is unique within a kind (C-20, C-25, C-50)."""
        events = [
            entry(0, status=HandoffStatus.REJECTED),
            entry(0, attempt=2),
            entry(0),
            entry(0, kind=Kind.ROLLBACK),
        ]

        assert [head.sequence for head in await ledger.append_all(events)] == [1, 2, 3, 4]

    async def test_the_same_event_with_another_message_is_a_conflict(self, ledger: Ledger) -> None:
        """The same id with other content after acceptance is tampering, and is not recorded (C-20)."""
        await ledger.append(entry(0))

        with pytest.raises(LedgerConflictError, match="already on record"):
            await ledger.append(entry(0, message={"number": 99}))
        assert len((await ledger.trace(TASK)).records) == 1

    async def test_several_entries_are_recorded_atomically(self, ledger: Ledger) -> None:
        """A conflict fails all entries of its own call, and no others."""
        await ledger.append(entry(0))

        lost, recorded = await asyncio.gather(
            ledger.append_all([entry(1), entry(0, message={"number": 99})]),
            ledger.append(entry(2)),
            return_exceptions=True,
        )

        assert isinstance(lost, LedgerConflictError)
        assert not isinstance(recorded, BaseException)
        assert [record.members["eventId"] for record in (await ledger.trace(TASK)).records] == [
            "handoff-0",
            "handoff-2",
        ]

    async def test_an_empty_append_writes_nothing(self, ledger: Ledger) -> None:
        """An empty list starts no transaction."""
        assert await ledger.append_all([]) == []

    async def test_an_append_can_require_a_known_head(self, ledger: Ledger) -> None:
        """A chain without the anchored head accepts no record (T3: restart after truncation)."""
        head = await ledger.append(entry(0))
        assert (await ledger.append(entry(1), after=head)).sequence == 2

        for unknown in (
            head.model_copy(update={"record_hash": "sha256:" + "0" * 64}),
            head.model_copy(update={"sequence": 9}),
            head.model_copy(update={"ledger": "test"}),
        ):
            with pytest.raises(LedgerError, match="no longer has the record"):
                await ledger.append(entry(2), after=unknown)

    async def test_an_unsigned_ledger_is_unverified(self, path: Path) -> None:
        """Without a key the chain is unverified, unless an anchor proves it."""
        async with Ledger(path) as plain:
            head = await plain.append(entry(0))

            assert (await plain.verify(TASK, verifier=KEYS)).verdict is UNVERIFIED
            assert (await plain.verify(TASK, expected_head=head)).verdict is VALID

    async def test_a_message_that_is_not_json_is_refused(self, ledger: Ledger) -> None:
        """It could not be parsed again; the caller records its text instead."""
        with pytest.raises(rfc8785.CanonicalizationError):
            await ledger.append(entry(0, message={"n": float("nan")}))
        assert (await ledger.append(entry(0, message={"raw": '{"n": NaN}'}))).sequence == 1

    @pytest.mark.parametrize(
        "message",
        [
            pytest.param({"personalDataPayload": {"email": "a@b.c"}}, id="as an object"),
            pytest.param(b'{"personalDataPayload":{"email":"a@b.c"}}', id="as bytes"),
            pytest.param(b'{"personal\\u0044ataPayload":{"email":"a@b.c"}}', id="spelled otherwise"),
        ],
    )
    async def test_personal_data_in_clear_is_refused(self, ledger: Ledger, message: Any) -> None:
        """Records cannot be erased; the error names the place, not the value (C-24)."""
        with pytest.raises(LedgerError, match="/personalDataPayload/email") as caught:
            await ledger.append(entry(0, message=message))

        assert "a@b.c" not in str(caught.value)
        assert await ledger.head(TASK) is None

    @pytest.mark.parametrize(
        ("pointer", "given"),
        [
            pytest.param("/*/email", {"customer": {"email": "a@b.c"}}, id="below any member"),
            pytest.param("/of a~1b", {"of a/b": "a@b.c"}, id="a slash in its name"),
            pytest.param('/"him"', {'"him"': "a@b.c"}, id="quotes in its name"),
        ],
    )
    async def test_the_policy_applies_to_bytes(
        self, path: Path, options: LedgerOptions, pointer: str, given: dict[str, Any]
    ) -> None:
        """The quick check of a message's bytes misses no name of the policy (S3-6.2-b)."""
        async with Ledger(path, replace(options, policy=RedactionPolicy(frozenset({pointer})))) as ledger:
            for message in (given, rfc8785.dumps(given)):
                with pytest.raises(LedgerError, match="personal data in clear"):
                    await ledger.append(entry(0, message=message))

    async def test_a_redacted_message_is_accepted(self, ledger: Ledger) -> None:
        """Commitments may be recorded, as an object or as bytes (S3-6.2-b)."""
        redacted = redact({"personalDataPayload": {"email": "a@b.c"}}, RedactionPolicy(), lambda pointer: b"s" * 16)

        await ledger.append(entry(0, message=redacted))
        await ledger.append(entry(1, message=rfc8785.dumps(redacted)))

        assert (await ledger.verify(TASK, verifier=KEYS)).records == 2

    async def test_a_cancelled_append_does_not_affect_others(self, ledger: Ledger) -> None:
        """Its record may or may not exist; those of others do."""
        given_up = asyncio.create_task(ledger.append(entry(0)))
        appends = [asyncio.create_task(ledger.append(entry(number))) for number in range(1, 4)]
        await asyncio.sleep(0)
        given_up.cancel()

        heads = await asyncio.gather(*appends)

        assert len({head.sequence for head in heads}) == 3
        assert await ledger.verify(TASK, verifier=KEYS, anchors=heads)


class TestOpen:
    async def test_a_ledger_keeps_its_name(self, ledger: Ledger, path: Path, options: LedgerOptions) -> None:
        """Opening it under another name is an error, so no test record gets into production."""
        await ledger.append(entry(0))

        with pytest.raises(LedgerError, match=r"is named 'baton', not 'test'.* `--ledger-name`"):
            async with Ledger(path, replace(options, name="test")):
                pass

    @pytest.mark.skipif(sys.platform == "win32", reason="Windows has other permissions")
    async def test_only_the_owner_can_read_the_file(self, ledger: Ledger, path: Path) -> None:
        """The file and its log contain every message."""
        await ledger.append(entry(0))

        assert {stat.S_IMODE(file.stat().st_mode) for file in files(path.parent)} == {0o600}

    async def test_several_workers_can_create_the_file_concurrently(self, tmp_path: Path) -> None:
        """They wait for each other, where SQLite alone would fail."""
        path = tmp_path / "ledger.db"
        connection = sqlite3.connect(path, isolation_level=None)
        connection.execute("BEGIN IMMEDIATE")
        release = asyncio.get_running_loop().call_later(0.2, connection.rollback)
        try:
            async with Ledger(path) as ledger:
                assert release.when() <= asyncio.get_running_loop().time()
                assert await ledger.newest(1) == []
        finally:
            connection.close()

    async def test_an_auditor_does_not_create_a_ledger(self, tmp_path: Path) -> None:
        """A mistyped path is an error, not an empty ledger."""
        with pytest.raises(LedgerUnavailableError, match="there is no ledger"):
            async with Ledger(tmp_path / "typo.db", LedgerOptions(create=False)):
                pass
        assert not (tmp_path / "typo.db").exists()

    async def test_a_file_that_is_not_a_ledger_is_refused(self, path: Path) -> None:
        """Nothing is overwritten."""
        write(path, b"not a database at all, and longer than a header of a hundred bytes" * 20)

        with pytest.raises(LedgerUnavailableError, match="not a database"):
            async with Ledger(path):
                pass

    @pytest.mark.parametrize("where", ["mysql://localhost/x", "http://localhost"])
    def test_another_database_is_refused(self, where: str) -> None:
        """A ledger is a file or Postgres."""
        with pytest.raises(ValueError, match="neither"):
            Ledger(where)


class TestTrace:
    async def test_a_trace_is_one_query(self, statements: list[str], ledger: Ledger) -> None:
        """One SELECT returns everything of a task, ordered by sequence (S3-8.2-a, S3-8.2-c, C-23)."""
        await ledger.append_all([entry(number) for number in range(5)])
        statements.clear()

        trace = await ledger.trace(TASK, verifier=KEYS)

        selects = [statement for statement in statements if statement.startswith("SELECT")]
        selects = [statement for statement in selects if "FROM handoff_audit_checkpoint" not in statement]
        assert len(selects) == 1, "a checkpoint only dates what was read"
        assert re.search(r"ORDER BY record\.sequence$", selects[0])
        assert [record.members["sequence"] for record in trace.records] == [1, 2, 3, 4, 5]

    async def test_a_trace_is_ordered_by_sequence(self, path: Path, options: LedgerOptions) -> None:
        """Equal times and clocks that run backwards change nothing (C-23)."""
        times = iter([NOW, NOW, NOW - timedelta(hours=1), NOW + timedelta(hours=1)])
        async with Ledger(path, replace(options, clock=lambda: next(times))) as opened:
            for number in range(4):
                await opened.append(entry(number, timestamp=NOW - timedelta(hours=number)))
            trace = await opened.trace(TASK, verifier=KEYS)

        assert [record.body["number"] for record in trace.records] == [0, 1, 2, 3]
        assert trace.report.verdict is Verdict.UNANCHORED

    async def test_a_trace_excludes_other_tasks(self, ledger: Ledger) -> None:
        """A trace contains one task."""
        await ledger.append_all([entry(0), entry(0, task_id="another"), entry(1)])

        assert [record.position for record in (await ledger.trace(TASK)).records] == [1, 3]

    async def test_a_trace_includes_rejections_with_their_messages(self, ledger: Ledger) -> None:
        """The document's own query would miss it: it writes no task id (C-22, S3-7.2-i)."""
        refused = handoff_entry(
            message(1), task_id=TASK, status=HandoffStatus.REJECTED, reason="BUDGET_EXHAUSTED", timestamp=NOW
        )
        await ledger.append(refused)

        [record] = (await ledger.trace(TASK)).records
        assert (record.members["reason"], record.body) == ("BUDGET_EXHAUSTED", message(1))

    async def test_an_unknown_task_is_not_valid(self, ledger: Ledger) -> None:
        """Nothing on record proves nothing."""
        trace = await ledger.trace("unknown")

        assert (trace.records, trace.report.verdict, flaw(trace.report)) == ((), UNVERIFIED, Flaw.EMPTY)


class TestTaskCost:
    async def test_the_cost_is_read_from_the_records(self, ledger: Ledger) -> None:
        """Three handoffs and a completion of a task that cost 0.05 USD (C-12, S3-6.2-d)."""
        handoffs = [
            handoff_entry(message(number), task_id=TASK, status=HandoffStatus.ACCEPTED, timestamp=NOW)
            for number in range(3)
        ]
        end = completion_entry({}, cost=AuditCost(spent_micro_usd=50_000))
        await ledger.append_all([*handoffs, end])

        cost = await ledger.task_cost(TASK)

        assert (cost.usd, len(cost.shares), cost.complete) == (Decimal("0.05"), 4, True)


class TestKeys:
    async def test_a_worker_with_other_keys_is_refused_at_start(self, path: Path, options: LedgerOptions) -> None:
        """Otherwise it would append records signed by an unknown key."""
        async with Ledger(path, options) as ledger:
            await ledger.append(entry(0))
        stranger = Key("ed-other")

        with pytest.raises(LedgerKeysError, match=r"'ed-2026-11'.*'ed-other'.*BATON_KEYS"):
            async with Ledger(path, replace(options, signer=stranger)):
                pass
        async with Ledger(path, replace(options, signer=Key("ed-next", KEY))) as ledger:
            assert (await ledger.append(entry(1))).sequence == 2, "a rotated keyring knows the key before"

    async def test_a_chain_signed_by_other_keys_is_not_extended(self, path: Path, options: LedgerOptions) -> None:
        """Not even by a writer that was already open; the error says why."""
        async with (
            Ledger(path, replace(options, signer=Key("ed-next", KEY))) as writer,
            Ledger(path, options) as ledger,
        ):
            await ledger.append(entry(0))
            await writer.append(entry(1))

            with pytest.raises(
                LedgerUnavailableError, match=r"record 2 .*'ed-next' does not count: unknown key.*BATON_KEYS"
            ):
                await ledger.append(entry(2))
            assert (await ledger.append(entry(0, task_id="new"))).sequence == 1, "other tasks are not held up"

    async def test_a_writer_without_keys_adds_nothing_to_a_signed_chain(
        self, path: Path, options: LedgerOptions
    ) -> None:
        """Its records would look like those of a forger without a key."""
        async with Ledger(path, options) as ledger:
            await ledger.append(entry(0))
        async with Ledger(path, replace(options, signer=None)) as ledger:
            with pytest.raises(LedgerUnavailableError, match="has no keys"):
                await ledger.append(entry(1))


class _Returning(Key):
    """A key that is gone for its first checkpoint, as from a keyring under rotation."""

    def __init__(self) -> None:
        super().__init__("ed-2026-11")
        self.signed = [asyncio.Event(), asyncio.Event()]

    def sign(self, statement: bytes) -> bytes:
        if b"ledger-checkpoint" in statement:
            first, second = self.signed
            (second if first.is_set() else first).set()
            if not second.is_set():
                raise KeyringError("the keyring has no current key to sign")
        return super().sign(statement)


async def test_the_witness_task_survives_failures(path: Path, options: LedgerOptions, tmp_path: Path) -> None:
    """An exception from outside the ledger stopped it silently before."""
    witness, key = AnchorFile(tmp_path / "kept.jsonl"), _Returning()
    async with Ledger(path, replace(options, signer=key)) as ledger, ledger.witnessed(witness, every=0):
        await ledger.append(entry(0))
        await key.signed[1].wait()

    assert [checkpoint.size for checkpoint in witness.checkpoints() if checkpoint.size] == [1]


async def test_a_witness_gets_checkpoints_of_all_records(path: Path, options: LedgerOptions, tmp_path: Path) -> None:
    """They are made while the ledger is open and at its end, and reveal a cut without any run (C-26)."""
    witness = AnchorFile(tmp_path / "witness" / "kept.jsonl")
    async with Ledger(path, options) as ledger, ledger.witnessed(witness):
        for number in range(3):
            await ledger.append(entry(number))

    checkpoints = witness.checkpoints()
    async with Ledger(path, options) as ledger:
        ledger_report = await ledger.verify_all(verifier=KEYS, checkpoints=checkpoints)
        chain = await ledger.verify(TASK, verifier=KEYS, checkpoints=checkpoints)
    with opened_past_guards(path) as database:
        database.execute("DELETE FROM handoff_audit WHERE sequence = 3")
        database.execute("DELETE FROM handoff_audit_checkpoint")
    async with Ledger(path, options) as ledger:
        cut = await ledger.verify_all(verifier=KEYS, checkpoints=checkpoints)
        cut_one = await ledger.verify(TASK, verifier=KEYS, checkpoints=checkpoints)

    assert [report.verdict for report in (ledger_report, chain, cut, cut_one)] == [VALID, VALID, INVALID, INVALID]
