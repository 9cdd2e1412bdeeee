"""The stages of `delivery`: plan → draft → implement → test → review, then the branch is offered or withdrawn.

Each round is a commit, and a stage gets its commit as a parameter, so any worker can repeat it.
"""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from pydantic import JsonValue
from temporalio import activity

from activities.delivery.changes import Implementer, find_test_command, make_change, read_patch, review, run_tests
from activities.delivery.records import Change, DeliveryError, Draft, Order, Plan, Remark, TestRun, render_command
from activities.delivery.repository import Repository, explain_refused_branch, size
from activities.models import configured_model
from baton import Baton, BatonPatch, Retries, StageContext, StageResult, stage
from baton.agents.port import AgentLimits, agent_stage

Context = StageContext[Baton]
T = TypeVar("T")

_MINUTES = timedelta(minutes=1)
_TERMS: dict[str, Any] = {
    "heartbeat": timedelta(seconds=10),
    "retries": Retries(never=("TypeError", "BatonError", "DeliveryError", "ToolDeniedError")),
}
_MAX_LISTED, _MAX_LINE_LENGTH = 6, 200
_MAX_OUTPUT_LENGTH = 4_000  # characters of failing tests that the next round reads


@stage(
    name="plan-change",
    writes=["current_state", "decision_log", "acceptance", "artifacts", "work_scope"],
    timeout=10 * _MINUTES,
    **_TERMS,
    tools=["git", "files"],
)
async def plan_change(context: Context) -> StageResult:
    """Plan the changes, their base commit and their tests; nothing is written to the repository."""
    order = Order.of(context.params)
    repository = await Repository.of(Path(order.repository), context.given.task_id)
    base = await use(
        context, "git", partial(repository.commit_of, order.base), lambda commit: f"The work starts from {commit}"
    )
    if base is None:
        remedy = "commit something there first, or name one" if order.base == "HEAD" else "name one"
        raise DeliveryError(
            f"the commit {order.base!r} does not exist in {order.repository!r}; {remedy} with --param base=…"
        )
    branch = order.branch_for(context.baton.goal, context.given.task_id)
    if await repository.commit_of(f"refs/heads/{branch}"):
        raise DeliveryError(explain_refused_branch(branch))
    changes = [
        change if change.patch is None else change.model_copy(update={"patch": await read_patch(change.patch)})
        for change in order.all_changes
    ]
    has_model = configured_model("draft-change") is not None
    if not changes and not has_model:
        raise DeliveryError(
            "delivery needs a change: --param patch=FILE, edits=[…], command=… or changes=[…]; or "
            "configure a model on the worker"
        )
    test = order.test
    if test is None:
        detect = partial(find_test_command, repository, base)
        test = await use(
            context, "files", detect, lambda command: f"The project is tested by `{render_command(command)}`"
        )
    plan = Plan(
        repository=str(repository.folder), base=base, branch=branch, changes=tuple(changes), test=test, order=order
    )
    await context.artifacts.write("plan", plan.model_dump_json(), type="plan", summary=f"What branch {branch} does")
    decision = f"Work on branch {branch} from {base[:12]}, in a checkout of its own"
    context.session.decision(decision)
    rounds = order.rounds if has_model else min(order.rounds, len(changes))
    first_change = changes[0].describe() if changes else "what the model drafts"
    patch = BatonPatch(
        current_state=[f"Planned: {first_change}", f"The tests are `{render_command(test)}`", "Nothing is changed yet"],
        decision_log=[decision],
        acceptance=[
            *context.baton.acceptance,
            f"`{render_command(test)}` ends with exit code 0",
            "The review has no blocking remark",
            f"The {order.approver} approves",
        ],
        work_scope=[*order.paths] or context.baton.work_scope,
    )
    output: dict[str, JsonValue] = {
        "branch": branch,
        "base": base,
        "rounds": rounds,
        "approver": order.approver,
        "approval_seconds": order.approval_hours * 3600,
    }
    return StageResult(baton_patch=patch, output=output)


draft_change = agent_stage(Implementer(), writes=[], timeout=10 * _MINUTES, **_TERMS, limits=AgentLimits(requests=4))
"""Draft the round's change: the ordered one, or edits of the configured model."""


@stage(
    name="implement-change",
    writes=["current_state", "decision_log", "artifacts"],
    timeout=60 * _MINUTES,
    **_TERMS,
    tools=["git", "edit", "patch", "command"],
)
async def implement_change(context: Context) -> StageResult:
    """Make the round's change on top of the previous round, and commit it."""
    plan, repository = await _load_plan(context)
    number, parent = int(str(context.params["round"])), str(context.params["parent"])
    change = _select_change(Draft.model_validate(context.params.get("draft")), plan, number)
    title = " ".join((change.title or context.baton.goal).split())[:72]
    tool = "patch" if change.patch is not None else "edit" if change.edits is not None else "command"

    # A time that is equal in every attempt of the stage.
    when = activity.info().scheduled_time if activity.in_activity() else context.parts.clock()

    async def make() -> str:
        async with repository.checkout(parent) as checkout:
            await make_change(repository, checkout, plan, change)
            return await repository.commit(checkout, parent, title, when)

    commit = await use(
        context, tool, make, lambda commit: f"{change.describe()} is commit {commit[:12]} of {plan.branch}"
    )
    change_size = size(await repository.changes(plan.base, commit))
    diff = await use(context, "git", partial(repository.diff, plan.base, commit), lambda _: f"It changes {change_size}")
    await context.artifacts.write(f"diff-{number}", diff, type="diff", summary=f"{plan.branch} after round {number}")
    patch = BatonPatch(
        current_state=[
            f"Round {number}: {title}",
            f"{plan.branch} is at {commit[:12]}: {change_size}",
            "Neither tested nor reviewed yet",
        ],
        decision_log=[f"Round {number}: {title}"],
    )
    return StageResult(baton_patch=patch, output={"commit": commit, "size": change_size})


@stage(
    name="test-change",
    writes=["current_state", "artifacts", "open_questions"],
    timeout=timedelta(hours=25),  # up to six hours each to prepare and test the change and its base
    **_TERMS,
    tools=["tests"],
)
async def test_change(context: Context) -> StageResult:
    """Run the project's tests on the commit; if they fail in the first round, also on the base."""
    plan, repository = await _load_plan(context)
    number, commit = int(str(context.params["round"])), str(context.params["commit"])
    run = await use(context, "tests", partial(run_tests, repository, plan, commit), TestRun.describe)
    why = run.describe()
    state = [f"Round {number}: {why}", f"{plan.branch} is at {commit[:12]}", "Not reviewed yet"]
    questions = [*context.baton.open_questions]
    if not run.passed:
        last_line = run.output.rstrip().splitlines()[-1:]
        state += [f"The tests ended with: {line.strip()[:_MAX_LINE_LENGTH]}" for line in last_line]
        why += "".join(f": {line.strip()[:_MAX_LINE_LENGTH]}" for line in last_line)
    if not run.passed and number == 1:
        base_run = await use(context, "tests", partial(run_tests, repository, plan, plan.base), TestRun.describe)
        questions += [] if base_run.passed else [f"Is it meant that on the base {base_run.outcome}?"]
    await context.artifacts.write(
        f"tests-{number}-{commit[:12]}", run.model_dump_json(), type="test-run", summary=run.describe()[:200]
    )
    output: dict[str, JsonValue] = {
        "passed": run.passed,
        "why": why,
        "said": "" if run.passed else run.output[-_MAX_OUTPUT_LENGTH:],
    }
    return StageResult(baton_patch=BatonPatch(current_state=state, open_questions=questions), output=output)


@stage(
    name="review-change",
    writes=["current_state", "decision_log", "artifacts", "work_scope"],
    timeout=10 * _MINUTES,
    **_TERMS,
    tools=["git", "rules"],
)
async def review_change(context: Context) -> StageResult:
    """Review the whole change by rules; blocking remarks go back to the implementer."""
    plan, repository = await _load_plan(context)
    number, commit = int(str(context.params["round"])), str(context.params["commit"])
    work = partial(review, repository, plan.order, plan.base, commit)
    remarks = await use(
        context,
        "rules",
        work,
        lambda remarks: f"{len(remarks)} remarks on {commit[:12]}, blocking: {_count_blocking(remarks)}",
    )
    diffs = await repository.changes(plan.base, commit)
    verdict = "rules block it" if _count_blocking(remarks) else "no rule blocks it"
    rows = [
        f"- {'**blocks** ' if remark.blocks else ''}`{remark.place}` {remark.message} ({remark.rule})"
        for remark in remarks
    ]
    page = "\n".join([f"# Review of {plan.branch} at {commit[:12]}", "", *(rows or ["Nothing to remark."]), ""])
    await context.artifacts.write(f"review-{number}-{commit[:12]}", page, type="review", summary=verdict)
    listed_remarks = [f"{remark.place} {remark.message} ({remark.rule})" for remark in remarks[:_MAX_LISTED]]
    patch = BatonPatch(
        current_state=[
            f"Round {number}: the review of {commit[:12]} says: {verdict}; {size(diffs)}",
            *(listed_remarks or ["It has no remarks"]),
            "The tests pass",
        ],
        decision_log=[f"Round {number}: {verdict}, {len(remarks)} remarks, blocking: {_count_blocking(remarks)}"],
        work_scope=[diff.path for diff in diffs][:_MAX_LISTED],
    )
    output: dict[str, JsonValue] = {
        "approved": not _count_blocking(remarks),
        "size": size(diffs),
        "why": "; ".join(listed_remarks) or "nothing to remark",
    }
    return StageResult(baton_patch=patch, output=output)


@stage(
    name="offer-branch",
    writes=["current_state", "decision_log", "artifacts"],
    timeout=10 * _MINUTES,
    **_TERMS,
    tools=["git"],
)
async def offer_branch(context: Context) -> StageResult:
    """Create the approved branch in the repository."""
    plan, repository = await _load_plan(context)
    commit = str(context.params["commit"])
    if await repository.commit_of(f"refs/heads/{plan.branch}") != commit:  # an earlier attempt may have created it
        await repository.open()
        diff = await repository.diff(plan.base, commit)
        await context.artifacts.write("diff", diff, type="diff", summary=f"What {plan.branch} changes, as approved")

        async def offer() -> None:
            await repository.offer(plan.branch, plan.base, commit)

        await use(context, "git", offer, lambda _: f"Branch {plan.branch} is at {commit}")
    await repository.close()
    merge = f"git merge {plan.branch}"
    patch = BatonPatch(
        current_state=[
            f"Branch {plan.branch} at {commit[:12]} is offered",
            f"Take it with: {merge}",
            "The working copy was never touched",
        ],
        decision_log=[f"Offered branch {plan.branch} at {commit[:12]}"],
    )
    output: dict[str, JsonValue] = {
        "offered": True,
        "branch": plan.branch,
        "commit": commit,
        "base": plan.base,
        "size": str(context.params.get("size", "")),
        "merge": merge,
    }
    return StageResult(baton_patch=patch, output=output)


@stage(name="withdraw-branch", writes=["current_state", "decision_log"], timeout=10 * _MINUTES, **_TERMS, tools=["git"])
async def withdraw_branch(context: Context) -> StageResult:
    """Remove the task's commits; the diffs, test runs and reviews remain as artifacts."""
    plan, repository = await _load_plan(context)
    await use(context, "git", repository.close, lambda _: f"The commits of {plan.branch} are removed")
    patch = BatonPatch(
        current_state=[
            f"Branch {plan.branch} is withdrawn",
            "The diffs of all rounds are among the artifacts",
            "The working copy was never touched",
        ],
        decision_log=[f"Withdrew branch {plan.branch}"],
    )
    return StageResult(baton_patch=patch, output={"offered": False, "branch": plan.branch})


STAGES: list[Callable[..., Any]] = [
    plan_change,
    draft_change,
    implement_change,
    test_change,
    review_change,
    offer_branch,
    withdraw_branch,
]
"""The stages that a worker runs."""


async def use(context: Context, tool: str, work: Callable[[], Awaitable[T]], claim: Callable[[T], str]) -> T:
    """Run a tool if the contract allows it, and record a claim about its result for later agents."""
    results: list[T] = []

    async def call() -> str:
        results.append(await work())
        return claim(results[0])

    await context.tools.call(tool, call)
    return results[0]


async def _load_plan(context: Context) -> tuple[Plan, Repository]:
    plan = Plan.model_validate_json(await context.artifacts.read("plan"))
    return plan, await Repository.of(Path(plan.repository), context.given.task_id)


def _select_change(draft: Draft, plan: Plan, number: int) -> Change:
    """Return the round's change: the ordered one, or a draft's edits, each of a text that occurs once."""
    if not draft.edits:
        return plan.changes[number - 1]
    edits = tuple(edit.model_copy(update={"expect": 1 if edit.find else None}) for edit in draft.edits)
    return Change(edits=edits, title=draft.title)


def _count_blocking(remarks: list[Remark]) -> int:
    return sum(remark.blocks for remark in remarks)
