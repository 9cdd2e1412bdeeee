"""The four-stage run of the pattern's text (S1 L66-82), applied to the pipeline's state."""

from datetime import timedelta
from typing import Any

import pytest

from baton.core.baton import Baton
from baton.core.history import snapshots
from baton.core.messages import PipelineInput
from baton.core.patching import PatchRules
from baton.core.rendering import render
from baton.core.state import PipelineState
from baton.errors import PatchError
from tests.core.material import AT, returned

RUN: list[tuple[str, dict[str, Any]]] = [
    (
        "detect-tech-stack",
        {
            "current_state": ["Project directory is uninitialized, no source files found"],
            "decision_log": ["Confirmed project is empty"],
            "constraints": ["Solo developer, zero budget"],
        },
    ),
    (
        "generate-docs",
        {
            "current_state": ["Project fully documented, 13 features in backlog"],
            "decision_log": ["Chose React Native, selected Supabase"],
            "work_scope": ["CLAUDE.md", "README.md"],
        },
    ),
    (
        "build-knowledge",
        {
            "current_state": ["Knowledge index built with 53 chunks"],
            "decision_log": ["Indexed documentation for semantic search"],
        },
    ),
    (
        "verify-ready",
        {
            "current_state": ["Project fully initialized and verified"],
            "decision_log": ["All verification checks passed"],
            "constraints": ["Source validation non-negotiable for Islamic content"],
        },
    ),
]
"""The four stages of S1 L66-82."""


@pytest.fixture
def run() -> PipelineState:
    state = PipelineState(PipelineInput(goal="Initialize deenup").first_baton())
    for seq, (stage, patch) in enumerate(RUN, 1):
        state.record_stage(returned(stage, seq, patch), AT + timedelta(minutes=seq))
    return state


class TestPublishedRun:
    def test_it_starts_from_the_goal(self, run: PipelineState) -> None:
        """The first baton is created from the feature description (S1-init-a, S1-init-c, S2-how-1; B14)."""
        assert run.initial == Baton(goal="Initialize deenup", current_state=["Workflow starting"])

    def test_all_decisions_and_the_last_state_are_kept(self, run: PipelineState) -> None:
        """Four decisions in order, and the state of the last stage (S1-ex-a, S1-ex-b, S1-ex-c, S1-ex-d, S1-ex-f)."""
        assert run.baton.decision_log == [
            "Confirmed project is empty",
            "Chose React Native, selected Supabase",
            "Indexed documentation for semantic search",
            "All verification checks passed",
        ]
        assert run.baton.current_state == ["Project fully initialized and verified"]
        assert run.baton.work_scope == ["CLAUDE.md", "README.md"]

    def test_the_removed_constraint_is_in_the_history(self, run: PipelineState) -> None:
        """Replacing follows the document, and the history names what was removed (S1-ex-g, C-5)."""
        assert run.baton.constraints == ["Source validation non-negotiable for Islamic content"]
        assert [entry.removed_constraints for entry in run.entries] == [[], [], [], ["Solo developer, zero budget"]]

    def test_each_stage_reads_what_its_predecessors_left(self, run: PipelineState) -> None:
        """Each page shows earlier decisions and the current state (S1-ex-e, S1-loop-a, S1-concept-c)."""
        before = [run.initial, *(baton for _, baton in snapshots(run.initial, run.entries))]

        for number, (stage, patch) in enumerate(RUN):
            page = render(before[number])
            for _, earlier in RUN[:number]:
                assert f"- {earlier['decision_log'][0]}\n" in page
            assert str(patch["decision_log"][0]) not in page, stage
            assert f"- {before[number].current_state[0]}\n" in page

    def test_every_patch_is_recorded_with_its_stage_and_time(self, run: PipelineState) -> None:
        """Who, when, what (S1-design-h, S2-design-d)."""
        assert [(entry.stage_id, entry.timestamp, entry.patch) for entry in run.entries] == [
            (stage, AT + timedelta(minutes=seq), patch) for seq, (stage, patch) in enumerate(RUN, 1)
        ]

    def test_every_patch_has_a_snapshot(self, run: PipelineState) -> None:
        """The full baton after each patch (S1-patch-f, S1-design-e, S1-design-i)."""
        states = [baton.current_state for _, baton in snapshots(run.initial, run.entries)]

        assert states == [patch["current_state"] for _, patch in RUN]

    def test_constraints_can_be_protected(self) -> None:
        """A pipeline may keep its hard rules (C-5, S1-prob-g)."""
        state = PipelineState(Baton(goal="g"), PatchRules(protected=frozenset({"constraints"})))
        for seq, (stage, patch) in enumerate(RUN[:3], 1):
            state.record_stage(returned(stage, seq, patch), AT)

        with pytest.raises(PatchError, match="constraints: is protected"):
            state.record_stage(returned("verify-ready", 4, RUN[3][1]), AT)
        assert state.baton.constraints == ["Solo developer, zero budget"]
