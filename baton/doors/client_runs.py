"""What a door does to runs for its caller: the operations of `baton.client`, with the caller's rights.

A run belongs to the caller who started it here; that of another caller does not exist for them.
"""

from collections import OrderedDict
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256
from typing import Any

from pydantic import ValidationError
from temporalio.client import Client
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

from baton.artifacts.store import ArtifactStore
from baton.core.baton import AnyBaton
from baton.core.messages import PipelineInput
from baton.core.questions import Question, Settled
from baton.core.requester import Requester
from baton.core.steering import SteeringNote
from baton.core.store_schemas import SchemaGate
from baton.doors.client_access import Access, Caller, Role
from baton.errors import HistoryError, PipelineError
from baton.handoff.store_gate import Gate
from baton.handoff.store_order import OpenOrder, OrderError, open_order
from baton.keys.store_keyring import Keyring
from baton.keys.store_keys import PublicKeys
from baton.outside.client_external import OutsideAgents
from baton.outside.client_tools import HandoffTools
from baton.runs.client_connection import DEFAULT_TASK_QUEUE
from baton.runs.client_control import Cancel
from baton.runs.client_decide import Decide
from baton.runs.client_follow import Cursor, Followed, follow
from baton.runs.client_list import RunFilter, RunPage, list_page
from baton.runs.client_order import AcceptedHandoff, AcceptHandoff, OrderTakenError, find_acceptance
from baton.runs.client_reader import read_run
from baton.runs.client_record import RunRecord
from baton.runs.client_start import Start
from baton.runs.client_steer import Steer
from baton.wire.json_values import Json
from baton.wire.schema_embedding import inline_refs
from baton.wire.text import describe_faults

ISSUER = "baton serve"
"""Who vouches for the requester of a run that a caller started."""
MAX_AGENTS = 1_000
"""The most agents outside whose tools are kept, those that called last."""
_MISSING = (RPCStatusCode.NOT_FOUND, RPCStatusCode.INVALID_ARGUMENT)
_STARTED = ("goal", "params", "inputs", "baton")


class NotFoundError(PipelineError):
    """The caller has no such run: there is none, or it is another's. Look at the id."""


class NotAllowedError(PipelineError):
    """The caller's role does not include this. Ask the person who runs the service."""


@dataclass(frozen=True)
class Offer:
    """A pipeline that callers may start.

    Attributes:
        pipeline: The workflow's type.
        task_queue: The task queue of its workers.
        description: What it does, for callers.
        params: The JSON Schema of its parameters; any by default.
    """

    pipeline: str
    task_queue: str = DEFAULT_TASK_QUEUE
    description: str = ""
    params: Mapping[str, Any] | None = None

    @cached_property
    def input_schema(self) -> dict[str, Any]:
        """The JSON Schema of what a caller sends to start it: `goal`, and optionally `params`, `inputs` and `baton`."""
        own = PipelineInput.model_json_schema()
        properties = {name: own["properties"][name] for name in _STARTED}
        if self.params is not None:
            properties["params"] = inline_refs(self.params)
        needs_params = bool(self.params and self.params.get("required"))
        required = ["goal", "params"] if needs_params else ["goal"]
        shape: dict[str, Any] = {"type": "object", "properties": properties, "required": required}
        return inline_refs(shape | {"additionalProperties": False, "$defs": own.get("$defs", {})})

    @cached_property
    def gate(self) -> SchemaGate:
        """The check of what a caller sends by this schema."""
        return SchemaGate(self.input_schema)


@dataclass(frozen=True)
class Orders:
    """How a service takes orders of other companies, in relay files.

    Attributes:
        gate: Judges and records them, and signs the receipts.
        trust: The public keys of the companies that may order.
        audience: The name that this company goes by; an order that names another one is rejected.
    """

    gate: Gate
    trust: PublicKeys
    audience: str | None = None


@dataclass
class AgentTools:
    """The tools of each agent outside that calls, which remember what it saved and still holds.

    A caller named `reviewer/ann` gets the handoffs to `reviewer`, and holds them under its own whole name.

    Attributes:
        agents: What agents outside take and return handoffs with.
        artifacts: The workers' artifact store.
    """

    agents: OutsideAgents
    artifacts: ArtifactStore | None
    _tools: OrderedDict[str, HandoffTools] = field(default_factory=OrderedDict, repr=False)

    def of(self, caller: Caller) -> HandoffTools:
        """Return the tools of the agent that calls."""
        name = caller.name
        tools = self._tools.pop(name, None) or HandoffTools(self.agents, name.partition("/")[0], name, self.artifacts)
        self._tools[name] = tools
        if len(self._tools) > MAX_AGENTS:
            self._tools.popitem(last=False)
        return tools


@dataclass(frozen=True)
class ServiceParts:
    """What the doors of a service share.

    Attributes:
        client: A connected client, with `BatonPlugin` or `ClientPlugin`.
        offers: The pipelines that callers may start, by name.
        access: Who may call.
        url: The public address of the service, without a slash at the end.
        artifacts: The workers' artifact store; without one, callers get references only.
        agents: What agents outside take and return handoffs with; without it, they cannot.
        keyring: The keys that sign notifications.
        push_to: The origins that notifications may be sent to, such as `https://hooks.example.com`, with `:*` for any
            port; none by default, because a caller names the address that this machine calls.
        orders: How orders of other companies are taken; without it, they are not.
    """

    client: Client
    offers: Mapping[str, Offer]
    access: Access
    url: str
    artifacts: ArtifactStore | None = None
    agents: OutsideAgents | None = None
    keyring: Keyring | None = None
    push_to: Sequence[str] = ()
    orders: Orders | None = None

    @cached_property
    def tools(self) -> AgentTools | None:
        """The tools of agents outside, which all doors share; None without `agents`."""
        return None if self.agents is None else AgentTools(self.agents, self.artifacts)


def run_prefix(caller: Caller, group: str | None = None) -> str:
    """Return how the workflow ids of a caller's runs begin, or those of a group of them, such as a conversation."""
    own = f"serve-{_short(caller.name, 12)}-"
    return own if group is None else f"{own}{_short(group, 12)}-"


def _short(text: str, length: int) -> str:
    return sha256(text.encode()).hexdigest()[:length]


def require(caller: Caller, role: Role) -> None:
    """Raise if a caller's role does not include another."""
    if caller.role < role:
        raise NotAllowedError(f"this requires the role {role.name.lower()}; yours is {caller.role.name.lower()}")


def read_input(offer: Offer, members: Mapping[str, Any]) -> PipelineInput:
    """Return what a caller sent to start a pipeline, by its input schema: `goal`, `params`, `inputs` and `baton`.

    Raises:
        PipelineError: It does not fit.
    """
    if findings := offer.gate(members):
        raise PipelineError("; ".join(finding.text for finding in findings))
    try:
        given = PipelineInput.model_validate(members)
        given.first_baton(AnyBaton)
    except ValidationError as error:
        raise PipelineError(describe_faults(error)) from None
    return given


async def start(
    parts: ServiceParts,
    caller: Caller,
    offer: Offer,
    given: PipelineInput,
    *,
    key: str,
    group: str = "",
    claims: Mapping[str, Json] | None = None,
) -> str:
    """Start a pipeline for a caller, and return the workflow id; the same key again for it is the same run.

    Args:
        parts: The service's.
        caller: Who starts it.
        offer: The pipeline.
        given: Its input, as `read_input` returned it.
        key: The caller's own id of the request: a request sent again starts nothing.
        group: What the caller groups runs by.
        claims: What else is known of the caller; stages see it.
    """
    require(caller, Role.OPERATOR)
    workflow_id = run_prefix(caller, group) + _short(f"{offer.pipeline}\n{key}", 20)
    start = given.model_copy(update={"requester": _requester(caller, claims)})
    operation = Start(parts.client, offer.pipeline, start, workflow_id, offer.task_queue)
    try:
        await operation.commit(by=caller.name)
    except WorkflowAlreadyStartedError:
        await read(parts, caller, workflow_id)
    return workflow_id


def _requester(caller: Caller, claims: Mapping[str, Json] | None) -> Requester:
    return Requester(id=caller.name, issuer=ISSUER, claims=dict(claims or {}))


async def order(
    parts: ServiceParts, caller: Caller, data: bytes, *, group: str = "", claims: Mapping[str, Json] | None = None
) -> tuple[str, AcceptedHandoff]:
    """Start the pipeline that an order in a relay file is for; return the workflow id, and the answer to the order.

    Without `workflow_id` in the answer it was rejected, and there is no run. The same order again is the same run.

    Raises:
        PipelineError: The file is not an order that a trusted key signed, or its pipeline is not offered.
        NotFoundError: Another caller sent it before, or its run is gone.
    """
    require(caller, Role.OPERATOR)
    orders = parts.orders
    if orders is None:
        raise NotAllowedError("this service takes no orders")
    try:
        opened = open_order(data, orders.trust)
        offer = next((offer for offer in parts.offers.values() if offer.pipeline == opened.receiver), None)
        if offer is None:
            raise PipelineError(f"it is for {opened.receiver[:80]!r}; there are: {', '.join(sorted(parts.offers))}")
        workflow_id = await _order_id(caller, orders, opened, group)
        accepted = await AcceptHandoff(
            parts.client,
            orders.gate,
            opened,
            audience=orders.audience,
            task_queue=offer.task_queue,
            artifacts=parts.artifacts,
            requester=_requester(caller, claims),
            workflow_id=workflow_id,
        ).commit(by=caller.name)
        if accepted.workflow_id is not None:
            await read(parts, caller, accepted.workflow_id)
    except (OrderTakenError, NotFoundError):
        raise NotFoundError("the order was accepted before, and its run is not yours, or is gone") from None
    except OrderError as error:
        raise PipelineError(f"the order is refused: {error}") from None
    return accepted.workflow_id or workflow_id, accepted


async def _order_id(caller: Caller, orders: Orders, order: OpenOrder, group: str) -> str:
    """Return the id of an order's run: that under which the caller's order was accepted before, if it was."""
    earlier = await find_acceptance(orders.gate.ledger, order)
    if earlier and earlier.run_id and earlier.run_id.startswith(run_prefix(caller)):
        return earlier.run_id
    return f"{run_prefix(caller, group)}order-{order.id}"


def is_own(caller: Caller, run: RunRecord) -> bool:
    """Return whether a caller may see a run."""
    requester = run.start.requester
    return caller.sees_all or (requester is not None and (requester.id, requester.issuer) == (caller.name, ISSUER))


async def read(parts: ServiceParts, caller: Caller, workflow_id: str) -> RunRecord:
    """Return a run of a caller.

    Raises:
        NotFoundError: The caller has no such run.
    """
    with _as_missing(workflow_id):
        run = await read_run(parts.client, workflow_id)
    if not is_own(caller, run):
        raise _not_found(workflow_id)
    return run


@contextmanager
def _as_missing(workflow_id: str) -> Iterator[None]:
    try:
        yield
    except RPCError as error:
        if error.status not in _MISSING:
            raise
        raise _not_found(workflow_id) from None
    except HistoryError:  # a workflow that is not a pipeline
        raise _not_found(workflow_id) from None


def _not_found(workflow_id: str) -> NotFoundError:
    return NotFoundError(f"you have no run {workflow_id[:80]!r}")


async def watch(
    parts: ServiceParts, caller: Caller, workflow_id: str, cursor: Cursor | str | None = None
) -> AsyncGenerator[Followed, None]:
    """Yield the updates of a run of a caller, as `follow` does; nothing before it is clear that it is theirs.

    Raises:
        NotFoundError: The caller has no such run.
        ValueError: The text is not a cursor.
    """
    is_checked = False
    with _as_missing(workflow_id):
        async with aclosing(follow(parts.client, workflow_id, cursor=cursor)) as updates:  # type: ignore[type-var]
            async for update in updates:
                if update.run is not None and not is_checked:
                    if not is_own(caller, update.run):
                        raise _not_found(workflow_id)
                    is_checked = True
                yield update


async def listed(
    parts: ServiceParts,
    caller: Caller,
    *,
    group: str | None = None,
    status: str | tuple[str, ...] | None = None,
    limit: int = 50,
    after: str | None = None,
) -> RunPage:
    """Return a page of the runs that a caller started here; with `sees_all`, of all callers' runs."""
    run_filter = RunFilter(id_prefix=listed_prefix(caller, group), status=status)
    return await list_page(parts.client, run_filter, limit=limit, after=after)


def listed_prefix(caller: Caller, group: str | None = None) -> str:
    """Return how the workflow ids begin that a caller's list has."""
    return "serve-" if caller.sees_all and group is None else run_prefix(caller, group)


async def answer(
    parts: ServiceParts,
    caller: Caller,
    workflow_id: str,
    choice: str,
    *,
    question: str | None = None,
    digest: str | None = None,
    data: Json = None,
    why: str = "",
) -> Settled | None:
    """Answer what a run of a caller asks; None if no worker has taken the answer up yet, as in `Decide`.

    Args:
        parts: The service's.
        caller: Who answers.
        workflow_id: The run.
        choice: One of the question's choices.
        question: The question's id, title or handoff.
        digest: That of what the caller was shown earlier; by default, what is shown now.
        data: What the choice's form asks for.
        why: The reason.

    Raises:
        NotFoundError: The caller has no such run.
        NotAllowedError: The caller does not decide.
        PipelineError: The answer is refused.
    """
    require(caller, Role.DECIDER)
    if not caller.decides:
        raise NotAllowedError("your token does not decide; a person of the service's owner does")
    run = await read(parts, caller, workflow_id)
    if digest is not None and (question, digest) not in [(asked.id, asked.digest) for asked in run.questions]:
        raise PipelineError("what was shown is not open any more, or has changed; look at what the run asks now")
    operation = Decide(parts.client, workflow_id, choice, question, data)
    preview = await operation.preview_in(run)
    return await operation.pinned_to(preview).commit(preview.mark, by=caller.name, why=why)


def questions_by_key(run: RunRecord) -> dict[str, Question]:
    """Return the open questions by the name of each and of exactly what it shows, to which a later answer is bound."""
    return {f"{question.id}@{question.digest}": question for question in run.questions}


async def open_questions(parts: ServiceParts, caller: Caller, run: RunRecord) -> dict[str, Question]:
    """Return what a run asks now, by key: an update's run may be of a time before the answers."""
    return questions_by_key(await read(parts, caller, run.workflow_id)) if run.questions else {}


async def answer_key(
    parts: ServiceParts,
    caller: Caller,
    workflow_id: str,
    key: str,
    choice: str,
    *,
    data: Json = None,
    why: str = "",
) -> Settled | None:
    """Answer the question that a key names, as `answer` does."""
    question, _, digest = key.partition("@")
    return await answer(parts, caller, workflow_id, choice, question=question, digest=digest, data=data, why=why)


def may_answer(question: Question, caller: Caller) -> bool:
    """Return whether a caller can answer a question without a key of their own, as far as it tells."""
    return caller.decides and caller.role >= Role.DECIDER and not question.proof and question.is_for(caller.name)


async def steer(parts: ServiceParts, caller: Caller, workflow_id: str, text: str, *, key: str) -> SteeringNote:
    """Send the agent at work in a run of a caller a note; the same key again is the same note.

    Raises:
        NotFoundError: The caller has no such run.
        PipelineError: No agent can take it, or it is refused; see `Steer`.
    """
    require(caller, Role.OPERATOR)
    await read(parts, caller, workflow_id)
    return await Steer(parts.client, workflow_id, text, key=f"{caller.name}/{key}").commit(by=caller.name)


async def cancel(parts: ServiceParts, caller: Caller, workflow_id: str) -> None:
    """Ask a run of a caller to cancel.

    Raises:
        NotFoundError: The caller has no such run.
        PipelineError: It has ended.
    """
    require(caller, Role.OPERATOR)
    await read(parts, caller, workflow_id)
    await Cancel(parts.client, workflow_id).commit(by=caller.name)
