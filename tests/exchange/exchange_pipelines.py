"""Pipelines that hand off to one another.

They stand in a file of their own because a workflow is loaded again in its sandbox, by the name of its module.
"""

import asyncio
import math
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any

from pydantic import JsonValue
from temporalio import workflow

from baton import Baton, ContinueAfter, Pipeline, PipelineInput, PipelineResult, ReceiverRequirements, Settled
from baton.core.pending import HandoffAction, PendingHandoff
from baton.errors import ApprovalDeniedError, StageFailedError
from baton.exchange.records import Acknowledgement, ReceivedHandoff, received_patch
from baton.exchange.workflow import ATTEMPTS, Exchange
from baton.exchange.workflow_broadcast import hand_off_to_all
from baton.exchange.workflow_external import Outside
from baton.exchange.workflow_messages import Receiver
from baton.exchange.workflow_streams import Streams
from tests.patience import IN_TIME

with workflow.unsafe.imports_passed_through():
    from tests.handoff.handoff_stages import extract


RECORDED, RECORDED_OUTSIDE = timedelta(seconds=20), timedelta(seconds=25)
"""When messages expire: they say so, and would be others than those of the recorded histories."""


def _within(params: Any, otherwise: timedelta = IN_TIME) -> timedelta:
    return timedelta(seconds=params["seconds"]) if "seconds" in params else otherwise


def _receiver(params: Any) -> Receiver:
    return Receiver(
        params["to"], params.get("agent", "risk"), starts=params.get("starts"), params=params.get("give", {})
    )


def _score(baton: Baton, received: ReceivedHandoff) -> dict[str, JsonValue]:
    return {**received_patch(baton, received), "decision_log": [f"Took over from {received.sender}"]}


@workflow.defn
class HandsOff:
    """Hands on; parameters: `to`, `agent`, `starts`, `seconds`, `attempts`, `state`, `corrected`, `patient`.

    `corrected` is the state of a second try; a `patient` one asks a person when nobody answers; `nan` hands on NaN.
    """

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start)
        self.exchange = Exchange(self.pipeline, agent="legal")

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        params: Any = self.pipeline.params
        to, within = _receiver(params), _within(params, RECORDED)
        state = {"score": math.nan} if params.get("nan") else params.get("state")
        try:
            attempts = params.get("attempts", ATTEMPTS)
            ack = await self.exchange.hand_off(to, "Score the risk", within=within, state=state, attempts=attempts)
        except StageFailedError:
            if not params.get("patient"):
                raise
            await self.pipeline.approve("go on", within=IN_TIME)
            return self.pipeline.result([])
        answers = [ack]
        if ack.unmet and "corrected" in params:
            answers.append(
                await self.exchange.hand_off(
                    to, "Score the risk", within=within, state=params["corrected"], corrects=ack
                )
            )
        return self.pipeline.result([answer.to_json_object() for answer in answers])


@workflow.defn
class AsksAPerson:
    """Hands on; when nobody answers, a person who was asked has it sent again; parameter: `to`."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start)
        self.exchange = Exchange(self.pipeline, agent="legal", on_silence=self.ask)

    async def ask(self, pending: PendingHandoff, within: timedelta) -> Settled:
        """Ask by an approval: yes sends it again."""
        try:
            decided = await self.pipeline.approve(f"send {pending.receiver} again", within=within * 10)
        except ApprovalDeniedError as error:
            denied: Settled = error.decided
            return denied.model_copy(update={"choice": HandoffAction.ABANDON.value, "who": "ann", "why": str(error)})
        return decided.model_copy(update={"choice": HandoffAction.REQUEUE.value})

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        to: Any = self.pipeline.params["to"]
        ack = await self.exchange.hand_off(Receiver(to, "risk"), "Score the risk", within=timedelta(seconds=1))
        return self.pipeline.result(ack.to_json_object())


@workflow.defn
class GoesOn:
    """Waits for a minute after a handoff that nobody answers; parameter: `to`."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start)
        self.exchange = Exchange(self.pipeline, agent="legal")

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        with suppress(StageFailedError):
            await self.exchange.hand_off(_receiver(self.pipeline.params), "Score the risk", within=timedelta(seconds=1))
        await self.pipeline.sleep(timedelta(minutes=1))
        return self.pipeline.result()


@workflow.defn
class AsksTheInbox:
    """Extracts, then hands on; when nobody answers, the handoff waits in the inbox; parameters: `to`, `seconds`."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start)
        self.exchange = Exchange(self.pipeline, agent="legal", on_silence=self.pipeline.ask)

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        params: Any = self.pipeline.params
        await self.pipeline.stage(extract)
        ack = await self.exchange.hand_off(Receiver(params["to"], "risk"), "Score the risk", within=_within(params))
        return self.pipeline.result(ack.to_json_object())


@workflow.defn
class Receives:
    """Receives `rounds` handoffs, one by default; parameters: `needs` (members of the state), `seconds`."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start)
        self.exchange = Exchange(self.pipeline, agent="risk")

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        params: Any = self.pipeline.params
        needs = frozenset(params.get("needs", ()))
        requirements = ReceiverRequirements("risk", "1.6.0", needs)
        within = _within(params)
        received = [
            await self.exchange.receive(requirements, within=within, takes=_score)
            for _ in range(params.get("rounds", 1))
        ]
        if params.get("back"):
            sender = Receiver(received[0].reply_to or "", "legal")
            await self.exchange.hand_off(sender, "Here is the score", within=_within(params, RECORDED))
        return self.pipeline.result([handoff.model_dump(mode="json") for handoff in received])


@workflow.defn
class ReceivesLater:
    """Receives one handoff in a run that continues as new right before that, once an approval was given."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start, continue_after=ContinueAfter(events=10))
        self.exchange = Exchange(self.pipeline, agent="risk")

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        await self.pipeline.approve("begin", within=IN_TIME)
        received = await self.exchange.receive(ReceiverRequirements("risk", "1.0.0"), within=IN_TIME, takes=_score)
        return self.pipeline.result(received.handoff_id)


@workflow.defn
class ThereAndBack:
    """Hands on to a pipeline that it starts, and receives what that one hands back; parameter: `to`."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start)
        self.exchange = Exchange(self.pipeline, agent="legal")

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        params: Any = self.pipeline.params
        to = Receiver(params["to"], "risk", starts=Receives.run, params={"back": True})
        ack: Acknowledgement = await self.exchange.hand_off(to, "Score the risk", within=RECORDED)
        received = await self.exchange.receive(ReceiverRequirements("legal", "1.0.0"), within=IN_TIME)
        return self.pipeline.result([ack.to_json_object(), received.model_dump(mode="json")])


@workflow.defn
class HandsOutside:
    """Hands the task to an agent outside; parameters: `seconds`, `state`, `agent`."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start, protected=["goal"])
        self.outside = Outside(Exchange(self.pipeline, agent="legal"))

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        params: Any = self.pipeline.params
        within = _within(params, RECORDED_OUTSIDE)
        result = await self.outside.hand_off(
            params.get("agent", "reviewer"), "Review the contract", within=within, state=params.get("state")
        )
        return self.pipeline.result(result.model_dump(mode="json"))


@workflow.defn
class HandsOutsideAndGoesOn:
    """Hands the task to an agent outside, then extracts so often that it continues as new."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start, continue_after=ContinueAfter(events=12))
        self.outside = Outside(Exchange(self.pipeline, agent="legal"))

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        await self.outside.hand_off("reviewer", "Review the contract", within=RECORDED_OUTSIDE)
        for _ in range(2):
            await self.pipeline.sleep(timedelta(seconds=1))  # a shorter run does not continue as new
            await self.pipeline.stage(extract)
        return self.pipeline.result()


@workflow.defn
class HandsTwoOn:
    """Hands on to an agent outside and to a pipeline that is not there, about which a person is asked."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start)
        self.exchange = Exchange(self.pipeline, agent="legal", on_silence=self.pipeline.ask)
        self.outside = Outside(self.exchange)

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        """Hand on to both at once, and tell what came back from outside."""
        result, _ = await asyncio.gather(
            self.outside.hand_off("reviewer", "Review the contract", within=RECORDED_OUTSIDE),
            self.exchange.hand_off(Receiver("nobody", "risk"), "Score the risk", within=timedelta(seconds=5)),
            return_exceptions=True,
        )
        if isinstance(result, BaseException):
            raise result
        return self.pipeline.result(result.model_dump(mode="json"))


class Ponders:
    """A workflow that can be asked a question that takes a while."""

    @workflow.query
    def pondered(self) -> str:
        """Answer a question that takes a while."""
        with workflow.unsafe.sandbox_unrestricted():
            time.sleep(1)
        return "yes"


@workflow.defn
class Broadcasts(Ponders):
    """Hands on to several; parameters: `to`, `starts`, `constraints`, `quorum`, `enough`, `seconds`."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start)
        self.exchange = Exchange(self.pipeline, agent="legal")

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        params: Any = self.pipeline.params
        started = params.get("starts", ())
        gathered = await hand_off_to_all(
            self.exchange,
            [
                Receiver(id, agent, starts=Accepts.run if agent in started else None, params={"agent": agent})
                for agent, id in params["to"].items()
            ],
            "Score the risk",
            within=_within(params, RECORDED),
            constraints=params.get("constraints", ()),
            quorum=params.get("quorum"),
            timeout_suffices=params.get("enough", False),
        )
        return self.pipeline.result(gathered.model_dump(mode="json"))


@workflow.defn
class Accepts:
    """Receives as the agent that the parameter `agent` names."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start)
        self.exchange = Exchange(self.pipeline)

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        agent: Any = self.pipeline.params["agent"]
        received = await self.exchange.receive(ReceiverRequirements(agent, "1.0.0"), within=IN_TIME)
        return self.pipeline.result(received.handoff_id)


@workflow.defn
class StreamsOut:
    """Hands on in chunks; parameters: `to`, `count`, `seconds`, `rest` (seconds before the last chunk), `held`, `says`.

    What the pipeline `says` stands in the third chunk; `odd` tells what is wrong with the second. If the last one is
    `held`, it is there after the signal `more`.
    An `asking` one asks a person when nobody answers.
    """

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start)
        ask = self.pipeline.ask if self.pipeline.params.get("asking") else None
        self.streams = Streams(Exchange(self.pipeline, agent="legal", on_silence=ask))
        self.held = bool(self.pipeline.params.get("held"))

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        params: Any = self.pipeline.params
        chunks: list[dict[str, JsonValue]] = [{"n": number + 1} for number in range(params["count"])]
        if "says" in params:
            chunks[2]["says"] = params["says"]
        match params.get("odd"):
            case "number":
                chunks[1]["n"] = 2**60
            case "list":
                chunks[1] = [2]  # type: ignore[call-overload]
            case "nan":
                chunks[1]["n"] = math.nan
        coming = self._coming(chunks, params.get("rest", 0)) if self.held or "rest" in params else chunks
        within = _within(params, RECORDED)
        to = Receiver(params["to"], params.get("agent", "risk"))
        ack = await self.streams.send(to, "Score the clauses", coming, within=within)
        return self.pipeline.result(ack.to_json_object())

    @workflow.signal
    def more(self) -> None:
        """Let the last chunk come."""
        self.held = False

    async def _coming(self, chunks: Sequence[dict[str, JsonValue]], rest: float) -> AsyncIterator[dict[str, JsonValue]]:
        """Give the chunks, the last one after a rest, once it is not held."""
        for chunk in chunks[:-1]:
            yield chunk
        await workflow.sleep(rest)
        await workflow.wait_condition(lambda: not self.held)
        yield chunks[-1]


def _is_small(content: Mapping[str, Any]) -> list[str]:
    """Check a chunk: its number is below ten."""
    return [] if content.get("n", 0) < 10 else ["'n' must be below ten"]


@workflow.defn
class StreamsIn(Ponders):
    """Receives a streamed handoff and begins with two chunks; waits for an approval then if `pause` says so.

    It waits `seconds` for the rest, or, if `forgets` says so, never awaits it.
    """

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start)
        self.streams = Streams(Exchange(self.pipeline, agent="risk"))

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        requirements = ReceiverRequirements("risk", "1.0.0")
        incoming = await self.streams.receive(requirements, within=IN_TIME, minimum=2, check=_is_small)
        began = len(incoming.chunks)
        if self.pipeline.params.get("pause"):
            await self.pipeline.approve("go on", within=IN_TIME)
        if self.pipeline.params.get("forgets"):
            incoming.rest(within=IN_TIME)  # type: ignore[unused-coroutine]
            return self.pipeline.result()
        everything = await incoming.rest(within=_within(self.pipeline.params))
        return self.pipeline.result({"began": began >= 2, "chunks": [content["n"] for content in everything]})


@workflow.defn
class StreamsInLater:
    """Receives a streamed handoff in a run that continues as new right before that, once an approval was given."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start, continue_after=ContinueAfter(events=10))
        self.streams = Streams(Exchange(self.pipeline, agent="risk"))

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        await self.pipeline.approve("begin", within=IN_TIME)
        incoming = await self.streams.receive(ReceiverRequirements("risk", "1.0.0"), within=IN_TIME)
        return self.pipeline.result(len(await incoming.rest(within=IN_TIME)))


@workflow.defn
class StreamsInAndGoesOn:
    """Receives a streamed handoff, then extracts so often that it continues as new."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start, continue_after=ContinueAfter(events=60))
        self.streams = Streams(Exchange(self.pipeline, agent="risk"))

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        """Take all of it, go on, and tell at the end what came."""
        incoming = await self.streams.receive(ReceiverRequirements("risk", "1.0.0"), within=IN_TIME, minimum=2)
        everything = await incoming.rest(within=IN_TIME)
        for _ in range(12):
            await self.pipeline.stage(extract)
        return self.pipeline.result({"chunks": [content["n"] for content in everything], "again": len(incoming.chunks)})


@workflow.defn
class ExchangesBeside:
    """Exchanges beside an approval that begins a little later, or before it where `first` says so."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start)
        self.exchange = Exchange(self.pipeline, agent="legal")
        self.streams = Streams(self.exchange)
        self.outside = Outside(self.exchange)

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        await self.pipeline.approve("begin", within=IN_TIME)
        if self.pipeline.params.get("first"):
            what = await self._exchange()
            await self._ask_later()
        else:
            _, what = await asyncio.gather(self._ask_later(), self._exchange())
        return self.pipeline.result(what)

    async def _ask_later(self) -> None:
        await workflow.sleep(0.2)
        await self.pipeline.approve("later", within=IN_TIME)

    async def _exchange(self) -> JsonValue:
        params: Any = self.pipeline.params
        me, within = ReceiverRequirements("legal", "1.0.0"), _within(params)
        match params["does"]:
            case "hand on":
                return (await self.exchange.hand_off(_receiver(params), "Score", within=within)).to_json_object()
            case "ask":
                return (await self.pipeline.approve("beside", within=IN_TIME)).why
            case "child":
                child = await self.pipeline.child("ExchangesBeside", "Ask", name="half", params={"does": "ask"})
                output: JsonValue = child.output
                return output
            case "outside":
                return (await self.outside.hand_off("reviewer", "Review", within=IN_TIME)).report
            case "receive":
                return (await self.exchange.receive(me, within=within)).sender
            case "stream":
                chunks: list[dict[str, JsonValue]] = [{"n": 1}, {"n": 2}]
                return (await self.streams.send(_receiver(params), "Score", chunks, within=within)).to_json_object()
            case _:
                incoming = await self.streams.receive(me, within=within)
                return [content["n"] for content in await incoming.rest(within=within)]


EXCHANGES: list[type] = [
    ExchangesBeside,
    HandsOff,
    AsksAPerson,
    AsksTheInbox,
    GoesOn,
    Receives,
    ReceivesLater,
    ThereAndBack,
    HandsOutside,
    HandsOutsideAndGoesOn,
    HandsTwoOn,
    Broadcasts,
    Accepts,
    StreamsOut,
    StreamsIn,
    StreamsInAndGoesOn,
    StreamsInLater,
]
