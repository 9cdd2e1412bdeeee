"""The pipelines of the storm, one or two for each way to work together."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import timedelta
from typing import Any

from pydantic import JsonValue
from temporalio import workflow

from baton import (
    ApprovalDeniedError,
    Compensations,
    ContinueAfter,
    Exchange,
    HandoffTerms,
    Outside,
    Pipeline,
    PipelineInput,
    PipelineResult,
    Receiver,
    ReceiverRequirements,
    StageFailedError,
    Streams,
)
from baton.core.pending import PendingHandoff
from baton.core.verdict import Disposition

with workflow.unsafe.imports_passed_through():
    from tests.storm.stages import breaks, build, check, plan, scoped, undo

LONG = timedelta(minutes=10)


class _Storm:
    """The common part: a pipeline and an exchange."""

    events = 3_200

    def _attach(self, start: PipelineInput, agent: str, **terms_of_people: Any) -> None:
        terms = HandoffTerms(within=LONG, **terms_of_people)
        self.pipeline = Pipeline(start, continue_after=ContinueAfter(events=self.events), handoffs=terms)
        self.exchange = Exchange(self.pipeline, agent=agent)


@workflow.defn
class Stages(_Storm):
    """Stages, a fan-out, two lines of stages, a sleep; it continues as new."""

    events = 60

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self._attach(start, "stages")

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        """Work."""

        async def line() -> None:
            await self.pipeline.stage(build)
            await self.pipeline.stage(check)

        await self.pipeline.stage(plan)
        for _ in range(2):
            await self.pipeline.fan_out(build, check)
            await asyncio.gather(line(), line())
            await self.pipeline.sleep(timedelta(milliseconds=300))
        return self.pipeline.result()


@workflow.defn
class Approves(_Storm):
    """Two people are asked at once, and one later again under the same title."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self._attach(start, "approves")

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        """Ask."""
        await self.pipeline.stage(plan)
        await asyncio.gather(
            self.pipeline.approve("legal", within=LONG),
            self.pipeline.approve("security", within=LONG),
            self.pipeline.stage(build),
        )
        await self.pipeline.stage(check)
        await self.pipeline.approve("legal", within=LONG)
        return self.pipeline.result()


@workflow.defn
class DeadLetters(_Storm):
    """A handoff that nobody accepts until a person edits the baton."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self._attach(start, "letters")

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        """Work."""
        await self.pipeline.stage(plan)
        await self.pipeline.stage(scoped)
        return self.pipeline.result()


@workflow.defn
class HandsOff(_Storm):
    """Hands on to a pipeline that it starts, and receives what that one hands back."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self._attach(start, "sender")

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        """Hand on and receive."""
        await self.pipeline.stage(plan)
        to = Receiver(f"{workflow.info().workflow_id}-to", "receiver", starts=HandsBack.run)
        await self.exchange.hand_off(to, "Go on", within=LONG, attempts=60)
        await self.exchange.receive(ReceiverRequirements("sender", "1.0.0"), within=LONG)
        await self.pipeline.stage(check)
        return self.pipeline.result()


@workflow.defn
class HandsBack(_Storm):
    """Receives, works, and hands back."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self._attach(start, "receiver")

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        """Receive and hand back."""
        received = await self.exchange.receive(ReceiverRequirements("receiver", "1.0.0"), within=LONG)
        await self.pipeline.stage(build)
        await self.exchange.hand_off(
            Receiver(received.reply_to or "", "sender"), "Here it is", within=LONG, attempts=60
        )
        return self.pipeline.result()


@workflow.defn
class StreamsOut(_Storm):
    """Streams to a pipeline that it starts."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self._attach(start, "source")
        self.streams = Streams(self.exchange)

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        """Send."""

        async def chunks() -> AsyncIterator[dict[str, JsonValue]]:
            for number in range(8):
                yield {"n": number}
                await workflow.sleep(timedelta(milliseconds=50))

        await self.pipeline.stage(plan)
        to = Receiver(f"{workflow.info().workflow_id}-to", "sink", starts=StreamsIn.run)
        await self.streams.send(to, "Read it", chunks(), within=LONG, attempts=60)
        return self.pipeline.result()


@workflow.defn
class StreamsIn(_Storm):
    """Begins with two chunks, and works while the rest comes."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self._attach(start, "sink")
        self.streams = Streams(self.exchange)

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        """Receive."""
        incoming = await self.streams.receive(ReceiverRequirements("sink", "1.0.0"), within=LONG, minimum=2)
        await self.pipeline.stage(build)
        rest = await incoming.rest(within=LONG)
        return self.pipeline.result([*map(dict, rest)])


@workflow.defn
class AsksOutside(_Storm):
    """Hands the task to an external agent."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self._attach(start, "asks")
        self.outside = Outside(self.exchange)

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        """Hand on."""
        await self.pipeline.stage(plan)
        await self.outside.hand_off("reviewer", "Review it", within=LONG)
        await self.pipeline.stage(check)
        return self.pipeline.result()


@workflow.defn
class Parents(_Storm):
    """Two children at once, beside a stage."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self._attach(start, "parent")

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        """Delegate."""
        await asyncio.gather(
            self.pipeline.child(Child.run, "The first half", name="first"),
            self.pipeline.child(Child.run, "The second half", name="second"),
            self.pipeline.stage(plan),
        )
        await self.pipeline.stage(check)
        return self.pipeline.result()


@workflow.defn
class Child(_Storm):
    """Does a part of the work."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self._attach(start, "child")

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        """Work."""
        await self.pipeline.stage(build)
        await self.pipeline.stage(check)
        return self.pipeline.result()


@workflow.defn
class Undoes(_Storm):
    """Undoes its work when something fails."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self._attach(start, "undoes")

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        """Work, fail and undo."""
        with suppress(StageFailedError):
            async with Compensations(self.pipeline) as undoing:
                await self.pipeline.stage(build)
                undoing.later(undo)
                await self.pipeline.stage(breaks)
        await self.pipeline.stage(check)
        return self.pipeline.result()


ARCHIVED = PendingHandoff(
    handoff_id="archived", sender="questions", receiver="archive", fate=Disposition.ESCALATE, details="refused"
)
"""The handoff about which `Questions` asks."""
QUESTIONS = {"release": 2, "legal": 1, "deadline": 1, "questions → archive": 2}
"""How many people each question of `Questions` needs."""


@workflow.defn
class Questions(_Storm):
    """Asks under the same titles and about the same handoff again and again, while a stage changes the baton.

    It continues as new.
    """

    events = 60

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self._attach(start, "questions", needs=QUESTIONS["questions → archive"], who=["group:crew"])

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        """Ask."""
        await self.pipeline.stage(plan)
        for number in range(2):
            await asyncio.gather(
                self._ask("release", within=LONG, who=["group:crew"], asks=f"Release {number}?"),
                self._ask("legal", within=LONG, shows=[f"Terms {number}"]),
                self.pipeline.ask(ARCHIVED, LONG),
                self.pipeline.stage(build),
            )
            await self.pipeline.stage(check)
            await self._ask("deadline", within=timedelta(seconds=1), default=True)
        return self.pipeline.result()

    async def _ask(self, title: str, **asking: Any) -> None:
        """Ask, and accept a no."""
        with suppress(ApprovalDeniedError):
            await self.pipeline.approve(title, needs=QUESTIONS[title], **asking)


KINDS: dict[str, Any] = {
    "stages": Stages,
    "approvals": Approves,
    "dead letters": DeadLetters,
    "handoffs": HandsOff,
    "streams": StreamsOut,
    "external agents": AsksOutside,
    "children": Parents,
    "compensation": Undoes,
}
"""What is started of each kind; the others are started by these, or by a storm of their own."""
PIPELINES: list[type] = [*KINDS.values(), HandsBack, StreamsIn, Child, Questions]
