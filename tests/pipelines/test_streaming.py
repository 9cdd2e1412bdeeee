"""The output of running stages, on a real server: live, once, and complete after a reconnect."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, DeltaToolCalls, FunctionModel
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client

from baton import Baton, BatonPlugin, PipelineInput, Retries, Safeguards, StageContext, StageResult, stage
from baton.agents import AnswerForm, PydanticAgent, agent_stage
from baton.client import Cursor, News, NewsKind, follow, read_run
from baton.core.streaming import MAX_HEARTBEAT_LENGTH
from baton.devserver import DevServer
from baton.testing import assert_replays, pipeline_worker
from tests.pipelines.streaming_pipelines import spoken, spoken_at_once
from tests.support import LIMIT, Handle

TOKENS = ["A baton ", "is a ", "small record.\n\n", "It travels ", "from stage ", "to stage."]
SOON = Retries(attempts=3, first=timedelta(milliseconds=20))
SPOKEN = (NewsKind.TEXT, NewsKind.TOOL_CALLED, NewsKind.TOOL_ANSWERED, NewsKind.STREAM_RESTARTED)


@dataclass
class Pace:
    """Controls when a stage may stream its next token."""

    waits_after: tuple[int, ...] = ()
    position: int = 0
    may_go_on: asyncio.Event = field(default_factory=asyncio.Event)

    async def after(self, token: int) -> None:
        """Wait if the test holds the stage here."""
        if token in self.waits_after:
            await self.may_go_on.wait()


def speaking(pace: Pace, tokens: list[str], name: str = "speak", *, fails_after: int | None = None) -> Any:
    """Return a stage that streams tokens; its first run may fail after some."""

    @stage(name=name, retries=SOON)
    async def speak(context: StageContext[Baton]) -> StageResult:
        first = context.stream.snapshot(0).parts == () and not pace.position
        for number, token in enumerate(tokens):
            context.stream.text(token)
            await pace.after(number)
            if first and number == fails_after:
                pace.position = number
                raise ConnectionError("the model is gone")
        return StageResult(output="".join(tokens))

    return speak


async def begun(client: Client, queue: str, pipeline: Any = spoken, **params: Any) -> Handle:
    """Start a run."""
    start = PipelineInput(goal="Say what a baton is", params={"stream": True, **params})
    return await client.start_workflow(pipeline, start, id=queue, task_queue=queue, execution_timeout=LIMIT)


async def pieces(
    client: Client, handle: Handle, cursor: Cursor | str | None = None, *, until: Callable[[str], bool] | None = None
) -> list[tuple[News, str]]:
    """Return the news with their cursors, to the end or until the given text."""
    heard: list[tuple[News, str]] = []
    async with aclosing(follow(client, handle.id, cursor=cursor)) as updates:  # type: ignore[type-var]
        async for update in updates:
            for news, at in zip(update.news, update.cursors, strict=True):
                heard.append((news, str(at)))
                if until is not None and until(text_of(heard)):
                    return heard
    return heard


async def spoke(handle: Handle) -> None:
    """Wait for a heartbeat at the server; there is no event to await."""
    while True:
        described = await handle.describe()
        if any(activity.heartbeat_details.payloads for activity in described.raw_description.pending_activities):
            return
        await asyncio.sleep(0.05)


def text_of(heard: list[tuple[News, str]]) -> str:
    """Return the text since the last start of a stream."""
    text = ""
    for news, _ in heard:
        if news.kind is NewsKind.STREAM_RESTARTED:
            text = ""
        elif news.kind is NewsKind.TEXT:
            text += news.text
    return text


def whats(heard: list[tuple[News, str]]) -> list[tuple[NewsKind, str, str]]:
    """Return the streamed items."""
    return [(news.kind, news.tool, news.text) for news, _ in heard if news.kind in SPOKEN]


def worker_of(client: Client, queue: str, *stages: Any) -> Any:
    """Return a worker of the pipelines."""
    return pipeline_worker(client, [spoken, spoken_at_once], stages, task_queue=queue)


class TestStage:
    """A stage that streams by itself."""

    async def test_text_is_live_and_complete_after_a_reconnect(self, client: Client) -> None:
        """The second reader continues at the first one's cursor, without gap or repetition."""
        pace = Pace(waits_after=(1, 3))
        async with worker_of(client, "stream-live", speaking(pace, TOKENS)):
            handle = await begun(client, "stream-live")
            first = await pieces(client, handle, until=lambda text: text == "".join(TOKENS[:2]))
            pace.may_go_on.set()
            rest = await pieces(client, handle, first[-1][1])
            full_text = "".join(TOKENS)
            assert await handle.result() is not None

        assert text_of(first) == "".join(TOKENS[:2])  # the stage was at work then: it could not go on
        assert text_of(first) + text_of(rest) == full_text
        assert [news.kind for news, _ in rest][-2:] == [NewsKind.STEP_DONE, NewsKind.RUN_ENDED]

    async def test_each_cursor_continues_exactly(self, client: Client) -> None:
        """Also cursors from a running stage after its end."""
        pace = Pace(waits_after=(0, 1, 2, 3, 4))
        async with worker_of(client, "stream-cursors", speaking(pace, TOKENS)):
            handle = await begun(client, "stream-cursors")
            live = asyncio.create_task(pieces(client, handle))
            await pieces(client, handle, until=lambda text: text == TOKENS[0])
            pace.may_go_on.set()
            heard = await live
        assert text_of(heard) == "".join(TOKENS)
        for place, (_, cursor) in enumerate(heard):
            rest = await pieces(client, handle, cursor)
            assert text_of(heard[: place + 1]) + text_of(rest) == "".join(TOKENS)
            untold = (*SPOKEN, NewsKind.STEP_STARTED)  # who reads later is not told of each begin
            after = [item.kind for item, _ in heard[place + 1 :] if item.kind not in untold]
            assert [item.kind for item, _ in rest if item.kind not in untold] == after

    async def test_a_failed_attempt_restarts_the_stream(self, client: Client) -> None:
        """The reader learns that the earlier text does not count."""
        pace = Pace(waits_after=(2,))
        async with worker_of(client, "stream-again", speaking(pace, TOKENS, fails_after=2)):
            handle = await begun(client, "stream-again")
            live = asyncio.create_task(pieces(client, handle))
            await pieces(client, handle, until=lambda text: text == "".join(TOKENS[:3]))
            pace.may_go_on.set()
            heard = await live
        assert text_of(heard) == "".join(TOKENS)
        restarts = [at for at, (news, _) in enumerate(heard) if news.kind is NewsKind.STREAM_RESTARTED]
        for at in restarts:  # a reader may not have looked before the first run failed
            assert text_of(heard[:at])

    async def test_the_history_has_one_copy_at_the_end(self, client: Client) -> None:
        """The events are the same as without; a text that is also the output costs a few bytes."""
        many, sizes, kinds = [f"word-{number} " for number in range(2_000)], [], []
        for stream in (True, False):
            queue = f"stream-size-{stream}"
            async with worker_of(client, queue, speaking(Pace(), many)):
                handle = await begun(client, queue, stream=stream)
                await handle.result()
                await assert_replays(handle, [spoken])
            events = [event async for event in handle.fetch_history_events()]
            kinds.append([EventType.Name(event.event_type) for event in events])
            sizes.append(sum(event.ByteSize() for event in events))
        assert kinds[0] == kinds[1]
        assert sizes[0] - sizes[1] < 500

    async def test_text_beyond_the_heartbeat_follows_at_the_end(self, client: Client) -> None:
        """A late reader gets nothing at first, and then everything in order."""
        pace, long = Pace(waits_after=(1,)), ["x" * MAX_HEARTBEAT_LENGTH, "y" * 100, "z"]
        async with worker_of(client, "stream-late", speaking(pace, long)):
            handle = await begun(client, "stream-late")
            await spoke(handle)
            late = asyncio.create_task(pieces(client, handle))
            await asyncio.sleep(0)
            pace.may_go_on.set()
            heard = await late
        assert text_of(heard) == "".join(long)

    async def test_concurrent_streams_are_separate(self, client: Client) -> None:
        """Each piece names its step and comes once; one cursor has both offsets."""
        pace = Pace(waits_after=(1,))
        stages = (speaking(pace, TOKENS), speaking(pace, [token.upper() for token in TOKENS], "echo"))
        both = "".join(TOKENS[:2])
        async with worker_of(client, "stream-both", *stages):
            handle = await begun(client, "stream-both", spoken_at_once)
            first = await pieces(client, handle, until=lambda text: len(text) == 2 * len(both))
            pace.may_go_on.set()
            rest = await pieces(client, handle, first[-1][1])
        text = text_of(first) + text_of(rest)
        assert sorted(text) == sorted("".join(TOKENS) + "".join(TOKENS).upper())


class TestAgent:
    """An agent whose model streams."""

    @pytest.mark.parametrize("sealed", [False, True])
    async def test_tokens_and_tool_calls_are_live(
        self, client: Client, server: DevServer, tmp_path: Path, sealed: bool
    ) -> None:
        """Also with signed and encrypted handoffs, if the follower has the keys."""
        may_end = asyncio.Event()

        async def answer(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str | DeltaToolCalls]:
            if not any(isinstance(message, ModelResponse) for message in messages):
                yield {0: DeltaToolCall(name="look_up", json_args='{"topic": "batons"}')}
                return
            for number, token in enumerate(TOKENS):
                yield token
                if number == 2:
                    await may_end.wait()

        def look_up(topic: str) -> str:
            """Look up a topic."""
            return f"what is known of {topic}"

        if sealed:
            guards = Safeguards.development(tmp_path, encrypt=True)
            client = await Client.connect(server.address, plugins=[BatonPlugin(safeguards=guards)])
        agent = PydanticAgent(Agent(FunctionModel(stream_function=answer), name="speak"))
        speak = agent_stage(agent, answers=AnswerForm.TEXT, tools=[look_up])
        queue = f"stream-agent-{sealed}"
        async with worker_of(client, queue, speak):
            handle = await begun(client, queue)
            first = await pieces(client, handle, until=lambda text: text == "".join(TOKENS[:3]))
            may_end.set()
            rest = await pieces(client, handle, first[-1][1])
            result = await handle.result()
        assert whats(first)[:2] == [
            (NewsKind.TOOL_CALLED, "look_up", '{"topic":"batons"}'),
            (NewsKind.TOOL_ANSWERED, "look_up", "what is known of batons"),
        ]
        assert text_of(first) + text_of(rest) == result.output == "".join(TOKENS)
        run = await read_run(client, handle.id)
        assert [stream.seq for stream in run.streams] == [1]

    async def test_a_streaming_stage_needs_no_argument_of_the_pipeline(self, client: Client) -> None:
        """The stage declares it."""

        async def answer(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
            for token in TOKENS:
                yield token

        agent = PydanticAgent(Agent(FunctionModel(stream_function=answer), name="speak"), stream=True)
        assert agent_stage(agent, answers=AnswerForm.TEXT).spec.stream
