"""`baton lab run`, `show` and `gate`: what a change would have done to recorded cases, and whether it may pass."""

import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import ValidationError
from rich.console import RenderableType
from rich.text import Text
from temporalio.client import Client

from baton.cli.lab import CohortArgument
from baton.cli.lab_revisions import serving
from baton.cli.options import ExitCode, OptionGroup
from baton.cli.output import block, make_table, plain
from baton.cli.session import Session, command, parse_usd
from baton.client import connect
from baton.client.faces import has_pollers, read_texts
from baton.errors import BatonError
from baton.lab import (
    BASELINE,
    DECISION,
    FOLDER,
    OUTPUT,
    SCHEMA,
    SHOULD,
    Case,
    Cohort,
    Compared,
    Judge,
    Judging,
    LabOptions,
    Lane,
    LaneReport,
    Limits,
    Mark,
    ModelJudge,
    Outcome,
    Overrides,
    Results,
    Unrecorded,
    decided,
    decision_of,
    distinct,
    last_results,
    list_cohorts,
    load_cohort,
    load_results,
    prompt_changes,
    ranked,
    report,
    results_file,
    run_lab,
    save_results,
)
from baton.lab import gate as apply_gate
from baton.wire.money import format_cost, format_usd
from baton.wire.text import cut_line, describe_faults, quantity
from baton.worker import Settings, WorkerCode, plugin_for

_MAX_CELL, _MAX_ROWS = 40, 40
_PAIR = re.compile(r",(?=[a-z_]+=)")
_KEYS = (*Overrides.model_fields, "task_queue", "revision")
_INTEGERS = ("window", "facts")

JudgeOption = Annotated[
    list[str] | None,
    typer.Option(
        "--judge",
        metavar="MODULE:FUNCTION",
        help="A judge of yours: a function of the case and the outcome that returns whether it is as good. Repeatable.",
    ),
]

JudgeModelOption = Annotated[
    str | None,
    typer.Option(
        metavar="MODULE:FUNCTION",
        help="Let a model judge whether outcomes are as good: a function of yours that sends a prompt and returns the "
        "answer.",
    ),
]


@dataclass(frozen=True)
class RunOptions(OptionGroup):
    """How a lab run goes."""

    candidate: Annotated[
        list[str] | None,
        typer.Option(
            metavar="CHANGE",
            help="A candidate: `stage=` (the only one that changes; without it each agent does), `model=`, "
            "`prompt=`, `instructions=`, `tools=a+b`, `window=`, `facts=`, `task_queue=`, "
            "`revision=` (of git, with --serve), several with commas; of `@FILE` the file's text. Repeatable.",
        ),
    ] = None
    repeat: Annotated[int, typer.Option(min=1, max=100, help="How often each lane runs each case.")] = 3
    parallel: Annotated[int, typer.Option(min=1, max=1_000, help="How many stages run at once.")] = 8
    budget: Annotated[
        str | None, typer.Option(metavar="AMOUNT", help="The maximum cost of all, in US dollars, such as 2.00.")
    ] = None
    case_budget: Annotated[
        str | None, typer.Option(metavar="AMOUNT", help="The maximum cost of each run of a case, in US dollars.")
    ] = None
    unrecorded: Annotated[
        Unrecorded, typer.Option(help="What becomes of a tool call that the record has no answer to.")
    ] = Unrecorded.REFUSE
    allow: Annotated[
        list[str] | None,
        typer.Option(
            metavar="STAGE", help="Run a stage although the lab cannot hold back what its code does. Repeatable."
        ),
    ] = None
    queue: Annotated[
        str | None, typer.Option(metavar="NAME", help="The task queue of the workers; by default the recorded ones.")
    ] = None

    def options(self) -> LabOptions:
        """Return them for the lab."""
        return LabOptions(
            repeat=self.repeat,
            parallel=self.parallel,
            budget_micro_usd=None if self.budget is None else parse_usd(self.budget, "--budget"),
            case_micro_usd=None if self.case_budget is None else parse_usd(self.case_budget, "--case-budget"),
            unrecorded=self.unrecorded,
            allow=self.allow or [],
            task_queue=self.queue,
        )

    serve: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|PACKAGE", help="What a worker of a candidate's revision serves, as `baton dev` does."
        ),
    ] = None

    def lanes(self) -> list[tuple[Lane, str | None]]:
        """Return the candidates, each with its revision if it has one."""
        return [parse_candidate(text) for text in self.candidate or []]


def parse_candidate(text: str) -> tuple[Lane, str | None]:
    """Return the lane of a candidate such as `model=small,instructions=@new.md`, and its revision."""
    changes: dict[str, Any] = {}
    for pair in _PAIR.split(text):
        key, equals, value = pair.partition("=")
        if not equals or key not in _KEYS or key in changes:
            raise typer.BadParameter(f"{pair!r}: write {'=, '.join(_KEYS)}= once each", param_hint="--candidate")
        if value.startswith("@"):
            try:
                value = Path(value[1:]).read_text(encoding="utf-8")
            except OSError as error:
                raise typer.BadParameter(f"{value[1:]}: {error.strerror}", param_hint="--candidate") from None
        changes[key] = value.split("+") if key == "tools" else value
    queue, revision = changes.pop("task_queue", None), changes.pop("revision", None)
    try:
        changes |= {key: int(changes[key]) for key in _INTEGERS if key in changes}
        return Lane(name=text[:200], overrides=Overrides(**changes), task_queue=queue), revision
    except (ValidationError, ValueError) as error:
        raise typer.BadParameter(f"{text!r}: {describe_faults(error)}", param_hint="--candidate") from None


@command
async def run(
    session: Session,
    cohort: CohortArgument,
    options: RunOptions,
    judge: JudgeOption = None,
    judge_model: JudgeModelOption = None,
) -> None:
    """Run a cohort's cases again: in the baseline, today's code as it is, and in each candidate.

    The stages run on their own workers, but nothing happens outside: their tools are answered from the record. The
    same command takes up a lab run that was interrupted. What came of it is written beside the cohort.
    """
    kept, lanes = load_cohort(cohort), options.lanes()
    for lane, _ in lanes:
        texts = (lane.overrides.prompt, lane.overrides.instructions)
        if lane.overrides.stage is None and texts != (None, None) and len(kept.stages) > 1:
            session.note(f"{lane.name}: each agent of {', '.join(kept.stages)} gets the same text; `stage=` names one")
    judges = load_judges(judge, judge_model, kept.judging)
    before = last_results(cohort)  # first: if they cannot be read, nothing was paid for
    client = await lab_client(session)
    count = len(kept.cases) * (1 + len(lanes)) * options.repeat
    revisions = [(lane, revision) for lane, revision in lanes if revision is not None]
    for queue in sorted({options.queue or case.terms.task_queue for case in kept.cases}):
        if not await has_pollers(client, queue):
            session.note(f"no worker polls the task queue {queue!r}; the cases begin once one does")
    async with serving(revisions, options.serve, session.options.store) as served:
        plain_lanes = [lane for lane, revision in lanes if revision is None]
        with session.progress(f"running {quantity(count, 'stage')}"):
            results = await run_lab(
                client, kept, [*plain_lanes, *served], options.options(), started=session_note(session)
            )
    show_results(session, kept, save_results(cohort, kept, results, before), judges)


def session_note(session: Session) -> Any:
    """Return what tells a person which run to look at."""
    return lambda id: session.say(f"lab run {id}", "dim")


async def lab_client(session: Session) -> Client:
    """Return a client that hosts lab runs: with the keys and the store that workers of this folder have."""
    try:
        settings = Settings.of(os.environ).model_copy(update={"artifacts": session.options.store})
    except ValueError as error:
        raise BatonError(str(error)) from error
    plugin = await plugin_for(settings, WorkerCode([], []))
    return await connect(session.connection, plugins=[plugin], runtime=session.runtime)


def load_judges(names: Sequence[str] | None, model: str | None, judging: Judging) -> dict[str, Judge]:
    """Return the judges of a cohort: a team's, by the names of their functions, and `model`, which asks a model."""
    judges: dict[str, Judge] = {name.rpartition(":")[2]: _load(name, "--judge") for name in names or []}
    return judges if model is None else {**judges, "model": ModelJudge(_load(model, "--judge-model"), judging)}


def _load(name: str, option: str) -> Any:
    module, _, function = name.partition(":")
    sys.path.insert(0, str(Path.cwd()))
    try:
        return getattr(import_module(module), function)
    except (ImportError, AttributeError, ValueError) as error:
        raise typer.BadParameter(f"{name!r}: {error}", param_hint=option) from None


def agreements(cohort: Cohort, judges: Mapping[str, Judge]) -> dict[str, Any]:
    """Return how each model that judges agrees with recorded decisions of people."""
    return {name: judge.agreement(cohort) for name, judge in judges.items() if isinstance(judge, ModelJudge)}


def show_results(session: Session, cohort: Cohort, results: Results, judges: Mapping[str, Judge]) -> None:
    """Show a lab run's cases, those that differ first, and what each lane came to."""
    reports = report(cohort, results, judges)
    agreed = agreements(cohort, judges)
    if session.json:
        session.write_json({"results": results, "lanes": reports, "agreements": agreed})
        return
    session.show(*results_page(cohort, results, reports))
    session.show(*(plain(f"judge {name}: {one.text}", "dim") for name, one in agreed.items()))


def results_page(cohort: Cohort, results: Results, reports: Sequence[LaneReport]) -> list[RenderableType]:
    """Return the table of cases, and a line for each lane."""
    lanes = [lane.name for lane in results.lanes]
    table = make_table("case", "recorded", *lanes, "")
    rows_of_cases = ranked(cohort, reports)
    for case, marks in rows_of_cases[:_MAX_ROWS]:
        cells = [plain(cut_line(decided(results.outcomes(case.id, lane), cohort.judging), _MAX_CELL)) for lane in lanes]
        noted = {lane: _note(case, one) for lane, one in marks.items() if one.mark is not Mark.SAME}
        notes = [note if lane == lanes[-1] and len(lanes) <= 2 else f"{lane}: {note}" for lane, note in noted.items()]
        hint = plain("← " + "; ".join(notes) if notes else "", "yellow")
        recorded = plain(cut_line(decision_of(case.recorded, cohort.judging) or case.recorded.failed or "-", _MAX_CELL))
        table.add_row(plain(case.id, "bold"), recorded, *cells, hint)
    rows: list[RenderableType] = [table]
    if len(rows_of_cases) > _MAX_ROWS:
        rows.append(plain(f"… and {quantity(len(rows_of_cases) - _MAX_ROWS, 'case')} more", "dim"))
    rows += [summary(lane, cases=len(cohort.cases)) for lane in reports]
    if results.unrun:
        rows.append(plain(f"the budget did not allow {quantity(results.unrun, 'run')} of a case", "yellow"))
    return rows


def _note(case: Case, one: Compared) -> str:
    return f"decision {one.text}" if case.should is None else f"as it should {one.same} of {one.count}"


def summary(lane: LaneReport, *, cases: int) -> Text:
    """Return what a lane came to, in one line."""
    parts = []
    for judge in lane.judged:
        same, count = lane.same(judge)
        base = lane.base_same(judge)
        beside = f" (baseline {base[0]}/{base[1]})" if lane.lane != BASELINE and judge == DECISION else ""
        wording = {SCHEMA: "output same form", OUTPUT: "output same", SHOULD: "as it should"}
        parts.append(f"{wording.get(judge, f'{judge} same')} {same}/{count}{beside}")
    parts += [f"{count} × {reason}" for reason, count in lane.failures.items()]
    if lane.tokens is not None:
        parts.append(f"tokens {lane.tokens:.2f}")
    costs = (lane.base_micro_usd, lane.micro_usd)
    base_cost, cost = ("unknown" if one is None else format_usd(one, 4) for one in costs)
    times = [f"{value / 1000:.1f}" for value in (lane.base_milliseconds, lane.milliseconds)]
    parts += [f"cost {base_cost} → {cost}", f"p50 {times[0]} → {times[1]} s"]
    return plain(f"{lane.lane}, {quantity(cases, 'case')}: {' · '.join(parts)}")


@command
async def show(
    session: Session,
    cohort: CohortArgument,
    case: Annotated[
        str | None, typer.Argument(metavar="[CASE]", help="The case; without one, the table of all.")
    ] = None,
) -> None:
    """Show what came of a cohort, or of one case in each lane: decision, output, tool calls, and how prompts differ."""
    kept = load_cohort(cohort)
    results = load_results(cohort, kept)
    if case is None:
        show_results(session, kept, results, {})
        return
    chosen = kept.case(case)
    if session.json:
        lanes = {lane.name: results.outcomes(case, lane.name) for lane in results.lanes}
        session.write_json({"case": chosen, "lanes": lanes})
        return
    rows: list[RenderableType] = [
        plain(f"{chosen.id}: stage {chosen.stage} of {chosen.source.workflow_id} ({chosen.source.pipeline})", "bold"),
        *_outcome_rows("recorded", [chosen.recorded], kept, _recorded_calls(chosen)),
    ]
    for lane in results.lanes:
        rows += _outcome_rows(lane.name, results.outcomes(case, lane.name), kept, None)
    rows += await _prompt_rows(session, results, chosen)
    session.show(*rows)


def _recorded_calls(case: Case) -> list[str]:
    return [f"{call.tool}({call.shown}) → {call.result}" for call in case.tool_calls if not call.is_stage]


def _outcome_rows(
    name: str, outcomes: Sequence[Outcome], cohort: Cohort, calls: Sequence[str] | None
) -> list[RenderableType]:
    """Return each different outcome of a lane, the most frequent first."""
    rows: list[RenderableType] = [plain(f"\n{name}".strip(), "bold cyan")]
    for outcome, count in distinct(outcomes, cohort.judging):
        times = f" ({count} of {len(outcomes)})" if len(outcomes) > 1 else ""
        rows.append(plain(f"  decision  {decision_of(outcome, cohort.judging) or '-'}{times}"))
        if outcome.failed:
            rows.append(block(f"  failed    {outcome.failed}", "red"))
        rows.append(block(f"  output    {outcome.output}"))
        rows += [plain(f"  finding   {finding}", "yellow") for finding in outcome.findings]
        listed = calls if calls is not None else [f"{call.tool}({call.shown}): {call.how}" for call in outcome.calls]
        rows += [plain(f"  tool      {call}") for call in listed]
        cost = format_cost(outcome.spend.micro_usd, outcome.tokens)
        facts = f"{cost}, {outcome.tokens:,} tokens, {outcome.milliseconds / 1000:.1f} s"
        rows.append(plain(f"  cost      {facts}", "dim"))
    return rows


async def _prompt_rows(session: Session, results: Results, case: Case) -> list[RenderableType]:
    """Return how a candidate's prompts differ from the baseline's, of the same steps."""
    rows: list[RenderableType] = []
    base = await read_texts(session.artifacts.get, results.prompts(case, BASELINE))
    for lane in results.lanes[1:]:
        own = await read_texts(session.artifacts.get, results.prompts(case, lane.name))
        for step in {**base, **own}:
            title = f"{lane.name}: {step}"
            if step not in base or step not in own:
                only = "here" if step in own else "of the baseline"
                rows.append(plain(f"prompt of {title}: kept only {only}", "dim"))
            elif changes := prompt_changes(base[step], own[step], title):
                rows.append(block("\n".join(changes)))
            else:
                rows.append(plain(f"prompt of {title}: as the baseline's", "dim"))
        told = lane.overrides.prompt or lane.overrides.instructions
        rows += [block(f"instructions of {lane.name}:\n{told}")] if told else []
    return rows


@command
async def gate(
    session: Session,
    cohort: Annotated[
        str | None,
        typer.Argument(metavar="[COHORT]", help=f"The cohort; by default each in {FOLDER}/ that has results."),
    ] = None,
    same_decision: Annotated[
        float, typer.Option(min=0, max=1, help="The share of decisions that have to be as recorded.")
    ] = 0.95,
    same_output: Annotated[float | None, typer.Option(min=0, max=1, help="The same for the whole output.")] = None,
    same_form: Annotated[float | None, typer.Option(min=0, max=1, help="The same for the output's form.")] = None,
    max_cost: Annotated[float | None, typer.Option(min=0, help="The most cost, as a share of the baseline's.")] = None,
    max_tokens: Annotated[float | None, typer.Option(min=0, help="The most tokens, likewise.")] = None,
    max_time: Annotated[float | None, typer.Option(min=0, help="The most median time, likewise.")] = None,
    judge: JudgeOption = None,
    judge_model: JudgeModelOption = None,
) -> None:
    """Refuse a candidate that differs too much, or costs too much; for CI, by the results of the last `baton lab run`.

    A share is of what the baseline has as recorded, and counts as too low only if that is more than chance. A case that
    says what it should have come to has to come to that, and not to what was recorded. Of a run without a candidate,
    the baseline itself is judged: did today's code change what was recorded?

    The exit code is 1 if a candidate is refused; the cases that differ are listed.
    """
    shares = {DECISION: same_decision, OUTPUT: same_output, SCHEMA: same_form}
    least = {name: share for name, share in shares.items() if share is not None}
    names = [cohort] if cohort else [str(file) for file in list_cohorts()]
    for name in [name for name in names if not cohort and not results_file(name).exists()]:
        names.remove(name)
        session.note(f"{name} has no results, so it is not judged")
    if not names:
        session.note(f"no cohort in {FOLDER}/ has results")
    rows: dict[str, dict[str, list[str]]] = {}
    for name in names:
        kept = load_cohort(name)
        judges = load_judges(judge, judge_model, kept.judging)
        limits = Limits({**least, **dict.fromkeys(judges, same_decision)}, max_cost, max_tokens, max_time)
        results = load_results(name, kept)
        reports = report(kept, results, judges)
        rows[kept.name] = {}
        for lane, refused in apply_gate(kept, results, reports, limits):
            rows[kept.name][lane.lane] = refused
            if not session.json:
                verdict = plain("refused" if refused else "passes", "bold red" if refused else "green")
                session.show(Text.assemble(plain(f"{kept.name}, {lane.lane}: "), verdict))
                session.show(*(plain(f"  {fault}") for fault in refused), summary(lane, cases=len(kept.cases)))
        for title, agreed in agreements(kept, judges).items() if not session.json else ():
            session.show(plain(f"judge {title}: {agreed.text}", "dim"))
    if session.json:
        session.write_json(rows)
    if any(refused for lanes in rows.values() for refused in lanes.values()):
        raise typer.Exit(ExitCode.FAILURE)
