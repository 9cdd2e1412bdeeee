"""The judges and the gate, on outcomes whose differences are known by construction."""

import random
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pydantic import JsonValue

from baton.lab import (
    BASELINE,
    DECISION,
    JUDGE_PROMPT,
    OUTPUT,
    SCHEMA,
    SHOULD,
    Case,
    Cohort,
    Judging,
    Lane,
    Limits,
    Mark,
    ModelJudge,
    Outcome,
    Results,
    Should,
    refusals,
    report,
)
from baton.lab import __file__ as lab_file
from baton.lab.judging import decision_of, judge
from baton.lab.records import Sample, Source, Terms

AT = datetime(2026, 11, 29, tzinfo=UTC)
SOURCE = Source(workflow_id="run", run_id="run", pipeline="refund", seq=1, at=AT)
RUNS = 100


def outcome(decided: str, **members: object) -> Outcome:
    return Outcome(baton_patch={"decision_log": [f"{decided}, because"]}, **members)  # type: ignore[arg-type]


def make_cohort(count: int, judging: Judging | None = None) -> Cohort:
    """Return a cohort in which each case was approved."""
    given: dict[str, JsonValue] = {"stage": "decide", "seq": 1, "task_id": "t", "baton": {"goal": "Refund"}}
    terms = Terms(task_queue="q")
    cases = [
        Case(id=f"case-{nth}", source=SOURCE, stage="decide", given=given, terms=terms, recorded=outcome("Approve"))
        for nth in range(count)
    ]
    return Cohort(name="refunds", cases=cases, judging=judging or Judging())


def make_results(cohort: Cohort, repeat: int, differs: Callable[[str, int], bool]) -> Results:
    """Return results in which a lane decides otherwise where ``differs`` says so, by lane and case."""
    samples = [
        Sample(
            case=case.id,
            lane=lane,
            outcomes=[outcome("Deny" if differs(lane, nth) else "Approve") for _ in range(repeat)],
        )
        for nth, case in enumerate(cohort.cases)
        for lane in (BASELINE, "new")
    ]
    lanes = [Lane(name=BASELINE), Lane(name="new")]
    return Results(
        cohort="refunds", digest=cohort.digest, workflow_id="lab", at=AT, repeat=repeat, lanes=lanes, samples=samples
    )


def test_seven_of_sixty_cases_are_found_and_no_other() -> None:
    """`lab_found`, also where both lanes are noisy besides."""
    cohort = make_cohort(60)
    found = report(cohort, make_results(cohort, 3, lambda lane, nth: lane == "new" and nth % 9 == 4))[1]
    changed = [f"case-{nth}" for nth in range(60) if nth % 9 == 4]
    assert len(changed) == 7
    assert [case.case for case in found.differing()] == changed
    assert len(refusals(found, Limits(), cases=60, repeat=3)) == 1


def test_a_noisy_candidate_that_is_equal_is_not_refused() -> None:
    """`lab_false_alarms`: a candidate that differs at random in 5 % passes in 95 of 100 runs, and so does an equal one.

    The first is the harder: the baseline beside it never differs.
    """
    cohort, drawn = make_cohort(60), random.Random(48)
    for noisy in ({"new"}, {"new", BASELINE}):
        alarms = 0
        for _ in range(RUNS):
            results = make_results(cohort, 3, lambda lane, nth: False)
            samples = [
                sample.model_copy(
                    update={
                        "outcomes": [
                            outcome("Deny" if sample.lane in noisy and drawn.random() < 0.05 else "Approve")
                            for _ in range(3)
                        ]
                    }
                )
                for sample in results.samples
            ]
            new = report(cohort, results.model_copy(update={"samples": samples}))[1]
            alarms += bool(refusals(new, Limits(), cases=60, repeat=3))
        assert alarms <= 5, (noisy, alarms)


def test_what_the_baseline_shows_too_is_noise() -> None:
    cohort = make_cohort(10)
    new = report(cohort, make_results(cohort, 4, lambda lane, nth: nth == 3))[1]
    assert [(case.case, case.mark) for case in new.judged[DECISION] if case.mark is not Mark.SAME] == [
        ("case-3", Mark.NOISY)
    ]
    assert refusals(new, Limits(), cases=10, repeat=4) == []


def test_once_is_seen_and_not_established() -> None:
    cohort = make_cohort(10)
    new = report(cohort, make_results(cohort, 1, lambda lane, nth: lane == "new" and nth == 3))[1]
    assert [case.mark for case in new.judged[DECISION] if case.mark is not Mark.SAME] == [Mark.SEEN]
    assert refusals(new, Limits(), cases=10, repeat=1) == []


@pytest.mark.parametrize("others", [0, 7])
def test_a_case_that_went_wrong_is_refused_until_a_candidate_passes(others: int) -> None:
    """What went wrong binds nobody, whether or not other cases have to be as recorded."""
    cohort = make_cohort(1 + others)
    should = Should(values={"/baton_patch/decision_log/0": "Deny, because"})
    cohort = cohort.with_cases([cohort.cases[0].model_copy(update={"should": should})])
    unchanged, mended = report(cohort, make_results(cohort, 5, lambda lane, nth: lane == "new" and nth == 0))
    limits = Limits(same={DECISION: 0.95, OUTPUT: 1.0, SCHEMA: 1.0})
    assert len(refusals(unchanged, limits, cases=1 + others, repeat=5)) == 1
    assert refusals(mended, limits, cases=1 + others, repeat=5) == []
    assert (mended.same(SHOULD), mended.same(DECISION)) == ((5, 5), (5 * others, 5 * others))
    assert len(refusals(mended, limits, cases=2 + others, repeat=5)) == 1
    assert len(refusals(mended, limits, cases=1 + others, repeat=6)) == 1
    assert len(refusals(mended, Limits(same={"none": 0.5}), cases=1 + others, repeat=5)) == 1


def test_cost_tokens_and_time_have_limits() -> None:
    cohort = make_cohort(2)
    results = make_results(cohort, 1, lambda lane, nth: False)
    spends = {BASELINE: {"micro_usd": 100, "prompt_tokens": 10}, "new": {"micro_usd": 90, "prompt_tokens": 20}}
    times = {BASELINE: 1_000, "new": 3_000}
    samples = [
        sample.model_copy(
            update={
                "outcomes": [
                    outcome("Approve", spend=spends[sample.lane], milliseconds=times[sample.lane])
                    for _ in sample.outcomes
                ]
            }
        )
        for sample in results.samples
    ]
    new = report(cohort, results.model_copy(update={"samples": samples}))[1]
    faults = refusals(new, Limits(cost=0.8, tokens=1.0, time=2.0), cases=2, repeat=1)
    assert [fault.partition(":")[0] for fault in faults] == ["cost", "tokens", "time"]
    assert refusals(new, Limits(cost=0.9, tokens=2.0, time=3.0), cases=2, repeat=1) == []


@pytest.mark.parametrize("lane", [BASELINE, "new"])
@pytest.mark.parametrize("left", [0, 1])
def test_a_run_that_the_budget_cut_short_does_not_pass(lane: str, left: int) -> None:
    """Also if it was the baseline's: what was compared with nothing may differ."""
    cohort = make_cohort(3)
    results = make_results(cohort, 2, lambda lane, nth: False)
    cut = next(sample for sample in results.samples if sample.lane == lane)
    samples = [*results.samples]
    samples[samples.index(cut)] = cut.model_copy(update={"outcomes": cut.outcomes[:left]})
    new = report(cohort, results.model_copy(update={"samples": samples}))[1]
    assert len(refusals(new, Limits(), cases=3, repeat=2)) == 1


def test_a_cost_beside_a_baseline_that_cost_nothing_has_no_share() -> None:
    cohort = make_cohort(1)
    results = make_results(cohort, 1, lambda lane, nth: False)
    dear = Sample(case="case-0", lane="new", outcomes=[outcome("Approve", spend={"micro_usd": 10})])
    new = report(cohort, results.model_copy(update={"samples": [results.samples[0], dear]}))[1]
    assert new.cost_ratio is None
    assert len(refusals(new, Limits(cost=1.0), cases=1, repeat=1)) == 1
    assert refusals(new, Limits(), cases=1, repeat=1) == []


@pytest.mark.parametrize("lane", [BASELINE, "new"])
def test_a_cost_that_nobody_knows_has_no_share(lane: str) -> None:
    """One run used tokens that have no price; the others have one."""
    cohort = make_cohort(2)
    results = make_results(cohort, 1, lambda lane, nth: False)
    spends = [{"prompt_tokens": 10}, {"prompt_tokens": 10, "micro_usd": 10}]
    found = [outcome("Approve", spend=spend) for spend in spends]
    priced = [sample.model_copy(update={"outcomes": found[1:]}) for sample in results.samples]
    nth = next(nth for nth, sample in enumerate(priced) if sample.lane == lane)
    priced[nth] = priced[nth].model_copy(update={"outcomes": found[:1]})
    new = report(cohort, results.model_copy(update={"samples": priced}))[1]
    assert (new.micro_usd is None, new.base_micro_usd is None) == (lane == "new", lane == BASELINE)
    assert new.cost_ratio is None
    assert len(refusals(new, Limits(cost=9.0), cases=2, repeat=1)) == 1
    assert refusals(new, Limits(), cases=2, repeat=1) == []


def test_a_judge_of_the_team_is_one_among_others() -> None:
    [case] = make_cohort(1, Judging(decision="/output/verdict")).cases
    case = case.model_copy(update={"recorded": Outcome(output={"verdict": "approve", "amount": 1})})
    found = Outcome(output={"verdict": "approve", "amount": 2})
    verdicts = judge(case, found, Judging(decision="/output/verdict"), {"cheap": lambda case, outcome: False})
    assert verdicts == {DECISION: True, OUTPUT: False, SCHEMA: True, "cheap": False}
    failed = judge(case, Outcome(failure="it raised"), Judging(), {})
    assert set(failed.values()) == {False}


def test_a_decision_has_no_reasons() -> None:
    for text in ("Deny, because it is late", "Deny: late", "Deny; it is late", "Deny since it is late"):
        assert decision_of(Outcome(baton_patch={"decision_log": [text]}), Judging()) == "Deny"
    assert decision_of(Outcome(output={"a": 1}), Judging()) is None


def test_a_model_judges_and_is_judged_by_what_people_decided() -> None:
    """It is asked once about equal outcomes, by the published prompt; nothing but a clear yes is one."""
    asked: list[str] = []

    def ask(prompt: str) -> str:
        asked.append(prompt)
        return "DENY: too late" if "Deny" in prompt.partition("----- decision")[2] else "Approve: it is fine."

    cases = make_cohort(4).cases
    people = [True, True, False, None]
    cohort = Cohort(
        name="judged",
        cases=[case.model_copy(update={"approved": one}) for case, one in zip(cases, people, strict=True)],
    )
    model = ModelJudge(ask)
    agreement = model.agreement(cohort)
    assert (agreement.same, agreement.count) == (2, 3)
    assert agreement.low < 2 / 3 < agreement.high
    assert len(asked) == 1
    assert asked[0].startswith(JUDGE_PROMPT.partition("{")[0])
    new = report(cohort, make_results(cohort, 2, lambda lane, nth: lane == "new" and nth == 0), {"model": model})[1]
    assert new.same("model") == (6, 8)
    assert len(asked) == 2
    for answer in ("APPROVE\nit is fine", "\n approve:\tfine", "Approve."):
        assert ModelJudge(lambda prompt, answer=answer: answer)(cohort.cases[0], outcome("Approve")) is True  # type: ignore[misc]
    for answer in ("", "\n", "APPROVED\nwithout more", "DENY\nAPPROVE"):
        assert ModelJudge.verdict(answer) is False
    assert ModelJudge(lambda prompt: "I would not APPROVE")(cohort.cases[0], outcome("Approve")) is False
    assert ModelJudge(ask)(cohort.cases[0], Outcome(failure="it raised")) is False


def test_a_model_is_told_the_decision_that_the_cohort_points_at() -> None:
    [case] = make_cohort(1).cases
    judging = Judging(decision="/output/verdict")
    model = ModelJudge(lambda prompt: "APPROVE" if "decision\ndeny\n" in prompt else "DENY", judging)
    verdicts = [model(case, Outcome(output={"verdict": verdict})) for verdict in ("deny", "approve")]
    assert verdicts == [True, False]


def test_the_room_stays_small() -> None:
    """It stands on the reader, the stages, the pipelines and the handoff, and has no second runner.

    1,200 lines were planned for cases of one stage; files and rows that command and console share, cases of several
    stages, figures over time, a model as judge, and bounds on budgets and on what a file may say are the rest.
    """
    room = Path(lab_file).parent
    assert sum(len(file.read_text(encoding="utf-8").splitlines()) for file in room.glob("*.py")) <= 1_764
