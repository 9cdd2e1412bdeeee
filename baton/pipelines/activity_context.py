"""`StageContext`: everything a running stage can use beside the baton, and what its worker provides."""

import asyncio
import secrets
import threading
from collections.abc import Mapping
from contextlib import suppress
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, Generic, Self, TypeVar, overload

from pydantic import JsonValue
from temporalio import activity

from baton.artifacts.activity import ArtifactAccess
from baton.artifacts.store import ArtifactStore, MemoryArtifactStore
from baton.codec.secrets import mask_values
from baton.contract.activity import SessionLog, Toolbox, calling_tool
from baton.contract.activity_lab import LabAnswers
from baton.contract.records import HandoffContract
from baton.core.artifacts import ArtifactRef
from baton.core.baton import BatonT
from baton.core.history import SPENT, UNNAMED, Spend, find_spend
from baton.core.inputs import Input, Parameters, decode_inputs, encode_inputs, get_input, input_text, readable_text
from baton.core.messages import PromptPart, StageInput
from baton.core.requester import Requester
from baton.core.stages import DEFAULT_WINDOW, Calls, StageSpec, step
from baton.core.turns import Turn
from baton.errors import ArtifactError, InputError
from baton.handoff.activity_receive import record_denied_call
from baton.personal.activity import PersonalDataAccess
from baton.personal.records import payload_changes
from baton.pipelines.activity_parts import WorkerParts
from baton.pipelines.activity_steering import NoteReader
from baton.pipelines.activity_stream import StageStream, heartbeat_details, own_details
from baton.pipelines.prompt import (
    HANDOFF_REPORT,
    MAX_READ,
    Material,
    NamedText,
    PartKind,
    Reads,
    assemble,
    page_note,
    prompt_tokens,
    read_page,
    shown_text,
    unknown_id,
)
from baton.telemetry.metrics import PROMPT_LEFT_OUT
from baton.wire.json_values import Json

T = TypeVar("T")

_RETRY_PROMPT = "\nYour last answer was rejected for the reasons above. Fix them and answer again.\n"
_PARAMS = "params"
_MAX_INLINE_CHARACTERS = 64 * 1024  # their tokens are counted within milliseconds
_MAX_LOADED_BYTES = 2_000_000  # of artifacts for a prompt
_MAX_MODELS, _OTHER_MODELS, _OTHER_TOOLS = 50, "other models", "other tools"  # billed by name
_CHARGE_DELAY = 0.05  # seconds; a lost worker loses at most the charges of this time
_STREAM_DELAY = 0.2  # seconds to collect more output


def _running_loop() -> asyncio.AbstractEventLoop | None:
    """Return the event loop that runs in this thread, or None."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


@dataclass
class StageContext(Generic[BatonT]):
    """The context of a running stage: the baton, inputs, artifacts, tools, the prompt and the cost.

    Attributes:
        baton: The part of the baton that the stage reads.
        given: The complete input of the activity: step number, attempt, findings, parameters.
        artifacts: Reads and writes artifacts.
        parts: What the worker provides.
        window: The tokens of the agent's context window.
        tokens_read: The tokens of the prompt, once built.
        prompt_parts: The parts of the prompt, once built.
        last_heartbeat: The stage's latest heartbeat details, at first those of an earlier run.
        charged: What the stage has charged so far, earlier failed or lost runs included.
        models: The part of the cost of each model in this run.
        tool_costs: What was charged inside tools in this run, by tool and model.
        spec: The stage's terms.
        lab: In the lab, what answers its tool calls.
    """

    baton: BatonT
    given: StageInput
    artifacts: ArtifactAccess
    parts: WorkerParts = field(default_factory=WorkerParts)
    window: int = DEFAULT_WINDOW
    tokens_read: int = 0
    prompt_parts: list[PromptPart] = field(default_factory=list)
    last_heartbeat: tuple[Any, ...] = ()
    charged: Spend = field(default_factory=Spend)
    models: dict[str, Spend] = field(default_factory=dict)
    tool_costs: dict[str, dict[str, Spend]] = field(default_factory=dict)
    spec: StageSpec = field(default_factory=partial(StageSpec, "stage"))
    lab: LabAnswers | None = field(default=None, init=False)
    _calls: Calls = field(default_factory=partial(Calls, "the stage", shows_arguments=False), init=False, repr=False)
    _loop: asyncio.AbstractEventLoop | None = field(default_factory=_running_loop, init=False, repr=False)
    _activity_context: Context = field(default_factory=copy_context, init=False, repr=False)
    _charging: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)
    _timer: asyncio.TimerHandle | None = field(default=None, init=False, repr=False)

    @classmethod
    def for_test(
        cls,
        baton: BatonT,
        *,
        stage: str = "test",
        params: dict[str, Json] | None = None,
        inputs: Mapping[str, Any] | None = None,
        findings: list[str] | None = None,
        artifacts: ArtifactStore | None = None,
        contract: HandoffContract | None = None,
        requester: Requester | None = None,
    ) -> Self:
        """Return a context for calling a stage in a test, without Temporal.

        Args:
            baton: The stage's baton.
            stage: The stage's name.
            params: The pipeline's parameters.
            inputs: The inputs, as in `Pipeline.stage`.
            findings: Why a previous attempt was rejected, to test a second one.
            artifacts: The store; a new one in memory by default.
            contract: What the stage may see and do; without one it may call every tool.
            requester: Who the run works for.

        Example:
            >>> from baton.core.baton import Baton
            >>> StageContext.for_test(Baton(goal="Add login"), params={"depth": 2}).params["depth"]
            2
        """
        message = StageInput(
            stage=stage,
            seq=1,
            task_id="test",
            baton=baton.to_json_object(),
            params=params or {},
            inputs=encode_inputs(inputs),
            findings=findings or [],
            attempt=2 if findings else 1,
            contract=None if contract is None else contract.to_json_object(),
            handoff_id="test",
            requester=requester,
        )
        return cls.of(baton, message, WorkerParts(artifacts=artifacts or MemoryArtifactStore()))

    @classmethod
    def of(cls, baton: BatonT, message: StageInput, parts: WorkerParts, spec: StageSpec | None = None) -> Self:
        """Return the context of one run of a stage."""
        spec = spec or StageSpec(message.stage)
        details = heartbeat_details()
        return cls(
            baton=baton,
            given=message,
            artifacts=ArtifactAccess(parts.artifacts, baton.artifacts, baton.work_scope, parts.counter),
            parts=parts,
            last_heartbeat=own_details(details),
            charged=find_spend(details),
            spec=spec,
            window=spec.window,
        )

    def check_calls(self) -> None:
        """Raise an error if the stage called a method of its context and never awaited it.

        Raises:
            PipelineError: A call was not awaited; the message names it.
        """
        self._calls.check()
        self.artifacts.check()
        if "personal" in vars(self):
            self.personal.check()
        if "tools" in vars(self):
            self.tools.check_calls()

    @cached_property
    def personal(self) -> PersonalDataAccess:
        """Reads and writes the declared fields of personal data, which stay out of baton and output."""
        given, declared = self.given, self.spec.personal_data
        access = PersonalDataAccess(self.parts.vault, given.stage, declared, given.task_id, given.personal_data)
        return self._share("personal", access)

    def sealed_personal_data(self) -> dict[str, JsonValue] | None:
        """Return the encrypted personal data with what the stage wrote; None if it wrote none."""
        if "personal" not in self.__dict__:
            return None
        return payload_changes(self.given.personal_data, self.personal.payload) or None

    @cached_property
    def contract(self) -> HandoffContract | None:
        """What the stage's agent may see and do; None if it has no contract."""
        return None if self.given.contract is None else HandoffContract.from_json_object(self.given.contract)

    @property
    def forbidden_tools(self) -> frozenset[str]:
        """The tools that the stage, its contract or a pipeline above forbids."""
        inherited = frozenset(self.given.tool_limits.forbidden if self.given.tool_limits else ())
        return self.spec.forbids | inherited | frozenset(self.contract.forbidden_tools if self.contract else ())

    @cached_property
    def session(self) -> SessionLog:
        """Records session events, from which later contracts are compiled."""
        given = self.given
        run = activity.info().attempt if activity.in_activity() else 1
        prefix = f"{given.seq}.{given.stage}" + (f".{given.attempt}.{run}" if given.attempt + run > 2 else "")
        members = prefix, self.handoff_id, self.parts.counter, self.parts.clock, mask_values
        return self._share("session", SessionLog(given.stage, *members, is_agent=self.spec.agent))

    @cached_property
    def tools(self) -> Toolbox:
        """The tools that the stage may call; calling another one raises `ToolDeniedError` and is recorded.

        Without limits a stage may call the tools that it declared, or any if it declared none. It may never call a
        tool that it forbids, nor in a child pipeline one that a pipeline above forbids or does not grant.
        """
        limits = self.contract if self.contract and self.contract.limits_tools else None
        allowed = (self.spec.tools or None) if limits is None else frozenset(limits.allowed_tools)
        members = allowed, self.session, self.handoff_id, self._record_denial
        toolbox = Toolbox(*members, forbidden=self.forbidden_tools, limits=self.given.tool_limits, lab=self.lab)
        return self._share("tools", toolbox)

    @cached_property
    def stream(self) -> StageStream:
        """Output for people to watch while the stage works; discarded unless somebody watches."""
        return self._share("stream", StageStream(self.given.stream, self._schedule_stream))

    @cached_property
    def notes(self) -> NoteReader:
        """The notes of people for this run of the stage; a stage with `steer=True` asks for `unread` ones."""
        return self._share("notes", NoteReader(self.given))

    def _schedule_stream(self) -> None:
        """Schedule a heartbeat with new output, from any thread."""
        if self._loop is None or _running_loop() is self._loop:
            self._schedule_heartbeat(_STREAM_DELAY)
        else:
            with suppress(RuntimeError):  # that loop has ended
                self._loop.call_soon_threadsafe(self._schedule_heartbeat, _STREAM_DELAY, context=self._activity_context)

    def _share(self, name: str, value: T) -> T:
        """Return the first value of a cached property, so that concurrent threads share one object."""
        shared: T = self.__dict__.setdefault(name, value)
        return shared

    async def _record_denial(self, tool: str, handoff_id: str, number: int) -> None:
        if self.parts.gate is not None:
            await record_denied_call(self.parts.gate, self.given, tool, handoff_id, number)

    @property
    def handoff_id(self) -> str:
        """The id of the handoff under which the stage acts; all its records name it."""
        return self.given.handoff_id or str((self.given.contract or {}).get("handoffId", ""))

    @property
    def requester(self) -> Requester | None:
        """Who the run works for, from the handoff; None if it was started without one. No prompt contains it."""
        return self.given.requester

    @property
    def params(self) -> dict[str, Json]:
        """The pipeline's parameters."""
        return Parameters(self.given.params)

    @cached_property
    def inputs(self) -> dict[str, Input]:
        """The inputs by name: JSON and text unchanged, artifacts as `ArtifactRef`."""
        return decode_inputs(self.given.inputs)

    @overload
    def input(self, name: str) -> Input: ...
    @overload
    def input(self, name: str, kind: type[T]) -> T: ...
    def input(self, name: str, kind: type[Any] | None = None) -> Any:
        """Return one input, converted to ``kind`` if given.

        Args:
            name: The input's name.
            kind: Any type that pydantic can parse, such as a model.

        Raises:
            InputError: The input does not exist, or it cannot be converted.

        Example:
            >>> from baton.core.baton import Baton
            >>> context = StageContext.for_test(Baton(goal="Edit"), inputs={"draft": "Batons travel."})
            >>> context.input("draft", str)
            'Batons travel.'
        """
        return get_input(self.inputs, name, kind)

    @step
    async def input_text(self, name: str) -> str:
        """Return one input as text: a string unchanged, an artifact's content, or JSON.

        Raises:
            InputError: The input does not exist, or the artifact is not text.
            ArtifactError: The artifact cannot be read.
        """
        value = self.input(name)
        if not isinstance(value, ArtifactRef):
            return input_text(value)
        try:
            return (await self.artifacts.store.get(value.hash)).decode()
        except UnicodeDecodeError:
            raise InputError(f"input {name!r} is the artifact {value.id!r}, which is not text in UTF-8") from None

    @property
    def turns(self) -> list[Turn]:
        """The newest turns of the conversation, verbatim; the summary covers the older ones."""
        return [Turn.from_json_object(turn) for turn in self.given.turns]

    @property
    def findings(self) -> list[str]:
        """Why the previous attempt was rejected; empty on the first."""
        return self.given.findings

    @property
    def attempt(self) -> int:
        """The attempt, from 1; each rejected patch leads to another."""
        return self.given.attempt

    @cached_property
    def prompt(self) -> str:
        """The content of the agent's user turn: markdown inside data fences.

        It has contract and baton, and the findings on a previous attempt; `prompt_with_inputs` adds inputs and
        artifacts. It is complete if it fits the window; otherwise it names what is left out or shortened, in the
        order of `baton.pipelines.prompt`.

        Raises:
            PromptTooLargeError: Task, goal and constraints do not fit.
        """
        return self._build_prompt(self._material([], {}), 0, None)

    @step
    async def prompt_with_inputs(
        self, *, params: bool = False, window: int | None = None, beside: int = 0, reads: Reads | None = None
    ) -> str:
        """Return `prompt` with each input under its name, the artifacts in the work scope, and facts in full.

        Args:
            params: Include the parameters as another input.
            window: The tokens of the model's context window; the stage's `window` by default.
            beside: The tokens that the model reads beside the prompt: instructions, tools, the output schema.
            reads: How the agent reads the rest of shortened texts; None if it cannot.

        Raises:
            PromptTooLargeError: Task, goal, constraints and the required inputs do not fit.
            InputError: An artifact is not text, or a required input is missing.
            ArtifactError: An artifact cannot be read.
        """
        whole, authors, self.window = self.spec.whole, self.given.authors, window or self.window
        for name in whole:
            self.input(name)
        texts = [
            NamedText(PartKind.INPUT, name, await self._prompt_text(name), name in whole, by=authors.get(name, ""))
            for name in self.inputs
        ]
        if params and self.params:
            texts.append(NamedText(PartKind.INPUT, _PARAMS, readable_text(self.params)))
        texts += await self._load_artifacts()
        claims = {}
        for fact in self.contract.facts if self.contract else ():
            if fact.in_full and (text := await self.artifacts.text_of(fact.whole, required=True)) is not None:
                claims[fact.event_id] = text
        material = self._material(texts, claims)
        if sum(len(item.text or "") for item in texts) + sum(map(len, claims.values())) <= _MAX_INLINE_CHARACTERS:
            self.prompt = self._build_prompt(material, beside, reads)
        else:  # counting the tokens of a megabyte would delay the heartbeats of other stages
            self.prompt = await asyncio.to_thread(self._build_prompt, material, beside, reads)
        return self.prompt

    async def _load_artifacts(self) -> list[NamedText]:
        """Return the artifacts in the work scope, the newest first, without those that are inputs."""
        texts: list[NamedText] = []
        input_hashes = {value.hash for value in self.inputs.values() if isinstance(value, ArtifactRef)}
        remaining = _MAX_LOADED_BYTES
        for ref in reversed([ref for ref in self.artifacts.in_scope() if ref.hash not in input_hashes]):
            if (ref.size or 0) > remaining:
                why = f"0 of {ref.size:,} bytes; it is too large for a prompt"
                texts.append(NamedText(PartKind.ARTIFACT, ref.id, None, why=why))
                continue
            text = await self.artifacts.text(ref)
            remaining -= len(text or "")
            why = "" if text is not None else "not text, or this worker has no store"
            texts.append(NamedText(PartKind.ARTIFACT, ref.id, text, why=why))
        return texts

    async def _prompt_text(self, name: str) -> str:
        value = self.input(name)
        return await self.input_text(name) if isinstance(value, ArtifactRef) else shown_text(value)

    def _material(self, texts: list[NamedText], claims: dict[str, str]) -> Material:
        if (report := self.given.report) and all(item.text != report for item in texts):
            texts = [NamedText(PartKind.INPUT, HANDOFF_REPORT, report), *texts]
        return Material(
            baton=self.baton,
            earlier_decisions=self.given.earlier_decisions,
            contract=self.contract,
            claims=claims,
            summary=self.given.summary,
            turns=self.turns,
            findings=self.findings,
            texts=texts,
        )

    def _build_prompt(self, material: Material, beside: int, reads: Reads | None) -> str:
        """Return a prompt that fits the window, and store its parts."""
        counter = self.parts.counter
        # The findings themselves are inside a fence, because they may quote a message.
        retry = _RETRY_PROMPT if self.findings else ""
        allowed = prompt_tokens(self.window, beside + counter(retry))
        prompt = assemble(material, allowed, counter, secrets.token_hex(8), reads=reads)
        text = prompt.text + retry
        self.tokens_read = counter(text) if retry else prompt.tokens
        self.prompt_parts = prompt.parts
        if left_out := sum(max(part.tokens - part.shown, 0) for part in prompt.parts):
            self.parts.metrics.count(PROMPT_LEFT_OUT, self.given.stage, by=left_out)
        return text

    def readable(self) -> dict[str, str | None]:
        """Return what `read_artifact` may read: inputs, artifacts, older turns, and facts with a long claim.

        The value is the hash of the artifact, for a fact of the one with the whole claim; None for other inputs and the
        report.
        """
        facts = self.contract.facts if self.contract else ()
        hashes: dict[str, str | None] = {fact.event_id: fact.whole for fact in facts if fact.whole is not None}
        hashes |= {ref.id: ref.hash for ref in (*self.given.older, *self.artifacts.refs)}
        hashes |= {HANDOFF_REPORT: None} if self.given.report else {}
        inputs = self.inputs.items()
        return hashes | {name: value.hash if isinstance(value, ArtifactRef) else None for name, value in inputs}

    @step
    async def read_artifact(self, id: str, offset: int = 0, limit: int = MAX_READ) -> dict[str, Json]:
        """Return a part of a text that the contract, baton or inputs name; agents have it as a tool.

        Args:
            id: An input's name, an artifact's id, or a fact's event id, in this precedence.
            offset: The first character.
            limit: The number of characters, at most 16,000.

        Returns:
            `text`, the total `characters`, and `next`, the offset of the rest; or an `error` for the agent.
        """
        if id not in self.readable():
            return unknown_id(id, self.readable())
        page = read_page(id, await self.readable_text(id), offset, limit)
        if (note := page_note(page)) is not None:
            self.session.internal_note(note)
        return page

    async def readable_text(self, id: str) -> str | None:
        """Return the full text for an id in `readable`; None if it is not text."""
        if id in self.inputs:
            try:
                return await self._prompt_text(id)
            except (InputError, ArtifactError):
                return None
        return self.given.report if id == HANDOFF_REPORT else await self.artifacts.text_of(self.readable().get(id))

    def heartbeat(self, *details: Any) -> None:
        """Send a heartbeat with details that survive a lost worker.

        Stages with a heartbeat timeout send heartbeats by themselves; call this only to store details.

        Args:
            details: JSON values; the next run reads them in `resumed`.
        """
        self.last_heartbeat = details
        self.resend_heartbeat()

    def resend_heartbeat(self) -> None:
        """Send the last heartbeat again with the current cost, from any thread."""
        if self._loop is None or _running_loop() is self._loop:
            self._send()
        else:  # Temporal accepts heartbeats only in the stage's own loop and context
            with suppress(RuntimeError):  # that loop has ended
                self._loop.call_soon_threadsafe(self._send, context=self._activity_context)

    def _send(self) -> None:
        """Send the last heartbeat with the stream and the current cost."""
        if activity.in_activity():
            streamed = []
            if "stream" in vars(self):
                streamed = [self.stream.snapshot(activity.info().attempt).newest().to_json()]
            activity.heartbeat(*self.last_heartbeat, *streamed, *self.cost_details())

    def charge(self, spend: Spend, model: str = "") -> None:
        """Charge a cost at once, whether or not the stage succeeds.

        Use it for each model call instead of the spend of the `StageResult`. Costs of a run that raised or was lost
        are included in the next run. A heartbeat reports the cost within 0.05 seconds; a stage that ends earlier
        reports it in its result.

        Args:
            spend: The cost.
            model: The model that was called, for `baton bill`.

        Example:
            >>> from baton.core.baton import Baton
            >>> context = StageContext.for_test(Baton(goal="Add login"))
            >>> context.charge(Spend(micro_usd=500))
            >>> context.charged.micro_usd
            500
        """
        with self._charging:  # threads of a stage charge at the same time
            self.charged = self.charged + spend
            if model:
                name = model[:200] if model in self.models or len(self.models) < _MAX_MODELS else _OTHER_MODELS
                self.models[name] = self.models.get(name, Spend()) + spend
            else:
                name = UNNAMED
            if tool := calling_tool():
                key = tool[:200] if tool in self.tool_costs or len(self.tool_costs) < _MAX_MODELS else _OTHER_TOOLS
                costs = self.tool_costs.setdefault(key, {})
                costs[name] = costs.get(name, Spend()) + spend
        if self._loop is None or _running_loop() is not self._loop:  # in another thread
            self.resend_heartbeat()
        else:
            self._schedule_heartbeat(_CHARGE_DELAY)

    def _schedule_heartbeat(self, seconds: float) -> None:
        """Send a heartbeat within so many seconds."""
        if self._loop is None:
            return
        if self._timer is not None:
            if self._timer.when() <= self._loop.time() + seconds:
                return
            self._timer.cancel()
        self._timer = self._loop.call_later(seconds, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self.resend_heartbeat()

    async def settle(self) -> None:
        """Record the remaining denied tool calls, and cancel the timer: the stage's result has the cost."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if "tools" in self.__dict__:  # otherwise they were not used
            await self.tools.settle()

    def cost_details(self) -> list[dict[str, Any]]:
        """Return the current cost as details of a heartbeat or failure."""
        return [{SPENT: self.charged.model_dump(mode="json")}] if self.charged else []

    @property
    def resumed(self) -> list[Any]:
        """The last heartbeat details of a lost run; empty on the first run."""
        return [*own_details(heartbeat_details())]
