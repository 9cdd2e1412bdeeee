"""The audit record: its bytes, its hash, and how strictly it is read."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from baton.errors import MalformedMessageError
from baton.ledger.records import (
    AuditCost,
    AuditEntry,
    AuditRecord,
    ChainLink,
    Claims,
    header_members,
    next_record,
    record_hash,
    stamp,
)
from baton.wire.json_values import format_digest, pae, parse_digest
from tests.ledger.material import LEDGER, NOW, TASK, chain, entry

PAE = json.loads((Path(__file__).parents[1] / "data" / "dsse" / "pae.json").read_text())
GENESIS = ChainLink.genesis(LEDGER, TASK)
OLD, DAY, HOURS = datetime(1000, 1, 1), datetime(2026, 11, 21), timedelta(hours=20)  # noqa: DTZ001 - zones are drawn
ZONES = st.timezones()

names = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x7f", min_codepoint=0x20), min_size=1)
numbers = st.integers(0, 2**53 - 1)
costs = st.builds(
    lambda **members: AuditCost(**members),
    spent_micro_usd=numbers,
    remaining_micro_usd=st.none() | numbers,
    prompt_tokens=numbers,
)
entries = st.builds(
    lambda **members: AuditEntry(**members),
    kind=st.sampled_from(["handoff", "completion", "rollback"]),
    task_id=st.just(TASK),
    event_id=names.filter(lambda text: len(text) < 200),
    attempt=st.integers(1, 2**53 - 1),
    status=st.just("ACCEPTED"),
    timestamp=st.datetimes(timezones=st.just(UTC)),
    from_agent=st.none() | names.filter(lambda text: len(text) < 200),
    details=st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=40),
    cost=st.none() | costs,
    message=st.dictionaries(names, names | st.booleans() | st.none()),
)


class TestEventKey:
    def test_attempt_execution_and_conflict_are_parts_that_no_id_imitates(self) -> None:
        """A sender chooses the id of a handoff, and must not occupy the place of another event (C-25)."""
        conflict = "sha256:" + "0" * 64
        others = [
            entry(attempt=11),
            entry(attempt=1, execution=11),
            entry(attempt=1, conflict=conflict),
            entry(event_id=f".{conflict}/handoff-0"),
            entry(event_id="1.1/handoff-0"),
        ]

        assert len({entry().event_key, *(event.event_key for event in others)}) == len(others) + 1
        assert [record.fields.conflict for record in chain(entries=others[1:3])] == [None, conflict]


class TestSeal:
    @given(event=entries)
    def test_the_header_is_canonical_json(self, event: AuditEntry) -> None:
        """For any entry the header is the RFC 8785 form of its members."""
        record = next_record(event, GENESIS, recorded_at=NOW, key_id="k")

        assert record.header == rfc8785.dumps(json.loads(record.header))
        assert record.members == json.loads(record.header)
        assert record.message == rfc8785.dumps(event.message)

    def test_the_header_has_every_member_of_the_document(self) -> None:
        """Agents, status, cost, time, the previous record's hash, the full message.

        S3-10.3-a, S3-6.2-h, S3-7.2-k, C-22.
        """
        first, second = chain(2)

        header = second.fields
        assert (header.task_id, header.sequence, header.attempt, header.status) == (TASK, 2, 1, "ACCEPTED")
        assert (header.from_agent, header.to_agent, header.event_id) == ("agent-1", "agent-2", "handoff-1")
        assert header.previous_record_hash == format_digest(first.hash)
        assert header.cost is not None
        assert header.cost.spent_micro_usd == 20_000
        assert header.timestamp == NOW
        assert second.body == {"number": 1}

    def test_the_first_record_names_the_genesis_of_its_own_chain(self) -> None:
        """No chain of another task or ledger can continue it (C-26, P6)."""
        other_hashes = {
            ChainLink.genesis("test", TASK).record_hash,
            ChainLink.genesis(LEDGER, "another task").record_hash,
        }

        assert chain(1)[0].fields.previous_record_hash == format_digest(GENESIS.record_hash)
        assert GENESIS.record_hash not in other_hashes
        assert len(other_hashes) == 2

    def test_time_never_goes_back(self) -> None:
        """With a slow clock a record gets the time of the one before it (C-23)."""
        link = replace(GENESIS, sequence=1, recorded_at=stamp(NOW))

        record = next_record(entry(), link, recorded_at=NOW - timedelta(hours=1), key_id=None)

        assert record.members["recordedAt"] == stamp(NOW)

    def test_an_entry_of_another_task_is_refused(self) -> None:
        """A record belongs to its own task's chain."""
        with pytest.raises(ValueError, match="does not belong to the chain of"):
            next_record(entry(task_id="another"), GENESIS, recorded_at=NOW, key_id=None)

    def test_a_message_without_a_json_form_is_refused(self) -> None:
        """Two readers could read two numbers (security.md T8)."""
        with pytest.raises(rfc8785.CanonicalizationError):
            next_record(entry(message={"n": 2**53}), GENESIS, recorded_at=NOW, key_id=None)

    def test_bytes_are_used_as_the_canonical_message(self) -> None:
        """A caller that has already canonicalised a message does not pay for it twice."""
        message = {"b": 1, "a": 0.1}

        given_bytes = next_record(entry(message=rfc8785.dumps(message)), GENESIS, recorded_at=NOW, key_id=None)

        assert given_bytes.hash == next_record(entry(message=message), GENESIS, recorded_at=NOW, key_id=None).hash

    def test_bytes_with_line_breaks_are_refused(self) -> None:
        """Canonical JSON has none, and evidence files consist of lines."""
        with pytest.raises(ValueError, match="line breaks"):
            entry(message=b'{\n"a":1}').message_bytes()


class TestEntry:
    def test_it_survives_json(self) -> None:
        """A workflow can pass an entry to an activity."""
        event = entry(attempt=2, reason="SCHEMA_INVALID", details="no taskId", actor="reviewer-7", run_id="run-1")

        assert AuditEntry.model_validate_json(event.model_dump_json()) == event

    @pytest.mark.parametrize(
        "members",
        [
            pytest.param({"task_id": ""}, id="no task"),
            pytest.param({"task_id": "a\x00b"}, id="a NUL, which no database column takes"),
            pytest.param({"event_id": "x" * 256}, id="an endless id"),
            pytest.param({"attempt": 0}, id="no attempt"),
            pytest.param({"attempt": True}, id="a boolean for a number"),
            pytest.param({"timestamp": datetime(2026, 11, 21)}, id="a time without offset"),  # noqa: DTZ001
            pytest.param({"status": "not a word"}, id="a sentence for a status"),
            pytest.param({"from_agent": "\ud800"}, id="half a character"),
            pytest.param({"cost": {"spent_micro_usd": 0.1}}, id="a fraction of the smallest amount"),
        ],
    )
    def test_an_entry_without_a_faithful_record_is_refused(self, members: dict[str, Any]) -> None:
        """A record never says less than its entry, nor anything else (C-48)."""
        with pytest.raises(ValidationError):
            entry(**members)


class TestRecordHash:
    def test_every_byte_of_the_header_changes_the_hash(self) -> None:
        """Any bit of the header changes the hash, including sequence and previous hash (C-26)."""
        header = chain(1)[0].header
        flipped = (
            bytes([*header[:index], header[index] ^ 1 << bit, *header[index + 1 :]])
            for index in range(len(header))
            for bit in range(8)
        )

        assert record_hash(header) not in {record_hash(mutant) for mutant in flipped}

    def test_records_are_hashed_with_their_own_prefix(self) -> None:
        """The same bytes for another purpose have another hash, so a signature cannot be reused."""
        assert pae("baton/audit-head/v1", b"{}") != pae("baton/audit-record/v1", b"{}")

    def test_the_encoding_is_that_of_dsse(self) -> None:
        """The published example of the pre-authentication encoding (security.md 2.1)."""
        assert pae(PAE["payloadType"], PAE["payload"].encode()) == PAE["pae"].encode()

    @pytest.mark.parametrize("digest", ["", "sha256:", "sha256:00", "sha1:" + "0" * 64, "md5"])
    def test_a_malformed_digest_is_refused(self, digest: str) -> None:
        """An anchor that is not a SHA-256 matches no record."""
        assert parse_digest(digest) == b""


HEADER = chain(1)[0].header


class TestHeaderMembers:
    @pytest.mark.parametrize(
        "header",
        [
            pytest.param(HEADER.replace(b'"attempt":1', b'"attempt":1,"attempt":2'), id="a member twice"),
            pytest.param(HEADER.replace(b'"attempt":1', b'"attempt":2,"attempt":1'), id="a member twice, last kept"),
            pytest.param(HEADER.replace(b'"attempt":1', b'"attempt":1.0'), id="a number in another spelling"),
            pytest.param(HEADER.replace(b'"attempt":1', b'"attempt": 1'), id="a blank"),
            pytest.param(HEADER.replace(b"agent-0", b"\\u0061gent-0"), id="a character in another spelling"),
            pytest.param(HEADER.replace(b"agent-0", b"\\ud800gent-0"), id="half a character"),
            pytest.param(HEADER.replace(b'"attempt":1', b'"attempt":1,"author":"x"'), id="a member it does not know"),
            pytest.param(HEADER.replace(b'"attempt":1,', b""), id="a member missing"),
            pytest.param(HEADER.replace(b"baton.audit/2", b"baton.audit/1"), id="another format"),
            pytest.param(HEADER.replace(b'"cost":{', b'"cost":{"a":1,'), id="an unknown member of the cost"),
            pytest.param(HEADER.replace(b'"recordedAt":"2026-11-21', b'"recordedAt":"2026-13-21'), id="no time"),
            pytest.param(HEADER.replace(b"00.000000Z", b"00.000000z"), id="a time in another spelling"),
            pytest.param(HEADER.replace(b'"sequence":1', b'"sequence":true'), id="a boolean for a number"),
            pytest.param(HEADER.replace(b'"kind":"handoff"', b'"kind":1'), id="a number for a text"),
            pytest.param(HEADER.replace(b'"taskId":"', b'"taskId":null,"x":"'), id="nothing for a text"),
            pytest.param(HEADER[1:-1], id="no object"),
            pytest.param(b"[1]", id="a list"),
            pytest.param(b"", id="nothing"),
            pytest.param(b"\xff", id="no text"),
        ],
    )
    def test_other_json_spellings_are_refused(self, header: bytes) -> None:
        """Parsers that take the first of two members, or round numbers, never see another record (security.md T8)."""
        with pytest.raises(ValueError, match=r"\w"):
            header_members(header)

    def test_members_in_another_order_are_refused(self) -> None:
        """One record has one spelling."""
        members = json.loads(HEADER)
        backwards = json.dumps(dict(reversed(members.items())), separators=(",", ":")).encode()

        with pytest.raises(ValueError, match="not the header"):
            header_members(backwards)


class TestBody:
    def test_a_message_with_duplicate_members_is_refused(self) -> None:
        """A parser that keeps the last member would show another message than the hashed one (security.md T8)."""
        record = AuditRecord(HEADER, b'{"approved":false,"approved":true}')

        with pytest.raises(MalformedMessageError, match="appears twice"):
            _ = record.body


class TestClaims:
    def test_the_index_repeats_the_header(self) -> None:
        """Each index column has one correct value."""
        record = chain(1)[0]

        assert Claims.of(record.members) == Claims(
            TASK,
            1,
            GENESIS.record_hash,
            entry().event_key,
            parse_digest(record.fields.message_hash),
            stamp(NOW),
            "ed-2026-11",
        )


class TestStamp:
    # Most of a list are of one day: moments that are a year apart are ordered rightly with their zones dropped, too.
    @given(moments=st.lists(st.datetimes(OLD, timezones=ZONES) | st.datetimes(DAY, DAY + HOURS, timezones=ZONES)))
    def test_stamps_sort_by_time(self, moments: list[datetime]) -> None:
        """Comparing strings compares times, in any time zone (C-23)."""
        moments = [moment for moment in moments if moment.year < 9998]

        assert sorted(map(stamp, moments)) == [stamp(moment) for moment in sorted(moments)]

    def test_a_time_without_offset_is_refused(self) -> None:
        """It would be ambiguous by up to 26 hours."""
        with pytest.raises(ValueError, match="offset"):
            stamp(datetime(2026, 11, 21))  # noqa: DTZ001

    def test_it_is_in_utc(self) -> None:
        """An offset is converted, not dropped."""
        assert stamp(datetime(2026, 11, 21, 12, tzinfo=timezone(timedelta(hours=2)))) == "2026-11-21T10:00:00.000000Z"
