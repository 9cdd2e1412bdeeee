"""What a list of runs shows and searches beyond the server's index: goals, people, spend, since when a run waits."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from types import MappingProxyType
from typing import Any

from temporalio.client import Client

from baton.core.history import Spend
from baton.core.people import GROUP_PREFIX, normalize_name
from baton.runs.client_executions import PAUSED, describe
from baton.runs.client_list import SORTS, SUSPENDED, ListedRun
from baton.runs.client_reader import read_run
from baton.runs.client_record import RunRecord
from baton.runs.client_standing import Standing, standing
from baton.runs.client_waiting import Waits, waits
from baton.wire.json_values import JsonFields

SEARCHED = 500
"""How many runs a page of a search looks at: it reads their histories."""
_SEARCHED_FIELDS = ("workflow_id", "pipeline", "task_id", "stage")


@dataclass(frozen=True)
class RunDetails(JsonFields):
    """Details of a run from its history.

    Attributes:
        goal: Its goal.
        standing: What it waits for.
        since: Since when it waits for that; of an ended run, when it ended.
        spent: Its total cost.
        ceiling: Its budget in millionths of a dollar, if it has one.
        people: Whom it asks or has asked, groups included, and who has decided.
    """

    goal: str
    standing: Standing | None = None
    since: datetime | None = None
    spent: Spend = field(default_factory=Spend)
    ceiling: int | None = None
    people: frozenset[str] = frozenset()


def details_of(run: RunRecord, run_waits: Waits | None) -> RunDetails:
    """Return the details of a run that was read, and of what it waits for."""
    current = standing(run, run_waits)
    since = _waits_since(run, run_waits, current)
    return RunDetails(run.baton.goal, current, since, run.billed, run.ceiling_micro_usd, frozenset(_people_of(run)))


async def read_details(client: Client, run: ListedRun) -> RunDetails:
    """Read the details of a run.

    Raises:
        HistoryError: It is not a pipeline, or its payloads cannot be read.
        temporalio.service.RPCError: The server no longer has it, or does not answer.
    """
    record = await read_run(client, run.workflow_id, run.run_id)
    return details_of(record, await waits(client, record) if record.ended is None else None)


async def read_goal(client: Client, run: ListedRun) -> str:
    """Return a run's goal from the summary that its client set, without its history; empty if it has none."""
    execution = await describe(client, run.workflow_id, run.run_id)
    summary = execution.details.execution_config.user_metadata.summary
    decoded = await client.data_converter.decode([summary]) if summary.data else []
    return str(decoded[0]) if decoded else ""


def _waits_since(run: RunRecord, run_waits: Waits | None, current: Standing) -> datetime | None:
    if run.ended is not None:
        return run.ended
    if current.status == PAUSED and run_waits and run_waits.pause:
        return run_waits.pause.since
    if current.asked is not None:
        return current.asked.since
    lacking = [step.began for step in run.steps if step.seq in run.lacking and step.began]
    if current.status == SUSPENDED and not run.suspended and lacking:
        return min(lacking)
    return run.read_at  # nothing has happened since


def _people_of(run: RunRecord) -> Iterator[str]:
    for question in run.questions:
        yield from map(normalize_name, (*question.who, *(vote.who for vote in question.votes)))
    for settled in run.answers:
        voters = [vote.who for vote in settled.votes] or settled.who.split(", ")
        yield from map(normalize_name, voters)


@dataclass(frozen=True)
class RunSearch:
    """What to look for in runs, beyond the server's index.

    Attributes:
        text: A part of the id, the pipeline, the task, the stage or the goal, in any case.
        person: Somebody whom the run asks or has asked, or who has decided; also the name of a group.
        min_micro_usd: The least that it has cost, in millionths of a dollar.
    """

    text: str = ""
    person: str = ""
    min_micro_usd: int = 0

    @property
    def reads_histories(self) -> bool:
        """Whether the details of runs are needed."""
        return bool(self.person or self.min_micro_usd)

    def matches(self, run: ListedRun, goal: str, details: RunDetails | None) -> bool:
        """Return whether a run is one of those; one whose details are unknown is not if they are needed."""
        own = [str(getattr(run, name) or "") for name in _SEARCHED_FIELDS]
        if self.text.casefold() not in "\n".join([*own, goal]).casefold():
            return False
        if not self.reads_histories:
            return True
        name = normalize_name(self.person)
        return (
            details is not None
            and (not name or bool({name, f"{GROUP_PREFIX}{name}"} & details.people))
            and details.spent.micro_usd >= self.min_micro_usd
        )


DETAIL_SORTS: Mapping[str, Callable[[RunDetails], Any]] = MappingProxyType(
    {
        "spent": lambda details: details.spent.micro_usd,
        "waits": lambda details: details.since,
    }
)
"""What a page can be sorted by besides `SORTS`, from histories."""
ALL_SORTS = (*SORTS, *DETAIL_SORTS)
"""All that a list can be sorted by."""


def needs_details(sort: str | None) -> bool:
    """Return whether an order is one of `DETAIL_SORTS`, for which histories are read."""
    return sort is not None and sort.removeprefix("-") in DETAIL_SORTS


def sort_by_details(runs: Iterable[ListedRun], details: Mapping[str, RunDetails], sort: str) -> list[ListedRun]:
    """Return runs by a value of their details (by run id), with a minus for the largest first; unknown ones last."""
    value_of, is_descending = DETAIL_SORTS[sort.removeprefix("-")], sort.startswith("-")
    known: list[tuple[Any, ListedRun]] = []
    unknown: list[ListedRun] = []
    for run in runs:
        value = value_of(details[run.run_id]) if run.run_id in details else None
        if value is None:
            unknown.append(run)
        else:
            known.append((value, run))
    known.sort(key=lambda pair: pair[0], reverse=is_descending)
    return [*(run for _, run in known), *unknown]
