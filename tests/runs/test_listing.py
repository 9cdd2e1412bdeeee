"""The query of `list_runs`, and the times that people type."""

from datetime import UTC, datetime

import pytest

from baton.client.faces import parse_moment
from baton.errors import BatonError
from baton.runs.client_list import STATUSES, RunFilter


class TestQuery:
    """A filter in the server's query language."""

    QUESTIONS = (
        pytest.param(
            RunFilter(),
            "BatonPipeline IS NOT NULL AND ExecutionStatus != 'ContinuedAsNew' AND ParentWorkflowId IS NULL",
            id="all pipelines without a parent",
        ),
        pytest.param(
            RunFilter(pipeline="delivery", status="WAITING"),
            "BatonPipeline = 'delivery' AND ExecutionStatus = 'Running' AND TemporalReportedProblems IS NULL AND "
            "BatonStatus = 'WAITING'",
            id="what waits for a person",
        ),
        pytest.param(
            RunFilter(status="PENDING_HANDOFF"),
            "BatonPipeline IS NOT NULL AND ExecutionStatus = 'Running' AND TemporalReportedProblems IS NULL AND "
            "BatonStatus = 'PENDING_HANDOFF'",
            id="a handoff that waits for a person, children included",
        ),
        pytest.param(
            RunFilter(pipeline="p", status="SUSPENDED"),
            "BatonPipeline = 'p' AND ExecutionStatus = 'Running' AND "
            "(TemporalReportedProblems IS NOT NULL OR BatonStatus = 'SUSPENDED')",
            id="code that does not fit, and stages without a worker",
        ),
        pytest.param(
            RunFilter(status="TIMED_OUT", every=True), "ExecutionStatus = 'TimedOut'", id="a status of Temporal's"
        ),
        pytest.param(
            RunFilter(task="t", stage="plan", status="RUNNING", every=True),
            "ExecutionStatus = 'Running' AND TemporalReportedProblems IS NULL AND "
            "(BatonStatus IS NULL OR BatonStatus = 'FAILED') AND BatonStage = 'plan' AND BatonTaskId = 't'",
            id="a task at a stage",
        ),
        pytest.param(
            RunFilter(pipeline="it's", status="FAILED"),
            "BatonPipeline = 'it''s' AND ExecutionStatus = 'Failed'",
            id="a name with a quotation mark",
        ),
        pytest.param(
            RunFilter(every=True, id_prefix="shop"),
            "ExecutionStatus != 'ContinuedAsNew' AND WorkflowId STARTS_WITH 'shop'",
            id="the beginning of an id",
        ),
        pytest.param(
            RunFilter(status=("PAUSED", "FAILED")),
            "BatonPipeline IS NOT NULL AND ((ExecutionStatus = 'Paused') OR "
            "(ExecutionStatus = 'Failed' AND ParentWorkflowId IS NULL))",
            id="several statuses, children where they need a person",
        ),
        pytest.param(
            RunFilter(
                "p", since=datetime(2026, 11, 28, 8, 0, 0, 7, tzinfo=UTC), before=datetime(2026, 11, 29, tzinfo=UTC)
            ),
            "BatonPipeline = 'p' AND ExecutionStatus != 'ContinuedAsNew' AND "
            "(CloseTime IS NULL OR CloseTime >= '2026-11-28T08:00:00+00:00') AND "
            "StartTime < '2026-11-29T00:00:00+00:00'",
            id="open at some time of a day",
        ),
    )

    @pytest.mark.parametrize(("run_filter", "query"), QUESTIONS)
    def test_a_filter_becomes_one_query(self, run_filter: RunFilter, query: str) -> None:
        """Each member is a term."""
        assert run_filter.query() == query

    def test_without_labels_a_pipeline_is_found_by_its_workflow_type(self) -> None:
        """A namespace without Baton's search attributes can still be listed."""
        assert RunFilter(pipeline="p", status="FAILED").query(labelled=False) == (
            "WorkflowType = 'p' AND ExecutionStatus = 'Failed'"
        )

    @pytest.mark.parametrize(
        "run_filter",
        [
            RunFilter(task="t"),
            RunFilter(stage="s"),
            RunFilter(status="WAITING"),
            RunFilter(status="PENDING_HANDOFF"),
            RunFilter(status=("WAITING", "PENDING_HANDOFF")),
        ],
    )
    def test_filters_that_need_labels_are_refused_without_them(self, run_filter: RunFilter) -> None:
        """An empty list would mean "none"."""
        with pytest.raises(BatonError, match="doctor --fix"):
            run_filter.query(labelled=False)

    def test_without_labels_what_waits_is_running(self) -> None:
        """The parts of a list can still be asked for."""
        paused, running = (
            RunFilter(status=statuses).query(labelled=False)
            for statuses in (("WAITING", "PAUSED"), ("RUNNING", "PENDING_HANDOFF"))
        )
        assert paused == "ExecutionStatus = 'Paused'"
        assert running == (
            "ExecutionStatus = 'Running' AND TemporalReportedProblems IS NULL AND ParentWorkflowId IS NULL"
        )

    def test_every_status_has_a_query(self) -> None:
        """Temporal's own statuses, and Baton's."""
        assert {"RUNNING", "WAITING", "COMPLETED", "FAILED", "TERMINATED", "CANCELED", "TIMED_OUT"} <= {*STATUSES}
        assert all(RunFilter(status=status).query() for status in STATUSES)


class TestParseMoment:
    """`parse_moment`."""

    @pytest.mark.parametrize(
        ("text", "moment"),
        [
            ("90m", "2026-11-29T01:30:00+00:00"),
            ("24h", "2026-11-28T03:00:00+00:00"),
            (" 2w ", "2026-11-15T03:00:00+00:00"),
            ("999999w", "1970-01-01T00:00:00+00:00"),
            ("2026-11-27", "2026-11-27T00:00:00+00:00"),
            ("2026-11-27 08:00", "2026-11-27T08:00:00+00:00"),
            ("2026-11-27T08:00+02:00", "2026-11-27T08:00:00+02:00"),
        ],
    )
    def test_a_time_or_an_age(self, text: str, moment: str) -> None:
        """In UTC unless it says otherwise."""
        assert parse_moment(text, datetime(2026, 11, 29, 3, tzinfo=UTC)).isoformat() == moment

    @pytest.mark.parametrize("text", ["soon", "24", "-1h", "2026-13-01", "1y", "0001-01-01T00:00+14:00"])
    def test_anything_else_is_refused(self, text: str) -> None:
        """With the forms that are accepted."""
        with pytest.raises(ValueError, match="24h"):
            parse_moment(text, datetime(2026, 11, 29, tzinfo=UTC))
