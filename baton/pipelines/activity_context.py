"""What a stage may ask for beside the baton, and what its worker provides."""

import asyncio
import secrets
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import Context, ContextVar, copy_context
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Generic, Self, TypeVar, overload

from pydantic import JsonValue
from temporalio import activity
from temporalio.common import MetricMeter

from baton.artifacts.activity import ArtifactAccess
from baton.artifacts.records import ArtifactRef
from baton.artifacts.store import ArtifactStore, MemoryArtifactStore
from baton.compression.rules import Summariser
from baton.contract.activity import SessionLog, Toolbox
from baton.contract.records import HandoffContract, SessionEvent
from baton.contract.registry import OutputSchemas
from baton.core.baton import BatonT
from baton.core.history import SPENT, Spend, find_spend
from baton.core.inputs import Input, decode_inputs, encode_inputs, get_input, input_text
from baton.core.messages import PromptPart, StageInput
from baton.core.stages import DEFAULT_WINDOW, Calls, StageSpec, step
from baton.core.streaming import STREAMED
from baton.errors import ArtifactError, InputError
from baton.handoff.activity_receive import record_denied_call
from baton.handoff.records import Turn
from baton.handoff.store_gate import Gate, now_utc
from baton.personal.activity import PersonalDataAccess
from baton.personal.records import written_onto
from baton.personal.store import Vault
from baton.pipelines.activity_stream import StageStream
from baton.pipelines.prompt import (
    MAX_READ,
    Kind,
    Material,
    NamedText,
    Reads,
    assemble,
    page_note,
    prompt_tokens,
    read_page,
    unknown_id,
)
from baton.telemetry.metrics import PROMPT_LEFT_OUT, Metrics
from baton.wire.json_values import Json
from baton.wire.text import TokenEstimator, estimate_tokens

T = TypeVar("T")

_UNMEASURED = Metrics(MetricMeter.noop)
_PARAMS = "params"
_SHORT = 64 * 1024  # characters, whose tokens are counted in some milliseconds
_MOST_LOADED = 2_000_000  # bytes of artifacts that a prompt is made from
_MODELS, _OTHER_MODELS = 50, "other models"  # so many models of a stage are billed by name
_TOLD_WITHIN = 0.05  # seconds; so much of a bill a lost worker may cost
_STREAMED_WITHIN = 0.2  # seconds that what a stage says waits for more


@dataclass(frozen=True)
class WorkerParts:
    """What a worker provides to its stages; `BatonPlugin` sets it up.

    Attributes:
        artifacts: The artifact store, or None.
        counter: Counts the tokens of prompts and artifacts.
        gate: What answers handoffs, or None; a worker without one runs pipelines that do not hand off.
        vault: The vault of personal data, or None.
        summariser: The model that summarises long histories of turns, or None: rules write the summaries then.
        schemas: The registered schemas that outputs of stages must fit, or None.
        clock: Tells the time of session events, and whether contracts have expired.
        metrics: What the worker counts; `BatonPlugin` sets it.
        deciders: The file of those who may decide about approvals that need proof, or that name groups.
    """

    artifacts: ArtifactStore | None = None
    counter: TokenEstimator = estimate_tokens
    gate: Gate | None = None
    vault: Vault | None = None
    summariser: Summariser | None = None
    schemas: OutputSchemas | None = None
    clock: Callable[[], datetime] = now_utc
    metrics: Metrics = _UNMEASURED
    deciders: Path | None = None


_parts: ContextVar[WorkerParts | None] = ContextVar("baton_worker_parts", default=None)


def current_parts() -> WorkerParts:
    """Return what the worker around the running stage provides."""
    return _parts.get() or WorkerParts()


@contextmanager
def worker_parts(parts: WorkerParts) -> Iterator[None]:
    """Provide ``parts`` to the stages that run inside the `with` block."""
    token = _parts.set(parts)
    try:
        yield
    finally:
        _parts.reset(token)


def _running_loop() -> asyncio.AbstractEventLoop | None:
    """Return the event loop that runs in this thread, if one does."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


@dataclass
class StageContext(Generic[BatonT]):
    """What a stage that needs more than the baton is given.

    Attributes:
        baton: The baton, as far as the stage reads it.
        given: The whole input of the activity: step number, attempt, findings, parameters.
        artifacts: Where artifacts are read and written.
        parts: What the worker provides.
        window: The tokens of the window of the stage's agent.
        tokens_read: What the prompt cost, once it was asked for.
        prompt_parts: What parts the prompt has, once it was asked for.
        last_heartbeat: The details of the last heartbeat; of a run before this one, until this one has given some.
        charged: What the stage has charged so far, earlier runs that raised or were lost included.
        models: What of it each model cost, in this run.
        spec: The stage's terms.
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
    spec: StageSpec = field(default_factory=partial(StageSpec, "stage"))
    _calls: Calls = field(default_factory=partial(Calls, "the stage", shows_arguments=False), init=False, repr=False)
    _loop: asyncio.AbstractEventLoop | None = field(default_factory=_running_loop, init=False, repr=False)
    _around: Context = field(default_factory=copy_context, init=False, repr=False)
    _charging: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)
    _telling: asyncio.TimerHandle | None = field(default=None, init=False, repr=False)

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
    ) -> Self:
        """Return a context for calling a stage in a test, without Temporal.

        Args:
            baton: The baton the stage is to see.
            stage: The stage's name.
            params: The pipeline's parameters.
            inputs: What it works on, as of `Pipeline.stage`.
            findings: Why an attempt before was refused, to test a second one.
            artifacts: The store; a new one in memory by default.
            contract: What the stage may see and do; without one it may call every tool.

        Example:
            >>> from baton.core.baton import Baton
            >>> StageContext.for_test(Baton(goal="Add login"), params={"depth": 2}).params["depth"]
            2
        """
        given = StageInput(
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
        )
        return cls.of(baton, given, WorkerParts(artifacts=artifacts or MemoryArtifactStore()))

    @classmethod
    def of(cls, baton: BatonT, given: StageInput, parts: WorkerParts, spec: StageSpec | None = None) -> Self:
        """Return the context of one run of a stage."""
        spec = spec or StageSpec(given.stage)
        access = ArtifactAccess(parts.artifacts, baton.artifacts, baton.work_scope, parts.counter)
        earlier = _heartbeat_details()
        return cls(
            baton=baton,
            given=given,
            artifacts=access,
            parts=parts,
            last_heartbeat=_own(earlier),
            charged=find_spend(earlier),
            spec=spec,
            window=spec.window,
        )

    def check_calls(self) -> None:
        """Raise an error if the stage called something of its context and never awaited it.

        Raises:
            PipelineError: It did; the message names the call.
        """
        self._calls.check()
        self.artifacts.check()
        if "personal" in vars(self):
            self.personal.check()
        if "tools" in vars(self):
            self.tools.check_calls()

    @cached_property
    def personal(self) -> PersonalDataAccess:
        """Where personal data is read and written, as far as the stage declared it; never in baton or output."""
        given = self.given
        declared = self.spec.personal_data
        made = PersonalDataAccess(self.parts.vault, given.stage, declared, given.task_id, given.personal_data)
        return self._first("personal", made)

    def sealed_personal_data(self) -> dict[str, JsonValue] | None:
        """Return the personal data that the stage has written, if it has any."""
        if "personal" not in self.__dict__:
            return None
        return written_onto(self.given.personal_data, self.personal.payload) or None

    @cached_property
    def contract(self) -> HandoffContract | None:
        """What the stage's agent may see and do; None in a pipeline without contracts."""
        return None if self.given.contract is None else HandoffContract.from_json_object(self.given.contract)

    @cached_property
    def session(self) -> SessionLog:
        """Where the stage records what it does and hears; later contracts are compiled from it."""
        given = self.given
        run = activity.info().attempt if activity.in_activity() else 1
        prefix = ".".join(
            [str(given.seq), given.stage, *([f"{given.attempt}", f"{run}"] if given.attempt + run > 2 else [])]
        )
        made = SessionLog(given.stage, prefix, self.handoff_id, self.parts.counter, self.parts.clock)
        return self._first("session", made)

    @cached_property
    def tools(self) -> Toolbox:
        """The tools that the stage may call; calling another one raises `ToolDeniedError` and is put on record.

        Without a contract a stage may call the tools that it declared, and every tool if it declared none; never one
        that it forbids.
        """
        allowed = (self.spec.tools or None) if self.contract is None else frozenset(self.contract.allowed_tools)
        made = Toolbox(allowed, self.session, self.handoff_id, self._denied, forbidden=self.spec.forbids)
        return self._first("tools", made)

    @cached_property
    def stream(self) -> StageStream:
        """Where the stage says what people may read while it works; nothing is kept unless somebody asked for it."""
        return self._first("stream", StageStream(self.given.stream, self._said))

    def _said(self) -> None:
        """Have the server told of what was said, soon."""
        if self._loop is None or _running_loop() is self._loop:
            self._tell_within(_STREAMED_WITHIN)
        else:
            with suppress(RuntimeError):  # that loop has ended
                self._loop.call_soon_threadsafe(self._tell_within, _STREAMED_WITHIN, context=self._around)

    def _first(self, name: str, made: T) -> T:
        """Return what was made first of threads that ask for it at once: what the others note would be lost."""
        first: T = self.__dict__.setdefault(name, made)
        return first

    async def _denied(self, tool: str, handoff_id: str, number: int) -> None:
        """Put a denied call on record."""
        if self.parts.gate is not None:
            await record_denied_call(self.parts.gate, self.given, tool, handoff_id, number)

    @property
    def handoff_id(self) -> str:
        """The handoff under which the stage acts; whatever it does is to name it."""
        named = (self.given.contract or {}).get("handoffId", "")
        return self.given.handoff_id or str(named)

    @property
    def params(self) -> dict[str, Json]:
        """The pipeline's parameters."""
        return self.given.params

    @cached_property
    def inputs(self) -> dict[str, Input]:
        """What the stage works on, by name: JSON and texts as they are, an artifact as its `ArtifactRef`."""
        return decode_inputs(self.given.inputs)

    @overload
    def input(self, name: str) -> Input: ...
    @overload
    def input(self, name: str, kind: type[T]) -> T: ...
    def input(self, name: str, kind: type[Any] | None = None) -> Any:
        """Return one input, as a value of a type where one is given, such as a pydantic model.

        Args:
            name: The input's name.
            kind: What it is to be: any type that pydantic can read.

        Raises:
            InputError: The stage was not given it, or it does not fit the type.

        Example:
            >>> from baton.core.baton import Baton
            >>> context = StageContext.for_test(Baton(goal="Edit"), inputs={"draft": "Batons travel."})
            >>> context.input("draft", str)
            'Batons travel.'
        """
        return get_input(self.inputs, name, kind)

    @step
    async def input_text(self, name: str) -> str:
        """Return one input as a text: of an artifact what is in it, of other JSON than a text its JSON.

        Raises:
            InputError: The stage was not given it, or the artifact holds no text.
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
        """The newest turns of the conversation so far, word for word; the older ones are in the summary."""
        return [Turn.from_json_object(turn) for turn in self.given.turns]

    @property
    def findings(self) -> list[str]:
        """Why the attempt before was refused; empty on the first."""
        return self.given.findings

    @property
    def attempt(self) -> int:
        """Which attempt this is, from 1: one more for every refused patch."""
        return self.given.attempt

    @cached_property
    def prompt(self) -> str:
        """What the agent is to know, for the user turn of its prompt: markdown inside data fences.

        It has contract and baton, and on a further attempt what was wrong with the one before; inputs and artifacts
        come with `prompt_with_inputs`. All of it is whole while it fits the window; what is left out or shortened is
        named in it (`baton.pipelines.prompt` has the order).

        Raises:
            PromptTooLargeError: Task, goal and constraints do not fit.
        """
        return self._prompt(self._material([], {}), 0, None)

    @step
    async def prompt_with_inputs(
        self, *, params: bool = False, window: int | None = None, beside: int = 0, reads: Reads | None = None
    ) -> str:
        """Return `prompt` with each input under its name, the artifacts in the work scope, and long facts whole.

        Args:
            params: Show the parameters as well, like one more input.
            window: The tokens of the model's window; the stage's `window` by default.
            beside: The tokens of what the model reads beside the prompt: instructions, tools, the answer's schema.
            reads: How the agent reads the rest of what is shortened; None if it cannot.

        Raises:
            PromptTooLargeError: Task, goal, constraints and the inputs that must be whole do not fit.
            InputError: An artifact holds no text, or an input that must be whole was not given.
            ArtifactError: An artifact cannot be read.
        """
        self.window = window or self.window
        for name in self.spec.whole:
            self.input(name)
        texts = [
            NamedText(Kind.INPUT, name, await self.input_text(name), required=name in self.spec.whole)
            for name in self.inputs
        ]
        if params and self.params:
            texts.append(NamedText(Kind.INPUT, _PARAMS, input_text(self.params)))
        texts += await self._in_scope()
        claims = {}
        for fact in self.contract.facts if self.contract else ():
            if fact.in_full and (text := await self.artifacts.text_of(fact.whole)) is not None:
                claims[fact.event_id] = text
        material = self._material(texts, claims)
        if sum(len(one.text or "") for one in texts) + sum(map(len, claims.values())) <= _SHORT:
            self.prompt = self._prompt(material, beside, reads)
        else:  # in a thread: to count the tokens of a megabyte takes longer than other stages' heartbeats may wait
            self.prompt = await asyncio.to_thread(self._prompt, material, beside, reads)
        return self.prompt

    async def _in_scope(self) -> list[NamedText]:
        """Return the artifacts that the work scope selects, the newest first, without those that are inputs."""
        found: list[NamedText] = []
        given = {one.hash for one in self.inputs.values() if isinstance(one, ArtifactRef)}
        left = _MOST_LOADED
        for ref in reversed([one for one in self.artifacts.in_scope() if one.hash not in given]):
            if (ref.size or 0) > left:
                why = f"0 of {ref.size:,} bytes; it is too large for a prompt"
                found.append(NamedText(Kind.ARTIFACT, ref.id, None, why=why))
                continue
            text = await self.artifacts.text_of(ref.hash)
            left -= len(text or "")
            why = "" if text is not None else "not text, or not in this worker's store"
            found.append(NamedText(Kind.ARTIFACT, ref.id, text, why=why))
        return found

    def _material(self, texts: list[NamedText], claims: dict[str, str]) -> Material:
        """Return what may stand in the prompt."""
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

    def _prompt(self, material: Material, beside: int, reads: Reads | None) -> str:
        """Return a prompt that fits the window, and note what it has."""
        counter = self.parts.counter
        again = "\nYour last answer was refused for the reasons above. Mend them and answer again.\n"
        told = again if self.findings else ""  # the findings may quote what somebody sent, so they are data as well
        allowed = prompt_tokens(self.window, beside + counter(told))
        made = assemble(material, allowed, counter, secrets.token_hex(8), reads=reads)
        text = made.text + told
        self.tokens_read = counter(text) if told else made.tokens
        self.prompt_parts = made.parts
        if left_out := sum(max(part.tokens - part.shown, 0) for part in made.parts):
            self.parts.metrics.count(PROMPT_LEFT_OUT, self.given.stage, by=left_out)
        return text

    def readable(self) -> dict[str, str | None]:
        """Return what `read_artifact` may read, with the hash of its text: inputs, artifacts, facts with a long claim.

        An input without an artifact has no hash.
        """
        facts = self.contract.facts if self.contract else ()
        named: dict[str, str | None] = {fact.event_id: fact.whole for fact in facts if fact.whole is not None}
        named |= {ref.id: ref.hash for ref in self.artifacts.refs}
        return named | {name: one.hash if isinstance(one, ArtifactRef) else None for name, one in self.inputs.items()}

    @step
    async def read_artifact(self, id: str, offset: int = 0, limit: int = MAX_READ) -> dict[str, Json]:
        """Return a part of a text that the stage's contract, baton or inputs name; the tool that an agent has.

        Args:
            id: The input's name, the artifact's id, or the fact's event; the first of these that there is.
            offset: Where to begin, in characters.
            limit: How many characters, at most 16,000.

        Returns:
            `text`, `characters` of the whole, and `next`, the offset of the rest; or an `error` for the agent.
        """
        if id not in self.readable():
            return unknown_id(id, self.readable())
        page = read_page(id, await self.readable_text(id), offset, limit)
        if (note := page_note(page)) is not None:
            self.session.internal_note(note)
        return page

    async def readable_text(self, id: str) -> str | None:
        """Return the whole text of what `readable` names; None if it has none."""
        if id in self.inputs:
            try:
                return await self.input_text(id)
            except (InputError, ArtifactError):
                return None
        return await self.artifacts.text_of(self.readable().get(id))

    def heartbeat(self, *details: Any) -> None:
        """Tell Temporal that the stage is alive, with details that survive the worker.

        A stage with a heartbeat timeout is kept alive by itself; what this adds are the details.

        Args:
            details: JSON values; the next run finds them in `resumed`.
        """
        self.last_heartbeat = details
        self.resend_heartbeat()

    def resend_heartbeat(self) -> None:
        """Send the last heartbeat again, with what was charged by now."""
        if self._loop is None or _running_loop() is self._loop:
            self._send()
        else:  # a thread of the stage's; Temporal takes heartbeats in the stage's own loop, and knows it by its context
            with suppress(RuntimeError):  # that loop has ended, and no code waits for it
                self._loop.call_soon_threadsafe(self._send, context=self._around)

    def _send(self) -> None:
        """Send the last heartbeat, with what was charged by now."""
        if activity.in_activity():
            said = [self.stream.said(activity.info().attempt).newest().to_json()] if "stream" in vars(self) else []
            activity.heartbeat(*self.last_heartbeat, *said, *self.cost_details())

    def charge(self, spend: Spend, model: str = "") -> None:
        """Charge what something cost, at once: it is paid whether or not the stage succeeds.

        Use it for each call of a model, instead of the spend of the `StageResult`. What a run charged before it
        raised, or before its worker was lost, is in the bill of the next one. A heartbeat tells the server within
        a twentieth of a second, so that a stage which ends by then, and tells its bill itself, costs it none.

        Args:
            spend: What it cost.
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
                name = model[:200] if model in self.models or len(self.models) < _MODELS else _OTHER_MODELS
                self.models[name] = self.models.get(name, Spend()) + spend
        if self._loop is None or _running_loop() is not self._loop:  # in a thread of the stage's
            self.resend_heartbeat()
        else:
            self._tell_within(_TOLD_WITHIN)

    def _tell_within(self, seconds: float) -> None:
        """Tell the server of what was charged and said, within so many seconds."""
        if self._loop is None:
            return
        if self._telling is not None:
            if self._telling.when() <= self._loop.time() + seconds:
                return
            self._telling.cancel()
        self._telling = self._loop.call_later(seconds, self._tell)

    def _tell(self) -> None:
        """Tell the server what was charged and said."""
        self._telling = None
        self.resend_heartbeat()

    async def settle(self) -> None:
        """Put denied calls of tools on record that are not yet; what was charged the stage tells itself now."""
        if self._telling is not None:
            self._telling.cancel()
            self._telling = None
        if "tools" in self.__dict__:  # otherwise they were not used
            await self.tools.settle()

    async def close_session(self) -> tuple[list[SessionEvent], str | None]:
        """Return what `SessionLog.close` returns, and nothing if nothing was recorded."""
        return await self.session.close(self.parts.artifacts) if "session" in self.__dict__ else ([], None)

    def cost_details(self) -> list[dict[str, Any]]:
        """Return what was charged so far, as heartbeats and failures carry it."""
        return [{SPENT: self.charged.model_dump(mode="json")}] if self.charged else []

    @property
    def resumed(self) -> list[Any]:
        """The details of the last heartbeat of a run that was lost; empty on the first run."""
        return [*_own(_heartbeat_details())]


def _heartbeat_details() -> Sequence[Any]:
    """Return the details of the last heartbeat of a run before this one."""
    return activity.info().heartbeat_details if activity.in_activity() else ()


def _own(details: Sequence[Any]) -> tuple[Any, ...]:
    """Return the details of a heartbeat that the stage itself gave: without the bill, and what it said."""
    return tuple(one for one in details if not (isinstance(one, dict) and (SPENT in one or STREAMED in one)))
