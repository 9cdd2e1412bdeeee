"""The four stages of `project_init`: each does real work on files and says in its patch what came out.

The baton carries conclusions and references. The findings travel as JSON in the output folder, and documents and
index also as artifacts.
"""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

from activities.project_init.agents import TechnicalWriter
from activities.project_init.detect import detect
from activities.project_init.files import survey
from activities.project_init.knowledge import build_index
from activities.project_init.records import Documents, KnowledgeIndex, ProjectError, TechStack, Verification
from activities.project_init.store import load, load_tree, prepare_output, save
from activities.project_init.verify import verify
from baton import Baton, BatonPatch, Retries, StageContext, StageResult, stage
from baton.agents import agent_stage

_TIMEOUT = timedelta(minutes=30)
_HEARTBEAT = timedelta(seconds=4)
_RETRIES = Retries(never=("TypeError", "ProjectError"))  # a wrong folder does not become right by waiting
_MOST_BULLETS = 8


@stage(
    name="detect-tech-stack",
    writes=["current_state", "decision_log", "constraints", "open_questions"],
    timeout=_TIMEOUT,
    heartbeat=_HEARTBEAT,
    retries=_RETRIES,
)
async def detect_tech_stack(context: StageContext[Baton]) -> StageResult:
    """Find languages, technologies, commands and licences, each with the file and line where it was read."""
    source, out = _folders(context)
    await asyncio.to_thread(prepare_output, source, out)
    tree = await asyncio.to_thread(survey, source, progress=context.heartbeat)
    stack = await asyncio.to_thread(detect, tree, context.heartbeat)
    await asyncio.to_thread(save, out, tree.listing)
    await asyncio.to_thread(save, out, stack)
    patch = BatonPatch(
        current_state=list(stack.summary),
        decision_log=list(stack.decisions),
        constraints=list(stack.constraints),
        open_questions=list(stack.open_questions[:_MOST_BULLETS]),
    )
    languages = [language.name for language in stack.languages]
    return StageResult(baton_patch=patch, output={"files": len(tree.listing.files), "languages": [*languages]})


generate_docs = agent_stage(
    TechnicalWriter(),
    writes=["current_state", "decision_log", "work_scope", "artifacts"],
    timeout=_TIMEOUT,
    heartbeat=_HEARTBEAT,
    retries=_RETRIES,
    reserve_micro_usd=100_000,  # what the model may cost, if one is configured
)
"""Write the documents: an agent that works by rules, and asks the worker's model where one is configured."""


@stage(
    name="build-knowledge",
    writes=["current_state", "decision_log", "artifacts"],
    timeout=_TIMEOUT,
    heartbeat=_HEARTBEAT,
    retries=_RETRIES,
)
async def build_knowledge(context: StageContext[Baton]) -> StageResult:
    """Cut sources and documents into chunks and build the index that `query` searches."""
    source, out = _folders(context)
    documents = await asyncio.to_thread(load, out, Documents)
    tree = await asyncio.to_thread(load_tree, out, source)
    index = await asyncio.to_thread(build_index, tree, documents, out, context.heartbeat)
    await asyncio.to_thread(save, out, index)
    content = await asyncio.to_thread((out / index.path).read_bytes)
    await context.artifacts.write(index.path, content, type="knowledge-index", path=index.path)
    left_out = sum(each.count for each in index.left_out)
    patch = BatonPatch(
        current_state=[
            f"Knowledge index built with {index.chunks} chunks from {index.files} files, about {index.tokens} tokens",
            f"The index is {index.path}; ask it with: python -m activities.project_init query {out} 'your question'",
            f"{left_out} files are not in the index",
        ],
        decision_log=["Indexed sources and generated documents together for full-text search"],
    )
    return StageResult(baton_patch=patch, output={"chunks": index.chunks, "index": index.path})


@stage(
    name="verify-ready",
    writes=["current_state", "decision_log", "acceptance", "open_questions"],
    timeout=_TIMEOUT,
    heartbeat=_HEARTBEAT,
    retries=_RETRIES,
)
async def verify_ready(context: StageContext[Baton]) -> StageResult:
    """Check that hashes match, links and commands resolve, and the index answers from the sources."""
    source, out = _folders(context)
    stack = await asyncio.to_thread(load, out, TechStack)
    documents = await asyncio.to_thread(load, out, Documents)
    index = await asyncio.to_thread(load, out, KnowledgeIndex)
    tree = await asyncio.to_thread(load_tree, out, source)
    verified = await asyncio.to_thread(verify, tree, stack, documents, index, out, context.heartbeat)
    await asyncio.to_thread(save, out, verified)
    for ref in context.baton.artifacts:
        await context.artifacts.read(ref.id)  # raises if the store has lost or changed it
    failures = [f"{check.severity}: {check.name}: {check.message}" for check in verified.failures]
    patch = BatonPatch(
        current_state=[
            f"{stack.name} is {'fully initialized and verified' if verified.ready else 'documented but not verified'}",
            f"{len(verified.checks) - len(failures)} of {len(verified.checks)} checks hold",
            f"{len(context.baton.artifacts)} artifacts in the store, each with its recorded hash",
            *failures[: _MOST_BULLETS - 3],
        ],
        decision_log=[_decision(verified)],
        acceptance=[check.name for check in verified.checks if check.severity == "error"][:_MOST_BULLETS],
        open_questions=[*context.baton.open_questions, *failures],
    )
    output = {"ready": verified.ready, "checks": len(verified.checks), "failures": [*failures]}
    return StageResult(baton_patch=patch, output=output)


STAGES: list[Callable[..., Any]] = [detect_tech_stack, generate_docs, build_knowledge, verify_ready]
"""The stages that a worker registers."""


def _decision(verified: Verification) -> str:
    if not verified.ready:
        return f"Verification failed: {len(verified.failures)} checks do not hold"
    if verified.failures:
        return f"All required checks passed, with {len(verified.failures)} warnings"
    return "All verification checks passed"


def _folders(context: StageContext[Baton]) -> tuple[Path, Path]:
    """Return the folder to read and the folder to write to.

    Raises:
        ProjectError: A parameter is missing or is not a text.
    """
    found = [context.params.get(name) for name in ("source", "output")]
    if not all(isinstance(each, str) and each for each in found):
        raise ProjectError(
            f"project_init needs the parameters 'source' and 'output'; found {found}. "
            "Start it with: baton run project_init --goal … --param source=DIR --param output=DIR"
        )
    return Path(str(found[0])), Path(str(found[1]))
