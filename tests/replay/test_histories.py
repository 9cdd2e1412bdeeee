"""Recorded runs of the test pipelines, replayed with the current code."""

import json
import re
import socket
from pathlib import Path

import pytest
from temporalio.client import WorkflowHistory
from temporalio.worker import Replayer

from baton.client import RunStatus, rebuild
from baton.codec.conversion import data_converter
from baton.core.state import PipelineState
from baton.plugin import BatonPlugin
from baton.runs.client_events import decode_payloads
from baton.testing import assert_replays
from tests.replay import mutants
from tests.replay.detours import OUTSIDE
from tests.replay.record import HANDED, HANDED_PIPELINES, HISTORIES, PLAIN_PIPELINES, RECORDINGS

ALL = [*PLAIN_PIPELINES, *HANDED_PIPELINES]
RECORDED = [pytest.param(file, id=file.stem) for file in sorted(HISTORIES.glob("*.json"))]

ENDS = {
    "continuing": (RunStatus.CONTINUED_AS_NEW, 7),
    "handoffs-requeued": (RunStatus.FAILED, 2),
    "canceled": (RunStatus.CANCELED, 2),
    "undone-canceled": (RunStatus.CANCELED, 4),
    "unawaited": (RunStatus.FAILED, 1),
}
"""How those ended that did not complete, and after how many outcomes."""

MUTANTS = [
    pytest.param(mutants.StagesSwapped, "linear", id="two stages swapped"),
    pytest.param(mutants.AwaitDropped, "linear", id="an await dropped"),
    pytest.param(mutants.StageRenamed, "linear", id="a stage renamed"),
    pytest.param(mutants.StageAdded, "linear", id="a stage added at the end"),
    pytest.param(mutants.StagesSwapped, "rolled-back", id="two stages swapped in a rolled-back run"),
    pytest.param(mutants.OneAfterTheOther, "fan-out", id="branches run one after the other"),
    pytest.param(mutants.GateDropped, "approval", id="an approval dropped"),
    pytest.param(mutants.GateMoved, "approval", id="an approval moved"),
    pytest.param(mutants.AnotherChild, "child", id="another child pipeline"),
]


def history(file: Path) -> WorkflowHistory:
    return WorkflowHistory.from_json(file.stem, file.read_text(encoding="utf-8"))


class TestReplay:
    def test_every_recording_exists(self) -> None:
        """One for each kind of step, and for each way a run can begin."""
        assert {file.stem for file in HISTORIES.glob("*.json")} >= RECORDINGS.keys() | HANDED.keys() | {*OUTSIDE}

    @pytest.mark.parametrize("file", RECORDED)
    async def test_a_recorded_run_replays(self, file: Path) -> None:
        """Otherwise the next deployment would suspend every such run in progress."""
        recorded = history(file)
        kind = recorded.events[0].workflow_execution_started_event_attributes.workflow_type.name

        await assert_replays(recorded, [pipeline for pipeline in ALL if pipeline.__name__ == kind])

    @pytest.mark.parametrize("file", RECORDED)
    async def test_a_recorded_run_is_read_to_its_end(self, file: Path) -> None:
        """The reader arrives at the recorded result (S1-design-i)."""
        recorded = history(file)
        run = await rebuild(file.stem, recorded.run_id, recorded.events, data_converter())

        if file.stem in ENDS:
            assert (run.status, len(run.state.outcomes)) == ENDS[file.stem]
        else:
            assert run.status is RunStatus.COMPLETED
            assert run.result is not None
            assert run.result.baton == run.baton.to_json_object()
        replayed = PipelineState(run.state.initial)
        for outcome in run.state.outcomes:
            replayed.restore(outcome)
        assert replayed.baton == run.baton

    @pytest.mark.parametrize("file", RECORDED)
    async def test_a_recording_has_no_data_of_the_machine_that_made_it(self, file: Path) -> None:
        """Neither in its text nor in its payloads."""
        machine = re.compile(
            rf"\b{re.escape(socket.gethostname())}\b|@(?!baton\")|/(home|root|tmp|Users|work)/".encode()
        )
        recorded = history(file)
        payloads = await decode_payloads(recorded.events, data_converter())

        text = re.sub(r'"data": "[^"]*"', "", json.dumps(json.loads(recorded.to_json())))
        for data in (text.encode(), *payloads.values()):
            assert machine.search(data) is None


class TestMutants:
    @pytest.mark.parametrize(("mutant", "name"), MUTANTS)
    async def test_a_mutant_is_caught(self, mutant: type, name: str) -> None:
        """By replaying, in milliseconds, with what was found and what was expected."""
        with pytest.raises(AssertionError, match=rf"does not replay the history of '{name}': .*Nondeterminism"):
            await assert_replays(history(HISTORIES / f"{name}.json"), [mutant])

    async def test_temporals_own_replayer_catches_it_too(self) -> None:
        """With the plugin, on which `assert_replays` is based."""
        replayer = Replayer(workflows=[mutants.StageRenamed], plugins=[BatonPlugin()])

        replay = await replayer.replay_workflow(history(HISTORIES / "linear.json"), raise_on_replay_failure=False)
        assert type(replay.replay_failure).__name__ == "NondeterminismError"
