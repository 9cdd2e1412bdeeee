"""Judges outcomes: is the decision the same, is the output, what did it cost, and is a difference more than chance?"""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import unified_diff
from enum import StrEnum
from statistics import median
from typing import Any

from pydantic import JsonValue

from baton.core.likeness import differences, drop_bounds, same_shape, shape, wilson
from baton.lab.records import BASELINE, Case, Cohort, Figure, Judging, Outcome, Results, Should
from baton.wire.json_values import JsonFields, canonical_json
from baton.wire.schemas import MISSING, find_at

Judge = Callable[[Case, Outcome], bool]
"""A function of the team: whether what came of a case is as good as what was recorded."""

DECISION = "decision"
"""The judge of the decision."""
OUTPUT = "output"
"""The judge of the whole output."""
SCHEMA = "schema"
"""The judge of the output's form."""
SHOULD = "should"
"""The judge of a case that says what it should have come to."""

_ESTABLISHED = 1 / 3
_RUNS_OWN = re.compile(r"\b[0-9a-f]{16}\b|[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}|\d{4}-\d\d-\d\dT[\d:.]+Z")
_REASON = re.compile(r",? (?:because|since|so that|as) |[:;—] | - |\. ")


def decision_of(outcome: Outcome, judging: Judging) -> str | None:
    """Return the decision in an outcome, in one line; None if it has none.

    Example:
        >>> decision_of(Outcome(baton_patch={"decision_log": ["Approve 40, because it is late"]}), Judging())
        'Approve 40'
    """
    if outcome.failed:
        return None
    if judging.decision is not None:
        found = find_at({"output": outcome.output, "baton_patch": outcome.baton_patch}, judging.decision)
        return None if found is MISSING else _line(found)
    noted = outcome.baton_patch.get("decision_log")
    if isinstance(noted, list) and noted:
        return " · ".join(_REASON.split(_line(entry), maxsplit=1)[0] for entry in noted)
    return _line(outcome.output) if isinstance(outcome.output, str | int | float) else None


def decided(outcomes: Sequence[Outcome], judging: Judging) -> str:
    """Return the most frequent decision of a lane, or why there is none."""
    found = Counter(decision_of(one, judging) or (one.asked and "asks") or one.failed or "-" for one in outcomes)
    return found.most_common(1)[0][0] if found else "not run"


def distinct(outcomes: Sequence[Outcome], judging: Judging) -> list[tuple[Outcome, int]]:
    """Return each different outcome of a lane and how often it came, the most frequent first."""
    keys = [(decision_of(outcome, judging), str(outcome.output), outcome.failed) for outcome in outcomes]
    return [(outcomes[keys.index(key)], count) for key, count in Counter(keys).most_common()]


def prompt_changes(base: str, own: str, lane: str) -> list[str]:
    """Return how a lane's prompt differs from the baseline's, without what each run has of its own, as lines."""
    before, after = (_RUNS_OWN.sub("…", text).splitlines() for text in (base, own))
    return [*unified_diff(before, after, "prompt of the baseline", f"prompt of {lane}", "", "", 1, "")]


def _line(value: Any) -> str:
    text = value if isinstance(value, str) else canonical_json([value]).decode()[1:-1]
    return " ".join(text.split())


def meets(outcome: Outcome, should: Should) -> bool:
    """Return whether an outcome has each value that a case should have come to."""
    whole: JsonValue = {"output": outcome.output, "baton_patch": outcome.baton_patch, "failure": outcome.failed}
    return all(find_at(whole, pointer) == value for pointer, value in should.values.items())


def judge(case: Case, outcome: Outcome, judging: Judging, functions: Mapping[str, Judge]) -> dict[str, bool]:
    """Return each judge's verdict on an outcome: whether it is as it should have been, or else as recorded."""
    own = {name: bool(function(case, outcome)) for name, function in functions.items()}
    if case.should is not None:
        return {SHOULD: meets(outcome, case.should), **own}
    recorded, decided = case.recorded, decision_of(case.recorded, judging)
    same = not outcome.failed and not differences(recorded.output, outcome.output, judging.ignore, judging.tolerance)
    return {
        DECISION: same if decided is None else decision_of(outcome, judging) == decided,
        OUTPUT: same,
        SCHEMA: not outcome.failed and same_shape(shape(recorded.output), shape(outcome.output)),
        **own,
    }


class Mark(StrEnum):
    """What a case's difference in a lane is worth."""

    SAME = "same"
    DIFFERS = "differs"
    """Established: at 95 %, the lane differs in more than a third of all repetitions, where the baseline does not."""
    SEEN = "seen"
    """It was seen, but not often enough to exclude chance; repeat more."""
    NOISY = "noisy"
    """The baseline differs likewise."""


@dataclass(frozen=True)
class Compared(JsonFields):
    """A case in a lane by one judge: how often it was as recorded, the same of the baseline, and what that is worth."""

    case: str
    same: int
    count: int
    base_same: int
    base_count: int
    mark: Mark

    @property
    def text(self) -> str:
        """How often it differs, in words."""
        base = f"; baseline {self.base_count - self.base_same} of {self.base_count}" if self.mark is Mark.NOISY else ""
        return f"{self.mark} ({self.count - self.same} of {self.count}{base})"


def compare(case: str, same: Sequence[bool], base: Sequence[bool]) -> Compared:
    """Return what a case's verdicts in a lane are worth beside those of the baseline.

    Example:
        >>> compare("c", [False] * 3, [True] * 3).mark.value, compare("c", [False, True, True], [True] * 3).mark.value
        ('differs', 'seen')
    """
    differs, base_differs = len(same) - sum(same), len(base) - sum(base)
    if not differs:
        mark = Mark.SAME
    elif base_differs and base_differs * len(same) * 2 >= differs * len(base):
        mark = Mark.NOISY
    else:
        mark = Mark.DIFFERS if wilson(differs, len(same))[0] > _ESTABLISHED else Mark.SEEN
    return Compared(case, sum(same), len(same), sum(base), len(base), mark)


@dataclass(frozen=True)
class LaneReport(JsonFields):
    """A lane of a lab run, judged.

    Attributes:
        lane: The lane's name.
        judged: By judge, each case.
        failures: By reason, how many runs failed: of the stage, of the gate, of the lab.
        micro_usd: The cost, in millionths of a US dollar; None if a run used tokens that have no price.
        base_micro_usd: The cost of the same runs in the baseline, likewise.
        tokens: The tokens, as a share of the baseline's; None if that used none.
        milliseconds: The median time of a run.
        base_milliseconds: The same of the baseline.
    """

    lane: str
    judged: Mapping[str, Sequence[Compared]]
    failures: Mapping[str, int] = field(default_factory=dict)
    micro_usd: int | None = 0
    base_micro_usd: int | None = 0
    tokens: float | None = None
    milliseconds: float = 0.0
    base_milliseconds: float = 0.0

    def differing(self, judge: str = DECISION) -> list[Compared]:
        """Return the cases that differ, established."""
        return [compared for compared in self.judged.get(judge, ()) if compared.mark is Mark.DIFFERS]

    def same(self, judge: str) -> tuple[int, int]:
        """Return in how many runs a judge saw no difference, and how many there were."""
        cases = self.judged.get(judge, ())
        return sum(case.same for case in cases), sum(case.count for case in cases)

    def base_same(self, judge: str) -> tuple[int, int]:
        """Return the same of the baseline."""
        cases = self.judged.get(judge, ())
        return sum(case.base_same for case in cases), sum(case.base_count for case in cases)

    @property
    def cases(self) -> list[Compared]:
        """Each case once: by its decision, or by what it should have come to."""
        return [*self.judged.get(DECISION, ()), *self.judged.get(SHOULD, ())]

    @property
    def cost_ratio(self) -> float | None:
        """The cost as a share of the baseline's; None if either is unknown, or that cost nothing."""
        return self.micro_usd / self.base_micro_usd if self.micro_usd is not None and self.base_micro_usd else None


def report(cohort: Cohort, results: Results, functions: Mapping[str, Judge] | None = None) -> list[LaneReport]:
    """Judge a lab run, with a team's functions: the baseline beside the record, candidates beside the baseline."""
    found = {(sample.case, sample.lane): sample.outcomes for sample in results.samples}
    reports = []
    for lane in (lane.name for lane in results.lanes):
        judged: dict[str, list[Compared]] = {}
        outcomes, base = list[Outcome](), list[Outcome]()
        for case in cohort.cases:
            own = found.get((case.id, lane), [])
            others = [case.recorded] * len(own) if lane == BASELINE else found.get((case.id, BASELINE), [])
            if not own:
                continue
            verdicts = [judge(case, outcome, cohort.judging, functions or {}) for outcome in own]
            base_verdicts = [judge(case, outcome, cohort.judging, functions or {}) for outcome in others]
            for name in verdicts[0]:
                same, base_same = ([verdict[name] for verdict in each] for each in (verdicts, base_verdicts))
                judged.setdefault(name, []).append(compare(case.id, same, base_same))
            outcomes, base = [*outcomes, *own], [*base, *others]
        reports.append(_lane_report(lane, judged, outcomes, base))
    return reports


def _lane_report(
    lane: str, judged: Mapping[str, Sequence[Compared]], outcomes: Sequence[Outcome], base: Sequence[Outcome]
) -> LaneReport:
    failed = [outcome for outcome in outcomes if outcome.failed]
    failures = Counter("asks for a tool's answer" if one.asked else one.failed.partition(":")[0] for one in failed)
    base_tokens, share = sum(outcome.tokens for outcome in base), len(base) / max(len(outcomes), 1)
    return LaneReport(
        lane,
        judged,
        failures,
        micro_usd=_cost(outcomes),
        base_micro_usd=_cost(base, share or 1),
        tokens=sum(outcome.tokens for outcome in outcomes) * share / base_tokens if base_tokens else None,
        milliseconds=median([outcome.milliseconds for outcome in outcomes] or [0]),
        base_milliseconds=median([outcome.milliseconds for outcome in base] or [0]),
    )


def _cost(outcomes: Sequence[Outcome], share: float = 1.0) -> int | None:
    spends = [outcome.spend for outcome in outcomes]
    is_known = all(spend.micro_usd or not spend.tokens for spend in spends)
    return round(sum(spend.micro_usd for spend in spends) / share) if is_known else None


@dataclass(frozen=True)
class Limits:
    """What a gate demands of a candidate.

    Attributes:
        same: By judge, the share of runs that have to be as recorded, of those that are so in the baseline.
        cost: The most that it may cost, as a share of the baseline's cost.
        tokens: The same of the tokens.
        time: The same of the median time.
    """

    same: Mapping[str, float] = field(default_factory=lambda: {DECISION: 0.95})
    cost: float | None = None
    tokens: float | None = None
    time: float | None = None


def refusals(lane: LaneReport, limits: Limits, *, cases: int, repeat: int) -> list[str]:
    """Return why a gate refuses a candidate, a line each; none if it passes.

    A rate counts as too low if that is more than chance: if its drop from the baseline's, at 95 %, is beyond the limit,
    or if so many cases differ nearly each time. A case that says what it should have come to has to come to it, and to
    nothing that was recorded.
    """
    faults = []
    for name, least in limits.same.items():
        if name not in lane.judged:
            if name not in (DECISION, OUTPUT, SCHEMA) or not lane.cases:  # else each case says what it should come to
                faults.append(f"{name}: no case was judged by it")
            continue
        low, _ = drop_bounds(lane.base_same(name), lane.same(name))
        differing = lane.differing(name)
        if low > 1 - least or len(differing) > (1 - least) * len(lane.judged[name]) + 1e-9:
            same, count = lane.same(name)
            names = ", ".join(f"{case.case} {case.text}" for case in differing) or "no case each time"
            faults.append(f"{name}: same in {same} of {count} runs, {least:.0%} wanted; {names}")
    for case in lane.judged.get(SHOULD, ()):
        if case.same < case.count:
            faults.append(f"{case.case}: came to what it should {case.same} of {case.count} times")
    if len(lane.cases) < cases or any(min(case.count, case.base_count) < repeat for case in lane.cases):
        faults.append(f"the budget did not allow all of {cases} cases × {repeat}")
    if limits.cost is not None and None in (lane.micro_usd, lane.base_micro_usd):
        faults.append("cost: it is unknown, here or in the baseline: no price is known for the tokens of a run")
    elif limits.cost is not None and lane.micro_usd and not lane.base_micro_usd:
        faults.append("cost: the baseline cost nothing, so there is no share of it")
    shares = (
        ("cost", lane.cost_ratio, limits.cost),
        ("tokens", lane.tokens, limits.tokens),
        ("time", lane.milliseconds / lane.base_milliseconds if lane.base_milliseconds else None, limits.time),
    )
    for name, share, most in shares:
        if most is not None and share is not None and share > most:
            faults.append(f"{name}: {share:.2f} of the baseline's, at most {most:.2f} wanted")
    return faults


def gate(
    cohort: Cohort, results: Results, reports: Sequence[LaneReport], limits: Limits | None = None
) -> list[tuple[LaneReport, list[str]]]:
    """Return the candidates, or the baseline alone, each with why a gate refuses it: see `refusals`."""
    lanes = [lane for lane in reports if lane.lane != BASELINE] or reports
    return [
        (lane, refusals(lane, limits or Limits(), cases=len(cohort.cases), repeat=results.repeat)) for lane in lanes
    ]


def ranked(cohort: Cohort, reports: Sequence[LaneReport]) -> list[tuple[Case, dict[str, Compared]]]:
    """Return the cases with what they are worth in each lane, those that differ first."""
    lanes = {lane.lane: {case.case: case for case in lane.cases} for lane in reports}
    rows = [(case, {lane: own[case.id] for lane, own in lanes.items() if case.id in own}) for case in cohort.cases]
    order = [Mark.DIFFERS, Mark.SEEN, Mark.NOISY, Mark.SAME]
    return sorted(rows, key=lambda row: min((order.index(one.mark) for one in row[1].values()), default=len(order)))


def figures(cohort: Cohort, results: Results) -> list[Figure]:
    """Return the gate's figures of a lab run at its default limits, for the picture of many."""
    found = []
    for lane, refused in gate(cohort, results, report(cohort, results)):
        (same, count), (base_same, base_count) = lane.same(DECISION), lane.base_same(DECISION)
        members: dict[str, Any] = {"same": same, "count": count, "base_same": base_same, "base_count": base_count}
        found.append(Figure(at=results.at, lane=lane.lane, micro_usd=lane.micro_usd, refused=bool(refused), **members))
    return found
