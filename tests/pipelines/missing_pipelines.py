"""A pipeline whose stage needs a part that not every worker has: itself, a schema, a key, a package."""

from datetime import timedelta
from typing import Any

from baton import (
    Baton,
    BatonPatch,
    BatonPlugin,
    MemoryArtifactStore,
    OutputSchema,
    OutputSchemas,
    Pipeline,
    Retries,
    Safeguards,
    StageResult,
    WorkerParts,
    pipeline,
    stage,
)
from baton.agents import AnswerForm, agent_stage, chat_agent

KEY = "LACKING_TEST_KEY"
ONCE = Retries(attempts=1)


@stage(retries=ONCE)
async def begin(baton: Baton) -> BatonPatch:
    """Decide something."""
    return BatonPatch(decision_log=["begun"])


@stage(name="stage", retries=ONCE)
async def unknown(baton: Baton) -> BatonPatch:
    """Decide something; only some workers have this stage."""
    return BatonPatch(decision_log=["done"])


@stage(name="thrice", retries=Retries(attempts=3, first=timedelta(milliseconds=1)))
async def tried(baton: Baton) -> BatonPatch:
    """Stand for a stage with several attempts, written by a test."""
    raise NotImplementedError


@stage(name="schema", output="Facts@1", retries=ONCE)
async def schemed(baton: Baton) -> StageResult:
    """Return what a registered schema describes."""
    return StageResult(output={"facts": 3}, baton_patch=BatonPatch(decision_log=["done"]))


@stage(name="module", retries=ONCE)
async def imports(baton: Baton) -> BatonPatch:
    """Use a package that only some workers have."""
    import lacking_test_extra  # type: ignore[import-not-found]  # noqa: PLC0415

    return BatonPatch(decision_log=[lacking_test_extra.WORD])


@stage(name="variable", retries=ONCE)
async def asks(baton: Baton) -> BatonPatch:
    """Stand for the agent of `asking`, whose address a test knows."""
    raise NotImplementedError


def asking(url: str) -> Any:
    """Return a stage whose agent calls a model with the worker's key."""
    agent = chat_agent("variable", url, "gpt-4o", KEY)
    return agent_stage(agent, name="variable", answers=AnswerForm.TEXT, instructions="Answer.", retries=ONCE)


NEEDY: dict[str, Any] = {item.spec.name: item for item in (unknown, tried, schemed, imports, asks)}


@pipeline
async def needs(p: Pipeline) -> object:
    """Run a stage that every worker has, then one that some have."""
    await p.stage(begin)
    return (await p.stage(NEEDY[str(p.params["what"])])).output


SCHEMAS = OutputSchemas([OutputSchema("Facts", "1", {"type": "object", "required": ["facts"]})])


def plugin(safeguards: Safeguards, *, schemas: OutputSchemas | None = None) -> BatonPlugin:
    """Return the plugin of one worker; all workers of a test share keys and ledger."""
    return BatonPlugin(WorkerParts(artifacts=MemoryArtifactStore(), schemas=schemas), safeguards=safeguards)
