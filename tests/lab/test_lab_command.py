"""`baton lab` on files: the gate's exit code, answers, and what it refuses to read."""

import json
import os
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from baton.cli.app import make_app
from baton.lab import BASELINE, Lane, Outcome, Overrides, load_results, save_results
from baton.lab.records import Results, Sample
from tests.lab.test_lab_judging import AT, make_cohort, make_results


def call(*words: str) -> Result:
    return CliRunner().invoke(make_app(), ["lab", *words])


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of cohorts: one of ten cases, of which a candidate decides three otherwise."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "lab"
    folder.mkdir()
    cohort = make_cohort(10)
    (folder / "refunds.json").write_bytes(cohort.to_bytes())
    results = make_results(cohort, 3, lambda lane, nth: lane == "new" and nth < 3)
    (folder / "refunds.results.json").write_bytes(results.to_bytes())
    return folder


def test_the_gate_ends_with_one_and_names_the_cases(folder: Path) -> None:
    refused = call("gate", "refunds")
    assert refused.exit_code == 1
    named = " ".join(refused.stdout.split())  # in however wide a terminal
    assert all(f"case-{nth} differs (3 of 3)" in named for nth in range(3))
    assert call("gate").exit_code == 1
    assert call("gate", "refunds", "--same-decision", "0.5").exit_code == 0
    rows = json.loads(call("gate", "refunds", "--json").stdout)
    assert list(rows["refunds"]) == ["new"]


def test_a_folder_without_cohorts_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert call("gate").exit_code == 0


def test_results_of_other_cases_are_refused(folder: Path) -> None:
    (folder / "refunds.json").write_bytes(make_cohort(11).to_bytes())
    ended = call("gate", "refunds")
    assert ended.exit_code == 1
    assert "run `baton lab run refunds` again" in " ".join(ended.stderr.split())


def test_damaged_results_end_a_lab_run_before_it_costs(folder: Path) -> None:
    """Git left its marks in them, so nobody could keep what comes of it; there is no server here to be asked."""
    file = folder / "refunds.results.json"
    file.write_text("<<<<<<< HEAD\n" + file.read_text())
    ended = call("run", "refunds")
    assert ended.exit_code == 1
    assert "refunds.results.json" in "".join(ended.stderr.split())


def test_results_are_replaced_as_a_whole(folder: Path) -> None:
    """Whoever still reads the old file has all of it, and what the gate saw goes along."""
    cohort, file = make_cohort(10), folder / "refunds.results.json"
    old, before = folder / "old", file.read_bytes()
    os.link(file, old)
    for count in (1, 2):
        saved = save_results("refunds", cohort, make_results(cohort, 1, lambda lane, nth: False))
        assert len(saved.figures) == count
    assert (old.read_bytes(), load_results("refunds", cohort)) == (before, saved)
    assert {path.name for path in folder.iterdir()} == {"old", "refunds.json", "refunds.results.json"}
    file.write_bytes(b"damaged meanwhile")
    assert len(save_results("refunds", cohort, saved, before=saved).figures) == 3


def test_a_judge_of_the_team_counts(folder: Path) -> None:
    (folder.parent / "judges_of_ours.py").write_text("def cheap(case, outcome):\n    return False\n")
    ended = call("gate", "refunds", "--same-decision", "0.5", "--judge", "judges_of_ours:cheap", "--json")
    assert ended.exit_code == 0  # the baseline fails it as well, so the change is not to blame
    assert call("gate", "refunds", "--judge", "judges_of_ours:none").exit_code == 2


def test_an_answer_is_kept_with_its_author(folder: Path) -> None:
    cohort = make_cohort(1)
    (folder / "one.json").write_bytes(cohort.to_bytes())
    asked = {"tool": "lookup", "how": "asked", "arguments": f"sha256:{'0' * 64}", "shown": '{"order":1}'}
    outcome = Outcome(failure="ToolDeniedError", calls=[asked])  # type: ignore[list-item]
    lanes = [Lane(name=BASELINE, overrides=Overrides())]
    results = Results(
        cohort="one",
        digest=cohort.digest,
        workflow_id="lab",
        at=AT,
        repeat=1,
        lanes=lanes,
        samples=[Sample(case="case-0", lane=BASELINE, outcomes=[outcome])],
    )
    (folder / "one.results.json").write_bytes(results.to_bytes())
    assert call("answer", "one", "case-0", '{"paid": 10}', "--who", "ann").exit_code == 0
    [kept] = json.loads((folder / "one.json").read_text())["cases"][0]["tool_calls"]
    assert (kept["result"], kept["by"]) == ({"paid": 10}, "ann")
    assert call("answer", "one", "case-0", "{}").exit_code == 1  # its results are of the cohort without it


def test_a_candidate_is_parsed_as_a_whole(folder: Path) -> None:
    for candidate in ("model", "color=red", "window=wide", "model=a,model=b", "prompt=@missing.md"):
        assert call("run", "refunds", "--candidate", candidate).exit_code == 2
