"""Explaining a stage from the history of its run, with no worker running."""

from baton.client.record import RunRecord
from baton.protocol.errors import HistoryError
from baton.protocol.explaining import Explanation, explanation_of
from baton.protocol.messages import StageInput
from baton.protocol.session import SessionEvent


def explain(run: RunRecord, reference: str) -> Explanation:
    """Return what the agent of a stage was given, what was left out and why, and what it cost.

    Args:
        run: The run.
        reference: The stage: its name, its step's number, or `name:2` for the second of a name; of a fan-out
            the branch's own name.

    Raises:
        HistoryError: There is no such stage, or the pipeline made no contract for it.
    """
    handed = [one for one in run.handed if reference in (one.stage, str(one.seq))]
    if len({one.stage for one in handed}) > 1:
        names = ", ".join(dict.fromkeys(one.stage for one in handed))
        raise HistoryError(f"step {reference} has several stages: {names}; name one of them")
    if not handed:
        step = run.step(reference)
        handed = [one for one in run.handed if one.seq == step.seq]
        if not handed:
            raise HistoryError(
                f"step {step.seq} ({step.name!r}) was given no contract: its pipeline makes none "
                "(`Pipeline(start, contracts=ContractTerms())` does), or it is a light stage, whose input is not kept"
            )
    given: StageInput = handed[-1]
    before = [
        SessionEvent.from_json_object(event)
        for outcome in run.state.outcomes[: given.after]
        for event in outcome.events
    ]
    told = [one.left_out for one in run.handed[: run.handed.index(given) + 1]]
    read = run.tokens_read.get((given.seq, given.stage), 0)
    return explanation_of(
        given.contract or {}, told, before, stage=given.stage, seq=given.seq, attempt=given.attempt, tokens_read=read
    )
