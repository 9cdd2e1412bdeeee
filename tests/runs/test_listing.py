"""The query of `list_runs`."""

import pytest

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
            "BatonPipeline = 'delivery' AND ExecutionStatus = 'Running' AND BatonStatus = 'WAITING'",
            id="what waits for a person",
        ),
        pytest.param(
            RunFilter(status="PENDING_HANDOFF"),
            "BatonPipeline IS NOT NULL AND ExecutionStatus = 'Running' AND BatonStatus = 'PENDING_HANDOFF'",
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
            "ExecutionStatus = 'Running' AND BatonStage = 'plan' AND BatonTaskId = 't'",
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
        [RunFilter(task="t"), RunFilter(stage="s"), RunFilter(status="WAITING"), RunFilter(status="PENDING_HANDOFF")],
    )
    def test_filters_that_need_labels_are_refused_without_them(self, run_filter: RunFilter) -> None:
        """An empty list would mean "none"."""
        with pytest.raises(BatonError, match="doctor --fix"):
            run_filter.query(labelled=False)

    def test_every_status_has_a_query(self) -> None:
        """Temporal's own statuses, and Baton's."""
        assert {"RUNNING", "WAITING", "COMPLETED", "FAILED", "TERMINATED", "CANCELED", "TIMED_OUT"} <= {*STATUSES}
        assert all(RunFilter(status=status).query() for status in STATUSES)
