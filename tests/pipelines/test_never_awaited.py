"""A step that is called and never awaited fails the run."""

from types import ModuleType
from typing import Any

import pytest
from temporalio.client import WorkflowFailureError
from temporalio.worker import Worker

from baton import Pipeline, pipeline
from baton.testing import assert_replays
from baton.worker import SettingError, collect_served
from tests.pipelines.mishaps import Careless, NeverAwaits, NeverHandsOn
from tests.pipelines.stages import FIRST_NAMESAKES, NAMESAKES
from tests.support import failure, start

CALLS = [
    (NeverAwaits, "stage", "Pipeline.stage(review)"),
    (NeverAwaits, "fan_out", "Pipeline.fan_out(check, document)"),
    (NeverAwaits, "approve", "Pipeline.approve('release manager')"),
    (NeverAwaits, "sleep", "Pipeline.sleep("),
    (NeverAwaits, "child", "Pipeline.child('Linear', 'Do the first half')"),
    (NeverAwaits, "run", "Compensations.run()"),
    (NeverHandsOn, "hand_off", "Exchange.hand_off(Receiver(workflow_id='nobody', agent='risk'"),
    (NeverHandsOn, "receive", "Exchange.receive(ReceiverRequirements("),
    (NeverHandsOn, "to all", "hand_off_to_all([Receiver(workflow_id='nobody'"),
    (NeverHandsOn, "outside", "Outside.hand_off('reviewer', 'Review')"),
    (NeverHandsOn, "send", "Streams.send(Receiver(workflow_id='nobody'"),
    (NeverHandsOn, "receive a stream", "Streams.receive(ReceiverRequirements("),
]


@pipeline(name="Careless")
async def careless(p: Pipeline) -> None:
    """Do nothing, under a name that another has."""


@pytest.mark.parametrize(("pipeline", "which", "call"), CALLS)
async def test_the_run_fails_and_names_the_call(worker: Worker, pipeline: Any, which: str, call: str) -> None:
    """Every kind of step, handoffs included; the history replays."""
    handle = await start(worker, pipeline.run, which=which)

    with pytest.raises(WorkflowFailureError) as raised:
        await handle.result()
    message = str(raised.value.cause)
    assert f"called {call}" in message
    assert "write `await`" in message
    assert len(message) < 400, "a call of nine receivers is cut"
    await assert_replays(handle, [pipeline])


async def test_an_abandoned_task_is_allowed(worker: Worker) -> None:
    """For example in a task group of which one task fails at once."""
    handle = await start(worker, NeverAwaits.run, which="given up")

    assert (await handle.result()).steps == 1


async def test_a_stage_that_never_awaits_its_context_fails(worker: Worker) -> None:
    """The error names the call without its arguments."""
    message = await failure(await start(worker, Careless.run, which="one"))

    assert "the stage called ArtifactAccess.write and never awaited it" in message
    assert "secret" not in message


@pytest.mark.parametrize(
    ("which", "origins"),
    [
        ("functions", "tests.pipelines.stages.forgets and tests.pipelines.stages.other"),
        ("agents", "tests.pipelines.stages.Nobody and tests.pipelines.stages.Nobody"),
    ],
)
async def test_two_stages_of_one_name_are_an_error(worker: Worker, which: str, origins: str) -> None:
    """A worker has one of them, which would do the other's work too."""
    message = await failure(await start(worker, Careless.run, which=which))

    assert f"two stages are named 'forgets', {origins}" in message


def test_a_worker_does_not_choose_between_two_of_one_name() -> None:
    """In one module or in two; the same stage imported twice is one."""
    one, two = ModuleType("one"), ModuleType("two")
    vars(one).update(first=NAMESAKES["agents"], again=NAMESAKES["agents"])
    vars(two).update(first=NAMESAKES["agents"])
    assert collect_served([one, two]).stages == [NAMESAKES["agents"]]

    vars(two).update(second=FIRST_NAMESAKES["agents"])
    with pytest.raises(SettingError, match="two stages are named 'forgets'"):
        collect_served([one, two])


def test_nor_between_two_pipelines_of_one_name() -> None:
    """Their runs would run the code of the other."""
    one, two = ModuleType("one"), ModuleType("two")
    vars(one).update(first=Careless)
    vars(two).update(first=careless)
    with pytest.raises(SettingError, match="two pipelines are named 'Careless'"):
        collect_served([one, two])
