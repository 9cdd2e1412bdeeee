"""The tools with which an agent outside takes handoffs and returns patches or reports, over whatever protocol."""

import asyncio
import contextlib
import functools
import json
import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Annotated, Any, ParamSpec, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, JsonValue, StringConstraints, ValidationError
from temporalio.exceptions import TemporalError
from temporalio.service import RPCError, RPCStatusCode

from baton.artifacts.store import ArtifactStore
from baton.contract.draft import render_contract
from baton.contract.records import HandoffContract
from baton.contract.validation import validate_contract
from baton.core.artifacts import ArtifactRef
from baton.core.baton import AnyBaton
from baton.core.notes import MAX_NOTE_LENGTH, MAX_NOTES
from baton.core.rendering import render
from baton.errors import ArtifactError, BatonError, PipelineError
from baton.exchange.external import MAX_LEASE, ActionKind
from baton.outside.client_external import HandoffRef, OpenHandoffs, OutsideAgents
from baton.report.parsing import parse_report
from baton.report.rendering import FORMAT
from baton.report.rules import report_patch
from baton.wire.json_values import loads_strict
from baton.wire.text import describe_faults, fence, quantity, single_line

CONTRACT = "contract"
"""The member with the contract, in a message's `step` or `currentState`."""
_CONTRACT_MEMBERS = frozenset({"handoffId", "receivingAgent"})  # without them it is a pipeline's own member
PAGE_LENGTH = 40_000
"""How many characters of an artifact are read at once."""
_NONCE_BYTES = 8


@dataclass(frozen=True)
class AcceptedWork:
    """The content of an accepted message."""

    sender: str
    description: str
    rules: list[str] = field(default_factory=list)
    contract: Mapping[str, Any] | None = None
    validated: bool = False
    baton: AnyBaton | None = None
    state: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, message: Mapping[str, Any]) -> "AcceptedWork":
        """Read the content of a message."""
        state, contract = dict(message["currentState"]), (message.get("step") or {}).get(CONTRACT)
        state_contract = state.get(CONTRACT)
        is_contract = isinstance(state_contract, Mapping) and state_contract.keys() >= _CONTRACT_MEMBERS
        if is_contract:
            del state[CONTRACT]
        try:
            baton = AnyBaton.from_json_object(state)
        except ValidationError:
            baton = None
        return cls(
            sender=message["fromAgent"]["agentId"],
            description=message["taskDescription"],
            rules=list(message["constraints"]),
            contract=contract or (state_contract if is_contract else None),
            validated=bool(contract),
            baton=baton,
            state=state,
        )

    def check_contract(self, agent: str, now: datetime) -> Self:
        """Return this, if its contract is valid, not expired, and for the agent; else raise."""
        if self.contract is None:
            return self
        faults = [single_line(finding.text) for finding in validate_contract(self.contract, now=now).errors]
        if not faults:
            contract = HandoffContract.from_json_object(self.contract)
            if contract.is_expired(now) and not self.validated:
                faults.append(f"it expired at {contract.expires_at.isoformat()}")
            if contract.receiving_agent != agent:
                faults.append(f"it is for another agent than {agent!r}")
        if faults:
            details = "; ".join(faults)
            raise PipelineError(
                f"the contract may not be used: {details}; call ask_for_input, so that it is made again"
            )
        return self

    def text(self) -> str:
        """Return it as an agent's user turn, inside a fence that its authors cannot forge."""
        rows = [f"**From:** {single_line(self.sender)}"]
        if self.contract is None:
            rows.append(f"**Task:** {single_line(self.description)}")
        rows += [f"**Rule:** {single_line(rule)}" for rule in self.rules]
        parts = ["\n".join(rows) + "\n"]
        if self.contract is not None:
            parts.append(render_contract(HandoffContract.from_json_object(self.contract)))
        return fence("\n".join([*parts, self._state()]), secrets.token_hex(_NONCE_BYTES))

    def artifact(self, id: str) -> ArtifactRef:
        """Return the reference to an artifact that the baton names."""
        refs = self.baton.artifacts if self.baton else []
        for ref in refs:
            if ref.id == id:
                return ref
        names = ", ".join(single_line(ref.id) for ref in refs[:20]) or "none"
        raise ArtifactError(f"the baton names no artifact {id[:60]!r}; it names {names}")

    def _state(self) -> str:
        """Return the state as Markdown: the baton's page, or a line for each member."""
        if self.baton is not None:
            return render(self.baton)
        lines = (f"{name}: {json.dumps(value, ensure_ascii=False)}" for name, value in self.state.items())
        return "\n".join(["## State", "", *(f"- {single_line(line)}" for line in lines), ""])


def artifact_page(ref: ArtifactRef, data: bytes, offset: int) -> str:
    """Return a fenced page of a text artifact, and where it continues."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        raise ArtifactError(f"artifact {ref.id!r} is not text: {len(data):,} bytes of type {ref.type!r}") from None
    if offset > len(text):
        raise ArtifactError(f"artifact {ref.id!r} has {len(text):,} characters; begin before {offset:,}")
    page = text[offset : offset + PAGE_LENGTH]
    end = offset + len(page)
    position = f"; continue with offset={end}" if end < len(text) else ", its end"
    return (
        f"{fence(page, secrets.token_hex(_NONCE_BYTES))}Characters {offset:,} to {end:,} of {len(text):,}{position}.\n"
    )


MAX_ARTIFACT_LENGTH = 4 * 1024 * 1024
"""The maximum length of a text for `save_artifact`."""

HANDOFF_TOOLS = (
    *("claim", "accept", "read_contract", "read_artifact", "save_artifact"),
    *("propose_patch", "propose_report", "ask_for_input", "give_back", "reject"),
)
"""The tools of one handoff; `list_mine` lists them all."""
_MAX_SAVED = 200  # work products for a handoff
_MAX_DESCRIPTION_LENGTH = 300
_MAX_LINE_LENGTH = 1_000
_MAX_LEASE_MINUTES = int(MAX_LEASE.total_seconds()) // 60

Sentence = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]

_Sentences = Annotated[list[Annotated[Sentence, Field(max_length=MAX_NOTE_LENGTH)]], Field(max_length=MAX_NOTES)]

P = ParamSpec("P")
T = TypeVar("T")

HandoffId = Annotated[str, Field(description="The handoff, as list_mine names it.")]
Minutes = Annotated[
    int,
    Field(
        ge=1,
        le=_MAX_LEASE_MINUTES,
        description="How long it is reserved; claim and accept renew, accept for 10 at least.",
    ),
]


class Waiting(BaseModel):
    """A handoff that waits for this agent.

    Attributes:
        handoff_id: The handoff, and where it waits.
        workflow: The pipeline that it waits in.
        description: What is to be done, in short; only after the gate has accepted the sender's text.
        since: Since when it waits.
        until: When it expires.
        reserved_for: Who has claimed it, if anybody has.
        accepted: Whether the claim's holder has accepted it.
    """

    handoff_id: str
    workflow: str
    description: str | None = None
    since: datetime
    until: datetime
    reserved_for: str | None = None
    accepted: bool = False


class Noted(BaseModel):
    """What the next agents have to know; it becomes a part of the patch, but for what was rejected or only thought."""

    model_config = ConfigDict(extra="forbid")

    decided: _Sentences = Field(default=[], description="What you decided, and why.")
    done: _Sentences = Field(default=[], description="What is done now.")
    fact: _Sentences = Field(default=[], description="What you found, with its source.")
    must: _Sentences = Field(default=[], description="Rules that everybody has to obey from now on.")
    open: _Sentences = Field(default=[], description="Questions for later agents.")
    rejected: _Sentences = Field(default=[], description="Ideas that you rejected, and why.")
    thought: _Sentences = Field(default=[], description="Ideas, not facts.")


class Accepted(BaseModel):
    """The gate's answer: whether the agent may begin, or why not, and what the safety scan let pass."""

    accepted: bool
    reasons: list[str] = Field(default_factory=list)
    flags: list[str] = Field(default_factory=list)


class Returned(BaseModel):
    """The result of a return: whether the handoff is done, and hints for the next time."""

    done: bool
    warnings: list[str] = Field(default_factory=list)


def as_tool(function: Callable[P, Awaitable[T]]) -> Callable[P, Awaitable[T]]:
    """Raise what an agent can be told as Baton's errors; others stay failures of the server."""

    @functools.wraps(function)
    async def call(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return await function(*args, **kwargs)
        except ValidationError as error:
            raise PipelineError(describe_faults(error)) from error
        except TemporalError as error:
            kind = error.status.name.lower() if isinstance(error, RPCError) else type(error).__name__
            raise PipelineError(f"the pipeline did not answer ({kind}); try again") from error

    return call


@dataclass
class HandoffTools:
    """The tools of one agent: each public method is a tool, which raises `BatonError` for what the agent can be told.

    Attributes:
        agents: The actions of outside agents.
        agent: The agent's name: it gets the handoffs to this name.
        holder: Which one of its kind the agent is.
        artifacts: The store of the work products that it reads and saves.
        version: The agent's version, three numbers with dots.
    """

    agents: OutsideAgents
    agent: str
    holder: str
    artifacts: ArtifactStore | None = None
    version: str = "1.0.0"
    _saved_refs: dict[str, list[ArtifactRef]] = field(default_factory=dict, repr=False)
    _held_ids: set[str] = field(default_factory=set, repr=False)

    @as_tool
    async def list_mine(self) -> list[Waiting]:
        """List the handoffs that wait for you, the oldest first."""
        return [self._render(ref) for ref in await self._list_open()]

    @as_tool
    async def claim(self, handoff_id: HandoffId, minutes: Minutes = 60) -> Waiting:
        """Reserve a handoff for you, or extend the reservation; accept does so as well."""
        ref = await self._find(handoff_id)
        return self._render(await self._claim(ref, minutes))

    @as_tool
    async def accept(self, handoff_id: HandoffId, minutes: Minutes = 60) -> Accepted:
        """Accept a handoff. It is checked and recorded first; if it is not accepted, do not begin."""
        ref = await self._claim(await self._find(handoff_id), minutes)
        receipt = await self.agents.accept(ref, self.agent, holder=self.holder, version=self.version)
        if not receipt.verdict:
            self._forget(handoff_id)
        reasons = [single_line(finding.text) for finding in receipt.verdict.findings]
        return Accepted(accepted=bool(receipt.verdict), reasons=reasons, flags=receipt.flags)

    @as_tool
    async def read_contract(self, handoff_id: HandoffId) -> str:
        """Read the task, facts, tools and baton of a handoff that you accepted."""
        _, work = await self._read_accepted(handoff_id)
        return work.check_contract(self.agent, self.agents.gate.clock()).text()

    @as_tool
    async def read_artifact(
        self,
        handoff_id: HandoffId,
        artifact_id: Annotated[str, Field(description="The artifact, as the baton names it.")],
        offset: Annotated[int, Field(ge=0, description="The character to begin at.")] = 0,
    ) -> str:
        """Read a work product that the handoff's baton refers to."""
        _, work = await self._read_accepted(handoff_id)
        ref = work.check_contract(self.agent, self.agents.gate.clock()).artifact(artifact_id)
        return artifact_page(ref, await self._store().get(ref.hash), offset)

    @as_tool
    async def save_artifact(
        self,
        handoff_id: HandoffId,
        artifact_id: Annotated[str, Field(min_length=1, max_length=200, description="A new name for it.")],
        type: Annotated[str, Field(min_length=1, max_length=200, description="plan, diff, report, …")],
        text: Annotated[str, Field(max_length=MAX_ARTIFACT_LENGTH, description="What is in it.")],
        path: Annotated[str | None, Field(max_length=_MAX_LINE_LENGTH)] = None,
        summary: Annotated[str | None, Field(max_length=_MAX_LINE_LENGTH)] = None,
    ) -> dict[str, Any]:
        """Save a work product. A report includes it (save it again if this server was restarted).

        In a patch, put the answer into `artifacts`.
        """
        _, work = await self._read_accepted(handoff_id)
        if (
            rendered := single_line(artifact_id)
        ) != artifact_id:  # anyone who reads it by the name it is shown with fails
            raise PipelineError(
                f"{artifact_id!r} would be shown as {rendered!r}; name it by letters, digits, '-' and '_'"
            )
        data = text.encode()
        sha256 = await self._store().put(data)
        ref = ArtifactRef(id=artifact_id, type=type, hash=sha256, size=len(data), path=path, summary=summary)
        saved_refs = self._saved_refs.get(handoff_id, [])
        known_refs = [*(work.baton.artifacts if work.baton else ()), *saved_refs]
        # A report could not include both.
        if any(other.id == ref.id and other.hash != ref.hash for other in known_refs):
            raise PipelineError(f"{artifact_id!r} already names another text; a new version takes a new artifact_id")
        others = [other for other in saved_refs if other.id != ref.id]
        if len(others) >= _MAX_SAVED:
            raise PipelineError(f"you saved {_MAX_SAVED} work products for this handoff, which is the most")
        self._saved_refs[handoff_id] = [*others, ref]
        return ref.model_dump(mode="json")

    @as_tool
    async def propose_patch(
        self,
        handoff_id: HandoffId,
        patch: Annotated[
            dict[str, JsonValue],
            Field(description="Only what changes. Lists replace the old list; decision_log has new entries only."),
        ],
        notes: Noted | None = None,
    ) -> Returned:
        """Return your work as changes of the baton's fields; the handoff is done unless they are refused."""
        noted = {} if notes is None else notes.model_dump(exclude_defaults=True)

        async def give(ref: HandoffRef, work: AcceptedWork) -> Returned:
            await self.agents.return_patch(ref, self.agent, patch, holder=self.holder, notes=noted)
            return Returned(done=True)

        return await self._return(handoff_id, give)

    @as_tool
    async def propose_report(
        self,
        handoff_id: HandoffId,
        report: Annotated[str, Field(description=f"Markdown in exactly this format:\n\n{FORMAT}")],
    ) -> Returned:
        """Return your work as a handoff report; the handoff is done unless it is refused."""

        async def give(ref: HandoffRef, work: AcceptedWork) -> Returned:
            parsed = await asyncio.to_thread(parse_report, report)
            if parsed.report.sender != self.agent:
                raise PipelineError(f"from: is {parsed.report.sender!r}; you are {self.agent!r}")
            members = parsed.report.to_json_object()
            if work.baton is None:
                await self.agents.return_report(ref, self.agent, members, holder=self.holder)
            else:
                patch = report_patch(parsed.report, work.baton, self._saved_refs.get(handoff_id, ()))
                await self.agents.return_patch(ref, self.agent, patch, holder=self.holder, report=members)
            return Returned(done=True, warnings=[str(warning) for warning in parsed.warnings])

        return await self._return(handoff_id, give)

    @as_tool
    async def ask_for_input(
        self,
        handoff_id: HandoffId,
        unmet: Annotated[list[Sentence], Field(min_length=1, description="What is missing, a sentence each.")],
    ) -> Returned:
        """Ask for what a handoff lacks; it goes back to its sender."""
        ref = await self._find(handoff_id)
        await self.agents.needs_input(ref, self.agent, unmet, holder=self.holder)
        self._forget(handoff_id)
        return Returned(done=True)

    @as_tool
    async def give_back(self, handoff_id: HandoffId) -> Waiting:
        """Release a handoff that you claimed or accepted, so that somebody else can do it."""
        ref = await self._find(handoff_id)
        released = await self.agents.give_back(ref, self.agent, holder=self.holder)
        self._forget(handoff_id)
        return self._render(released)

    @as_tool
    async def reject(
        self, handoff_id: HandoffId, reason: Annotated[Sentence, Field(description="Why not.")]
    ) -> Returned:
        """Refuse a handoff that must not be done; its pipeline gets the reason."""
        ref = await self._find(handoff_id)
        await self.agents.reject(ref, self.agent, reason, holder=self.holder)
        self._forget(handoff_id)
        return Returned(done=True)

    async def leave(self) -> None:
        """Give back what this agent still holds when its session ends."""
        for handoff_id in list(self._held_ids):
            with contextlib.suppress(BatonError):  # it may be done or expired
                await self.give_back(handoff_id)

    async def _list_open(self) -> list[HandoffRef]:
        open_handoffs = await self.agents.query_open(self.agent)
        if open_handoffs.unanswered and not open_handoffs.handoffs:
            raise PipelineError(_unanswered_text(open_handoffs))
        return open_handoffs.handoffs

    async def _find(self, handoff_id: str) -> HandoffRef:
        """Return a handoff by its name, which says all that another server has to know to find it."""
        id, _, workflow_id = handoff_id.partition("@")
        if not workflow_id:
            raise PipelineError(f"no handoff {handoff_id[:60]!r} waits for you; call list_mine")
        return await self.agents.find(workflow_id, self.agent, id)

    async def _claim(self, ref: HandoffRef, minutes: int) -> HandoffRef:
        """Claim a handoff; mark it as held first, because an interrupted claim may have succeeded."""
        handoff_id = _name_of(ref)
        was_held = handoff_id in self._held_ids
        self._held_ids.add(handoff_id)
        try:
            return await self.agents.claim(ref, self.agent, holder=self.holder, lease=timedelta(minutes=minutes))
        except PipelineError:
            if not was_held:
                self._held_ids.discard(handoff_id)
            raise

    async def _return(
        self, handoff_id: str, give: Callable[[HandoffRef, AcceptedWork], Awaitable[Returned]]
    ) -> Returned:
        """Return work; a repeated call is told that it is done, even if the first one is still on its way."""
        if (repeated := await self._repeat_return(handoff_id)) is not None:
            return repeated
        try:
            returned = await give(*await self._read_accepted(handoff_id))
        except PipelineError:
            try:
                repeated = await self._repeat_return(handoff_id)
            except RPCError as error:
                if error.status is not RPCStatusCode.FAILED_PRECONDITION:  # the run's code fails: the refusal stands
                    raise
            if repeated is None:
                raise
            return repeated
        self._forget(handoff_id)
        return returned

    async def _repeat_return(self, handoff_id: str) -> Returned | None:
        """Return the answer to an agent that has already returned its work, or None."""
        end = (await self._find(handoff_id)).handoff.end
        if end is None:
            return None
        if end.kind not in (ActionKind.PATCH, ActionKind.REPORT) or end.holder != self.holder:
            raise PipelineError(f"handoff {handoff_id!r} is done: {end.kind.value} by {end.holder!r}")
        self._forget(handoff_id)
        return Returned(done=True, warnings=["you have already returned your work; nothing was changed now"])

    async def _read_accepted(self, handoff_id: str) -> tuple[HandoffRef, AcceptedWork]:
        """Return a handoff that this agent has accepted, and its message's content, the seal verified again."""
        ref = await self._find(handoff_id)
        if not ref.handoff.accepted or ref.handoff.held_by(self.agents.gate.clock()) != self.holder:
            raise PipelineError(f"handoff {handoff_id!r} is not yours yet; call accept first")
        return ref, AcceptedWork.of(loads_strict(await self.agents.read(ref)))

    def _forget(self, handoff_id: str) -> None:
        self._held_ids.discard(handoff_id)
        self._saved_refs.pop(handoff_id, None)

    def _store(self) -> ArtifactStore:
        if self.artifacts is None:
            raise PipelineError("this server has no artifact store; the person who runs it names one with --artifacts")
        return self.artifacts

    def _render(self, ref: HandoffRef) -> Waiting:
        handoff = ref.handoff
        return Waiting(
            handoff_id=_name_of(ref),
            workflow=ref.workflow_id,
            description=single_line(handoff.description)[:_MAX_DESCRIPTION_LENGTH] if handoff.accepted else None,
            since=handoff.since,
            until=handoff.until,
            reserved_for=handoff.held_by(self.agents.gate.clock()),
            accepted=handoff.accepted,
        )


def _name_of(ref: HandoffRef) -> str:
    return f"{ref.handoff.handoff_id}@{ref.workflow_id}"


def _unanswered_text(open_handoffs: OpenHandoffs) -> str:
    text = f"no worker answers for {quantity(open_handoffs.unanswered, 'waiting pipeline')}"
    return f"{open_handoffs.trouble or text}, so not all of your handoffs are known; call list_mine again in a minute"
