"""The shipped pipelines in the wheel: run by name in a folder that holds nothing of Baton's."""

from importlib.metadata import entry_points
from pathlib import Path

import pytest

from baton.pipelines.workflow_steps import workflow_type
from tests.wheels import Installed
from worker import WORKFLOWS

OTHERS = """
from baton import Baton, BatonPatch, Pipeline, pipeline, run_worker, stage

@stage
async def answer(baton: Baton) -> BatonPatch:
    return BatonPatch(current_state=[f"From another package: {baton.goal}"])

@pipeline
async def elsewhere(p: Pipeline) -> object:
    await p.stage(answer)
    return None

if __name__ == "__main__":
    run_worker("another_package")
"""


def test_each_shipped_pipeline_has_a_name() -> None:
    """Those of `worker.py`, and no other, are the package's entry points."""
    named = {
        entry_point.name
        for entry_point in entry_points(group="baton.pipelines")
        if entry_point.module == "baton.shipped"
    }

    assert named == {workflow_type(pipeline) for pipeline in WORKFLOWS}


def test_one_runs_in_a_folder_with_nothing_but_the_wheel(wheel: Installed, tmp_path: Path) -> None:
    """No server, no worker and no checkout: one command reviews code and leaves its report."""
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "program.py").write_text("import os\nos.system(input())\n", encoding="utf-8")
    words = ["baton", "run", "code_review", "--here", "--goal", "Review it"]
    printed = wheel.run(
        [*words, "--param", f"source={tmp_path}/source", "--param", f"output={tmp_path}/review"], tmp_path
    )

    assert "COMPLETED" in printed
    assert "B605" in (tmp_path / "review" / "REVIEW.md").read_text(encoding="utf-8")


def test_a_pipeline_of_another_package_runs_by_its_name(wheel: Installed, tmp_path: Path) -> None:
    """The group of entry points is open to every package; the module it names is the worker."""
    (wheel.packages / "another_package.py").write_text(OTHERS, encoding="utf-8")
    metadata = wheel.packages / "another_package-1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: another-package\nVersion: 1\n", encoding="utf-8")
    (metadata / "entry_points.txt").write_text("[baton.pipelines]\nelsewhere = another_package\n", encoding="utf-8")
    printed = wheel.run(["baton", "run", "elsewhere", "--here", "--goal", "Try it"], tmp_path)

    assert "From another package: Try it" in printed


@pytest.mark.parametrize("words", [["run", "code_review", "--here", "--goal", "x"], ["dev", "code_review"]])
def test_one_whose_extra_is_not_installed_says_how_to_install_it(
    words: list[str], wheel: Installed, tmp_path: Path
) -> None:
    """Its worker is not started: it would end at once, again and again."""
    [metadata] = wheel.packages.glob("temporal_baton-*.dist-info/METADATA")
    text = metadata.read_text(encoding="utf-8")
    assert "Requires-Dist: unidiff<" in text
    try:
        metadata.write_text(text.replace("Requires-Dist: unidiff<", "Requires-Dist: not-there<"), encoding="utf-8")
        refused = wheel.refused(["baton", *words], tmp_path)
    finally:
        metadata.write_text(text, encoding="utf-8")

    remedy = "pip install 'temporal-baton[pipelines]'"
    assert refused == f"baton: pipeline 'code_review' needs not-there: {remedy}\n"
    assert not (tmp_path / ".baton").exists()


@pytest.mark.parametrize("words", [["run", "nowhere", "--here", "--goal", "x"], ["dev", "nowhere"]])
def test_a_name_that_no_package_has_is_refused(words: list[str], wheel: Installed, tmp_path: Path) -> None:
    """Before anything is started."""
    wheel.run(["baton", *words], tmp_path, code=1)

    assert not (tmp_path / ".baton").exists()
