"""What a stage's toolbox records of the tools that it calls."""

import asyncio
import re
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from baton import MemoryArtifactStore
from baton.agents import AgentTool
from baton.contract.activity import SessionLog, ToolAnswer, Toolbox
from baton.contract.records import EventType


async def price() -> str:
    return "It costs 20 USD."


async def leaves() -> str:
    sys.exit(3)


class Client:
    """A tool that is an object."""

    __name__ = "client"

    async def __call__(self) -> str:
        return await price()


def results(log: SessionLog) -> list[tuple[str, bool | None]]:
    """Return what is recorded of the results of tools, and whether they count as successes."""
    return [(event.content, event.success) for event in log.events if event.type is EventType.TOOL_RESULT]


class TestAwaitable:
    @pytest.mark.parametrize("function", [lambda: price(), Client()], ids=["lambda", "object"])
    async def test_what_it_says_is_what_is_recorded(self, function: Callable[..., Any]) -> None:
        """The next agent reads the answer as a fact, and not the name of a coroutine (S5-compiler-e)."""
        log = SessionLog("research", "1.1", "h-1")
        answer = await Toolbox(None, log, "h-1").call("crm.price", function)

        assert answer == "It costs 20 USD."
        assert results(log) == [("It costs 20 USD.", True)]

    async def test_what_it_raises_is_no_success(self) -> None:
        """Nothing becomes of it but `failed:` (S5-fields-i)."""

        async def broken() -> str:
            raise ConnectionError("no line")

        log = SessionLog("research", "1.1", "h-1")
        with pytest.raises(ConnectionError, match="no line"):
            await Toolbox(None, log, "h-1").call("crm.price", lambda: broken())

        assert results(log) == [("ConnectionError: no line", False)]

    async def test_its_caller_gets_the_result_alone(self) -> None:
        """As from an async function that returns a `ToolAnswer`."""

        async def told() -> ToolAnswer:
            return ToolAnswer(result=20, claim="It costs 20 USD.")

        log = SessionLog("research", "1.1", "h-1")

        assert await Toolbox(None, log, "h-1").call("crm.price", lambda: told()) == 20
        assert results(log) == [("It costs 20 USD.", True)]

    async def test_a_model_is_sent_what_it_says(self) -> None:
        """A tool behind such a function is recorded like any other."""
        assert await AgentTool.of(lambda: price(), name="crm.price").call({}) == "It costs 20 USD."


class TestArguments:
    async def test_they_are_recorded_by_name_as_canonical_json(self) -> None:
        """So that a handoff names equal calls by one digest; one that can be read only once is left to the tool."""

        def total(prices: Iterator[int], currency: str) -> str:
            return f"{sum(prices)} {currency}"

        log = SessionLog("research", "1.1", "h-1")
        toolbox = Toolbox(None, log, "h-1")
        assert await toolbox.call("crm.total", total, iter([1, 2]), "EUR") == "3 EUR"
        await toolbox.call("crm.price", lambda **given: None, b=[Path("x")], a={"n": 1.0})

        first, _, second, _ = (event.content for event in log.events)
        assert re.fullmatch(r'{"currency":"EUR","prices":"<.*>"}', first)
        assert second == '{"a":{"n":1},"b":["x"]}'


class TestLongAnswer:
    async def test_it_says_where_it_was_cut_and_the_whole_is_kept(self) -> None:
        """Else the next agent reads a tenth of a number as the number (S5-compiler-e)."""
        store = MemoryArtifactStore()
        log = SessionLog("research", "1.1", "h-1")
        await Toolbox(None, log, "h-1").call("crm.price", lambda: "1" * 10_000)
        events, journal = await log.close(store)

        assert results(log) == [("1" * 10_000, True)]
        assert events[-1].content == "1" * 960 + " … (960 of 10,000 characters)"
        assert await store.get((events[-1].whole or "").removeprefix("sha256:")) == b"1" * 10_000
        assert journal is not None  # of the call's arguments, which no other agent reads


class TestExit:
    """A tool that would end the process, as a function does that reads a command line."""

    @pytest.mark.parametrize("function", [lambda: sys.exit(3), leaves], ids=["plain", "async"])
    async def test_it_fails_as_any_other_and_is_recorded(self, function: Callable[..., Any]) -> None:
        """Out of the task in which a framework calls its tools, it ended the worker, and the next one after it."""
        log = SessionLog("research", "1.1", "h-1")
        with pytest.raises(RuntimeError, match=r"tool 'crm\.price' raised SystemExit: 3"):
            await Toolbox(None, log, "h-1").call("crm.price", function)

        assert results(log) == [("SystemExit: 3", False)]


class TestThreads:
    async def test_each_event_has_an_id_of_its_own(self) -> None:
        """Two of one id would keep every later contract of the run from being compiled."""
        together = threading.Barrier(2, timeout=10)

        def counted_together(text: str) -> int:
            together.wait()
            return len(text)

        log = SessionLog("research", "1.1", "h-1", counted_together)
        tool = Toolbox(None, log, "h-1").guard(str, "text.of")
        await asyncio.gather(asyncio.to_thread(tool, 1), asyncio.to_thread(tool, 2))

        assert sorted(event.id for event in log.events) == ["1.1.1", "1.1.2", "1.1.3", "1.1.4"]
