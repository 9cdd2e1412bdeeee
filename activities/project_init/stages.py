"""The four stages of `project_init`.

The baton carries conclusions and references; findings, documents and index travel as artifacts.
"""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

from pydantic import JsonValue

from activities.parameters import text_parameter
from activities.project_init.detect import detect, read_structure
from activities.project_init.files import SourceTree, check_output, survey
from activities.project_init.knowledge import build_index, verify
from activities.project_init.pages import plan_roadmap, write_documents
from activities.project_init.records import Documents, KnowledgeIndex, Listing, ProjectError, TechStack
from baton import Baton, BatonPatch, Retries, StageContext, StageResult, stage
from baton.wire.records import Record

RecordT = TypeVar("RecordT", bound=Record)

_TERMS: dict[str, Any] = {
    "timeout": timedelta(minutes=30),
    "heartbeat": timedelta(seconds=10),
    "retries": Retries(never=("TypeError", "BatonError", "ProjectError")),  # a retry does not fix a wrong folder
}
_MAX_BULLETS = 8


@stage(
    name="detect-tech-stack",
    writes=["current_state", "decision_log", "constraints", "open_questions", "artifacts"],
    **_TERMS,
)
async def detect_tech_stack(context: StageContext[Baton]) -> StageResult:
    """Find languages, technologies, commands and licences, each with file and line."""
    source, out = _read_folders(context)
    await asyncio.to_thread(check_output, source, out)
    tree = await asyncio.to_thread(survey, source)
    stack = await asyncio.to_thread(detect, tree)
    await _save(context, tree.listing)
    await _save(context, stack)
    patch = BatonPatch(
        current_state=list(stack.summary),
        decision_log=list(stack.decisions),
        constraints=list(stack.constraints),
        open_questions=list(stack.open_questions[:_MAX_BULLETS]),
    )
    languages = [language.name for language in stack.languages]
    return StageResult(baton_patch=patch, output={"files": len(tree.listing.files), "languages": [*languages]})


@stage(name="generate-docs", writes=["current_state", "decision_log", "work_scope", "artifacts"], **_TERMS)
async def generate_docs(context: StageContext[Baton]) -> StageResult:
    """Write the documents."""
    source, out = _read_folders(context)
    stack, tree = await _load(context, TechStack), await _load_tree(context, source)
    structure = await asyncio.to_thread(read_structure, tree)
    roadmap = await asyncio.to_thread(plan_roadmap, tree, stack, structure)
    documents = await asyncio.to_thread(write_documents, tree, stack, structure, roadmap, out)
    await _save(context, documents)
    for file in documents.files:
        content = await asyncio.to_thread((out / file.path).read_bytes)
        await context.artifacts.write(file.path, content, type="document", path=file.path)
    names = [file.path for file in documents.files]
    patch = BatonPatch(
        current_state=[
            f"{stack.name} is documented in {len(names)} files: {', '.join(names)}",
            f"The roadmap has {len(roadmap)} items",
            "The source was read, not changed and not executed",
        ],
        decision_log=[f"Documented from {len(tree.listing.files)} files by rules"],
        work_scope=names,
    )
    return StageResult(baton_patch=patch, output={"documents": [*names], "roadmap_items": len(roadmap)})


@stage(name="build-knowledge", writes=["current_state", "decision_log", "artifacts"], **_TERMS)
async def build_knowledge(context: StageContext[Baton]) -> StageResult:
    """Build the full-text index of sources and documents."""
    source, out = _read_folders(context)
    documents, tree = await _load(context, Documents), await _load_tree(context, source)
    index = await asyncio.to_thread(build_index, tree, documents, out)
    await _save(context, index)
    content = await asyncio.to_thread((out / index.path).read_bytes)
    await context.artifacts.write(index.path, content, type="knowledge-index", path=index.path)
    left_out = sum(omission.count for omission in index.left_out)
    patch = BatonPatch(
        current_state=[
            f"Knowledge index built with {index.chunks} chunks from {index.files} files, about {index.tokens} tokens",
            f"The index is {index.path}; query it with: python -m activities.project_init query {out} 'your question'",
            f"{left_out} files are not in the index",
        ],
        decision_log=["Indexed sources and generated documents together for full-text search"],
    )
    return StageResult(baton_patch=patch, output={"chunks": index.chunks, "index": index.path})


@stage(name="verify-ready", writes=["current_state", "decision_log", "acceptance", "open_questions"], **_TERMS)
async def verify_ready(context: StageContext[Baton]) -> StageResult:
    """Check that hashes match, links resolve, cited lines prove, and the index answers from the sources."""
    source, out = _read_folders(context)
    stack, tree = await _load(context, TechStack), await _load_tree(context, source)
    documents, index = await _load(context, Documents), await _load(context, KnowledgeIndex)
    verification = await asyncio.to_thread(verify, tree, stack, documents, index, out)
    for ref in context.baton.artifacts:
        await context.artifacts.read(ref.id)  # raises if it is missing or changed
    failures = [f"{check.name}: {check.message}" for check in verification.failures]
    patch = BatonPatch(
        current_state=[
            f"{stack.name} is documented; the documents {'do not hold' if failures else 'match its files'}",
            f"{len(verification.checks) - len(failures)} of {len(verification.checks)} checks of the documents passed",
            *([f"Not examined: {'; '.join(verification.not_examined)}"] if verification.not_examined else []),
            f"{len(context.baton.artifacts)} artifacts in the store, each with its recorded hash",
            *failures[: _MAX_BULLETS - 4],
        ],
        decision_log=[
            f"{len(failures)} checks of the documents failed" if failures else "All checks of the documents passed"
        ],
        acceptance=[check.name for check in verification.checks][:_MAX_BULLETS],
        open_questions=[*context.baton.open_questions, *failures],
    )
    output: dict[str, JsonValue] = {
        "documents_hold": not failures,
        "checks": len(verification.checks),
        "failures": [*failures],
        "not_examined": [*verification.not_examined],
    }
    return StageResult(baton_patch=patch, output=output)


STAGES: list[Callable[..., Any]] = [detect_tech_stack, generate_docs, build_knowledge, verify_ready]
"""The stages that a worker registers."""


async def _save(context: StageContext[Baton], result: Record) -> None:
    kind = type(result).__name__
    await context.artifacts.write(kind, await asyncio.to_thread(result.model_dump_json), type="findings")


async def _load(context: StageContext[Baton], result_type: type[RecordT]) -> RecordT:
    return result_type.model_validate_json(await context.artifacts.read(result_type.__name__))


async def _load_tree(context: StageContext[Baton], source: Path) -> SourceTree:
    return SourceTree(await asyncio.to_thread(source.resolve), await _load(context, Listing))


def _read_folders(context: StageContext[Baton]) -> tuple[Path, Path]:
    source, output = (
        Path(text_parameter(context, name, "project_init", ProjectError)) for name in ("source", "output")
    )
    return source, output
