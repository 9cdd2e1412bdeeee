"""The agent of stage generate-docs, behind Baton's port: rules plan the roadmap, a configured model adds to it."""

import asyncio
from pathlib import Path

from pydantic import BaseModel, Field, JsonValue

from activities.models import ask_model
from activities.project_init.files import SourceTree
from activities.project_init.pages import write_documents
from activities.project_init.records import RoadmapItem, TechStack
from activities.project_init.roadmap import roadmap_by_rules
from activities.project_init.store import load, load_tree, save
from activities.project_init.structure import Structure, read_structure
from baton import BatonPatch
from baton.agents import AgentAnswer, AgentWork

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
