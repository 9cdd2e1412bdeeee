"""A pipeline that names its output schema in its contract terms, and nowhere else."""

from baton import (
    Baton,
    ContractTerms,
    OutputSchema,
    OutputSchemas,
    Pipeline,
    StageContext,
    StageResult,
    pipeline,
    stage,
)


@stage(output="Facts@1")
async def count_facts(context: StageContext[Baton]) -> StageResult:
    """Return what the schema describes."""
    return StageResult(output={"facts": 3})


FACTS = {"type": "object", "required": ["facts"]}


@pipeline(contracts=ContractTerms(schemas=OutputSchemas([OutputSchema("Facts", "1", FACTS)])))
async def named_once(p: Pipeline) -> object:
    """Count."""
    return (await p.stage(count_facts)).output
