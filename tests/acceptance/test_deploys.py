"""Code that changes under runs in flight, as the benchmark `deploy_lost` does it, cut down to a few runs."""

from pathlib import Path

import pytest

from benchmarks.deploys import Scale, run_deploys


@pytest.mark.slow
@pytest.mark.parametrize("versioned", [pytest.param(True, id="versioned"), pytest.param(False, id="unversioned")])
async def test_no_run_is_lost_over_deploys(tmp_path: Path, versioned: bool) -> None:
    """Stages change while workers are killed: every run completes, and each stage ran once per attempt.

    With worker versioning a run ends on its own release. Without, the replay names those that the new code cannot
    continue; they wait, and end once the old code is back.
    """
    # The third release lacks the stage behind the approval, the fourth has one before it, where runs wait already.
    outcome = await run_deploys(tmp_path, Scale(deploys=4, runs=10), versioned=versioned)

    assert (outcome.lost, outcome.stuck) == ([], [])
    assert outcome.killed >= 4
    assert bool(outcome.suspended) is not versioned
