"""What runs cost together, by pipeline, stage, model or day, and whether a provider's own figures agree."""

import csv
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal, InvalidOperation
from enum import StrEnum
from pathlib import Path

from temporalio.client import Client
from temporalio.service import RPCError

from baton.budget.billing import Bill
from baton.core.history import Spend
from baton.errors import BatonError, HistoryError
from baton.runs.client_executions import list_executions
from baton.runs.client_reader import read_run
from baton.wire.money import to_micro_usd
from baton.wire.names import ATTRIBUTE_PIPELINE

UNNAMED = "(not named)"
"""Stands for what a bill does not tell: the model of a stage that charges by itself, the stage of a compression."""

_DAY = ("day", "date", "usage_date_utc", "start_time_iso", "start_time", "timestamp")
_MODEL = ("model", "model_name", "model_version", "snapshot_id")
_COST = ("cost_usd", "cost", "amount_usd", "amount_value", "amount", "total_cost", "usd")
_READ = ("input_tokens", "prompt_tokens", "n_context_tokens_total", "usage_input_tokens")
_WRITTEN = ("output_tokens", "completion_tokens", "n_generated_tokens_total", "usage_output_tokens")
_SNAPSHOT = re.compile(r"-(?:\d{8}|\d{4}-\d{2}-\d{2})$")  # a provider may export the dated name of a model


class GroupBy(StrEnum):
    """By what a bill is summed up."""

    PIPELINE = "pipeline"
    STAGE = "stage"
    MODEL = "model"
    DAY = "day"


@dataclass(frozen=True)
class Charged:
    """One amount that a run was charged."""

    pipeline: str
    stage: str
    model: str
    day: str
    spend: Spend


async def charges(
    client: Client, since: datetime | None = None, *, unread: Callable[[str], None] = lambda _: None
) -> list[Charged]:
    """Return what all runs of the namespace were charged, children and runs that were rolled back included.

    Each run's own history is read, and each bill is taken once. Runs that the server no longer has are missing.
    """
    query = f"{ATTRIBUTE_PIPELINE} IS NOT NULL"
    if since is not None:
        query += f" AND (CloseTime >= '{since.isoformat()}' OR ExecutionStatus = 'Running')"
    found: list[Charged] = []
    seen: set[tuple[str, int, datetime | None]] = set()  # a reset run begins with a copy of events of the run before
    async for one in list_executions(client, query):
        try:
            run = await read_run(client, one.id, one.run_id)
        except RPCError:  # it reached the end of its retention meanwhile
            continue
        except HistoryError as error:
            unread(f"run {one.id!r} is not in the bill: {error}")
            continue
        for bill in run.bills:
            key = (one.id, bill.event, bill.at)
            if bill.elsewhere or key in seen or (since and bill.at and bill.at < since):
                continue
            seen.add(key)
            found += _charged(run.pipeline, bill)
    return found


def _charged(pipeline: str, bill: Bill) -> Iterator[Charged]:
    """Yield a bill by the models that it names, and what no model is named for."""
    rest, day = bill.spend, f"{bill.at:%Y-%m-%d}" if bill.at else UNNAMED
    for model, spend in bill.models.items():
        rest = rest.beyond(spend)
        yield Charged(pipeline, bill.stage or UNNAMED, model, day, spend)
    if rest:
        yield Charged(pipeline, bill.stage or UNNAMED, UNNAMED, day, rest)


def summed(found: Iterable[Charged], by: GroupBy) -> dict[str, Spend]:
    """Return the sum for each pipeline, stage, model or day: days in order, else the dearest first."""
    sums: dict[str, Spend] = {}
    for one in found:
        key: str = getattr(one, by.value)
        sums[key] = sums.get(key, Spend()) + one.spend
    order = sorted(sums.items(), key=lambda pair: pair[0] if by is GroupBy.DAY else (-pair[1].micro_usd, pair[0]))
    return dict(order)


def exported(file: Path, by: GroupBy) -> dict[str, Spend]:
    """Return what a provider's export of usage says, for each model or day.

    It is a CSV file whose first row names its columns, in the spelling of the large providers: `model` or `date`, a
    cost in US dollars, and tokens read and written; what it lacks is not compared.
    """
    try:
        with file.open(newline="", encoding="utf-8-sig") as lines:
            table = csv.DictReader(lines)
            names = {name.strip().lower().replace(" ", "_"): name for name in table.fieldnames or () if name}
            key = _first(names, _MODEL if by is GroupBy.MODEL else _DAY)
            cost, read, written = (_first(names, wanted) for wanted in (_COST, _READ, _WRITTEN))
            if key is None or not (cost or read or written):
                raise BatonError(
                    f"{str(file)!r} has the columns {', '.join(names) or 'of an empty file'}; expected one for the "
                    f"{by.value} and one for cost or tokens, such as {by.value},input_tokens,output_tokens,cost_usd"
                )
            sums: dict[str, Spend] = {}
            for row in table:
                spend = Spend(
                    micro_usd=to_micro_usd(_number(row, cost, file, table.line_num)),
                    prompt_tokens=int(_number(row, read, file, table.line_num)),
                    completion_tokens=int(_number(row, written, file, table.line_num)),
                )
                name = (row[key] or "").strip()
                name = name[:10] if by is GroupBy.DAY else name
                sums[name] = sums.get(name, Spend()) + spend
    except (OSError, ValueError, csv.Error) as error:
        raise BatonError(f"{str(file)!r} is not a CSV file that can be read: {error}") from error
    return sums


def _first(names: dict[str, str], wanted: Iterable[str]) -> str | None:
    """Return the first wanted column that there is, as the file spells it."""
    return next((names[name] for name in wanted if name in names), None)


def _number(row: dict[str, str | None], column: str | None, file: Path, line: int) -> Decimal:
    """Return the number in a cell; an empty one is zero."""
    text = ((row.get(column) if column else None) or "0").strip().lstrip("$")
    try:
        number = Decimal(text)
    except InvalidOperation:
        number = Decimal("NaN")
    if not number.is_finite() or not 0 <= number < 10**15:
        raise BatonError(f"line {line} of {str(file)!r} has {text!r} as {column!r}; expected a number from zero up")
    return number


def paired(ours: dict[str, Spend], theirs: dict[str, Spend]) -> list[tuple[str, Spend, Spend]]:
    """Return both sums for each name; a dated name of a model is the model, where no run names it with the date."""
    merged: dict[str, Spend] = {}
    for name, spend in theirs.items():
        known = name if name in ours else _SNAPSHOT.sub("", name)
        known = known if known in ours else name
        merged[known] = merged.get(known, Spend()) + spend
    return [(name, ours.get(name, Spend()), merged.get(name, Spend())) for name in sorted({**ours, **merged})]
