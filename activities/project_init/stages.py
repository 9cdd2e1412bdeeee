"""The four stages of `project_init`: each does real work on files and says in its patch what came out.

The baton carries conclusions and references. The findings travel as JSON in the output folder, and documents and
index also as artifacts.
"""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field, JsonValue

from activities.models import ask_model
from activities.project_init.detect import Structure, detect, read_structure
from activities.project_init.files import SourceTree, load, load_tree, prepare_output, save, survey
from activities.project_init.knowledge import build_index
from activities.project_init.pages import roadmap_by_rules, write_documents
from activities.project_init.records import (
    Documents,
    KnowledgeIndex,
    ProjectError,
    RoadmapItem,
    TechStack,
    Verification,
)
from activities.project_init.verify import verify
from baton import Baton, BatonPatch, Retries, StageContext, StageResult, stage
from baton.agents import AgentAnswer, AgentWork, agent_stage

_TASK = (
    "You plan the next work on a software project from findings about it. Propose at most five roadmap items that the "
    "list lacks. Each piece of evidence is a path of the findings, optionally with ':' and a line. "
    "Propose nothing that the findings do not show."
)
_MOST_FINDINGS = 40


class Proposal(BaseModel):
    """What the model proposes."""

    items: list[RoadmapItem] = Field(max_length=5)


class TechnicalWriter:
    """Writes the documents of a project; works without a model, and asks one where it is configured."""

    name = "generate-docs"

    async def run(self, work: AgentWork) -> AgentAnswer:
        """Plan the roadmap, write the documents, and say what came out."""
        context = work.context
        source, out = Path(str(context.params["source"])), Path(str(context.params["output"]))
        stack = await asyncio.to_thread(load, out, TechStack)
        tree = await asyncio.to_thread(load_tree, out, source)
        structure = await asyncio.to_thread(read_structure, tree, lambda line: context.heartbeat(line))
        rules = await asyncio.to_thread(roadmap_by_rules, tree, stack, structure)
        proposed = await ask_model(work, _TASK, _findings(stack, structure, rules), Proposal)
        accepted = [item for item in proposed.items if _is_supported(item, tree)] if proposed else []
        roadmap = (*rules, *accepted)

        documents = await asyncio.to_thread(write_documents, tree, stack, structure, roadmap, out)
        await asyncio.to_thread(save, out, documents)
        for file in documents.files:
            content = await asyncio.to_thread((out / file.path).read_bytes)
            await context.artifacts.write(file.path, content, type="document", path=file.path)
        names = [file.path for file in documents.files]
        urgent = [f"P1: {item.title}" for item in roadmap if item.priority == "P1"]
        patch = BatonPatch(
            current_state=[
                f"{stack.name} is documented in {len(names)} files: {', '.join(names)}",
                f"The roadmap has {len(roadmap)} items, {len(urgent)} of them P1",
                "The source was read, not changed and not executed",
                *urgent[:5],
            ],
            decision_log=[_decision(len(tree.listing.files), proposed, len(accepted))],
            work_scope=names,
        )
        return AgentAnswer(patch=patch, output={"documents": [*names], "roadmap_items": len(roadmap)}, claimed=False)


def _findings(stack: TechStack, structure: Structure, rules: tuple[RoadmapItem, ...]) -> JsonValue:
    """Return what the model is shown."""
    modules = sorted(structure.source, key=lambda one: -one.lines)[:_MOST_FINDINGS]
    return {
        "summary": [*stack.summary],
        "open_questions": [*stack.open_questions],
        "modules": [{"path": one.path, "lines": one.lines, "about": one.about} for one in modules],
        "notes": [*structure.notes[:_MOST_FINDINGS]],
        "roadmap": [item.model_dump() for item in rules],
    }


def _is_supported(item: RoadmapItem, tree: SourceTree) -> bool:
    """Return whether all evidence of a proposal is files of the project."""
    return bool(item.evidence) and all(each.partition(":")[0] in tree.by_path for each in item.evidence)


def _decision(files: int, proposed: Proposal | None, accepted: int) -> str:
    if proposed is None:
        return f"Documented from {files} files by rules"
    return f"Documented from {files} files; of {len(proposed.items)} proposals of the model {accepted} cite the files"


_TERMS: dict[str, Any] = {
    "timeout": timedelta(minutes=30),
    "heartbeat": timedelta(seconds=4),
    "retries": Retries(
        never=("TypeError", "BatonError", "ProjectError")
    ),  # a wrong folder does not become right by waiting
}
_MOST_BULLETS = 8


@stage(
    name="detect-tech-stack",
    writes=["current_state", "decision_log", "constraints", "open_questions"],
    **_TERMS,
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
    **_TERMS,
    reserve_micro_usd=100_000,  # what the model may cost, if one is configured
)
"""Write the documents: an agent that works by rules, and asks the worker's model where one is configured."""


@stage(
    name="build-knowledge",
    writes=["current_state", "decision_log", "artifacts"],
    **_TERMS,
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
    **_TERMS,
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
        decision_log=[_verdict(verified)],
        acceptance=[check.name for check in verified.checks if check.severity == "error"][:_MOST_BULLETS],
        open_questions=[*context.baton.open_questions, *failures],
    )
    output = {"ready": verified.ready, "checks": len(verified.checks), "failures": [*failures]}
    return StageResult(baton_patch=patch, output=output)


STAGES: list[Callable[..., Any]] = [detect_tech_stack, generate_docs, build_knowledge, verify_ready]
"""The stages that a worker registers."""


def _verdict(verified: Verification) -> str:
    if not verified.ready:
        return f"Verification failed: {len(verified.failures)} checks do not hold"
    if verified.failures:
        return f"All required checks passed, with {len(verified.failures)} warnings"
    return "All verification checks passed"


def _folders(context: StageContext[Baton]) -> tuple[Path, Path]:
    found = [context.params.get(name) for name in ("source", "output")]
    if not all(isinstance(each, str) and each for each in found):
        raise ProjectError(
            f"project_init needs the parameters 'source' and 'output'; found {found}. "
            "Start it with: baton run project_init --goal … --param source=DIR --param output=DIR"
        )
    return Path(str(found[0])), Path(str(found[1]))
