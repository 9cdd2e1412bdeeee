"""`baton lab` on files: the gate's exit code, answers, and what it refuses to read."""

import asyncio
import json
import os
import re
from importlib import import_module
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from baton import Spend, open_store
from baton.cli.app import make_app
from baton.lab import (
    BASELINE,
    Judging,
    Lane,
    Outcome,
    Overrides,
    Should,
    load_cohort,
    load_results,
    save_cohort,
    save_results,
)
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


def test_a_case_that_did_not_come_to_what_it_should_stands_first(folder: Path) -> None:
    cohort = make_cohort(10)
    wrong = cohort.cases[9].model_copy(update={"should": Should(values={"/output": "paid"})})
    cohort = cohort.model_copy(update={"cases": [*cohort.cases[:9], wrong]})
    save_cohort("wrong", cohort)
    save_results("wrong", cohort, make_results(cohort, 1, lambda lane, nth: False))
    listed = re.findall(r"case-\d", call("show", "wrong").stdout)
    assert (len(listed), listed[0]) == (10, "case-9")
    assert call("gate", "wrong").exit_code == 1


def test_a_cost_that_nobody_knows_is_said_and_keeps_no_limit(folder: Path) -> None:
    cohort = make_cohort(1)
    results = make_results(cohort, 1, lambda lane, nth: False)
    unpriced = [Outcome(spend=Spend(prompt_tokens=10))]
    samples = [sample.model_copy(update={"outcomes": unpriced}) for sample in results.samples]
    save_cohort("unpriced", cohort)
    save_results("unpriced", cohort, results.model_copy(update={"samples": samples}))
    for words, count in ((["unpriced"], 3), (["unpriced", "case-0"], 2)):  # what was recorded used no tokens
        assert call("show", *words).stdout.count("unknown") == count
    assert call("gate", "unpriced", "--same-decision", "0").exit_code == 0
    assert call("gate", "unpriced", "--same-decision", "0", "--max-cost", "9").exit_code == 1


def test_prompts_of_the_same_step_stand_beside_each_other(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The candidate ended before the baseline's last step."""
    place = str(folder / "store")
    monkeypatch.setenv("BATON_ARTIFACTS", place)
    texts = {"draft, step 1": "Draft it", "send, step 3": "Send it"}
    prompts = {step: asyncio.run(open_store(place).put(text.encode())) for step, text in texts.items()}
    reached = {BASELINE: prompts, "new": {"draft, step 1": prompts["draft, step 1"]}}
    cohort = make_cohort(1)
    samples = [Sample(case="case-0", lane=lane, outcomes=[Outcome(prompts=one)]) for lane, one in reached.items()]
    save_cohort("steps", cohort)
    results = make_results(cohort, 1, lambda lane, nth: False).model_copy(update={"samples": samples})
    save_results("steps", cohort, results)
    shown = call("show", "steps", "case-0").stdout
    assert [shown.count(step) for step in texts] == [1, 1]
    assert "Send it" not in shown


def test_a_folder_without_cohorts_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert call("gate").exit_code == 0


def test_a_cohort_without_results_is_named(folder: Path) -> None:
    save_cohort("fresh", make_cohort(1))
    ended = call("gate", "--same-decision", "0.5")
    assert (ended.exit_code, "fresh.json" in ended.stderr, "fresh.json" in ended.stdout) == (0, True, False)


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


@pytest.mark.parametrize(("candidate", "noted"), [("prompt=a", 1), ("stage=research,prompt=a", 0), ("model=a", 0)])
def test_a_text_for_several_stages_is_noted(folder: Path, candidate: str, noted: int) -> None:
    """Before the lab run, which damaged results end here."""
    cohort = make_cohort(2)
    cases = [cohort.cases[0].model_copy(update={"stage": "research"}), cohort.cases[1]]
    save_cohort("stages", cohort.model_copy(update={"cases": cases}))
    (folder / "stages.results.json").write_text("{")
    ended = call("run", "stages", "--candidate", candidate)
    assert (ended.exit_code, ended.stderr.count("decide, research")) == (1, noted)


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


def test_a_model_judges_each_cohort_by_its_own_pointer(folder: Path) -> None:
    """The model notes what it is asked; both cohorts are judged at once."""
    source = "ASKED = []\n\n\ndef ask(prompt):\n    ASKED.append(prompt)\n    return 'APPROVE'\n"
    (folder.parent / "models_of_ours.py").write_text(source)
    pointed = make_cohort(1, Judging(decision="/baton_patch/decision_log"))
    save_cohort("pointed", pointed)
    save_results("pointed", pointed, make_results(pointed, 1, lambda lane, nth: False))
    call("gate", "--judge-model", "models_of_ours:ask", "--json")
    asked = [prompt.partition("----- decision\n")[2] for prompt in import_module("models_of_ours").ASKED]
    assert {text.partition("\n")[0] for text in asked} == {
        "Approve, because",
        "Deny, because",
        '["Approve, because"]',
    }


def test_answers_are_kept_with_their_author(folder: Path) -> None:
    """Each question of a lab run is answered, one after another; then its results are of the cohort without them."""
    cohort, numbers = make_cohort(2), {("case-0", BASELINE): 0, ("case-1", BASELINE): 1, ("case-0", "new"): 2}
    samples = []
    for (case, lane), number in numbers.items():
        asked = {"tool": "lookup", "how": "asked", "arguments": f"sha256:{number:064}", "shown": '{"order":1}'}
        outcome = Outcome(failure="ToolDeniedError", calls=[asked])  # type: ignore[list-item]
        samples.append(Sample(case=case, lane=lane, outcomes=[outcome]))
    lanes = [Lane(name=BASELINE, overrides=Overrides()), Lane(name="new")]
    results = Results(
        cohort="two", digest=cohort.digest, workflow_id="lab", at=AT, repeat=1, lanes=lanes, samples=samples
    )
    (folder / "two.json").write_bytes(cohort.to_bytes())
    (folder / "two.results.json").write_bytes(results.to_bytes())
    for case in ("case-0", "case-1", "case-0"):
        assert call("answer", "two", case, '{"paid": 10}', "--who", "ann").exit_code == 0
    kept = load_cohort("two")
    assert [len(case.tool_calls) for case in kept.cases] == [2, 1]
    assert {(one.by, str(one.result)) for case in kept.cases for one in case.tool_calls} == {("ann", "{'paid': 10}")}
    assert call("answer", "two", "case-0", "{}").exit_code == 1  # it asks nothing more
    assert call("gate", "two").exit_code == 1


def test_an_answer_is_to_the_cohort_as_it_ran(folder: Path) -> None:
    cohort = make_cohort(2)
    asked = {"tool": "lookup", "how": "asked", "arguments": f"sha256:{0:064}", "shown": "{}"}
    outcome = Outcome(failure="ToolDeniedError", calls=[asked])  # type: ignore[list-item]
    sample = Sample(case="case-0", lane=BASELINE, outcomes=[outcome])
    results = make_results(cohort, 1, lambda lane, nth: False).model_copy(update={"samples": [sample]})
    save_results("two", cohort, results)
    save_cohort("two", make_cohort(3))
    assert call("answer", "two", "case-0", "{}").exit_code == 1
    save_cohort("two", cohort)
    assert call("answer", "two", "case-0", "{}").exit_code == 0


def test_a_candidate_is_parsed_as_a_whole(folder: Path) -> None:
    for candidate in ("model", "color=red", "window=wide", "model=a,model=b", "prompt=@missing.md"):
        assert call("run", "refunds", "--candidate", candidate).exit_code == 2
