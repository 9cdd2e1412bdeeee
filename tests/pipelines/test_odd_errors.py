"""Errors of pipelines, stages and handlers that cannot be stored or never end: each ends at once, with its text."""

import asyncio
import re
from collections.abc import AsyncIterator

import pytest
from temporalio.client import Client, WorkflowFailureError, WorkflowQueryFailedError, WorkflowUpdateFailedError
from temporalio.exceptions import ApplicationError
from temporalio.worker import Worker

from baton.client import read_run
from baton.testing import assert_replays, pipeline_worker
from tests.pipelines.odd_errors import NO_EXCEPTION, ODD_ERRORS
from tests.pipelines.odd_pipelines import RaisesOddly, raises_oddly
from tests.support import Handle, overview, start, until

IN_HANDLERS = ["long", "half", "mute", "half type", "group as cause", "cycle", "base"]


@pytest.fixture
async def odd(client: Client) -> AsyncIterator[Worker]:
    """Return a worker, which has to survive."""
    async with pipeline_worker(client, [RaisesOddly], [raises_oddly]) as worker:
        yield worker


async def cause(handle: Handle) -> ApplicationError:
    """Return why a run failed."""
    async with asyncio.timeout(20):
        with pytest.raises(WorkflowFailureError) as raised:
            await handle.result()
    assert isinstance(raised.value.cause, ApplicationError)
    return raised.value.cause


@pytest.mark.parametrize("how", ODD_ERRORS)
async def test_the_code_of_a_pipeline_fails_its_run(odd: Worker, how: str) -> None:
    """Not the task or the worker, again and again."""
    handle = await start(odd, RaisesOddly.run, how=how, where="code")

    error = await cause(handle)
    assert (error.type, error.message) == ODD_ERRORS[how]
    await assert_replays(handle, [RaisesOddly])


@pytest.mark.parametrize("how", ODD_ERRORS)
async def test_a_stage_fails_with_the_text(odd: Worker, how: str) -> None:
    """The worker goes on to run other stages."""
    handle = await start(odd, RaisesOddly.run, how=how, where="stage")

    message = (await cause(handle)).message
    assert message.startswith("stage 'raises_oddly' failed: ")
    assert ("mine" if how == "base" else ODD_ERRORS[how][1][:1_000]) in message


@pytest.mark.parametrize("how", ["cycle", "base"])
async def test_a_branch_of_a_gather_fails_its_run(odd: Worker, how: str) -> None:
    """As in the pipeline's own code."""
    handle = await start(odd, RaisesOddly.run, how=how, where="branch")

    error = await cause(handle)
    assert (error.type, error.message) == ODD_ERRORS[how]


@pytest.mark.parametrize("how", ["exit", "interrupt"])
async def test_a_branch_that_exits_suspends_its_run(client: Client, odd: Worker, how: str) -> None:
    """The event loop raises it past the run's code; the worker lives, and the run says why it waits."""
    handle = await start(odd, RaisesOddly.run, how=how, where="branch")

    async with asyncio.timeout(20):
        while NO_EXCEPTION not in str((await read_run(client, handle.id)).suspended):  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    await handle.terminate()


@pytest.mark.parametrize("how", IN_HANDLERS)
async def test_a_signals_handler_fails_its_run(odd: Worker, how: str) -> None:
    """With the error's text."""
    handle = await start(odd, RaisesOddly.run, how=how, where="signal")
    await handle.signal("signal")

    error = await cause(handle)
    assert (error.type, error.message) == ODD_ERRORS[how]


@pytest.mark.parametrize("how", IN_HANDLERS)
async def test_an_updates_handler_fails_the_update(odd: Worker, how: str) -> None:
    """The run continues."""
    handle = await start(odd, RaisesOddly.run, how=how, where="update")
    with pytest.raises(WorkflowUpdateFailedError) as raised:
        await handle.execute_update("update")

    error = raised.value.cause
    assert isinstance(error, ApplicationError)
    assert (error.type, error.message) == ODD_ERRORS[how]
    await until(handle, lambda now: bool(now.waiting_for))
    await handle.terminate()


@pytest.mark.parametrize("how", IN_HANDLERS)
async def test_a_querys_handler_fails_the_query(odd: Worker, how: str) -> None:
    """The run continues."""
    handle = await start(odd, RaisesOddly.run, how=how, where="query")
    await overview(handle)
    with pytest.raises(WorkflowQueryFailedError, match=re.escape(ODD_ERRORS[how][1][:100])):
        await handle.query("query")

    await until(handle, lambda now: bool(now.waiting_for))
    await handle.terminate()
