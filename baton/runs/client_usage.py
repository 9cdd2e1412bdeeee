"""What recorded runs used of a stage's terms, and the narrowest terms that would have let them pass."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from temporalio.client import Client

from baton.contract.records import EventType, SessionEvent
from baton.core.messages import StageInput, StageReturn
from baton.errors import HistoryError
from baton.runs.client_reader import read_run
from baton.wire.json_values import JsonFields

_ALWAYS_READ = ("goal", "constraints", "artifacts")  # every stage gets them
_ROOM = 1.25  # above the most that was used
_CONTRACT = "contract"


@dataclass(frozen=True)
class StageUse:
    """What one run used of a stage: fields that had content, fields it wrote, tools it called, tokens it read."""

    stage: str
    run: str
    read: frozenset[str]
    written: frozenset[str]
    tools: frozenset[str]
    window: int
    max_tokens: int


@dataclass(frozen=True)
class Proposal(JsonFields):
    """Terms of a stage as its recorded runs would have allowed them. Nothing applies them.

    Attributes:
        stage: The stage.
        runs: From how many runs it is.
        terms: By term the proposal: `reads` has what ever had content, because what a model took from it nobody knows;
            `requires` what always had; `window` and `max_tokens` have a quarter of room, and are left out where no run
            used any.
        refused: By term, how many of the runs it would have refused if it had been proposed from the others alone.
            Many mean that the runs are too few or too different for it.
    """

    stage: str
    runs: int
    terms: Mapping[str, Any]
    refused: Mapping[str, int]


async def read_uses(client: Client, workflow_id: str, run_id: str | None = None) -> list[StageUse]:
    """Return what a run used of each of its stages that ended. An attempt that was refused used nothing.

    Args:
        client: A connected client.
        workflow_id: The run's workflow.
        run_id: The run; the newest by default.
    """
    run = await read_run(client, workflow_id, run_id)
    name = f"{workflow_id}/{run.run_id}"
    attempts = [tried for tried in run.attempts.values() if not tried.findings]
    return [_use(name, tried.sent, tried.returned) for tried in attempts if tried.returned is not None]


def _use(run: str, given: StageInput, returned: StageReturn) -> StageUse:
    events = [SessionEvent.from_json_object(event) for event in returned.events]
    return StageUse(
        given.stage,
        run,
        frozenset(name for name, value in given.baton.items() if value and name not in _ALWAYS_READ),
        frozenset(returned.baton_patch),
        frozenset(event.tool_name or "" for event in events if event.type is EventType.TOOL_CALL),
        returned.tokens_read,
        max((part.tokens for part in returned.prompt if part.name == _CONTRACT), default=0),
    )


def propose(uses: Iterable[StageUse]) -> list[Proposal]:
    """Return a proposal for each stage.

    Raises:
        HistoryError: Nothing was used.
    """
    by_stage: dict[str, list[StageUse]] = {}
    for use in uses:
        by_stage.setdefault(use.stage, []).append(use)
    if not by_stage:
        raise HistoryError("none of the runs has a stage that ended, so there is nothing to learn from")
    return [_propose(stage, used) for stage, used in by_stage.items()]


def _propose(stage: str, used: Sequence[StageUse]) -> Proposal:
    terms = {name: term for name, (make, _) in _TERMS.items() if (term := make(used)) != 0}
    refused, runs = dict.fromkeys(terms, 0), {use.run for use in used}
    for run in runs:
        if others := [use for use in used if use.run != run]:
            for name in terms:
                make, allows = _TERMS[name]
                refused[name] += not all(allows(make(others), use) for use in used if use.run == run)
    return Proposal(stage, len(runs), terms, refused)


def _union(of: Callable[[StageUse], frozenset[str]]) -> Callable[[Sequence[StageUse]], list[str]]:
    return lambda used: sorted(frozenset().union(*map(of, used)))


def _room(of: Callable[[StageUse], int], step: int) -> Callable[[Sequence[StageUse]], int]:
    return lambda used: math.ceil(max(map(of, used)) * _ROOM / step) * step


_TERMS: Mapping[str, tuple[Callable[[Sequence[StageUse]], Any], Callable[[Any, StageUse], bool]]] = {
    "reads": (_union(lambda use: use.read), lambda term, use: use.read <= {*term}),
    "writes": (_union(lambda use: use.written), lambda term, use: use.written <= {*term}),
    "requires": (
        lambda used: sorted(frozenset.intersection(*(use.read for use in used))),
        lambda term, use: use.read >= {*term},
    ),
    "tools": (_union(lambda use: use.tools), lambda term, use: use.tools <= {*term}),
    "window": (_room(lambda use: use.window, 1_000), lambda term, use: use.window <= term),
    "max_tokens": (_room(lambda use: use.max_tokens, 100), lambda term, use: use.max_tokens <= term),
}
"""By term, how it is made of uses, and whether it allows one. A number of 0 makes none."""
