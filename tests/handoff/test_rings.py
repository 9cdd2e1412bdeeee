"""The ping-pong guard between pipelines: an unchanged task is not handed around for ever."""

from itertools import count
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from temporalio.client import WorkflowFailureError

from baton.core.messages import PipelineInput
from baton.devserver import DevServer
from baton.exchange.activity import EXCHANGE_ACTIVITIES
from baton.handoff.store_safeguards import Safeguards
from baton.plugin import BatonPlugin
from baton.testing import assert_replays
from tests.handoff.rings import HandsRound, look
from tests.support import LIMIT, sealing_worker


@pytest.mark.parametrize(
    ("ring", "child", "handed_on"),
    [
        pytest.param(["write", "review"], False, 5, id="two"),
        pytest.param(["write", "review", "test"], False, 7, id="three"),
        pytest.param(["write", "review"], True, 5, id="two by way of child pipelines"),
    ],
)
async def test_an_unchanged_loop_ends_at_the_third_time(
    server: DevServer, tmp_path: Path, ring: list[str], child: bool, handed_on: int
) -> None:
    """With any number of agents, and whether a pipeline or its child hands on."""
    safeguards, id = Safeguards.development(tmp_path), f"ring-{uuid4()}"
    async with sealing_worker(server, safeguards, [HandsRound], [look, *EXCHANGE_ACTIVITIES]) as worker:
        params: Any = {"ring": ring, "nth": 0, "id": id, "child": child}
        start_input = PipelineInput(goal="Look at it", params=params)
        handle = await worker.client.start_workflow(
            HandsRound.run, start_input, id=f"{id}-0", task_queue=worker.task_queue, execution_timeout=LIMIT
        )
        for nth in count(1):
            try:
                await handle.result()
            except WorkflowFailureError as error:
                text = str(getattr(error.cause, "message", error.cause))
                break
            await assert_replays(handle, [HandsRound], plugin=BatonPlugin(safeguards=safeguards))
            handle = worker.client.get_workflow_handle_for(HandsRound.run, f"{id}-{nth}")

    assert f"would hand the same state to {ring[handed_on % len(ring)]!r} more than 2 times" in text
    assert nth == handed_on
