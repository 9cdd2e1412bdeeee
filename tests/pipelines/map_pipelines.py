"""Pipelines whose steps have names, and that run a stage for each of many items."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from temporalio import activity

from baton import (
    Baton,
    BatonPatch,
    MergeStrategy,
    Pipeline,
    Retries,
    Spend,
    StageContext,
    StageFailedError,
    StageResult,
    pipeline,
    stage,
)
from tests.pipelines.stages import GATES, executed


@stage(retries=Retries(attempts=1))
async def digest(context: StageContext[Baton]) -> StageResult:
    """Digest a page; `bad` raises, and `wait` waits for the gate `open`."""
    executed()
    page: Any = context.inputs.get("page", context.inputs.get("item"))
    if page == "wait":
        await GATES[activity.info().workflow_id or "", "open"].wait()
    if page == "bad":
        raise ValueError("the page is blank")
    patch = BatonPatch(current_state=[f"{page} read"], decision_log=[f"{page} matters"])
    return StageResult(baton_patch=patch, output=f"digest of {page}", spend=Spend(micro_usd=10))


@stage
async def conclude_all(context: StageContext[Baton]) -> BatonPatch:
    """Conclude."""
    executed()
    return BatonPatch(current_state=["Concluded"])


@pipeline
async def named(p: Pipeline) -> list[Any]:
    """Run a stage twice under names, and concurrently; the parameter `name` gives another."""
    first = await p.stage(digest, inputs={"page": "one"}, name=str(p.params.get("name", "digest page 1")))
    second, third = await asyncio.gather(
        p.stage(digest, inputs={"page": "wait"}, name="digest page 2"),
        p.stage(digest, inputs={"page": "three"}, name="digest page 3"),
    )
    await p.stage(conclude_all)
    return [first.output, second.output, third.output]


@pipeline
async def failing_by_name(p: Pipeline) -> None:
    """Fail in a named step."""
    await p.stage(digest, inputs={"page": "bad"}, name="digest page 9")


@pipeline(merge={"current_state": MergeStrategy.UNION})
async def mapped(p: Pipeline) -> list[Any]:
    """Digest the pages of the parameter `pages`, then conclude."""
    params: Any = p.params
    arguments = {name: params[name] for name in ("at_most", "name") if name in params}
    results = await p.map(digest, params["pages"], inputs=lambda page: {"page": page}, **arguments)
    await p.stage(conclude_all)
    return [str(result) if isinstance(result, StageFailedError) else result.output for result in results]


@pipeline
async def trusting(p: Pipeline) -> list[Any]:
    """Read the output of each item, also of the bad one."""
    results: list[Any] = await p.map(digest, ["one", "bad"])
    return [result.output for result in results]


@pipeline(name="mapped")
async def mapped_with_more(p: Pipeline) -> None:
    """Do as `mapped` once another release has one page more."""
    params: Any = p.params
    await p.map(digest, [*params["pages"], "new"], inputs=lambda page: {"page": page})
    await p.stage(conclude_all)


@pipeline
async def mapped_items(p: Pipeline) -> list[Any]:
    """Digest items without a function, and one after a map without items."""
    assert await p.map(digest, []) == []
    results = await p.map(digest, ["one", "two"])
    return [isinstance(result, StageResult) and result.output for result in results]


@pipeline
async def approved_items(p: Pipeline) -> None:
    """Have one item approved, and run two."""
    await p.approve("page", within=timedelta(minutes=3), then=(digest, {}, {"item": "one"}))
    await p.map(digest, ["one", "two"], params={})


@pipeline
async def refused(p: Pipeline) -> None:
    """Call `map` with what it refuses, as the parameter `how` says."""
    calls: dict[str, tuple[Any, dict[str, Any]]] = {
        "a set": ({"one"}, {}),
        "a text": ("one", {}),
        "too many": (["x"] * 501, {}),
        "too large": (["x"] * 100, {"inputs": lambda item: {"page": item * 100_000}}),
        "what JSON cannot hold": (["x", object()], {}),
        "none at once": (["x"], {"at_most": 0}),
        "a long name": (["x"], {"name": "x" * 191}),
        "an empty name": (["x"], {"name": ""}),
        "a blank name": (["x"], {"name": " \u200b"}),
        "half a character": (["x"], {"name": "\ud83d"}),
    }
    items, arguments = calls[str(p.params["how"])]
    await p.map(digest, items, **arguments)


PIPELINES: list[type] = [named, failing_by_name, mapped, mapped_items, approved_items, refused, trusting]
STAGES: list[Callable[..., Any]] = [digest, conclude_all]
