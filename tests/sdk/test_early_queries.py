"""How long a client asks again."""

from datetime import timedelta
from typing import Any

import pytest
from temporalio.client import OutboundInterceptor, QueryWorkflowInput, WorkflowQueryFailedError

from baton.sdk.early_queries import ASK_AGAIN, AskingAgain


class Refuses(OutboundInterceptor):
    """What a server answers that has only refusals."""

    def __init__(self, why: str) -> None:
        self.why = why
        self.asked = 0

    async def query_workflow(self, input: QueryWorkflowInput) -> Any:
        self.asked += 1
        raise WorkflowQueryFailedError(self.why)


@pytest.mark.parametrize(
    ("why", "times"),
    [
        pytest.param(ASK_AGAIN, 4, id="in vain"),  # after pauses of 0.05, 0.1 and 0.2 seconds
        pytest.param("its code fails", 1, id="for another reason"),
    ],
)
async def test_it_is_not_asked_for_longer_than_an_answer_would_be_awaited(why: str, times: int) -> None:
    """The refusal is the caller's then; and any other is at once."""
    refuses, within = Refuses(why), timedelta(seconds=0.3)
    asked = QueryWorkflowInput("run", None, "status", [], None, {}, None, {}, within)
    with pytest.raises(WorkflowQueryFailedError, match=why):
        await AskingAgain().intercept_client(refuses).query_workflow(asked)
    assert refuses.asked == times
