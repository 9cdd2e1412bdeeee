"""The implementer behind Baton's port for agents: it takes the change that was ordered, or asks a model for one."""

from pathlib import Path

from pydantic import JsonValue

from activities.delivery.changes import matches
from activities.delivery.records import DeliveryError, Draft, Plan
from activities.delivery.repository import Repository
from activities.delivery.review import may_hold_secrets
from activities.models import ask_model
from baton.agents.port import AgentAnswer, AgentWork

_TASK = (
    "You change a project so that the goal is reached and its tests pass. Answer with edits: each names a path, the "
    "text to find in it, word for word and only once in the file, and what to put there; for a new file leave 'find' "
    "empty. Change as little as possible, and never weaken a test."
)
_MOST_CHARACTERS, _LONGEST_FILE, _MOST_PATHS = 120_000, 40_000, 2_000


class Implementer:
    """The agent that decides what a round changes. Deterministic, unless the order has no change for the round."""

    name = "draft-change"

    async def run(self, work: AgentWork) -> AgentAnswer:
        """Answer with a `Draft`; one without edits means the change that was ordered."""
        context = work.context
        plan = Plan.model_validate_json(await context.artifacts.read("plan"))
        number = context.params["round"]
        if isinstance(number, int) and number <= len(plan.changes):
            draft = Draft(title=plan.changes[number - 1].in_words()[:120])
            return AgentAnswer(output=draft.model_dump(mode="json"), claimed=False)
        answer = await ask_model(work, _TASK, await _material(work, plan), Draft)
        if answer is None or not answer.edits:
            raise DeliveryError(f"round {number} has no change; order one, or configure a model on the worker")
        for edit in answer.edits:
            allowed = not plan.order.paths or any(matches(edit.path, pattern) for pattern in plan.order.paths)
            if "*" in edit.path or not allowed:
                raise DeliveryError(f"the model wants to change {edit.path!r}, which it may not")
        return AgentAnswer(output=answer.model_dump(mode="json"))


async def _material(work: AgentWork, plan: Plan) -> JsonValue:
    """Return what the model works on: the goal, what went wrong, and the project's files."""
    context = work.context
    repository = await Repository.of(Path(plan.repository), context.given.task_id)
    commit = str(context.params["parent"])
    paths = [path for path in await repository.paths(commit) if not may_hold_secrets(path)]
    return {
        "goal": context.baton.goal,
        "acceptance": [*context.baton.acceptance],
        "went wrong": context.params.get("why", ""),
        "paths": [*paths[:_MOST_PATHS]],
        "files": await _files(repository, commit, paths, [*plan.order.paths]),
    }


async def _files(repository: Repository, commit: str, paths: list[str], wanted: list[str]) -> list[JsonValue]:
    """Return the texts that fit into a prompt, those that may change first."""
    found: list[JsonValue] = []
    left = _MOST_CHARACTERS
    for path in sorted(paths, key=lambda one: (not any(matches(one, it) for it in wanted), one.count("/")))[
        :_MOST_PATHS
    ]:
        text = await repository.text(commit, path) if left > 0 else None
        if text is not None and len(text) <= min(_LONGEST_FILE, left):
            found.append({"path": path, "text": text})
            left -= len(text)
    return found
