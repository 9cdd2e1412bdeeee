"""Runs of an earlier release whose code has changed since, replayed by the code as it is now.

They were recorded by the release before that change, and cannot be recorded again by this one: each goes a way on
which runs of today go another.
"""

import json
import re
import socket
from pathlib import Path

import pytest
from temporalio.client import WorkflowHistory
from temporalio.worker import Replayer

from baton.client.events import decoded
from baton.edge.conversion import data_converter
from baton.integrations.pydantic_ai_durable import DurableAgentsPlugin
from baton.plugin import BatonPlugin
from tests.temporal.durable_agents import Thinks
from tests.temporal.exchange_pipelines import StreamsIn
from tests.temporal.line_pipelines import Lines
from tests.temporal.mishaps import Twins

EARLIER = Path(__file__).with_name("earlier")
RECORDED = [
    pytest.param("twins", Twins, id="a child's artifact was left out because its id was known"),
    pytest.param("edited-lines", Lines, id="a fork of concurrent lines did not wait with its edit"),
    pytest.param("durable-errs", Thinks, id="a durable agent's answer was put on record three times"),
    pytest.param("durable-sends", Thinks, id="what a durable agent's failed run cost was not put on record"),
    pytest.param("streamed-to", StreamsIn, id="the timer of a stream was stopped by what it waited for"),
    pytest.param("streamed-attacked", StreamsIn, id="a stream that broke as its receiver began was not answered"),
    pytest.param("streamed-heard-out", StreamsIn, id="no timer was started for chunks that were here"),
]


def history(name: str) -> WorkflowHistory:
    """Return a recorded history."""
    return WorkflowHistory.from_json(name, (EARLIER / f"{name}.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize(("name", "kind"), RECORDED)
async def test_an_earlier_run_goes_on_as_it_did(name: str, kind: type) -> None:
    """A deployment of this release suspends no run that is under way."""
    replayer = Replayer(workflows=[kind], plugins=[BatonPlugin(), DurableAgentsPlugin()])
    replay = await replayer.replay_workflow(history(name), raise_on_replay_failure=False)
    assert replay.replay_failure is None


@pytest.mark.parametrize("name", sorted(file.stem for file in EARLIER.glob("*.json")))
async def test_it_tells_nothing_of_the_machine_it_was_made_on(name: str) -> None:
    """Neither in its text nor inside its payloads."""
    machine = re.compile(rf"\b{re.escape(socket.gethostname())}\b|@|/(home|root|tmp|Users|work)/".encode())
    recorded = history(name)
    payloads = await decoded(recorded.events, data_converter())

    text = re.sub(r'"data": "[^"]*"', "", json.dumps(json.loads(recorded.to_json())))
    for told in (text.encode(), *payloads.values()):
        assert machine.search(told) is None
