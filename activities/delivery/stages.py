"""The stages of `delivery`: plan → implement → test → review, then the branch is offered or withdrawn (S2 L14-29).

The work itself is in git: each round of the implementer is one commit on the branch, so that what happened can be
read there, and a stage that is run again finds its commit. The baton carries what was decided and what is known.
"""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import JsonValue
from temporalio import activity

from activities.delivery.changes import make_change, read_patch
from activities.delivery.drafting import draft_change
from activities.delivery.records import Change, DeliveryError, Order, Plan, Remark, TestRun, shown
from activities.delivery.reviewing import analyse_diff, review_diff
from activities.delivery.testing import find_test_command, run_tests, run_tests_on_base
from activities.delivery.worktree import Worktree, repository_of
from activities.project_init.records import ProjectError
from activities.workbench.asking import configured_model
from activities.workbench.diffs import DiffError, FileDiff, parse_diff
from activities.workbench.using import use
from activities.workbench.words import counted
from baton import Baton, BatonPatch, Retries, StageContext, StageResult, stage

Context = StageContext[Baton]

_HEARTBEAT = timedelta(seconds=10)
_SOON = timedelta(minutes=10)
_LONGEST = timedelta(hours=13)  # preparing and testing may take six hours each
# What does not become right by waiting.
_RETRIES = Retries(never=("TypeError", "DeliveryError", "ProgramError", "ToolDeniedError", "ModelRefusedError"))
_MOST_LISTED = 6
_LONGEST_LINE = 200
_TAIL = 400
_SAID = 4_000  # characters of a failing test's output that the next round is told


@stage(
    name="plan-change",
    writes=["current_state", "decision_log", "acceptance", "artifacts", "work_scope"],
    timeout=_SOON,
    heartbeat=_HEARTBEAT,
    retries=_RETRIES,
    tools=["git", "files"],
)
async def plan_change(context: Context) -> StageResult:
    """Settle what is changed, from which commit, and how it is tested; nothing is written yet."""
    order = Order.of({name: value for name, value in context.params.items() if name != "round"})
    git = await repository_of(Path(order.repository))
    base = await use(context, "git", partial(git.commit_of, order.base), lambda one: f"The work starts from {one}")
    if base is None:
        remedy = "commit something there first, or name one" if order.base == "HEAD" else "name one"
        raise DeliveryError(f"there is no commit {order.base!r} in {order.repository!r}; {remedy} with --param base=…")
    changes = [await asyncio.to_thread(_with_text, change) for change in order.all_changes]
    model = configured_model()
    if not changes and model is None:
        raise DeliveryError(
            "delivery needs to be told what to change: --param patch=FILE, edits=[…], command=… or changes=[…]; or "
            "configure a model on the worker"
        )
    test, origin = await use(
        context,
        "files",
        lambda: asyncio.to_thread(_test_command, git.folder, order),
        lambda found: f"The project is tested by `{shown(found[0])}` ({found[1]})",
    )
    plan = Plan(
        repository=str(git.folder),
        base=base,
        branch=order.branch_for(context.baton.goal, context.given.task_id),
        changes=tuple(changes),
        test=test,
        test_origin=origin,
        order=order,
    )
    await context.artifacts.write(
        "plan", plan.model_dump_json(), type="plan", summary=f"What branch {plan.branch} does"
    )
    context.session.decision(f"Work on branch {plan.branch} from {base[:12]}")
    rounds = min(order.rounds, len(changes)) if model is None else order.rounds
    planned = [change.in_words() for change in changes[:rounds]] or ["what the model drafts"]
    patch = BatonPatch(
        current_state=[
            f"Planned: {planned[0]}, on branch {plan.branch} from {base[:12]}",
            f"The tests are `{shown(test)}` ({origin})",
            "Nothing is changed yet",
            *(f"If that does not do: {change}" for change in planned[1:]),
        ],
        decision_log=[f"Work on branch {plan.branch} from {base[:12]}, in a worktree of its own"],
        acceptance=[
            *context.baton.acceptance,
            f"`{shown(test)}` ends with exit code 0",
            "The reviewer has nothing that blocks",
            f"The {order.approver} approves",
        ],
        work_scope=[*order.paths] or context.baton.work_scope,
    )
    output: dict[str, JsonValue] = {
        "branch": plan.branch,
        "base": base,
        "rounds": rounds,
        "approver": order.approver,
        "approval_seconds": order.approval_hours * 3600,
    }
    return StageResult(baton_patch=patch, output=output)


@stage(
    name="implement-change",
    writes=["current_state", "decision_log", "artifacts"],
    timeout=_SOON * 6,
    heartbeat=_HEARTBEAT,
    retries=_RETRIES,
    tools=["git", "edit", "patch", "command", "model"],
)
async def implement_change(context: Context) -> StageResult:
    """Make the round's change on the branch, as one commit; in a worktree, never in the user's working copy."""
    plan, tree = await _work(context)
    number = _round(context)
    async with tree.held():
        await tree.open()
        step = f"round-{number}{_run()}"
        if await tree.done(step) is None:  # a worker before this one may have been lost after its commit
            await _go_back(tree, number)
            change = await _change(context, tree, number)
            title = " ".join((change.title or context.baton.goal).split())[:72]
            await use(
                context,
                {"patch": "patch", "edits": "edit", "command": "command"}[change.kind],
                partial(tree.commit, step, title, partial(make_change, tree, change)),
                lambda one: f"{change.in_words()} is commit {one[:12]} of {plan.branch}",
            )
        commit = await tree.reset()
        title = await tree.git.line("log", "-1", "--format=%s")
        diff = await use(context, "git", tree.diff, lambda text: f"The branch changes {_size(text)}")
    await context.artifacts.write(f"diff-{number}", diff, type="diff", summary=f"{plan.branch} after round {number}")
    patch = BatonPatch(
        current_state=[
            f"Round {number}: {title}",
            f"{plan.branch} is at {commit[:12]}: {_size(diff)}",
            "Neither tested nor reviewed yet",
        ],
        decision_log=[f"Round {number}: {title}"],
    )
    return StageResult(baton_patch=patch, output={"commit": commit, "size": _size(diff)})


@stage(
    name="test-change",
    writes=["current_state", "artifacts", "open_questions"],
    timeout=_LONGEST,
    heartbeat=_HEARTBEAT,
    retries=_RETRIES,
    tools=["tests"],
)
async def test_change(context: Context) -> StageResult:
    """Run the project's tests on the branch; where they fail in the first round, on the base as well."""
    plan, tree = await _work(context)
    number = _round(context)
    async with tree.held():
        commit = await _opened_at(context, tree)
        run = await use(context, "tests", partial(run_tests, plan, tree.folder, commit), TestRun.in_words)
        before: TestRun | None = None
        if not run.passed and number == 1:
            before = await use(context, "tests", partial(run_tests_on_base, plan, tree.aside), TestRun.in_words)
        await tree.reset()
    name = f"tests-{number}-{commit[:12]}"
    await context.artifacts.write(name, run.model_dump_json(), type="test-run", summary=run.in_words()[:200])
    state = [f"Round {number}: {run.in_words()}", f"{plan.branch} is at {commit[:12]}", "Not reviewed yet"]
    questions = [*context.baton.open_questions]
    why = run.in_words()
    if not run.passed:
        state.append(f"The tests said last: {' '.join(run.output.split())[-_TAIL:]}")
        why += "".join(f": {line.strip()[:_LONGEST_LINE]}" for line in run.output.rstrip().splitlines()[-1:])
    elif run.ran_none:
        state.append("It says that there was no test to run")
        questions.append("Is a change good enough on which no test ran?")
    if before is not None and not before.passed:
        state.append("The tests fail before the change as well")
        questions.append("Are the tests on the base meant to fail?")
    patch = BatonPatch(current_state=state, open_questions=questions)
    output: dict[str, JsonValue] = {
        "passed": run.passed,
        "commit": commit,
        "why": why,
        "said": run.output[-_SAID:] if not run.passed else "",
        "base_passed": None if before is None else before.passed,
    }
    return StageResult(baton_patch=patch, output=output)


@stage(
    name="review-change",
    writes=["current_state", "decision_log", "artifacts", "work_scope"],
    timeout=_SOON * 3,
    heartbeat=_HEARTBEAT,
    retries=_RETRIES,
    tools=["git", "rules", "analysers"],
)
async def review_change(context: Context) -> StageResult:
    """Read the real diff of the branch; what blocks goes back to the implementer."""
    plan, tree = await _work(context)
    number = _round(context)
    async with tree.held():
        commit = await _opened_at(context, tree)
        text = await use(context, "git", tree.diff, lambda one: f"The branch changes {_size(one)}")
        diffs = _files(text)
        remarks = await use(
            context,
            "rules",
            lambda: asyncio.to_thread(review_diff, diffs, tree.folder, plan.order),
            lambda found: f"The rules make {counted(len(found), 'remark')}; blocking: {_blocking(found)}",
        )
        found, analysed = await use(
            context,
            "analysers",
            partial(analyse_diff, text, tree.folder),
            lambda one: f"In the added lines {counted(len(one[0]), 'finding')}; {one[1]}",
        )
    remarks = sorted([*remarks, *found], key=lambda one: (not one.blocks, one.path, one.line))
    verdict = "request changes" if _blocking(remarks) else "approve"
    await context.artifacts.write(
        f"review-{number}-{commit[:12]}", _page(plan, commit, remarks, analysed), type="review", summary=verdict
    )
    told = [f"{one.place} {one.message} ({one.rule})" for one in remarks[:_MOST_LISTED]]
    patch = BatonPatch(
        current_state=[
            f"Round {number}: the review of {commit[:12]} says {verdict!r}; {_size(text)}",
            f"The added lines were {analysed}",
            *(told or ["It has no remarks"]),
        ],
        decision_log=[f"Round {number}: {verdict}, {counted(len(remarks), 'remark')}, blocking: {_blocking(remarks)}"],
        work_scope=[diff.path for diff in diffs][:_MOST_LISTED],
    )
    output: dict[str, JsonValue] = {
        "approved": verdict == "approve",
        "commit": commit,
        "size": _size(text),
        "why": "; ".join(told) or "nothing to remark",
    }
    return StageResult(baton_patch=patch, output=output)


@stage(
    name="offer-branch",
    writes=["current_state", "decision_log", "artifacts"],
    timeout=_SOON,
    heartbeat=_HEARTBEAT,
    retries=_RETRIES,
    tools=["git"],
)
async def offer_branch(context: Context) -> StageResult:
    """Leave the approved branch in the repository, and take the worktree away."""
    plan, tree = await _work(context)
    approved = context.params.get("commit")
    head = await use(context, "git", tree.head, lambda one: f"{plan.branch} is at {one}")
    if head != approved:
        raise DeliveryError(
            f"{plan.branch!r} is at {head!r} and not at {approved!r}, which was tested, reviewed and approved; "
            "somebody moved it meanwhile, so it is not offered"
        )
    diff = await tree.diff()
    await context.artifacts.write("diff", diff, type="diff", summary=f"What {plan.branch} changes, as approved")
    async with tree.held():
        await tree.close(keep_branch=True)
    merge = f"git merge {plan.branch}"
    patch = BatonPatch(
        current_state=[
            f"Branch {plan.branch} at {str(head)[:12]} is offered: {_size(diff)}",
            f"Take it with: {merge}",
            "The worktree is gone; the working copy was never touched",
        ],
        decision_log=[f"Offered branch {plan.branch} at {str(head)[:12]}"],
    )
    output: dict[str, JsonValue] = {
        "offered": True,
        "branch": plan.branch,
        "commit": head,
        "base": plan.base,
        "size": _size(diff),
        "merge": merge,
    }
    return StageResult(baton_patch=patch, output=output)


@stage(
    name="withdraw-branch",
    writes=["current_state", "decision_log"],
    timeout=_SOON,
    heartbeat=_HEARTBEAT,
    retries=_RETRIES,
    tools=["git"],
)
async def withdraw_branch(context: Context) -> StageResult:
    """Take worktree and branch away; the diffs stay among the artifacts."""
    plan, tree = await _work(context)
    why = str(context.params.get("why", ""))[:_TAIL]

    def told(stays: bool) -> str:
        others = "stays as it is, for it is not this delivery's alone; nothing is offered"
        return f"Branch {plan.branch} {others if stays else 'is withdrawn'}"

    async with tree.held():  # whatever was canceled in the middle of its work ends first
        stays = await use(
            context, "git", lambda: tree.close(keep_branch=False), lambda stays: f"{told(stays)}, worktree gone"
        )
    patch = BatonPatch(
        current_state=[told(stays), f"Why: {why}", "The diffs of all rounds are among the artifacts"],
        decision_log=[f"{told(stays)}: {why}"],
    )
    return StageResult(baton_patch=patch, output={"offered": False, "branch": plan.branch, "why": why})


STAGES: list[Callable[..., Any]] = [
    plan_change,
    implement_change,
    test_change,
    review_change,
    offer_branch,
    withdraw_branch,
]
"""What a worker runs."""


async def _work(context: Context) -> tuple[Plan, Worktree]:
    """Return the plan, and the worktree that follows from it."""
    plan = Plan.model_validate_json(await context.artifacts.read("plan"))
    return plan, Worktree.of(plan, context.given.task_id)


async def _opened_at(context: Context, tree: Worktree) -> str:
    """Open the worktree at the commit that the implementer made in this round, and return it.

    After a roll-back the branch goes back to it from what later rounds made.

    Raises:
        DeliveryError: The branch is elsewhere.
    """
    made = str(context.params.get("commit"))
    if not await tree.back_to(made):
        head = await tree.head()
        raise DeliveryError(
            f"{tree.plan.branch!r} is at {head!r} and not at {made!r}, which the implementer made; somebody moved it "
            "meanwhile, so start the delivery anew"
        )
    await tree.open()
    return made


async def _go_back(tree: Worktree, number: int) -> None:
    """Take the branch back to where a round begins: a roll-back leaves what was made after that."""
    begins = tree.plan.base if number == 1 else await tree.made_in(f"round-{number - 1}")
    if begins is not None and await tree.back_to(begins):
        await tree.reset()


def _run() -> str:
    """Return what tells the commits of this run of the pipeline from those before a roll-back, which are made anew."""
    return f"/{activity.info().workflow_run_id}" if activity.in_activity() else ""


async def _change(context: Context, tree: Worktree, number: int) -> Change:
    """Return the round's change: one that was ordered, or else one that a model drafts.

    Raises:
        DeliveryError: There is neither.
    """
    if number <= len(tree.plan.changes):
        return tree.plan.changes[number - 1]
    model = configured_model()
    if model is None:
        raise DeliveryError(f"there is no change for round {number}; order one, or configure a model on the worker")
    before = context.params.get("why")
    work = partial(draft_change, context, model, tree, before if isinstance(before, str) else "")
    return await use(context, "model", work, lambda change: f"{model.name} drafted: {change.in_words()}")


def _round(context: Context) -> int:
    number = context.params.get("round")
    if not isinstance(number, int) or number < 1:
        raise DeliveryError(f"the round is {number!r}; the pipeline counts from 1")
    return number


def _with_text(change: Change) -> Change:
    """Return a change whose diff is here, so that nobody can exchange its file meanwhile."""
    return change if change.patch is None else change.model_copy(update={"patch": read_patch(change.patch)})


def _test_command(folder: Path, order: Order) -> tuple[tuple[str, ...], str]:
    """Return the command that tests the project, and where it is from."""
    try:
        return find_test_command(folder) if order.test is None else (order.test, "named")
    except ProjectError as error:
        raise DeliveryError(f"the project cannot be read: {error}") from None


def _files(diff: str) -> tuple[FileDiff, ...]:
    """Return what a diff of git's own changes; an empty one changes nothing.

    Raises:
        DeliveryError: It cannot be read, so nobody can say what is in it.
    """
    try:
        return parse_diff(diff) if diff else ()
    except DiffError as error:
        raise DeliveryError(f"the branch's diff cannot be reviewed: {error}") from None


def _size(diff: str) -> str:
    files = _files(diff)
    added, removed = sum(len(one.added) for one in files), sum(len(one.removed) for one in files)
    return f"{counted(len(files), 'file')}, +{added} -{removed}"


def _blocking(remarks: list[Remark]) -> int:
    return sum(one.blocks for one in remarks)


def _page(plan: Plan, commit: str, remarks: list[Remark], analysed: str) -> str:
    """Return the review as Markdown."""
    rows = [f"- {'**blocks** ' if one.blocks else ''}`{one.place}` {one.message} ({one.rule})" for one in remarks]
    return "\n".join(
        [f"# Review of {plan.branch} at {commit[:12]}", "", *(rows or ["Nothing to remark."]), "", analysed, ""]
    )
