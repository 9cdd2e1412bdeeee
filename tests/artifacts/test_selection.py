"""Which artifacts a stage is given, and why."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from baton import Baton, apply_patch
from baton.artifacts.activity import select_artifacts
from tests.core.material import ref

CODE = ref("code", path="src/auth/login.py")
TESTS = ref("tests", path="tests/test_auth.py")
PLAN = ref("plan")
ALL = [CODE, TESTS, PLAN]


def given_ids(work_scope: list[str], budget: int, costs: dict[str, int]) -> list[str]:
    """Return the ids of the artifacts that are given."""
    return [selected.id for selected in select_artifacts(ALL, work_scope, budget, costs) if selected.included]


class TestSelectArtifacts:
    @pytest.mark.parametrize(
        ("scope", "given_id"),
        [
            pytest.param("src/auth/login.py", "code", id="a file"),
            pytest.param("src", "code", id="a folder"),
            pytest.param("src/", "code", id="a folder with a slash"),
            pytest.param("src/auth/*", "code", id="a glob"),
            pytest.param("src/**", "code", id="a glob for all below"),
            pytest.param("*.py", "tests", id="a glob for a kind of file, newest first"),
            pytest.param("tests/test_*.py", "tests", id="a glob in a name"),
            pytest.param("plan", "plan", id="an id"),
            pytest.param("code", "code", id="the id of one that has a path"),
        ],
    )
    def test_artifacts_in_the_work_scope_come_first(self, scope: str, given_id: str) -> None:
        """`work_scope` drives the selection, globs included (S1-cmp-h, S2-ex-d, S1-fields-i)."""
        assert given_ids([scope], 10, {"code": 10, "tests": 10, "plan": 10}) == [given_id]

    @pytest.mark.parametrize("scope", ["", "/", "sr", "src/auth/login", "SRC/*", "[st]rc"])
    def test_a_similar_path_is_outside_the_scope(self, scope: str) -> None:
        """Half a name is no folder, and an empty entry covers nothing (S1-cmp-h)."""
        assert all(
            "outside" in selected.reason
            for selected in select_artifacts(ALL, [scope], 99, dict.fromkeys(("code", "tests", "plan"), 1))
        )

    def test_a_file_name_with_brackets_is_itself(self) -> None:
        """Some frameworks put brackets into file names; they are no glob there."""
        page = ref("page", path="app/[slug]/page.tsx")

        assert "in the work scope" in select_artifacts([page], ["app/[slug]/page.tsx"], 9, {"page": 1})[0].reason

    def test_paths_are_normalized_before_they_are_compared(self) -> None:
        """Backslashes, `./` and `//`, as agents on other systems write them; the baton keeps one form (S1 L90)."""
        spellings: list[Any] = [r"src\auth\login.py", "./src/auth/login.py", "src//auth/login.py", "src/auth/../auth/*"]
        for scope in spellings:
            assert given_ids([scope], 60, {"code": 60, "tests": 60, "plan": 60}) == ["code"], scope
        patched = apply_patch(Baton(goal="g"), {"work_scope": spellings})
        assert patched.work_scope == [*["src/auth/login.py"] * 3, "src/auth/*"]
        assert ref("code", path=r".\src\a.py").path == "src/a.py"

    def test_the_newest_come_first_within_a_rank(self) -> None:
        """The latest work is the likeliest to matter."""
        assert given_ids([], 20, {"code": 10, "tests": 10, "plan": 10}) == ["tests", "plan"]

    def test_a_large_artifact_does_not_exclude_a_small_one(self) -> None:
        """What is left of the budget goes to the next that fits (S1-cmp-d, S1-design-g)."""
        assert given_ids(["src"], 15, {"code": 90, "tests": 10, "plan": 5}) == ["tests", "plan"]

    def test_every_verdict_has_its_reason(self) -> None:
        """An entry for each artifact says what it cost and why it was taken or not (S1-cmp-d, S1-cmp-h)."""
        verdicts = select_artifacts([*ALL, ref("image")], ["src"], 15, {"code": 10, "tests": 10, "plan": 5})

        assert [(verdict.id, verdict.included, verdict.tokens, verdict.reason) for verdict in verdicts] == [
            ("code", True, 10, "in the work scope (src); fits"),
            ("tests", False, 10, "outside the work scope; costs 10 tokens, 0 of 15 are left"),
            ("plan", True, 5, "outside the work scope; fits"),
            ("image", False, 0, "outside the work scope; its content is not text"),
        ]

    @given(
        st.lists(st.sampled_from(["src", "tests/*", "plan", "*"]), max_size=2),
        st.integers(0, 40),
        st.fixed_dictionaries(
            {}, optional={"code": st.integers(0, 30), "tests": st.integers(0, 30), "plan": st.integers(0, 30)}
        ),
    )
    def test_the_budget_is_never_exceeded(self, scope: list[str], budget: int, costs: dict[str, int]) -> None:
        """Artifacts compete for tokens, and one verdict is given on each (S1-cmp-d, S1-design-g)."""
        verdicts = select_artifacts(ALL, scope, budget, costs)

        assert sum(verdict.tokens for verdict in verdicts if verdict.included) <= budget
        assert [verdict.id for verdict in verdicts] == ["code", "tests", "plan"]

    def test_a_negative_budget_is_an_error(self) -> None:
        """It is a mistake of the caller, said at once."""
        with pytest.raises(ValueError, match="budget for artifacts is -1"):
            select_artifacts(ALL, [], -1, {})
