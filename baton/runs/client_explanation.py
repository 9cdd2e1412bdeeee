"""Explaining a stage from the history of its run, with no worker running."""

from collections.abc import Set

from temporalio.client import Client
from temporalio.service import RPCError

from baton.contract.records import Explanation, SessionEvent, explanation_of
from baton.core.history import StepKind
from baton.errors import HistoryError
from baton.runs.client_reader import read_run
from baton.runs.client_record import RunRecord


async def explain_run(
    client: Client, workflow_id: str, run_id: str | None, reference: str | None = None
) -> Explanation:
    """Return the explanation of a stage, from whichever run sent it: this one, or one that it continues or forks."""
    run = await read_run(client, workflow_id, run_id)
    if reference is None:
        if not run.handed:
            raise HistoryError(
                f"there is nothing to explain in {workflow_id!r}: none of its stages was given a contract "
                "(`Pipeline(start, contracts=ContractTerms())` gives them) or made a prompt for an agent; "
                "`baton diff` shows what each stage changed"
            )
        reference = run.handed[-1].stage
    try:
        return explain(run, reference)
    except HistoryError as error:
        unknown = error
    steps = frozenset(outcome.seq for outcome in run.start.outcomes)
    own = {step.seq for step in run.steps if reference in (str(step.seq), step.name)} - steps
    while steps and not own and (earlier := run.earlier) is not None:
        try:
            run = await read_run(client, *earlier)
            return explain(run, reference, steps)
        except RPCError:  # its history is gone
            break
        except HistoryError:  # it was sent before this one, too
            steps &= {outcome.seq for outcome in run.start.outcomes}
    raise unknown


def explain(run: RunRecord, reference: str, steps: Set[int] | None = None) -> Explanation:
    """Return what the agent of a stage was given, what was left out and why, and what it cost."""
    sent = [one for one in run.handed if steps is None or one.seq in steps]
    handed = [one for one in sent if reference in (one.stage, str(one.seq))]
    if len({one.stage for one in handed}) > 1:
        names = ", ".join(dict.fromkeys(one.stage for one in handed))
        raise HistoryError(f"step {reference} has several stages: {names}; name one of them")
    if not handed:
        step = run.step(reference)
        handed = [one for one in sent if one.seq == step.seq]
        if not handed:
            raise HistoryError(
                f"step {step.seq} ({step.name!r}) was given no contract and made no prompt: {_why_none(step.kind)}"
            )
    given = handed[-1]
    before = [
        SessionEvent.from_json_object(event)
        for outcome in run.state.outcomes[: given.after]
        for event in outcome.events
    ]
    told = [one.left_out for one in run.handed[: run.handed.index(given) + 1]]
    return explanation_of(
        given.contract or {},
        told,
        before,
        stage=given.stage,
        seq=given.seq,
        attempt=given.attempt,
        tokens_read=run.tokens_read.get((given.seq, given.stage), 0),
        prompt=run.prompts.get((given.seq, given.stage), []),
    )


def _why_none(kind: StepKind) -> str:
    """Return why a step of a kind has no contract that could be explained, and what to do."""
    if kind is StepKind.CHILD:
        return "it is a pipeline of its own; explain a stage of its run"
    if kind not in (StepKind.STAGE, StepKind.BRANCH, StepKind.MERGE):
        return f"it is not a stage but a {kind.value}"
    return (
        "its pipeline makes none (`Pipeline(start, contracts=ContractTerms())` does), or it is a handoff to "
        "somebody outside"
    )
