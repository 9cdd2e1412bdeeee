"""Tests of `baton.telemetry.verdicts.record_answer` on a meter that stores its updates."""

from datetime import datetime, timedelta
from typing import Any

import pytest
from temporalio.runtime import MetricBuffer, Runtime, TelemetryConfig

from baton.core.outline import Outline
from baton.core.verdict import Code, Receipt, Verdict, rejected
from baton.telemetry.metrics import Metrics, Transport
from baton.telemetry.verdicts import UNKNOWN, record_answer
from tests.handoff.material import EXAMPLE, HANDOFF_ID, TASK_ID

SENT = datetime.fromisoformat(EXAMPLE["timestamp"])


class TestTellAnswer:
    BUFFER = MetricBuffer(10_000)
    RUNTIME = Runtime(telemetry=TelemetryConfig(metrics=BUFFER))

    def told(self, verdict: Verdict, message: dict[str, Any], *, again: bool = False) -> dict[str, list[Any]]:
        """Return what the metrics are told of an answer, made a quarter of a second after the dispatch."""
        self.BUFFER.retrieve_updates()
        receipt = Receipt(
            handoff_id=HANDOFF_ID,
            task_id=TASK_ID,
            digest="sha256:" + "0" * 64,
            verdict=verdict,
            at=SENT + timedelta(seconds=0.25),
            again=again,
        )
        record_answer(Metrics(self.RUNTIME.metric_meter), receipt, Outline.of(message), "score", Transport.SIGNAL)
        matches: dict[str, list[Any]] = {}
        for update in self.BUFFER.retrieve_updates():
            labels = {name: value for name, value in update.attributes.items() if name != "service_name"}
            matches.setdefault(update.metric.name, []).append((labels, update.value))
        return matches

    def test_an_accepted_handoff_is_counted_and_timed(self) -> None:
        """S3-8.1-b, S3-6.5-a: from the sender's dispatch to the receiver's accept, for this pair of agents."""
        pair = {"transport": "signal", "sender": "legal-analysis-agent", "receiver": "score"}

        assert self.told(Verdict(valid=True), EXAMPLE) == {
            "baton_handoffs_total": [({"verdict": "ACCEPTED"}, 1)],
            "baton_handoff_latency_seconds": [(pair, 0.25)],
        }

    @pytest.mark.parametrize("code", Code)
    def test_a_rejected_handoff_is_counted_by_its_code(self, code: Code) -> None:
        """S3-8.1-a, S3-8.1-c: every code is a rejection, and none has a latency: nothing was accepted."""
        pair = {"verdict": code.value, "sender": "legal-analysis-agent", "receiver": "score"}

        assert self.told(rejected(code, "why"), EXAMPLE) == {
            "baton_handoffs_total": [({"verdict": code.value}, 1)],
            "baton_handoff_rejections_total": [(pair, 1)],
        }

    @pytest.mark.parametrize("verdict", [Verdict(valid=True), rejected(Code.SCHEMA_INVALID, "why")])
    def test_an_answer_that_was_on_record_before_is_not_counted_again(self, verdict: Verdict) -> None:
        """It was counted when it was given."""
        assert self.told(verdict, EXAMPLE, again=True) == {}

    def test_a_message_that_was_not_verified_has_no_sender(self) -> None:
        """Its names cannot be trusted, so they are not counted."""
        recorded = self.told(rejected(Code.SIGNATURE_INVALID, "why"), {})

        assert [labels["sender"] for labels, _ in recorded["baton_handoff_rejections_total"]] == [UNKNOWN]
