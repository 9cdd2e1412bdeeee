"""`baton lab new`, `add`, `answer` and `pack`: cohorts of recorded cases, as files that can be committed."""

import json
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import ValidationError
from rich.text import Text

from baton.cli.listing import parse_status
from baton.cli.options import ForceOption, OptionGroup, refuse_overwrite
from baton.cli.output import Command, plain
from baton.cli.session import Session, Target, WhoOption, command, resolve_user
from baton.client import RunFilter, list_runs
from baton.client.faces import parse_moment, server_now
from baton.errors import BatonError
from baton.lab import (
    FOLDER,
    Cohort,
    Judging,
    LabCall,
    LabError,
    Should,
    cohort_file,
    last_results,
    load_cohort,
    load_results,
    make_cohort,
    propose,
    read_cases,
    read_uses,
    save_cohort,
)
from baton.lab import pack as pack_artifacts
from baton.wire.text import describe_faults, quantity

CohortArgument = Annotated[
    str,
    typer.Argument(
        metavar="COHORT", help=f"The cohort's name, for {FOLDER}/NAME.json; or a path of its file.", show_default=False
    ),
]
StageOption = Annotated[
    str | None,
    typer.Option(
        "--stage",
        metavar="NAME",
        help="The stage; by default each stage that asked a model is a case. `FIRST..LAST` is one case of several, and "
        "`..` of the whole run.",
    ),
]


@dataclass(frozen=True)
class JudgingOptions(OptionGroup):
    """How a cohort's outcomes are compared."""

    decision: Annotated[
        str | None,
        typer.Option(
            metavar="POINTER",
            help="Where the decision is, such as /output/verdict; by default what the agent noted as decided.",
        ),
    ] = None
    ignore: Annotated[
        list[str] | None,
        typer.Option(metavar="POINTER", help="A part of the output that is not compared, such as /text. Repeatable."),
    ] = None
    tolerance: Annotated[
        list[str] | None,
        typer.Option(metavar="POINTER=NUMBER", help="How far a number of the output may be off. Repeatable."),
    ] = None

    def judging(self) -> Judging:
        """Return them as a record."""
        tolerance: dict[str, float] = {}
        for text in self.tolerance or []:
            pointer, _, number = text.rpartition("=")
            try:
                tolerance[pointer] = float(number)
            except ValueError:
                raise typer.BadParameter(f"{text!r}: write POINTER=NUMBER", param_hint="--tolerance") from None
        try:
            return Judging(decision=self.decision, ignore=self.ignore or [], tolerance=tolerance)
        except ValidationError as error:
            raise typer.BadParameter(f"not a JSON pointer: {describe_faults(error)}", param_hint="--decision") from None


@command
async def new(
    session: Session,
    name: CohortArgument,
    run: Annotated[list[str] | None, typer.Argument(metavar="[RUN…]", help="Runs by their ids.")] = None,
    *,
    runs: Annotated[
        str | None,
        typer.Option(
            metavar="FILTER",
            help="Runs by `pipeline=`, `status=`, `stage=`, `prefix=` and `since=` (30d, 12h, a date): "
            "'pipeline=refund status=completed since=30d'.",
        ),
    ] = None,
    ids: Annotated[
        Path | None, typer.Option("--from", metavar="FILE", help="Runs by the ids in a file, one a line.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=1_000, help="The most runs of --runs, the newest.")] = 40,
    stage: StageOption = None,
    judging: JudgingOptions,
    force: ForceOption = False,
) -> None:
    """Make a cohort of recorded runs.

    For each stage it keeps the input, what it came to, and its tool calls with their results. Personal data stays in
    the runs. The file can be committed; `baton lab pack` adds the artifacts that it refers to.
    """
    file = cohort_file(name)
    refuse_overwrite(file, force, "COHORT")
    terms = judging.judging()
    client = await session.client()
    with session.progress("reading the runs"):
        chosen = [*(run or []), *_listed(ids)]
        if runs is not None:
            run_filter = _parse_filter(runs, await server_now(client))
            chosen += [run.workflow_id async for run in list_runs(client, run_filter, limit=limit)]
        if not chosen:
            raise LabError("no run matches; name runs, or give --runs or --from")
        targets = [(target.workflow_id, target.run_id) for target in map(Target.of, dict.fromkeys(chosen))]
        cohort, skipped = await make_cohort(client, file.stem, targets, stage, terms, session.artifacts)
    save_cohort(name, cohort)
    for reason in skipped:
        session.note(f"left out: {reason}")
    _report(session, file, cohort)


def _listed(file: Path | None) -> list[str]:
    lines = [] if file is None else file.read_text(encoding="utf-8").splitlines()
    return [line.strip() for line in lines if line.strip() and not line.startswith("#")]


def _parse_filter(text: str, now: datetime) -> RunFilter:
    values: dict[str, Any] = {}
    names = {"pipeline": "pipeline", "status": "status", "stage": "stage", "prefix": "id_prefix", "since": "since"}
    for word in text.split():
        key, equals, value = word.partition("=")
        if not equals or key not in names:
            raise typer.BadParameter(
                f"{word!r}: write {'=, '.join(names)}=; a run's name stands alone: `baton lab new COHORT RUN`",
                param_hint="--runs",
            )
        values[names[key]] = parse_status(value) if key == "status" else value
    try:
        if "since" in values:
            values["since"] = parse_moment(values["since"], now)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--runs") from None
    return RunFilter(**values)


def _report(session: Session, file: Path, cohort: Cohort) -> None:
    dropped = sorted({reason for case in cohort.cases for reason in case.dropped})
    if session.json:
        cases = [{"case": case.id, "stage": case.stage, "run": case.source.workflow_id} for case in cohort.cases]
        session.write_json({"file": str(file), "digest": cohort.digest, "cases": cases, "dropped": dropped})
        return
    calls = sum(not call.is_stage for case in cohort.cases for call in case.tool_calls)
    facts = f"{quantity(len(cohort.cases), 'case')}, {quantity(calls, 'tool call')}, {cohort.digest[:19]}…"
    session.show(plain(f"{file}: {facts}"))
    for reason in dropped:
        session.note(f"left out: {reason}")
    session.show(Command(f"baton lab run {cohort.name}"))


@command
async def add(
    session: Session,
    cohort: CohortArgument,
    run: Annotated[str, typer.Argument(metavar="RUN", help="The run that went wrong.", show_default=False)],
    should: Annotated[
        list[str] | None,
        typer.Option(
            metavar="POINTER=JSON",
            help="What it should have come to, such as '/output/verdict=\"deny\"'. Repeatable.",
        ),
    ] = None,
    stage: StageOption = None,
    why: Annotated[str, typer.Option(help="Why, for people.")] = "",
) -> None:
    """Add a run to a cohort, with what it should have done.

    The gate then refuses each candidate that does not come to it, so a run that went wrong becomes a test.
    """
    kept = load_cohort(cohort)
    values: dict[str, Any] = {}
    for text in should or []:
        pointer, _, value = text.partition("=")
        try:
            values[pointer] = json.loads(value)
        except ValueError:
            raise typer.BadParameter(f"{text!r}: write POINTER=JSON", param_hint="--should") from None
    try:
        expected = Should(values=values, why=why) if values else None
    except ValidationError as error:
        raise typer.BadParameter(describe_faults(error), param_hint="--should") from None
    client, target = await session.client(), Target.of(run)
    cases = await read_cases(client, target.workflow_id, stage, run_id=target.run_id, store=session.artifacts)
    if expected is not None and len(cases) > 1:
        names = ", ".join(case.stage for case in cases)
        raise LabError(f"the run has cases of several stages: {names}; say which should have done so (`--stage`)")
    kept = kept.with_cases([case.model_copy(update={"should": expected}) for case in cases])
    save_cohort(cohort, kept)
    _report(session, cohort_file(cohort), kept)


@command
async def answer(
    session: Session,
    cohort: CohortArgument,
    case: Annotated[str, typer.Argument(metavar="CASE", help="The case that asks.", show_default=False)],
    result: Annotated[str, typer.Argument(metavar="RESULT", help="The answer, JSON or a text.", show_default=False)],
    who: WhoOption = None,
) -> None:
    """Answer a tool call that the lab asks about.

    A lab run with `--unrecorded ask` ends a case at a call that was not recorded. The answer is kept in the cohort,
    with your name, for this call and these arguments. Answer each case that asks, and then run the cohort again.
    """
    kept = load_cohort(cohort)
    asked = next((call for (id, *_), call in _open_calls(cohort, kept).items() if id == case), None)
    if asked is None:
        raise LabError(f"case {case!r} asks nothing; `baton lab run {cohort} --unrecorded ask` lets it")
    try:
        value = json.loads(result)
    except ValueError:
        value = result
    kept = kept.with_cases([kept.case(case).answered(asked, value, resolve_user(who))])
    save_cohort(cohort, kept)
    if session.json:
        session.write_json({"case": case, "tool": asked.tool, "arguments": asked.shown})
    else:
        session.show(plain(f"{asked.tool}({asked.shown}) is answered in {cohort_file(cohort)}"))


def _open_calls(name: str, cohort: Cohort) -> dict[tuple[str, str, str | None], LabCall]:
    """Return the calls that a cohort's last lab run asks about and that are still open, by case and call.

    Raises:
        LabError: Results are missing, or are of other cases, such answers aside.
    """
    results, cases = last_results(name), []
    found = [(sample.case, one.asked) for sample in (results.samples if results else []) for one in sample.outcomes]
    asked = {(id, call.tool, call.arguments): call for id, call in found if call is not None}
    for case in cohort.cases:
        since = {(case.id, call.tool, call.arguments) for call in case.tool_calls if call.by} & {*asked}
        before = [one for one in case.tool_calls if not one.by or (case.id, one.tool, one.arguments) not in since]
        cases.append(case.model_copy(update={"tool_calls": before}))
        asked = {key: call for key, call in asked.items() if key not in since}
    load_results(name, cohort.model_copy(update={"cases": cases}))
    return asked


@command
async def pack(session: Session, cohort: CohortArgument) -> None:
    """Add the artifacts that a cohort refers to.

    A packed cohort runs without the server and the store that its runs were recorded with.
    """
    kept, lost = await pack_artifacts(load_cohort(cohort), session.artifacts)
    save_cohort(cohort, kept)
    if session.json:
        session.write_json({"artifacts": len(kept.artifacts), "lost": lost})
    else:
        session.show(plain(f"{cohort_file(cohort)} has {quantity(len(kept.artifacts), 'artifact')}"))
    if lost:
        raise BatonError(f"the store {session.options.store} lacks {', '.join(lost)}")


@command
async def contract(
    session: Session,
    pipeline: Annotated[str, typer.Argument(metavar="PIPELINE", help="The workflow's type.", show_default=False)],
    limit: Annotated[int, typer.Option(min=1, max=1_000, help="The most runs to learn from, the newest.")] = 40,
) -> None:
    """Propose terms for a pipeline's stages, from what its completed runs used. Nothing is changed.

    Each term is the narrowest that all of them fit, with how many it would have refused if it had been proposed from
    the others alone: many mean that the runs are too few, or too different.
    """
    client = await session.client()
    with session.progress("reading the runs"):
        completed = RunFilter(pipeline=pipeline, status="COMPLETED")
        runs = [run.workflow_id async for run in list_runs(client, completed, limit=limit)]
        uses = [use for run in runs for use in await read_uses(client, run)]
    proposals = propose(uses)
    if session.json:
        session.write_json(proposals)
        return
    for proposal in proposals:
        session.show(plain(f"{proposal.stage}, from {quantity(proposal.runs, 'run')}", "bold"))
        for name, term in proposal.terms.items():
            refused = f"would have refused {proposal.refused[name]} of {proposal.runs}"
            session.show(Text.assemble(plain(f"  {name}={term!r}"), plain(f"  {refused}", "dim")))
