"""The branches of a step that run at once: several stages on one baton, or one stage for each of many items."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import JsonValue
from pydantic_core import to_json
from temporalio import workflow

from baton.core.baton import Baton
from baton.core.history import Outcome
from baton.core.inputs import MAX_INPUT_BYTES, encode_inputs
from baton.core.messages import StageResult, StageReturn
from baton.core.patching import patch_effect
from baton.core.state import FailedItem, MergeStrategy
from baton.errors import InputError, PatchError, PipelineError, StageFailedError
from baton.handoff.workflow_coordinator import HandoffCoordinator
from baton.handoff.workflow_delivery import Delivery
from baton.pipelines.workflow_reports import merged_reports
from baton.pipelines.workflow_steps import stage_results

ItemT = TypeVar("ItemT")

MAX_ITEMS = 500
"""The most items of a map; its outcome is recorded as one step, in one workflow task."""
MAX_MAP_BYTES = 2 * MAX_INPUT_BYTES
"""The most bytes of the inputs of all items, as JSON."""
MAX_MAP_NAME_LENGTH = 190
"""The most characters of a map's name; its items are named after it."""
_MAX_FAILURE_LENGTH = 500


async def run_branches(
    handoffs: HandoffCoordinator,
    seq: int,
    name: str,
    deliveries: Sequence[Delivery],
    strategies: Mapping[str, MergeStrategy],
    at_most: int | None = None,
) -> Outcome:
    """Run branches until all have ended, and merge their patches into one change.

    Args:
        handoffs: What the run's handoffs share.
        seq: The step's number.
        name: The step's name.
        deliveries: The handoffs to the branches.
        strategies: How each field is merged.
        at_most: How many run at once; then they are items: one that fails does not fail the others.

    Raises:
        StageFailedError: A branch failed, or the patches cannot be merged.
    """
    run = handoffs.run
    slots = asyncio.Semaphore(at_most or len(deliveries))

    def accept(returned: StageReturn, base: Baton) -> StageReturn:
        patch_effect(base, returned.baton_patch, run.state.stage_rules())
        return returned

    async def end(delivery: Delivery) -> StageReturn | FailedItem:
        async with slots:
            try:
                return await delivery.deliver(accept)
            except PipelineError as error:
                if at_most is None:
                    raise
                return FailedItem(delivery.title, delivery.spec.name, str(error)[:_MAX_FAILURE_LENGTH])

    ended = await asyncio.gather(*map(end, deliveries), return_exceptions=True)
    if errors := [result for result in ended if isinstance(result, BaseException)]:
        raise StageFailedError("; ".join(map(str, errors))) from errors[0]
    results = [result for result in ended if not isinstance(result, BaseException)]
    branches = [result for result in results if isinstance(result, StageReturn)]
    run.visibility.add_seconds(max((branch.seconds for branch in branches), default=0))
    reports = merged_reports(branches)
    try:
        outcome = run.state.record_fan_out(seq, name, results, workflow.now(), strategies=strategies, reports=reports)
    except PatchError as error:
        raise StageFailedError(f"the branches of {name!r} cannot be merged: {error}") from error
    for delivery, result in zip(deliveries, results, strict=True):
        if isinstance(result, StageReturn):
            delivery.complete(result)
    if branches:
        handoffs.join_branches(name)
    return outcome


def as_item(item: Any) -> Mapping[str, Any]:
    """Return an item of a map as the input `item`."""
    return {"item": item}


@dataclass(frozen=True)
class MapRequest:
    """The arguments of `Pipeline.map`, checked before the step begins.

    Attributes:
        name: The step's name.
        inputs: The encoded inputs of each item, in order.
    """

    name: str
    inputs: list[dict[str, JsonValue]]

    @classmethod
    def of(
        cls, name: str, items: Sequence[ItemT], inputs: Callable[[ItemT], Mapping[str, Any]], at_most: int
    ) -> "MapRequest":
        """Return the request.

        Raises:
            TypeError: The items have no order that is the same in each replay.
            ValueError: There are too many items, `at_most` is not a number from 1 up, or the name is too long.
            InputError: The name or value of an input is not allowed, or all of them are too large.
        """
        if isinstance(items, str | bytes) or not isinstance(items, Sequence):
            raise TypeError(f"map {name!r}: items is a {type(items).__name__}; expected a list, in a fixed order")
        if len(items) > MAX_ITEMS:
            raise ValueError(f"map {name!r} has {len(items):,} items; at most {MAX_ITEMS:,}: make several maps of them")
        if not isinstance(at_most, int) or at_most < 1:
            raise ValueError(f"map {name!r}: at_most is {at_most!r}; expected a whole number from 1 up")
        if len(name) > MAX_MAP_NAME_LENGTH:
            raise ValueError(f"map {name[:40]!r} has a name of {len(name)} characters; at most {MAX_MAP_NAME_LENGTH}")
        encoded: list[dict[str, JsonValue]] = []
        size = 0
        for number, item in enumerate(items, 1):
            try:
                encoded.append(encode_inputs(inputs(item)))
            except InputError as error:
                raise InputError(f"map {name!r}, item {number}: {error}") from None
            size += len(to_json(encoded[-1]))
            if size > MAX_MAP_BYTES:
                raise InputError(
                    f"map {name!r}: the inputs up to item {number} have {size:,} bytes as JSON; at most "
                    f"{MAX_MAP_BYTES:,} are allowed: write large content as an artifact and give its ArtifactRef"
                )
        return cls(name, encoded)


def map_results(outcome: Outcome) -> list[StageResult | StageFailedError]:
    """Return the result of each item of a map, or why it failed, in order."""
    return [
        result if entry.failure is None else StageFailedError(entry.failure)
        for entry, result in zip(outcome.entries[:-1], stage_results(outcome), strict=True)
    ]
