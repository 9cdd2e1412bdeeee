"""Run the project's own tests on a commit: by a command that was named, or one that the project shows."""

import asyncio
from pathlib import Path

from activities.delivery.changes import environment_of
from activities.delivery.records import DeliveryError, Plan, TestRun
from activities.delivery.worktree import remove_worktree
from activities.project_init.commands import best_command
from activities.project_init.detect import detect
from activities.project_init.files import survey
from activities.workbench.git import Git
from activities.workbench.programs import run_program

_MOST_BYTES = 200_000


def find_test_command(repository: Path) -> tuple[tuple[str, ...], str]:
    """Return the command that tests a project, and where it is from.

    Raises:
        DeliveryError: The project shows none.
    """
    command = best_command(detect(survey(repository)), "test")
    if command is None:
        raise DeliveryError(
            f"{str(repository)!r} shows no command that runs its tests; name one with --param test='make test'"
        )
    return ("sh", "-c", command.line), f"{command.origin}, {command.evidence}"


async def run_tests(plan: Plan, folder: Path, commit: str) -> TestRun:
    """Run the tests in a folder that is as a commit is.

    Args:
        plan: What to run, and for how long.
        folder: The folder.
        commit: The commit, for the record.

    Returns:
        How they ended; a failing test is no error here.

    Raises:
        ProgramError: The command cannot be started.
    """
    environment = await asyncio.to_thread(environment_of, plan.folder, folder, plan.order)
    for command in (plan.order.prepare, plan.test):
        if command is None:
            continue
        ran = await run_program(
            command,
            folder=folder,
            seconds=plan.order.test_seconds,
            environment=environment,
            most_bytes=_MOST_BYTES,
            together=True,
        )
        is_test = command == plan.test
        if is_test or ran.code != 0:
            break
    return TestRun(
        commit=commit,
        command=command or plan.test,
        code=ran.code,
        seconds=round(ran.seconds),
        output=ran.output.decode("utf-8", "replace"),
        prepared=is_test,
    )


async def run_tests_on_base(plan: Plan, folder: Path) -> TestRun:
    """Run the tests on the commit that the work started from, in a worktree that is gone afterwards.

    Args:
        plan: What to run.
        folder: Where to make the worktree.

    Raises:
        GitError: Git fails.
        ProgramError: The command cannot be started.
    """
    git = Git(plan.folder)
    await remove_worktree(git, folder)
    await git.run("worktree", "add", "--quiet", "--force", "--detach", str(folder), plan.base)
    try:
        return await run_tests(plan, folder, plan.base)
    finally:
        await asyncio.shield(remove_worktree(git, folder))
