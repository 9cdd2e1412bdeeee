"""The four stages of `project_init` (S1 L66-82): each does real work on files and says in its patch what came out.

What a stage finds travels to the next one as JSON in the output folder, and as artifacts in the worker's store;
the baton carries the conclusions and the references.
"""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from activities.project_init.detect import detect
from activities.project_init.document import document
from activities.project_init.files import survey
from activities.project_init.knowledge import build_index
from activities.project_init.records import Documents, KnowledgeIndex, LeftOut, ProjectError, TechStack, Verification
from activities.project_init.store import load, load_tree, prepare_output, save
from activities.project_init.verify import verify
from activities.workbench.parameters import required_text
from activities.workbench.words import counted
from baton import Baton, BatonPatch, Retries, StageContext, StageResult, stage

T = TypeVar("T")

_USAGE = "project_init --goal … --param source=DIR --param output=DIR"
_HEARTBEAT = timedelta(seconds=4)
_LONGEST = timedelta(minutes=30)
_RETRIES = Retries(never=("TypeError", "ProjectError"))  # a wrong folder does not become right by waiting
_MOST_LISTED = 8  # S1 L20: 3 to 8 bullets tell best what is true now


@stage(
    name="detect-tech-stack",
    writes=["current_state", "decision_log", "constraints", "open_questions", "work_scope"],
    timeout=_LONGEST,
    heartbeat=_HEARTBEAT,
    retries=_RETRIES,
)
async def detect_tech_stack(context: StageContext[Baton]) -> StageResult:
    """Find languages, frameworks, build tools, commands and licences, each with the file and line it was read in."""
    source, out = _folders(context)
    await asyncio.to_thread(prepare_output, source, out)
    tree = await _work(context, survey, source)
    stack = await _work(context, detect, tree)
    await asyncio.to_thread(save, out, tree.listing)
    await asyncio.to_thread(save, out, stack)
    patch = BatonPatch(
        current_state=list(stack.summary[:_MOST_LISTED]),
        decision_log=list(stack.decisions),
        constraints=list(stack.constraints),
        open_questions=list(stack.open_questions[:_MOST_LISTED]),
    )
    languages = [language.name for language in stack.languages]
    return StageResult(baton_patch=patch, output={"files": len(tree.listing.files), "languages": [*languages]})


@stage(
    name="generate-docs",
    writes=["current_state", "decision_log", "artifacts", "work_scope"],
    timeout=_LONGEST,
    heartbeat=_HEARTBEAT,
    retries=_RETRIES,
)
async def generate_docs(context: StageContext[Baton]) -> StageResult:
    """Write project overview, architecture, commands, roadmap and agent rules from what was found."""
    source, out = _folders(context)
    stack = await asyncio.to_thread(load, out, TechStack)
    tree = await asyncio.to_thread(load_tree, out, source)
    documents = await _work(context, document, tree, stack, out)
    await asyncio.to_thread(save, out, documents)
    for written in documents.files:
        text = await asyncio.to_thread((out / written.path).read_bytes)
        await context.artifacts.write(written.path, text, type="document", path=written.path)
    names = [written.path for written in documents.files]
    first = [item.title for item in documents.roadmap if item.priority == "P1"]
    state = [
        f"{stack.name} is documented in {counted(len(names), 'file')}: {', '.join(names)}",
        f"The roadmap has {counted(len(documents.roadmap), 'item')}, {len(first)} of them P1",
        "The source is as it was: it was read, not written to and not executed",
        *(f"P1: {title}" for title in first[: _MOST_LISTED - 3]),
    ]
    decisions = [f"Documented from the files alone, {len(tree.listing.files)} of them"]
    patch = BatonPatch(current_state=state, decision_log=decisions, work_scope=names)
    return StageResult(baton_patch=patch, output={"documents": [*names], "roadmap_items": len(documents.roadmap)})


@stage(
    name="build-knowledge",
    writes=["current_state", "decision_log", "artifacts"],
    timeout=_LONGEST,
    heartbeat=_HEARTBEAT,
    retries=_RETRIES,
)
async def build_knowledge(context: StageContext[Baton]) -> StageResult:
    """Cut sources and documents into chunks and build the index that `query` searches."""
    source, out = _folders(context)
    documents = await asyncio.to_thread(load, out, Documents)
    tree = await asyncio.to_thread(load_tree, out, source)
    index = await _work(context, build_index, tree, documents, out)
    await asyncio.to_thread(save, out, index)
    content = await asyncio.to_thread((out / index.path).read_bytes)
    await context.artifacts.write(index.path, content, type="knowledge-index", path=index.path)
    state = [
        f"Knowledge index built with {index.chunks} chunks from {index.files} files, about {index.tokens} tokens",
        f"The index is {index.path}; ask it with: python -m activities.project_init query {out} 'your question'",
        _told_left_out(index.left_out),
    ]
    decisions = ["Indexed sources and generated documents together for full-text search"]
    patch = BatonPatch(current_state=state, decision_log=decisions)
    return StageResult(baton_patch=patch, output={"chunks": index.chunks, "index": index.path})


@stage(
    name="verify-ready",
    writes=["current_state", "decision_log", "acceptance", "open_questions"],
    timeout=_LONGEST,
    heartbeat=_HEARTBEAT,
    retries=_RETRIES,
)
async def verify_ready(context: StageContext[Baton]) -> StageResult:
    """Prove that files exist, hashes match, links and commands resolve, and the index answers from the sources."""
    source, out = _folders(context)
    stack = await asyncio.to_thread(load, out, TechStack)
    documents = await asyncio.to_thread(load, out, Documents)
    index = await asyncio.to_thread(load, out, KnowledgeIndex)
    tree = await asyncio.to_thread(load_tree, out, source)
    verdict = await _work(context, verify, tree, stack, documents, index, out)
    await asyncio.to_thread(save, out, verdict)
    for ref in context.baton.artifacts:
        await context.artifacts.read(ref.id)  # raises if the store has lost or changed what the baton refers to
    return StageResult(baton_patch=_verdict_patch(context.baton, stack, verdict), output=_verdict_output(verdict))


STAGES: list[Callable[..., Any]] = [detect_tech_stack, generate_docs, build_knowledge, verify_ready]
"""What a worker runs."""


def _verdict_patch(baton: Baton, stack: TechStack, verdict: Verification) -> BatonPatch:
    """Return what verification says to the baton."""
    passed = sum(check.ok for check in verdict.checks)
    failures = [f"{check.name}: {check.message}" for check in verdict.failures]
    ready = f"{stack.name} is fully initialized and verified"
    decision = "All verification checks passed"
    if failures:
        decision = f"All required checks passed, with {counted(len(failures), 'warning')}"
    if not verdict.ready:
        decision = f"Verification does not hold: {counted(len(failures), 'check')} failed"
    return BatonPatch(
        current_state=[
            ready if verdict.ready else f"{stack.name} is documented but not verified",
            f"{passed} of {len(verdict.checks)} checks hold",
            f"{counted(len(baton.artifacts), 'artifact')} in the store, each with its recorded hash",
            *failures[: _MOST_LISTED - 3],
        ],
        decision_log=[decision],
        acceptance=[check.name for check in verdict.checks if check.severity == "error"][:_MOST_LISTED],
        open_questions=[*baton.open_questions, *failures] if failures else list(baton.open_questions),
    )


def _told_left_out(left_out: tuple[LeftOut, ...]) -> str:
    """Return how many files are not in the index, and how many for which reason."""
    if not left_out:
        return "No file was left out"
    reasons = ", ".join(f"{one.reason.removeprefix('not indexed: ')} ({one.count:,})" for one in left_out)
    return f"Left out of it: {counted(sum(one.count for one in left_out), 'file')}, for {reasons}"


def _verdict_output(verdict: Verification) -> dict[str, Any]:
    """Return what the pipeline returns of the verification."""
    return {
        "ready": verdict.ready,
        "checks": len(verdict.checks),
        "failures": [f"{check.severity}: {check.name}: {check.message}" for check in verdict.failures],
    }


def _folders(context: StageContext[Baton]) -> tuple[Path, Path]:
    """Return the folder to read and the folder to write to.

    Raises:
        ProjectError: A parameter is missing or is no text.
    """
    source, out = (required_text(context.params, name, _USAGE, ProjectError) for name in ("source", "output"))
    return Path(source), Path(out)


async def _work(context: StageContext[Baton], function: Callable[..., T], *arguments: Any) -> T:
    """Run a long function in a thread; what it reports goes out with the next heartbeat."""

    def report(text: str) -> None:
        context.last_heartbeat = (text,)

    return await asyncio.to_thread(partial(function, *arguments, progress=report))
