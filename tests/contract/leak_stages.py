"""The stages of the leak tests: a sender that records what must not cross, and receivers that tell all they know."""

import json
import logging
import secrets
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from baton import Baton, BatonPatch, Retries, StageContext, StageResult, stage
from baton.agents import AgentAnswer, AgentTool, AgentWork, agent_stage, chat_agent
from tests.pipelines.stages import executed

log = logging.getLogger(__name__)

NEVER = (
    "brainstorm",
    "internal-note",
    "rejected-assumption",
    "excluded-message",
    "excluded-result",
    "call-arguments",
    "whole-answer",
)
"""What is nowhere but in the sender's journal."""
SENDERS = ("stale-result", "failed-result", "unaccepted-decision")
"""What is in the sender's own result as well, and nowhere else."""
CROSSES = ("fact", "user-word", "model-word")
"""What crosses, which shows that a marker that does is found."""

MARKERS = {kind: f"{kind}-{secrets.token_hex(8)}" for kind in (*NEVER, *SENDERS, *CROSSES)}
"""A text of its own for each kind; drawn anew for each process, so nothing can have it by chance."""

SENT: list[str] = []
"""What the tool `email.send` has sent."""


@stage(tools=["crm.lookup_customer", "crm.lookup_pricing", "crm.lookup_history"])
async def confide(context: StageContext[Baton]) -> BatonPatch:
    """Record one event of each kind, and some that cross."""
    executed()
    session, said = context.session, MARKERS
    old = context.parts.clock() - timedelta(hours=10)
    session.brainstorm(f"What if we skip it? {said['brainstorm']}")
    session.internal_note(f"Ann owes me lunch. {said['internal-note']}")
    session.rejected_assumption(f"Pricing is the only factor. {said['rejected-assumption']}")
    session.user_message(f"Something else entirely. {said['excluded-message']}", exclude=True)
    call = session.tool_call("crm.lookup_history", {"of": said["call-arguments"]})
    session.tool_result("crm.lookup_history", f"Old quarrels: {said['excluded-result']}", call_id=call, exclude=True)
    session.model_response(f"It looks harmless. {said['model-word']}")  # what follows the stale result is stale
    session.tool_result("crm.lookup_pricing", f"It costs 100. {said['stale-result']}", retrieved_at=old)
    session.tool_result("crm.lookup_customer", f"It timed out. {said['failed-result']}", success=False)
    session.decision(f"Send it now. {said['unaccepted-decision']}", accepted=False)
    claim = f"The customer is known. {said['fact']}"
    session.tool_result("crm.lookup_customer", claim, content=f"{claim} All of it: {said['whole-answer']}")
    session.user_message(f"Please hurry. {said['user-word']}")
    return BatonPatch(current_state=["Confided"])


@stage(tools=["crm.lookup_customer"])
async def tell_all(context: StageContext[Baton]) -> StageResult:
    """Put everything that can be known here into a log, an artifact, the baton and the output."""
    executed()
    return await _told(context)


@stage
async def tell_again(context: StageContext[Baton]) -> StageResult:
    """Do so as the stage after."""
    executed()
    return await _told(context)


@stage(capability=["compliance.review"])
async def unable(context: StageContext[Baton]) -> StageResult:
    """Do a task for which its agent is not registered."""
    return await _told(context)


@stage(tools=["crm.lookup_customer", "email.send"], forbids=["email.send"])
async def disobey(context: StageContext[Baton]) -> StageResult:
    """Call a forbidden tool, in the way and as often as the parameters say, and go on if it is denied."""
    executed()
    denied: list[str] = []
    for way in str(context.params["ways"]).split():
        try:
            await _send(context, way)
        except PermissionError as error:
            denied.append(str(error))
    return StageResult(output={"denied": list(denied), "handoff": context.handoff_id, "prompt": context.prompt})


class AsksModel:
    """An agent behind the endpoint that the parameter `model_url` names."""

    name = "ask_model"

    async def run(self, work: AgentWork) -> AgentAnswer:
        executed()
        agent = chat_agent(name=self.name, url=str(work.context.params["model_url"]), model="small")
        return await agent.run(work)


def look_up(customer: str) -> str:
    return f"{customer} is known."


def send_mail(to: str) -> str:
    SENT.append(to)
    return "sent"


ask_model = agent_stage(
    AsksModel(),
    instructions="You review e-mails.",
    tools=[AgentTool.of(look_up, name="crm.lookup_customer"), AgentTool.of(send_mail, name="email.send")],
    forbids=["email.send"],
    writes=["decision_log"],
)


@stage(output="Decision@1.2", attempts=3, retries=Retries(attempts=1))
async def answer_by_schema(context: StageContext[Baton]) -> StageResult:
    """Give the next of the parameter `answers`, and note the findings and the prompt that led to it."""
    executed()
    answers: Any = context.params["answers"]
    return StageResult(
        baton_patch=BatonPatch(decision_log=[*context.findings, f"shown: {'Rejected' in context.prompt}"]),
        output=answers[context.attempt - 1],
    )


@stage(task="x" * 501)
async def long_task(baton: Baton) -> BatonPatch:
    """Have a task that is several tasks."""
    executed()
    return BatonPatch()


@stage(output="Decision@9.9")
async def unheard_of(baton: Baton) -> BatonPatch:
    """Name an unregistered schema."""
    executed()
    return BatonPatch()


@stage(version="2.0.0")
async def too_new(baton: Baton) -> BatonPatch:
    """Be of a version that the registry does not have."""
    executed()
    return BatonPatch()


LEAK_STAGES: list[Callable[..., Any]] = [
    confide,
    tell_all,
    tell_again,
    disobey,
    ask_model,
    answer_by_schema,
    long_task,
    unheard_of,
    too_new,
    unable,
]


async def _told(context: StageContext[Baton]) -> StageResult:
    """Return all that a stage can know, and leave it in every place where a stage can leave something."""
    contract = context.contract.to_json_object() if context.contract else None
    visible: dict[str, Any] = {
        "given": context.given.model_dump(mode="json"),
        "prompt": context.prompt,
        "contract": contract,
        "events": [event.to_json_object() for event in context.session.events],
        "artifacts": {ref.id: (await context.artifacts.read(ref.id)).decode() for ref in context.baton.artifacts},
    }
    text = json.dumps(visible)
    id = f"known-to-{context.given.stage}-{context.given.seq}"
    log.warning("%s: %s", id, text)
    await context.artifacts.write(id, text, type="notes")
    return StageResult(baton_patch=BatonPatch(decision_log=[f"Told {id}"]), output=visible)


async def _send(context: StageContext[Baton], way: str) -> None:
    """Call the tool that sends e-mails.

    Raises:
        PermissionError: It is denied.
    """

    def send(to: str) -> str:
        SENT.append(to)
        return "sent"

    async def send_later(to: str) -> str:
        return send(to)

    try:
        match way:
            case "call":
                await context.tools.call("email.send", send, "jane")
            case "guarded":
                context.tools.guard(send, "email.send")("jane")
            case "guarded-async":
                await context.tools.guard(send_later, "email.send")("jane")
            case "capitals":
                await context.tools.call("Email.Send", send, "jane")
            case "unheard-of":
                await context.tools.call("email.forward", send, "jane")
    except Exception as error:
        raise PermissionError(f"{getattr(error, 'code', '')} {error}") from error
