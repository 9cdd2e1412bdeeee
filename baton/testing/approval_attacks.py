"""Attacks on an approved stage: a pipeline's code tries to pay what a person was not shown."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from datetime import timedelta
from typing import Any
from uuid import uuid4

from temporalio.client import Client, WorkflowHandle
from temporalio.service import RPCError
from temporalio.worker import Worker

from baton.core.baton import Baton
from baton.core.messages import PipelineInput, PipelineResult, StageResult
from baton.core.questions import Answer
from baton.errors import ApprovalDeniedError, HistoryError, PipelineError
from baton.pipelines.activity_context import StageContext
from baton.pipelines.activity_stage import stage
from baton.pipelines.workflow import Pipeline
from baton.pipelines.workflow_function import pipeline
from baton.runs.client_decide import decide
from baton.runs.client_reader import read_run
from baton.runs.client_record import StepStatus

Params = dict[str, Any]
Attack = Callable[[Pipeline, Params], Awaitable[None]]

SHOWN: Params = {"invoice": 17, "due": {"usd": 12}}
"""What the person is shown, and approves one payment of."""
_OTHER: Params = {"invoice": 17, "due": {"usd": 9_999}}
_POLL_SECONDS = 0.05


@stage(name="attacked-pay")
async def pay(context: StageContext[Baton]) -> StageResult:
    """Pay what the parameters say; the log has it."""
    due: Any = context.params["due"]
    line = f"Paid {due['usd']} dollars for invoice {context.params['invoice']} #{context.handoff_id}"
    return StageResult(baton_patch={"decision_log": [line]})


@stage(name="attacked-file")
async def file(context: StageContext[Baton]) -> StageResult:
    """Do something that nobody approves."""
    return StageResult(baton_patch={"current_state": ["filed"]})


async def pay_something_else(p: Pipeline, bill: Params) -> None:
    """Pay another amount."""
    await p.stage(pay, params=_OTHER)


async def change_it_after_the_yes(p: Pipeline, bill: Params) -> None:
    """Change a nested member in place, then pay."""
    bill["due"]["usd"] = 9_999
    await p.stage(pay, params=bill)


async def change_it_while_it_is_shown(p: Pipeline, bill: Params) -> None:
    """Pay what `attacked_payment` changed in place while the person read."""
    await p.stage(pay, params=bill)


async def change_it_as_the_stage_begins(p: Pipeline, bill: Params) -> None:
    """Change a nested member in place between the check and the stage's message."""

    async def change() -> None:
        bill["due"]["usd"] = 9_999

    await asyncio.gather(p.stage(pay, params=bill), change())


async def pay_twice(p: Pipeline, bill: Params) -> None:
    """Use one approval for two payments."""
    await p.stage(pay, params=bill)
    await p.stage(pay, params=bill)


async def pay_twice_at_once(p: Pipeline, bill: Params) -> None:
    """Use one approval for two payments at the same time."""
    await asyncio.gather(p.stage(pay, params=bill), p.stage(pay, params=bill), return_exceptions=True)


async def use_the_approval_up_with_a_wrong_try(p: Pipeline, bill: Params) -> None:
    """Try another amount twice: the first is refused, and nothing is bound any more."""
    with suppress(ApprovalDeniedError):
        await p.stage(pay, params=_OTHER)
    await p.stage(pay, params=_OTHER)


async def use_the_approval_up_in_a_refused_fan_out(p: Pipeline, bill: Params) -> None:
    """Likewise beside another stage."""
    with suppress(ApprovalDeniedError):
        await p.fan_out(file, pay, params=_OTHER)
    await p.stage(pay, params=_OTHER)


async def use_the_approval_up_with_another_stage(p: Pipeline, bill: Params) -> None:
    """Run another stage with the approved parameters, then pay another amount."""
    await p.stage(file, params=bill)
    await p.stage(pay, params=_OTHER)


async def hide_it_behind_a_second_approval(p: Pipeline, bill: Params) -> None:
    """Have a second payment approved, pay both, and one of them again."""
    second = {**bill, "invoice": 18}
    await p.approve("second", within=timedelta(hours=1), then=(pay, second))
    for params in (second, bill, second):
        await p.stage(pay, params=params)


APPROVAL_ATTACKS: Mapping[str, Attack] = {
    attack.__name__: attack
    for attack in (
        pay_something_else,
        change_it_after_the_yes,
        change_it_while_it_is_shown,
        change_it_as_the_stage_begins,
        pay_twice,
        pay_twice_at_once,
        use_the_approval_up_with_a_wrong_try,
        use_the_approval_up_in_a_refused_fan_out,
        use_the_approval_up_with_another_stage,
        hide_it_behind_a_second_approval,
    )
}
"""Every attack on an approved stage, by name."""


@pipeline
async def attacked_payment(p: Pipeline) -> list[str]:
    """Have a payment approved, attack the approval, and return what was paid.

    The parameter `attack` names the attack. While the payment is shown, a second question is answered first.
    """
    name, bill = str(p.params["attack"]), {**SHOWN, "due": {**SHOWN["due"]}}

    async def distract() -> None:
        await p.approve("distraction", within=timedelta(hours=1))
        if name == change_it_while_it_is_shown.__name__:
            bill["due"]["usd"] = 9_999

    await asyncio.gather(distract(), p.approve("payment", within=timedelta(hours=1), then=(pay, bill)))
    with suppress(ApprovalDeniedError):
        await APPROVAL_ATTACKS[name](p, bill)
    return p.baton.decision_log


ATTACKED_STAGES = [pay, file]
"""The stages that a worker for `attacked_payment` needs."""


async def attack_an_approval(worker: Worker, name: str) -> list[str]:
    """Run one attack and return the payments; an approval that holds lets through what was shown, as often as it was.

    Args:
        worker: A worker that has `attacked_payment` and `ATTACKED_STAGES`.
        name: The attack, a key of `APPROVAL_ATTACKS`.
    """
    handle: WorkflowHandle[Any, PipelineResult] = await worker.client.start_workflow(
        "attacked_payment",
        PipelineInput(goal="Pay an invoice", params={"attack": name}),
        id=f"attack-{uuid4()}",
        task_queue=worker.task_queue,
        execution_timeout=timedelta(minutes=3),
        result_type=PipelineResult,
    )
    titles = ["distraction", "payment", *(["second"] if name == hide_it_behind_a_second_approval.__name__ else [])]
    for title in titles:
        await _approve(worker.client, handle.id, title)
    return [line.partition(" #")[0] for line in (await handle.result()).output]


async def _approve(client: Client, workflow_id: str, title: str) -> None:
    """Approve, and return once the pipeline's code has gone on."""
    yes = Answer(question=title, choice="approve", who="tester", why="an attack")
    while True:
        with suppress(RPCError, PipelineError, HistoryError):
            await decide(client, workflow_id, yes)
        steps = (await read_run(client, workflow_id)).steps
        if any(step.name == title and step.status is not StepStatus.RUNNING for step in steps):
            return
        await asyncio.sleep(_POLL_SECONDS)
