"""The implementer that asks a model: it reads the files, what is wanted and what went wrong, and answers with edits."""

import asyncio
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from activities.delivery.changes import matches
from activities.delivery.records import Change, DeliveryError, Edit
from activities.delivery.worktree import Worktree
from activities.project_init.ignore import may_hold_secrets
from activities.workbench.asking import Model
from activities.workbench.git import paths_of
from baton import StageContext

_MOST_CHARACTERS = 120_000
_LONGEST_FILE = 40_000
_MOST_PATHS = 2_000
_TASK = (
    "You change a project so that the goal is reached and its tests pass. Answer with edits: each names a path, the "
    "text to find in it, word for word and only once in the file, and what to put there; for a new file leave 'find' "
    "empty. Change as little as does it, and never weaken a test."
)


class DraftEdit(BaseModel):
    """One edit, as the model proposes it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    path: str = Field(min_length=1, max_length=500)
    find: str = ""
    replace: str


class Draft(BaseModel):
    """What the model proposes to change."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    title: str = Field(min_length=1, max_length=120)
    edits: list[DraftEdit] = Field(min_length=1, max_length=100)


async def draft_change(context: StageContext[Any], model: Model, tree: Worktree, before: str) -> Change:
    """Return the change that a model proposes.

    Args:
        context: The implementer's context; goal, constraints and decisions are in its prompt.
        model: The model.
        tree: The worktree, as the branch is.
        before: What tests or review said of the round before; "" in the first.

    Raises:
        DeliveryError: It wants to change what it may not.
        ModelError: Another attempt may help.
        ModelRefusedError: None will.
    """
    paths = [path for path in paths_of(await tree.git.run("ls-files", "-z")) if not may_hold_secrets(path)]
    texts = await asyncio.to_thread(_texts, tree, paths, context.baton.work_scope)
    data: JsonValue = {
        "goal": context.baton.goal,
        "acceptance": [*context.baton.acceptance],
        "went wrong": before,
        "paths": [*paths[:_MOST_PATHS]],
        "files": [{"path": path, "text": text} for path, text in texts.items()],
    }
    draft = await model.ask(context, _TASK, data, Draft)
    allowed = tree.plan.order.paths
    for edit in draft.edits:
        if "*" in edit.path or (allowed and not any(matches(edit.path, pattern) for pattern in allowed)):
            raise DeliveryError(f"the model wants to change {edit.path!r}, which it may not")
    edits = tuple(
        Edit(path=one.path, find=one.find, replace=one.replace, expect=1 if one.find else None) for one in draft.edits
    )
    return Change(edits=edits, title=draft.title)


def _texts(tree: Worktree, paths: list[str], scope: list[str]) -> dict[str, str]:
    """Return the texts that fit into a prompt: those that may change first, then those in the work scope."""
    wanted = tree.plan.order.paths

    def rank(path: str) -> tuple[bool, bool, int]:
        listed = any(matches(path, pattern) for pattern in wanted)
        return not listed, not any(matches(path, pattern) for pattern in scope), path.count("/")

    found: dict[str, str] = {}
    left = _MOST_CHARACTERS
    for path in sorted(paths, key=rank):
        place = tree.folder / path
        if place.is_symlink() or not place.is_file() or place.stat().st_size > min(_LONGEST_FILE, left):
            continue
        try:
            text = place.read_bytes().decode()
        except UnicodeDecodeError:
            continue
        found[path] = text
        left -= len(text)
    return found
