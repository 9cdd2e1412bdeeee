"""The cost of all runs, by pipeline, stage, model or day, compared with a provider's own figures."""

import csv
import math
import re
from collections.abc import AsyncIterator, Callable, Container, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal, InvalidOperation
from enum import StrEnum
from pathlib import Path

from temporalio.client import Client
from temporalio.service import RPCError

from baton.budget.billing import Bill
from baton.core.history import UNNAMED, Spend
from baton.errors import BatonError, HistoryError
from baton.runs.client_executions import first, list_executions
from baton.runs.client_list import spell_time
from baton.runs.client_reader import read_run
from baton.runs.client_record import RunRecord
from baton.wire.json_values import JsonFields
from baton.wire.money import to_micro_usd
from baton.wire.names import ATTRIBUTE_PIPELINE

NO_TOOL = "(no tool)"
"""Replaces the tool of what was charged outside of one."""
NO_REQUESTER = "(nobody named)"
"""Replaces the requester of a run that was started without one."""

_DAY = ("day", "date", "usage_date_utc", "start_time_iso", "start_time", "timestamp")
_MODEL = ("model", "model_name", "model_version", "snapshot_id")
_COST = ("cost_usd", "cost", "amount_usd", "amount_value", "amount", "total_cost", "usd")
_PROMPT_TOKENS = ("input_tokens", "prompt_tokens", "n_context_tokens_total", "usage_input_tokens")
_COMPLETION_TOKENS = ("output_tokens", "completion_tokens", "n_generated_tokens_total", "usage_output_tokens")
_DATED_NAME = re.compile(r"-(?:\d{8}|\d{4}-\d{2}-\d{2})$")  # a provider may export the dated name of a model


class WorkResult(StrEnum):
    """What became of the work that a charge paid for."""

    ACCEPTED = "accepted"
    REJECTED = "rejected"
    FAILED = "failed"
    ROLLED_BACK = "rolled back"


class GroupBy(StrEnum):
    """How charges are grouped."""

    PIPELINE = "pipeline"
    STAGE = "stage"
    MODEL = "model"
    DAY = "day"
    TOOL = "tool"
    REQUESTER = "requester"
    WORK = "work"


@dataclass(frozen=True)
class Charged(JsonFields):
    """One amount that a run was charged.

    Attributes:
        pipeline: The pipeline.
        stage: The stage.
        model: The model.
        day: The day, in UTC.
        spend: The amount.
        tool: The tool inside which it was charged, such as one that asks another agent.
        requester: Who the run works for.
        work: What became of the work (`WorkResult`). Rejected work was done again; failed work returned nothing.
    """

    pipeline: str
    stage: str
    model: str
    day: str
    spend: Spend
    tool: str = NO_TOOL
    requester: str = NO_REQUESTER
    work: str = WorkResult.ACCEPTED


async def read_charges(
    client: Client,
    since: datetime | None = None,
    *,
    limit: int | None = None,
    unread: Callable[[str, HistoryError], None] = lambda *_: None,
) -> AsyncIterator[Charged]:
    """Yield the charges of all runs of the namespace, children and rolled-back runs included.

    Reads each run's own history, and counts each bill once. Runs that the server no longer has are missing.

    Args:
        client: A connected client.
        since: Only charges since then.
        limit: How many at most; all by default.
        unread: Called with the workflow id of a run that cannot be read, and the reason.

    Raises:
        temporalio.service.RPCError: The server does not answer, or the namespace lacks Baton's search attributes.
    """
    async for charge in first(_read_all(client, since, unread), limit):
        yield charge


async def _read_all(
    client: Client, since: datetime | None, unread: Callable[[str, HistoryError], None]
) -> AsyncIterator[Charged]:
    query = f"{ATTRIBUTE_PIPELINE} IS NOT NULL"
    if since is not None:
        query += f" AND (CloseTime >= '{spell_time(since)}' OR ExecutionStatus = 'Running')"
    seen: set[tuple[str, int, datetime | None]] = set()  # a reset run begins with a copy of events of the run before
    resets: dict[str, int] = {}
    async for execution in list_executions(client, query):
        try:
            run = await read_run(client, execution.id, execution.run_id)
        except RPCError:  # its retention has ended meanwhile
            continue
        except HistoryError as error:
            unread(execution.id, error)
            continue
        resets |= {reset.base_run_id: reset.event for reset in run.resets}  # the newest run of an id comes first
        kept_until = resets.get(run.run_id, math.inf)
        taken = {(entry.seq, entry.stage_id, entry.attempt) for entry in run.state.entries}
        for bill in run.bills:
            key = (execution.id, bill.event, bill.at)
            if bill.elsewhere or key in seen or (since and bill.at and bill.at < since):
                continue
            seen.add(key)
            work = WorkResult.ROLLED_BACK if bill.event > kept_until else _work_of(bill, taken)
            for charge in _split(run, bill, work):
                yield charge


def _split(run: RunRecord, bill: Bill, work: WorkResult) -> Iterator[Charged]:
    """Split a bill by tool and model; the remainder has neither."""
    requester = run.start.requester
    base = Charged(
        run.pipeline,
        bill.stage or UNNAMED,
        UNNAMED,
        f"{bill.at:%Y-%m-%d}" if bill.at else UNNAMED,
        bill.spend,
        requester=NO_REQUESTER if requester is None else requester.id,
        work=work,
    )
    remainder, models = bill.spend, dict(bill.returned.models) if bill.returned else {}
    for tool, costs in bill.returned.tools.items() if bill.returned else ():
        for model, spend in costs.items():
            remainder = remainder.minus(spend)
            models[model] = models.get(model, Spend()).minus(spend)
            yield replace(base, tool=tool, model=model, spend=spend)
    for model, spend in models.items():
        if spend:
            remainder = remainder.minus(spend)
            yield replace(base, model=model, spend=spend)
    if remainder:
        yield replace(base, spend=remainder)


def _work_of(bill: Bill, taken: Container[tuple[int, str, int]]) -> WorkResult:
    """Return what became of the work of a bill, given the steps and attempts that the pipeline took."""
    returned = bill.returned
    if returned is None:
        return WorkResult.FAILED if bill.stage else WorkResult.ACCEPTED  # a compression is part of the handoff
    is_taken = (returned.seq, returned.title, returned.attempt) in taken
    return WorkResult.ACCEPTED if is_taken else WorkResult.REJECTED


def sum_charges(charges: Iterable[Charged], by: GroupBy) -> dict[str, Spend]:
    """Return the sum for each group: days in order, otherwise the highest cost first.

    Args:
        charges: Those of `read_charges`, collected: `[charge async for charge in read_charges(client)]`.
        by: What to group by.
    """
    sums: dict[str, Spend] = {}
    for charge in charges:
        key: str = getattr(charge, by.value)
        sums[key] = sums.get(key, Spend()) + charge.spend
    order = sorted(sums.items(), key=lambda pair: pair[0] if by is GroupBy.DAY else (-pair[1].micro_usd, pair[0]))
    return dict(order)


def read_export(file: Path, by: GroupBy) -> dict[str, Spend]:
    """Return the sums of a provider's usage export, by model or day.

    The file is CSV with a header, in the spelling of the large providers: `model` or `date`, a cost in US dollars,
    input and output tokens. Missing columns count as zero.

    Args:
        file: The export.
        by: `GroupBy.MODEL` or `GroupBy.DAY`.

    Raises:
        BatonError: The file cannot be read, or has no such columns.
    """
    try:
        with file.open(newline="", encoding="utf-8-sig") as lines:
            table = csv.DictReader(lines)
            names = {name.strip().lower().replace(" ", "_"): name for name in table.fieldnames or () if name}
            key = _find_column(names, _MODEL if by is GroupBy.MODEL else _DAY)
            cost_column, prompt_column, completion_column = (
                _find_column(names, columns) for columns in (_COST, _PROMPT_TOKENS, _COMPLETION_TOKENS)
            )
            if key is None or not (cost_column or prompt_column or completion_column):
                raise BatonError(
                    f"{str(file)!r} has the columns {', '.join(names) or 'of an empty file'}; expected one for the "
                    f"{by.value} and one for cost or tokens, such as {by.value},input_tokens,output_tokens,cost_usd"
                )
            sums: dict[str, Spend] = {}
            for row in table:
                spend = Spend(
                    micro_usd=to_micro_usd(_parse_number(row, cost_column, file, table.line_num)),
                    prompt_tokens=int(_parse_number(row, prompt_column, file, table.line_num)),
                    completion_tokens=int(_parse_number(row, completion_column, file, table.line_num)),
                )
                name = (row[key] or "").strip()
                name = name[:10] if by is GroupBy.DAY else name
                sums[name] = sums.get(name, Spend()) + spend
    except (OSError, ValueError, csv.Error) as error:
        raise BatonError(f"{str(file)!r} is not a readable CSV file: {error}") from error
    return sums


def _find_column(names: dict[str, str], columns: Iterable[str]) -> str | None:
    return next((names[name] for name in columns if name in names), None)


def _parse_number(row: dict[str, str | None], column: str | None, file: Path, line: int) -> Decimal:
    """Return the number in a cell; an empty cell is zero."""
    text = ((row.get(column) if column else None) or "0").strip().lstrip("$")
    try:
        number = Decimal(text)
    except InvalidOperation:
        number = Decimal("NaN")
    if not number.is_finite() or not 0 <= number < 10**15:
        raise BatonError(f"line {line} of {str(file)!r} has {text!r} as {column!r}; expected a number of at least zero")
    return number


@dataclass(frozen=True)
class PairedSum(JsonFields):
    """What runs were charged for a model or on a day, and what the provider's export says.

    Attributes:
        name: The model, or the day.
        recorded: The sum of the runs' charges.
        provider: The provider's sum.
    """

    name: str
    recorded: Spend
    provider: Spend

    @property
    def agrees(self) -> bool:
        """Whether they differ by no more than a cent, or by no more than one percent.

        Tokens are compared if the provider's export has no cost.
        """
        recorded, provider = self.recorded, self.provider
        if provider.micro_usd:
            return abs(recorded.micro_usd - provider.micro_usd) <= max(10_000, provider.micro_usd // 100)
        return abs(recorded.tokens - provider.tokens) <= provider.tokens // 100


def pair_sums(recorded: dict[str, Spend], provider: dict[str, Spend]) -> list[PairedSum]:
    """Return both sums for each name, by name.

    A model's dated name counts as the model, unless a run has the dated name.

    Args:
        recorded: The sums of the runs' charges, of `sum_charges`.
        provider: Those of the provider, of `read_export`.
    """
    merged: dict[str, Spend] = {}
    for name, spend in provider.items():
        model = name if name in recorded else _DATED_NAME.sub("", name)
        model = model if model in recorded else name
        merged[model] = merged.get(model, Spend()) + spend
    names = sorted({**recorded, **merged})
    return [PairedSum(name, recorded.get(name, Spend()), merged.get(name, Spend())) for name in names]
