"""The ledger as its users see it, in a SQLite file."""

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
from baton.keys.store_keys import KeyringError
from baton.ledger.chain import Claim, Flaw, Verdict, from_base64url
from baton.ledger.entries import RedactionPolicy, handoff_entry, redact
from baton.ledger.records import (
    AuditCost,
    Kind,
    LedgerConflictError,
    LedgerError,
    LedgerKeysError,
    LedgerUnavailableError,
)
from baton.ledger.store import Ledger, LedgerOptions
from baton.ledger.store_evidence import AnchorFile
from baton.testing import opened_past_guards
from tests.ledger.material import KEY, KEYS, NOW, TASK, Key, completion_entry, entry, message

VALID, UNANCHORED, UNVERIFIED, INVALID = Verdict.VALID, Verdict.UNANCHORED, Verdict.UNVERIFIED, Verdict.INVALID


@pytest.fixture
def statements(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return every statement that SQLite executes from now on, as they come."""
    statements: list[str] = []
    connect = sqlite3.connect

    def traced(*args: Any, **options: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = connect(*args, **options)
        connection.set_trace_callback(statements.append)
        return connection

    monkeypatch.setattr(sqlite3, "connect", traced)
    return statements


def files(folder: Path) -> list[Path]:
    return list(folder.iterdir())


def write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


class TestAppend:
    async def test_it_gives_the_head_to_be_anchored(self, ledger: Ledger) -> None:
        """Each append gives the sequence, the hash and the signature of the chain's new end (C-26)."""
        first, second = await ledger.append(entry(0)), await ledger.append(entry(1))

        assert [(head.sequence, head.task_id, head.ledger) for head in (first, second)] == [
            (1, TASK, "baton"),
            (2, TASK, "baton"),
        ]
        claim = Claim(KEY.key_id, second.statement, from_base64url(second.signature or ""), NOW)
        assert KEYS.check([claim]) == ["good"]
        assert await ledger.head(TASK) == second

    async def test_it_is_durable_when_it_returns(self, ledger: Ledger, path: Path) -> None:
        """Another process sees the record at once: it is written before the receiver begins (S3-6.2-a, P9)."""
        head = await ledger.append(entry(0))

        async with Ledger(path, LedgerOptions()) as reader:
            assert await reader.head(TASK) == head

    async def test_the_same_event_is_recorded_once(self, ledger: Ledger) -> None:
        """A retry after a lost answer gives the first head again, also when more has happened since (C-25)."""
        first = await ledger.append(entry(0))
        await ledger.append(entry(1))

        assert await ledger.append(entry(0)) == first
        assert len((await ledger.trace(TASK)).records) == 2

    async def test_a_later_retry_may_come_at_another_time(self, ledger: Ledger) -> None:
        """What makes an event the same is its id, attempt, status, kind and message, not its time."""
        first = await ledger.append(entry(0))

        assert await ledger.append(entry(0, timestamp=NOW + timedelta(hours=1), details="again")) == first

    async def test_each_attempt_and_status_is_an_event_of_its_own(self, ledger: Ledger) -> None:
        """(handoffId, attempt, status) is what is unique, kinds apart (C-20, C-25, C-50)."""
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

    async def test_several_are_recorded_together_or_not_at_all(self, ledger: Ledger) -> None:
        """One that conflicts takes those of its own call with it, and those of no other."""
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

    async def test_nothing_to_append_is_nothing(self, ledger: Ledger) -> None:
        """An empty list asks for no transaction."""
        assert await ledger.append_all([]) == []

    async def test_it_may_be_tied_to_what_the_caller_knows(self, ledger: Ledger) -> None:
        """A chain that no longer has the anchored head takes no further record (T3: restart after truncation)."""
        head = await ledger.append(entry(0))
        assert (await ledger.append(entry(1), after=head)).sequence == 2

        for unknown in (
            head.model_copy(update={"record_hash": "sha256:" + "0" * 64}),
            head.model_copy(update={"sequence": 9}),
            head.model_copy(update={"ledger": "test"}),
        ):
            with pytest.raises(LedgerError, match="no longer has the record"):
                await ledger.append(entry(2), after=unknown)

    async def test_an_unsigned_ledger_says_that_it_is(self, path: Path) -> None:
        """Without a key the chain is unverified, unless an anchor proves it."""
        async with Ledger(path) as plain:
            head = await plain.append(entry(0))

            assert (await plain.verify(TASK, verifier=KEYS)).verdict is UNVERIFIED
            assert (await plain.verify(TASK, expected_head=head)).verdict is VALID

    async def test_a_message_that_is_no_json_is_refused(self, ledger: Ledger) -> None:
        """It could not be read back as it was written; the caller records its text instead."""
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
        """What the ledger would never forget does not get in; the error names the place, not the value (C-24)."""
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
    async def test_a_policy_is_the_same_for_bytes(
        self, path: Path, options: LedgerOptions, pointer: str, given: dict[str, Any]
    ) -> None:
        """The quick look at a message's bytes overlooks no name that the policy has (S3-6.2-b)."""
        async with Ledger(path, replace(options, policy=RedactionPolicy(frozenset({pointer})))) as ledger:
            for message in (given, rfc8785.dumps(given)):
                with pytest.raises(LedgerError, match="personal data in clear"):
                    await ledger.append(entry(0, message=message))

    async def test_a_redacted_message_is_taken(self, ledger: Ledger) -> None:
        """Commitments may be recorded, as an object or as bytes (S3-6.2-b)."""
        redacted = redact({"personalDataPayload": {"email": "a@b.c"}}, RedactionPolicy(), lambda pointer: b"s" * 16)

        await ledger.append(entry(0, message=redacted))
        await ledger.append(entry(1, message=rfc8785.dumps(redacted)))

        assert (await ledger.verify(TASK, verifier=KEYS)).records == 2

    async def test_a_cancelled_caller_disturbs_nobody(self, ledger: Ledger) -> None:
        """Its record may or may not be there; those of others are."""
        given_up = asyncio.create_task(ledger.append(entry(0)))
        appends = [asyncio.create_task(ledger.append(entry(number))) for number in range(1, 4)]
        await asyncio.sleep(0)
        given_up.cancel()

        heads = await asyncio.gather(*appends)

        assert len({head.sequence for head in heads}) == 3
        assert await ledger.verify(TASK, verifier=KEYS, anchors=heads)


class TestOpen:
    async def test_a_ledger_keeps_its_name(self, ledger: Ledger, path: Path, options: LedgerOptions) -> None:
        """Whoever opens it under another name is told, before a record of a test gets into production."""
        await ledger.append(entry(0))

        with pytest.raises(LedgerError, match=r"is named 'baton', not 'test'.* `--ledger-name`"):
            async with Ledger(path, replace(options, name="test")):
                pass

    @pytest.mark.skipif(sys.platform == "win32", reason="Windows has other permissions")
    async def test_its_file_is_its_owners_only(self, ledger: Ledger, path: Path) -> None:
        """Every message is in it, and in the log beside it."""
        await ledger.append(entry(0))

        assert {stat.S_IMODE(file.stat().st_mode) for file in files(path.parent)} == {0o600}

    async def test_several_workers_may_make_it_at_once(self, tmp_path: Path) -> None:
        """Whoever opens a new file while another one is writing to it waits; SQLite by itself would give up."""
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

    async def test_an_auditor_does_not_make_a_ledger_by_looking(self, tmp_path: Path) -> None:
        """A path that was mistyped is an error, and not an empty ledger with nothing wrong."""
        with pytest.raises(LedgerUnavailableError, match="there is no ledger"):
            async with Ledger(tmp_path / "typo.db", LedgerOptions(create=False)):
                pass
        assert not (tmp_path / "typo.db").exists()

    async def test_a_file_that_is_no_ledger_is_refused(self, path: Path) -> None:
        """Nothing is written over."""
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
    async def test_it_is_one_query(self, statements: list[str], ledger: Ledger) -> None:
        """Given a task id, everything comes with one SELECT, ordered by sequence (S3-8.2-a, S3-8.2-c, C-23)."""
        await ledger.append_all([entry(number) for number in range(5)])
        statements.clear()

        trace = await ledger.trace(TASK, verifier=KEYS)

        selects = [statement for statement in statements if statement.startswith("SELECT")]
        assert len(selects) == 1
        assert re.search(r"ORDER BY record\.sequence$", selects[0])
        assert [record.members["sequence"] for record in trace.records] == [1, 2, 3, 4, 5]

    async def test_order_is_the_chains_and_not_the_clocks(self, path: Path, options: LedgerOptions) -> None:
        """Ties and clocks that run backwards change nothing (C-23)."""
        times = iter([NOW, NOW, NOW - timedelta(hours=1), NOW + timedelta(hours=1)])
        async with Ledger(path, replace(options, clock=lambda: next(times))) as opened:
            for number in range(4):
                await opened.append(entry(number, timestamp=NOW - timedelta(hours=number)))
            trace = await opened.trace(TASK, verifier=KEYS)

        assert [record.body["number"] for record in trace.records] == [0, 1, 2, 3]
        assert trace.report.verdict is Verdict.UNANCHORED

    async def test_other_tasks_are_left_out(self, ledger: Ledger) -> None:
        """A trace is of one task."""
        await ledger.append_all([entry(0), entry(0, task_id="another"), entry(1)])

        assert [record.position for record in (await ledger.trace(TASK)).records] == [1, 3]

    async def test_a_rejection_is_in_it_with_its_whole_message(self, ledger: Ledger) -> None:
        """The document's own query would miss it: it writes no task id (C-22, S3-7.2-i)."""
        refused = handoff_entry(
            message(1), task_id=TASK, status=HandoffStatus.REJECTED, reason="BUDGET_EXHAUSTED", timestamp=NOW
        )
        await ledger.append(refused)

        [record] = (await ledger.trace(TASK)).records
        assert (record.members["reason"], record.body) == ("BUDGET_EXHAUSTED", message(1))

    async def test_a_task_that_nobody_knows_is_not_valid(self, ledger: Ledger) -> None:
        """Nothing on record proves nothing."""
        trace = await ledger.trace("unknown")

        assert (trace.records, trace.report.verdict, trace.report.flaw) == ((), UNVERIFIED, Flaw.EMPTY)


class TestTaskCost:
    async def test_it_is_read_from_the_records(self, ledger: Ledger) -> None:
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
    async def test_a_worker_with_other_keys_is_refused_when_it_starts(self, path: Path, options: LedgerOptions) -> None:
        """It worked unnoticed, and spoilt the ledger: what it appended was signed by a key that nobody knows."""
        async with Ledger(path, options) as ledger:
            await ledger.append(entry(0))
        stranger = Key("ed-other")

        with pytest.raises(LedgerKeysError, match=r"'ed-2026-11'.*'ed-other'.*BATON_KEYS"):
            async with Ledger(path, replace(options, signer=stranger)):
                pass
        async with Ledger(path, replace(options, signer=Key("ed-next", KEY))) as ledger:
            assert (await ledger.append(entry(1))).sequence == 2, "a rotated keyring knows the key before"

    async def test_what_other_keys_signed_is_not_extended(self, path: Path, options: LedgerOptions) -> None:
        """Nor by a writer that was open before the other one came: nothing is recorded, and it says why."""
        async with (
            Ledger(path, replace(options, signer=Key("ed-next", KEY))) as writer,
            Ledger(path, options) as ledger,
        ):
            await ledger.append(entry(0))
            await writer.append(entry(1))

            with pytest.raises(LedgerUnavailableError, match=r"record 2 .*'ed-next': unknown key.*BATON_KEYS"):
                await ledger.append(entry(2))
            assert (await ledger.append(entry(0, task_id="new"))).sequence == 1, "other tasks are not held up"

    async def test_a_writer_without_keys_adds_nothing_to_a_signed_chain(
        self, path: Path, options: LedgerOptions
    ) -> None:
        """What it would add could not be told from what somebody without a key forged."""
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


async def test_a_witness_outlives_whatever_fails(path: Path, options: LedgerOptions, tmp_path: Path) -> None:
    """It was silent from then on: what failed was not of the ledger, and was not even logged."""
    witness, key = AnchorFile(tmp_path / "kept.jsonl"), _Returning()
    async with Ledger(path, replace(options, signer=key)) as ledger, ledger.witnessed(witness, every=0):
        await ledger.append(entry(0))
        await key.signed[1].wait()

    assert witness.checkpoints()[-1].size == 1


async def test_a_witness_keeps_a_checkpoint_of_all_that_was_recorded(
    path: Path, options: LedgerOptions, tmp_path: Path
) -> None:
    """Made while the ledger is open and when it is closed, so that a cut shows without any run (C-26)."""
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
