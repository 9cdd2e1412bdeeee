"""Explains a stage from the history of its run, with no worker."""

from collections.abc import Set

from temporalio.client import Client
from temporalio.service import RPCError

from baton.contract.records import Explanation, SessionEvent, explain_stage
from baton.contract.session import imported_events
from baton.core.history import StepKind
from baton.errors import HistoryError
from baton.runs.client_reader import read_run
from baton.runs.client_record import RunRecord

_MAX_NAMES = 20


async def explain(
    client: Client, workflow_id: str, stage: str | None = None, *, run_id: str | None = None
) -> Explanation:
    """Return what a stage's agent was given, what was left out and why, and its cost.

    It is read from the run that executed the stage: this run, or one that it continues or forks.

    Args:
        client: A connected client.
        workflow_id: The pipeline.
        stage: The stage's name or its step's number; the last stage with a contract or a prompt by default.
        run_id: Which of its runs; the newest by default.

    Raises:
        HistoryError: The stage does not exist, or it had neither a contract nor a prompt.
        temporalio.service.RPCError: The run does not exist, or the server is unreachable.
    """
    run, reference = await read_run(client, workflow_id, run_id), stage
    if reference is None:
        if not run.handed:
            raise HistoryError(
                f"there is nothing to explain in {workflow_id!r}: none of its stages was given a contract (stages of "
                "agents are, and with `@pipeline(contracts=ContractTerms())` all) or made a prompt for an agent; "
                "`baton diff` shows what each stage changed"
            )
        reference = run.handed[-1].title
    try:
        return explain_in(run, reference)
    except HistoryError as error:
        first_error = error
    steps = frozenset(outcome.seq for outcome in run.start.outcomes)
    own = {step.seq for step in run.steps if reference in (str(step.seq), step.name)} - steps
    while steps and not own and (earlier := run.earlier) is not None:
        try:
            run = await read_run(client, *earlier)
            return explain_in(run, reference, steps)
        except RPCError:  # its history is gone
            break
        except HistoryError:  # an earlier run executed it
            steps &= {outcome.seq for outcome in run.start.outcomes}
    raise first_error


def explain_in(run: RunRecord, reference: str, steps: Set[int] | None = None) -> Explanation:
    """Return the explanation of a stage that a run has executed, of these steps if they are given."""
    inputs = [sent for sent in run.handed if steps is None or sent.seq in steps]
    matches = [sent for sent in inputs if reference in (sent.title, str(sent.seq), sent.stage)]
    stages = dict.fromkeys(sent.title for sent in matches if reference != sent.stage)
    if len(stages) > 1:
        named = ", ".join([*stages][:_MAX_NAMES])
        raise HistoryError(f"step {reference} has {len(stages)} stages: {named}; name one of them")
    if not matches:
        step = run.step(reference)
        matches = [sent for sent in inputs if sent.seq == step.seq]
        if not matches:
            raise HistoryError(
                f"step {step.seq} ({step.name!r}) was given no contract and made no prompt: {_why_none(step.kind)}"
            )
    sent = matches[-1]
    outcomes = run.state.outcomes[: sent.after]
    earlier_events = imported_events(run.start.session)
    earlier_events += [SessionEvent.from_json_object(event) for outcome in outcomes for event in outcome.events]
    left_out = [earlier.left_out for earlier in run.handed[: run.handed.index(sent) + 1]]
    explanation = explain_stage(
        sent.contract or {},
        left_out,
        earlier_events,
        stage=sent.title,
        seq=sent.seq,
        attempt=sent.attempt,
        tokens_read=run.tokens_read.get((sent.seq, sent.title), 0),
        prompt=run.prompts.get((sent.seq, sent.title), []),
    )
    transcripts = [ref.hash for ref in run.transcripts.get((sent.seq, sent.title), ())]
    return explanation.model_copy(update={"transcripts": transcripts})


def _why_none(kind: StepKind) -> str:
    if kind is StepKind.CHILD:
        return "it is a pipeline of its own; explain a stage of its run"
    if kind not in (StepKind.STAGE, StepKind.BRANCH, StepKind.MERGE):
        return f"its kind is {kind.value}, and only stages have them"
    return (
        "no agent does it, and only `@pipeline(contracts=ContractTerms())` makes one for every stage; or it is a "
        "handoff to somebody outside"
    )
