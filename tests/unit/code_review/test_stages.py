"""The stages of `code_review` by themselves: what they leave in the baton."""

from pathlib import Path

from pydantic import JsonValue

from activities.code_review.stages import take_snapshot
from baton import Baton, BatonPatch, StageContext
from tests.unit.code_review.material import FILES, write


class TestTakeSnapshot:
    """What the baton says once the code was read."""

    async def test_says_what_is_not_under_review(self, tmp_path: Path) -> None:
        """Each reason in words, with its count."""
        source = write(tmp_path / "project", {**FILES, "data.json": "{}\n"})
        params: dict[str, JsonValue] = {"source": str(source), "output": str(tmp_path / "out")}
        result = await take_snapshot(StageContext.for_test(Baton(goal="Review it"), params=params))
        assert isinstance(result.baton_patch, BatonPatch)
        assert result.baton_patch.current_state == [
            "Under review: the whole project, 5 files with 29 lines",
            "Not under review: 1 × no program, but data; 1 × no program, but prose",
            "The source was read, not executed, and is as it was",
        ]
