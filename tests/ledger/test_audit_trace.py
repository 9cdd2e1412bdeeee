"""A task's trace: what a regulator asks for (EAAPL-MAG006 §12.1)."""

from dataclasses import replace
from decimal import Decimal

import pytest

from baton.core.verdict import HandoffStatus
from baton.ledger.chain import Flaw, Verdict
from baton.ledger.entries import Trace, handoff_entry
from baton.ledger.records import AuditCost, AuditEntry, AuditRecord, Kind
from tests.ledger.material import KEYS, NOW, TASK, chain, completion_entry, entry, message
from tests.ledger.proving import named, verify


def traced(records: list[AuditRecord]) -> Trace:
    return Trace(TASK, tuple(records), verify(records, verifier=KEYS))


HAPPY = chain(
    entries=[
        *(
            handoff_entry(message(number), task_id=TASK, status=HandoffStatus.ACCEPTED, timestamp=NOW)
            for number in range(3)
        ),
        completion_entry(
            {"summary": "Low risk"},
            agent="agent-3",
            cost=AuditCost(spent_micro_usd=50_000, remaining_micro_usd=350_000),
        ),
    ]
)


class TestTrace:
    def test_the_trace_shows_inputs_and_output(self) -> None:
        """Received, concluded, order, total cost, final output (S3-12.1-a, S3-6.2-c, S3-6.2-f)."""
        trace = traced(HAPPY)

        assert [record.body["currentState"] for record in trace.handoffs] == [
            {"clauses": [number]} for number in range(3)
        ]
        assert [header.to_agent for header in trace.headers[:3]] == ["agent-1", "agent-2", "agent-3"]
        assert trace.output == {"summary": "Low risk"}
        assert trace.cost.usd == Decimal("0.05")
        assert trace.report.verdict is Verdict.UNANCHORED

    def test_the_output_is_the_last_completion(self) -> None:
        """Each completion is on record; if the last agent failed, there is no output (S3-12.1-a)."""
        returns = [entry(n, kind=Kind.COMPLETION, status="RETURNED", message={"output": n}) for n in range(2)]
        failed = entry(2, kind=Kind.COMPLETION, status="FAILED", message={})

        assert traced(chain(entries=returns)).output == {"output": 1}
        assert traced(chain(entries=[*returns, failed])).output is None
        assert traced(chain(entries=[failed, returns[1]])).output == {"output": 1}

    @pytest.mark.parametrize(
        ("forged", "flaw"),
        [
            pytest.param(entry(3).model_copy(update={"kind": "no word"}), Flaw.HEADER, id="a kind that is no word"),
            pytest.param(entry(3, message=b"{]"), Flaw.MESSAGE, id="a message that is not JSON"),
        ],
    )
    def test_an_unreadable_forged_record_hides_no_other(self, forged: AuditEntry, flaw: Flaw) -> None:
        """Its hashes are correct, as a forger can make them without keys; the trace works anyway (C-26)."""
        records = chain(entries=[entry(0), entry(1), forged, entry(4)], signer=None)
        trace = traced(records)

        assert named(trace.report) == (Verdict.INVALID, 3, flaw)
        assert [record["eventId"] for record in trace.to_json_object()["records"]] == ["handoff-0", "handoff-1"]
        assert trace.cost.micro_usd == 20_000

    def test_a_pipeline_of_four_has_three_accepted_handoffs(self) -> None:
        """Rejections, roll-backs and the completion have other kinds or statuses (C-50, S3-13.3-a)."""
        records = chain(
            entries=[
                entry(0),
                entry(1, status=HandoffStatus.REJECTED),
                entry(1, kind=Kind.ROLLBACK, status="PENDING_HANDOFF"),
                entry(1, attempt=2),
                entry(2),
                entry(3, kind=Kind.COMPLETION, status="COMPLETED"),
            ]
        )

        assert [record.members["eventId"] for record in traced(records).handoffs] == [
            "handoff-0",
            "handoff-1",
            "handoff-2",
        ]

    def test_the_trace_ends_before_the_first_bad_record(self) -> None:
        """The bad record is still available for inspection."""
        broken = [*HAPPY[:2], replace(HAPPY[2], message=b"{}"), HAPPY[3]]

        trace = traced(broken)

        assert (len(trace.linked), len(trace.records), named(trace.report)[1]) == (2, 4, 3)
        assert (trace.output, trace.cost.usd) == (None, Decimal("0.02"))

    def test_the_trace_has_a_json_form(self) -> None:
        """It has header and message of each record, the cost and the report (S3-12.1-a)."""
        trace = traced(HAPPY).to_json_object()

        assert [record["sequence"] for record in trace["records"]] == [1, 2, 3, 4]
        assert trace["records"][3]["message"] == {"summary": "Low risk"}
        assert (trace["report"]["verdict"], trace["cost"]["microUsd"]) == (Verdict.UNANCHORED, 50_000)
