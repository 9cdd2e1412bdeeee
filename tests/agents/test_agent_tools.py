"""Tools of a stage's agent."""

import asyncio
import os
import threading
from collections.abc import Callable
from datetime import date
from decimal import Decimal
from functools import partial

import pytest
from pydantic import BaseModel, ValidationError, validate_call

from baton.agents import AgentTool
from baton.agents.tools import build_tools, render_result
from baton.contract.records import EventType, ToolDeniedError
from tests.agents.material import context, contract, events, lookup


class TestAgentTool:
    """`AgentTool`."""

    def test_a_model_reads_its_description_and_its_parameters(self) -> None:
        """A function's docstring and annotations describe the tool."""
        tool = AgentTool.of(lookup, name="crm.lookup")

        assert tool.description == "Find what a customer pays."
        assert tool.parameters["properties"] == {"customer": {"title": "Customer", "type": "string"}}
        assert tool.wire_name == "crm_lookup"

    async def test_a_function_with_bound_arguments_is_told_of_as_itself(self) -> None:
        """For example with a bound client; the docstring of `partial` itself is ignored."""

        def find(register: dict[str, int], customer: str) -> str:
            """Find what a customer pays."""
            return f"{customer} pays {register[customer]} USD"

        [tool] = build_tools([partial(find, {"c-1": 20})])

        assert (tool.name, tool.description) == ("find", "Find what a customer pays.")
        assert list(tool.parameters["properties"]) == ["customer"]
        assert await tool.guarded(context(contract(["find"]))).call({"customer": "c-1"}) == "c-1 pays 20 USD"

    def test_a_parameter_that_no_model_can_be_told_of_is_refused(self) -> None:
        """The message has the remedy."""

        def strange(how: Callable[[], None]) -> None: ...

        with pytest.raises(TypeError, match="tool 'strange': its parameters cannot be described"):
            AgentTool.of(strange)

    async def test_a_plain_function_does_not_stop_the_workers_other_stages(self) -> None:
        """The function runs in a thread."""
        tool = AgentTool.of(lambda: threading.current_thread() is threading.main_thread(), name="where")

        assert await tool.call({}) is False

    async def test_one_that_finds_no_next_item_fails_like_any_other(self) -> None:
        """Python does not propagate StopIteration out of a thread; the run would wait for its timeout."""

        def find(customer: str) -> str:
            return next(name for name in ("c-1", "c-2") if name == customer)

        stage_context = context()
        async with asyncio.timeout(10):
            with pytest.raises(RuntimeError, match=r"tool 'crm\.lookup' raised StopIteration"):
                await AgentTool.of(find, name="crm.lookup").guarded(stage_context).call({"customer": "c-3"})

        assert [event.success for event in stage_context.session.events] == [None, False]

    async def test_a_guarded_one_is_recorded_with_the_handoff(self) -> None:
        """Calls and results are session events under the handoff (S5-fields-a, S5-compiler-h, S5-prob-h)."""
        stage_context = context()
        tool = AgentTool.of(lookup, name="crm.lookup").guarded(stage_context)

        assert await tool.call({"customer": "c-1"}) == "c-1 pays 20 USD"
        assert events(stage_context) == [(EventType.TOOL_CALL, "crm.lookup"), (EventType.TOOL_RESULT, "crm.lookup")]
        assert stage_context.session.events[1].success is True
        assert {event.handoff_id for event in stage_context.session.events} == {stage_context.handoff_id}

    async def test_what_it_returns_can_be_sent(self) -> None:
        """Names of files that are not UTF-8 contain lone surrogates, which no provider's client can send."""
        name = os.fsdecode(b"caf\xe9.txt")
        tool = AgentTool.of(lambda: {"files": [name], name: 1}, name="crm.lookup").guarded(context())

        assert await tool.call({}) == {"files": ["caf\ufffd.txt"], "caf\ufffd.txt": 1}

    async def test_what_refers_to_itself_is_sent_as_its_text(self) -> None:
        """Otherwise every run of the stage would fail."""
        node: dict[str, object] = {"name": "root"}
        node["parent"] = node
        tool = AgentTool.of(lambda: node, name="crm.lookup").guarded(context())

        assert await tool.call({}) == "{'name': 'root', 'parent': {...}}"

    async def test_a_denied_call_is_not_even_looked_at(self) -> None:
        """The check precedes argument validation, and the function does not run (S5-fields-k)."""
        calls: list[str] = []

        def lookup(customer: str) -> None:
            calls.append(customer)

        tool = AgentTool.of(lookup, name="crm.lookup").guarded(context(contract([])))

        with pytest.raises(ToolDeniedError):
            await tool.call({"wrong": 1})
        assert calls == []

    async def test_arguments_that_do_not_fit_do_not_run_it(self) -> None:
        """A model's arguments are untrusted data and are validated."""
        stage_context = context()
        tool = AgentTool.of(lookup, name="crm.lookup").guarded(stage_context)

        with pytest.raises(ValidationError):
            await tool.call({"customer": 7})
        assert stage_context.session.events[1].success is False

    @pytest.mark.parametrize("wait", [False, True])
    async def test_one_that_cannot_read_what_it_was_answered_fails_like_any_other(self, wait: bool) -> None:
        """Its own `ValidationError` is not about the arguments: the model would retry in vain."""

        def price(customer: str) -> Price:
            return Price.model_validate({"since": customer})

        async def awaited(customer: str) -> Price:
            return price(customer)

        stage_context = context()
        tool = AgentTool.of(awaited if wait else price, name="crm.lookup").guarded(stage_context)

        with pytest.raises(RuntimeError, match=r"tool 'crm\.lookup' raised ValidationError: 2 .* for Price"):
            await tool.call({"customer": "c-1"})
        assert [event.success for event in stage_context.session.events] == [None, False]

    async def test_one_that_checks_its_arguments_itself_is_held_to_them(self) -> None:
        """Both checks apply, and the model is told what does not fit."""
        tool = AgentTool.of(validate_call(lookup), name="crm.lookup").guarded(context())

        with pytest.raises(ValidationError, match="customer"):
            await tool.call({"customer": 7})


class Price(BaseModel):
    """A result of a tool."""

    product: str
    since: date = date(2026, 1, 1)


class Named(BaseModel):
    """Another result."""

    by: object


class TestAsText:
    """`render_result`."""

    @pytest.mark.parametrize(
        ("result", "text"),
        [
            pytest.param("20 USD", "20 USD", id="a text"),
            pytest.param(None, "null", id="nothing"),
            pytest.param({"paid": True, 7: ["Zürich"]}, '{"paid": true, "7": ["Zürich"]}', id="an object"),
            pytest.param(Price(product="tea"), '{"product": "tea", "since": "2026-01-01"}', id="a model"),
            pytest.param({(1, 2): Decimal("1.5")}, '{"1,2": "1.5"}', id="keys that JSON has not"),
            pytest.param(b"\xff", '"_w=="', id="bytes"),
            pytest.param(
                Price(product="tea \ud83d"), '{"product": "tea \ufffd", "since": "2026-01-01"}', id="half a character"
            ),
            pytest.param(Named(by={"\ud83d": 1}), r'''"by={'\\ud83d': 1}"''', id="half a character in a name"),
        ],
    )
    def test_a_model_reads_json_and_no_python(self, result: object, text: str) -> None:
        """It would have to guess the meaning of `None` or of a class name."""
        assert render_result(result) == text


class TestToolsOf:
    """`build_tools`."""

    def test_functions_and_tools_may_be_mixed(self) -> None:
        """A plain function becomes a tool with its own name."""
        assert [tool.name for tool in build_tools([lookup, AgentTool.of(lookup, name="crm.lookup")])] == [
            "lookup",
            "crm.lookup",
        ]
