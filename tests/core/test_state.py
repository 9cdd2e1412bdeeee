"""The state of a pipeline as steps are recorded."""

from typing import Any, Self

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import model_validator

from baton.core.baton import AnyBaton, Baton
from baton.core.history import HistoryEntry, Outcome, Spend, StepKind, snapshots
from baton.core.messages import PipelineInput, PipelineResult
from baton.core.pages import PAGE, write_pages
from baton.core.patching import PatchRules
from baton.core.questions import Settled
from baton.core.state import DEFAULT_STRATEGIES, MergeStrategy, PipelineState
from baton.errors import PatchError, PipelineError
from tests.core.material import AT, ReviewBaton, good_patches, raw_patches, ref, returned


def state_of(start: Baton | None = None, **rules: Any) -> PipelineState:
    return PipelineState(start or Baton(goal="g", decision_log=["d1"]), PatchRules(**rules))


def resumed(state: PipelineState) -> PipelineState:
    """Return the state of a run that starts with another's outcomes, through JSON."""
    other = PipelineState(state.initial, state.rules)
    for outcome in state.outcomes:
        other.restore(Outcome.model_validate_json(outcome.model_dump_json()))
    return other


def same(left: PipelineState, right: PipelineState) -> bool:
    """Return whether two states are equal in everything that matters."""
    names = ("baton", "entries", "outcomes", "spend")
    return (
        all(getattr(left, name) == getattr(right, name) for name in names) and left.stage_rules() == right.stage_rules()
    )


class TestRecordStage:
    def test_a_rejected_patch_changes_nothing(self) -> None:
        """No entry, outcome or spend, and no partial patch (C-3)."""
        state = state_of()
        bad = returned("plan", 1, {"work_scope": ["src"], "goal": None}, spend=Spend(micro_usd=5))

        with pytest.raises(PatchError):
            state.record_stage(bad, AT)
        assert same(state, state_of())

    def test_the_patch_and_its_effect_are_both_recorded(self) -> None:
        """A field that is set to its old value is in the patch only (C-2)."""
        state = state_of(Baton(goal="g", work_scope=["src"]))
        patch = {"decision_log": ["d2"], "work_scope": ["src"]}
        (entry,) = state.record_stage(returned("plan", 1, patch), AT).entries

        assert entry.patch == patch
        assert entry.effective == {"decision_log": ["d2"]}

    def test_a_repeated_decision_is_in_log_and_history(self) -> None:
        """A check that fails twice and then passes was made three times."""
        state = state_of(Baton(goal="g"))
        for seq, verdict in enumerate(["Failed", "Failed", "Passed"], 1):
            state.record_stage(returned("check", seq, {"decision_log": [verdict]}), AT)

        assert state.baton.decision_log == ["Failed", "Failed", "Passed"]
        assert [entry.effective for entry in state.entries][1] == {"decision_log": ["Failed"]}

    def test_a_concurrent_step_without_effect_causes_no_warning(self) -> None:
        """A reader, for whom the baton is the same object, records the same entry."""
        state = state_of(Baton(goal="g", decision_log=["d1", "d2"]))
        base = state.baton
        nothing = PipelineResult(task_id="t", steps=1, baton=state.baton.to_json_object())
        state.record_child(1, "half", nothing, {"decision_log": []}, AT)
        outcome = state.record_stage(returned("plan", 2, {"decision_log": ["d1"]}), AT, base=base)

        read = resumed(PipelineState(state.initial))
        read.restore(state.outcomes[0])
        assert read.record_stage(returned("plan", 2, {"decision_log": ["d1"]}), AT, base=read.initial) == outcome

    def test_the_change_is_recorded_only_if_it_differs(self) -> None:
        assert state_of().record_stage(returned("plan", 1, {"work_scope": ["src"]}), AT).entries[0].change is None

    def test_an_empty_patch_is_recorded(self) -> None:
        """The history has every stage (C-10)."""
        state = state_of()
        state.record_stage(returned("plan", 1, {}, output={"ok": True}), AT)

        assert [entry.stage_id for entry in state.entries] == ["plan"]
        assert state.outcomes[0].value == {"ok": True}

    def test_spend_adds_up(self) -> None:
        """The state has the total cost of its steps."""
        state = state_of()
        for seq in (1, 2):
            state.record_stage(returned("plan", seq, {}, spend=Spend(micro_usd=5, prompt_tokens=seq)), AT)

        assert state.spend == Spend(micro_usd=10, prompt_tokens=3)

    @pytest.mark.parametrize("between", [{"artifacts": []}, {"artifacts": None}], ids=repr)
    def test_an_id_keeps_its_hash_after_its_reference_was_dropped(self, between: Any) -> None:
        """A dropped artifact is still immutable, also in a resumed run (C-11, S1-cmp-f)."""
        state = state_of()
        state.record_stage(returned("plan", 1, {"artifacts": [ref("a").model_dump(mode="json")]}), AT)
        state.record_stage(returned("tidy", 2, between), AT)
        reused = returned("plan", 3, {"artifacts": [ref("a", "1").model_dump(mode="json")]})

        for current in (state, resumed(state)):
            with pytest.raises(PatchError, match="'a' already names other bytes"):
                current.record_stage(reused, AT)
            current.record_stage(returned("plan", 3, {"artifacts": [ref("a").model_dump(mode="json")]}), AT)

    def test_artifacts_in_the_rules_are_immutable(self) -> None:
        """A pipeline may start with ids that are used elsewhere (C-11)."""
        state = state_of(known_artifacts={"a": "0" * 64})

        with pytest.raises(PatchError, match="'a' already names other bytes"):
            state.record_stage(returned("plan", 1, {"artifacts": [ref("a", "1").model_dump(mode="json")]}), AT)

    def test_protecting_an_unknown_field_is_an_error(self) -> None:
        """It shows when the pipeline is constructed."""
        with pytest.raises(ValueError, match="no such field"):
            state_of(protected=frozenset({"constrains"}))


class TestConcurrentStages:
    START = Baton(goal="g", decision_log=["d1"], artifacts=[ref("a")], work_scope=["src"])

    def recorded(self, first: dict[str, Any], second: dict[str, Any]) -> tuple[PipelineState, HistoryEntry]:
        """Return the state and the second entry after two stages that both got the first baton."""
        state = state_of(self.START)
        state.record_stage(returned("one", 1, first), AT, base=self.START)
        outcome = state.record_stage(returned("two", 2, second), AT, base=self.START)
        return state, outcome.entries[0]

    def test_decisions_of_both_are_appended(self) -> None:
        """Even the same one (C-2)."""
        state, entry = self.recorded({"decision_log": ["d2"]}, {"decision_log": ["d2", "d3"], "acceptance": ["x"]})

        assert state.baton.decision_log == ["d1", "d2", "d2", "d3"]
        assert entry.warnings == []

    def test_the_artifacts_of_both_stages_are_kept(self) -> None:
        """Each returned the artifacts it got and its own."""
        first, second = ([ref("a"), ref(name)] for name in ("b", "c"))
        state, entry = self.recorded(
            {"artifacts": [artifact.model_dump(mode="json") for artifact in first]},
            {"artifacts": [artifact.model_dump(mode="json") for artifact in second]},
        )

        assert [artifact.id for artifact in state.baton.artifacts] == ["a", "b", "c"]
        assert entry.warnings == []

    def test_a_field_that_both_wrote_is_a_warning(self) -> None:
        """The later value counts, and the history says that it replaced another one."""
        state, entry = self.recorded({"work_scope": ["a"]}, {"work_scope": ["b"]})

        assert state.baton.work_scope == ["b"]
        assert entry.warnings == ["work_scope: a concurrent step wrote it too; this patch replaced that"]

    def test_one_id_for_two_artifacts_is_rejected(self) -> None:
        """Both stages used the same id for a new artifact (C-11)."""
        with pytest.raises(PatchError, match="'b' already names other bytes"):
            self.recorded(
                {"artifacts": [ref("b", "1").model_dump(mode="json")]},
                {"artifacts": [ref("b", "2").model_dump(mode="json")]},
            )


class TestRecordFanOut:
    def test_branches_are_recorded_and_the_merge_is_the_only_change(self) -> None:
        """One entry for each branch with its own patch, and one for the merge."""
        state = state_of()
        branches = [
            returned("test", 3, {"decision_log": ["t"], "work_scope": ["a"]}, spend=Spend(micro_usd=1)),
            returned("review", 3, {"decision_log": ["r"], "work_scope": ["b"]}, output="fine", attempt=2),
        ]
        outcome = state.record_fan_out(3, "test+review", branches, AT)

        assert [(entry.stage_id, entry.kind, entry.seq) for entry in state.entries] == [
            ("test", StepKind.BRANCH, 3),
            ("review", StepKind.BRANCH, 3),
            ("test+review", StepKind.MERGE, 3),
        ]
        assert state.entries[0].patch == branches[0].baton_patch
        assert state.entries[2].effective == {"decision_log": ["t", "r"], "work_scope": ["a", "b"]}
        assert [entry.field for entry in state.entries[2].conflicts] == ["work_scope"]
        assert state.baton.decision_log == ["d1", "t", "r"]
        assert outcome.value == [None, "fine"]
        assert state.spend == Spend(micro_usd=1)

    def test_branches_may_decide_what_was_decided_before(self) -> None:
        """Nothing is dropped (C-2)."""
        state = state_of(Baton(goal="g", decision_log=["d1"]))
        patch = {"decision_log": ["d1"]}
        state.record_fan_out(1, "a+b", [returned("a", 1, patch), returned("b", 1, patch)], AT)

        assert state.baton.decision_log == ["d1", "d1", "d1"]

    def test_branches_merge_in_call_order(self) -> None:
        """The same fan-out gives the same baton on every run."""
        patches = {"a": {"work_scope": ["a"]}, "b": {"work_scope": ["b"]}}
        state = state_of()
        strategies = {**DEFAULT_STRATEGIES, "work_scope": MergeStrategy.LAST}
        state.record_fan_out(1, "a+b", [returned(name, 1, patches[name]) for name in "ab"], AT, strategies=strategies)

        assert state.baton.work_scope == ["b"]

    @pytest.mark.parametrize(
        "patches",
        [
            pytest.param([{"goal": "x"}, {"goal": "y"}], id="branches disagree about the goal"),
            pytest.param([{"decision_log": ["x"]}, {"decision_log": None}], id="a branch clears the log"),
            pytest.param(
                [{"artifacts": [ref("n", v).model_dump(mode="json")]} for v in "12"], id="two meanings of an id"
            ),
            pytest.param([{"work_scope": ["x"]}, {"work_scope": [1]}], id="the union is no list of texts"),
        ],
    )
    def test_branches_that_cannot_be_merged_change_nothing(self, patches: list[dict[str, Any]]) -> None:
        """All branches or none (C-3, C-11)."""
        state = state_of()

        with pytest.raises(PatchError):
            state.record_fan_out(1, "a+b", [returned(f"b{n}", 1, patch) for n, patch in enumerate(patches)], AT)
        assert same(state, state_of())


class TestOtherSteps:
    def test_an_approval_is_recorded_and_changes_no_field(self) -> None:
        """The history has who decided, when and why."""
        state = state_of()
        decided = Settled(
            title="release",
            question="1:x",
            choice="approve",
            who="ann",
            why="green",
            at=AT,
            digest="sha256:x",
            via="update",
        )
        outcome = state.record_decision(1, decided)

        assert state.baton is state.initial
        assert (state.entries[0].stage_id, state.entries[0].by, state.entries[0].why) == ("release", "ann", "green")
        assert Settled.model_validate(outcome.value, strict=False) == decided

    def test_a_childs_patch_obeys_the_parents_rules(self) -> None:
        """A child is a step like any other (C-6)."""
        state = state_of(protected=frozenset({"goal"}))
        result = PipelineResult(task_id="t", baton={"goal": "x"}, steps=2, spend=Spend(micro_usd=7))
        state.record_child(1, "sub", result, {"decision_log": ["c"]}, AT)

        assert state.baton.decision_log == ["d1", "c"]
        assert state.spend.micro_usd == 7
        with pytest.raises(PatchError, match="goal: is protected"):
            state.record_child(2, "sub", result, {"goal": "x"}, AT)

    def test_a_persons_edit_is_recorded_with_their_name(self) -> None:
        """An edit is a change like any other, with its author."""
        state = state_of()
        state.record_stage(returned("plan", 4, {}), AT)
        entry = state.record_edit({"constraints": ["x"], "decision_log": ["e"]}, AT, "ann", "wrong turn").entries[0]

        assert (entry.seq, entry.kind, entry.by, entry.why) == (5, StepKind.EDIT, "ann", "wrong turn")
        assert state.baton.decision_log == ["d1", "e"]
        with pytest.raises(PatchError):
            state.record_edit({"decision_log": None}, AT, "ann", "erase")

    def test_a_failure_is_an_outcome_that_changes_nothing(self) -> None:
        """A run that handled the failure is resumed in the same way."""
        state = state_of()
        outcome = state.record_failure(1, "plan", StepKind.STAGE, "it broke")

        assert (state.baton, state.entries) == (state.initial, [])
        assert resumed(state).outcomes == [outcome]


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("stage"), raw_patches),
        st.tuples(st.just("late"), raw_patches),
        st.tuples(st.just("fan"), st.lists(raw_patches, min_size=1, max_size=3)),
        st.tuples(st.just("edit"), raw_patches),
        st.tuples(st.just("child"), good_patches),
    ),
    max_size=6,
)


def played(steps: list[tuple[str, Any]], check: Any = None) -> PipelineState:
    """Return the state after all steps that are accepted; ``check`` is called after each."""
    state = state_of(Baton(goal="g", decision_log=["d1"], artifacts=[ref("art-1")]))
    strategies = dict.fromkeys(Baton.FIELDS, MergeStrategy.LAST)
    for seq, (kind, what) in enumerate(steps, 1):
        try:
            if kind == "stage":
                state.record_stage(returned("s", seq, what, spend=Spend(micro_usd=seq)), AT)
            elif kind == "late":
                state.record_stage(returned("s", seq, what), AT, base=state.initial)
            elif kind == "fan":
                branches = [returned(f"b{n}", seq, patch) for n, patch in enumerate(what)]
                state.record_fan_out(seq, "fan", branches, AT, strategies=strategies)
            elif kind == "edit":
                state.record_edit(what, AT, "ann", "")
            else:
                result = PipelineResult(task_id="t", baton={}, steps=1)
                state.record_child(seq, "child", result, what, AT)
        except PatchError:
            pass
        if check is not None:
            check(state)
    return state


class TestProperties:
    @given(STEPS)
    def test_no_sequence_of_steps_shortens_or_alters_the_decision_log(self, steps: list[tuple[str, Any]]) -> None:
        """Stages, branches, edits and children can add and never erase (S1-design-a, S1-design-b, S2-design-a; B1)."""
        logs = [["d1"]]

        def check(state: PipelineState) -> None:
            assert state.baton.decision_log[: len(logs[-1])] == logs[-1]
            logs.append(state.baton.decision_log)

        played(steps, check)

    @given(STEPS)
    def test_the_history_gives_the_baton_after_every_step(self, steps: list[tuple[str, Any]]) -> None:
        """Snapshots follow exactly from the entries (S1-patch-f, S1-design-i)."""
        after: list[tuple[int, Baton]] = []
        state = played(steps, lambda now: after.append((len(now.entries), now.baton)))
        batons = [state.initial, *(baton for _, baton in snapshots(state.initial, state.entries))]

        assert len(batons) == len(state.entries) + 1
        for entries, baton in after:
            assert batons[entries] == baton

    @given(STEPS)
    def test_outcomes_restore_the_same_state(self, steps: list[tuple[str, Any]]) -> None:
        """A resumed run has the same state as the original, artifact ids included."""
        state = played(steps)

        assert same(resumed(state), state)

    @given(STEPS)
    def test_a_reader_without_the_type_gets_the_same_baton(self, steps: list[tuple[str, Any]]) -> None:
        """The command line shows what the workflow has (S1-design-i)."""
        state = played(steps)
        reader = PipelineState(AnyBaton.from_json_object(state.initial.to_json_object()))
        for outcome in state.outcomes:
            reader.restore(outcome)

        assert reader.baton.to_json_object() == state.baton.to_json_object()

    def test_a_derived_baton_is_restored_with_its_type(self) -> None:
        """Times and enums are parsed again."""
        state = state_of(ReviewBaton(goal="g"))
        state.record_stage(returned("s", 1, {"due": "2026-12-01T00:00:00Z", "quality_signals": {"a": 1}}), AT)
        state.record_stage(returned("s", 2, {"severity": "high", "quality_signals": {"a": True, "b": None}}), AT)

        assert same(resumed(state), state)
        assert isinstance(resumed(state).baton, ReviewBaton)


VALIDATED: list[str] = []


class CountedBaton(Baton):
    """A type that notes each validation."""

    @model_validator(mode="after")
    def _note(self) -> Self:
        VALIDATED.append(self.goal)
        return self


class TestLongRuns:
    def test_restored_steps_are_validated_once(self) -> None:
        """Restoring a step costs the same, however many came before."""
        state = state_of()
        for seq in range(1, 31):
            state.record_stage(returned("plan", seq, {"decision_log": [f"d{seq + 1}"]}), AT)
        restored = PipelineState(CountedBaton(goal="g", decision_log=["d1"]))
        VALIDATED.clear()
        for outcome in state.outcomes:
            restored.restore(outcome)

        assert restored.baton.decision_log == state.baton.decision_log
        assert restored.baton.decision_log[-1] == "d31"
        assert len(VALIDATED) == 1

    def test_a_run_can_decide_as_often_as_it_likes(self) -> None:
        """After ten thousand decisions a patch still applies, and a run that continues has the same baton."""
        state = state_of()
        for seq in range(1, 13):
            decisions = [f"{seq}.{number}" for number in range(900)]
            state.record_stage(returned("plan", seq, {"decision_log": decisions}), AT)
        state.record_stage(returned("plan", 13, {"current_state": ["a", "b", "c"]}), AT)

        assert state.baton.decision_log[-1] == "12.899"
        assert sum(len(entry.effective.get("decision_log", [])) for entry in state.entries) == 12 * 900
        assert same(resumed(state), state)

    def test_what_is_written_as_a_page_is_never_written_again(self) -> None:
        """What a run carries along costs it nothing anew, and reads back complete."""
        state = state_of()
        for seq in range(1, 2 * PAGE + 2):
            state.record_sleep(seq, "wait", AT)
        first = write_pages(state.outcomes[: PAGE + 1])
        second = write_pages(state.outcomes, ["as it was", *first["pages"][1:]])

        assert [len(first["pages"]), len(first["outcomes"])] == [1, 1]
        assert [len(second["pages"]), len(second["outcomes"])] == [2, 1]
        assert second["pages"][0] == "as it was"
        assert PipelineInput(goal="g", **write_pages(state.outcomes)).recorded() == state.outcomes

    @pytest.mark.parametrize("page", ["[]", "{}", "nonsense"])
    def test_a_page_that_is_none_is_rejected(self, page: str) -> None:
        """It is an error with a name, not a run without its steps."""
        with pytest.raises(PipelineError, match="page of recorded steps"):
            PipelineInput(goal="g", pages=[page]).recorded()
