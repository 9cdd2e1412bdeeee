"""Whether a run has a change of Baton's workflow code: for all runs from now on, without a word in their history.

`workflow.patched` answers by a marker, and a replay must meet it in the workflow task in which it was asked. It does
not where a query came while a local activity ended (a light stage, a record in the ledger): the activity's own marker
is then written a task earlier than the code goes on, the replay goes on with it, finds no marker yet, and takes the old
way: the run no longer fits its history, for ever. Workers that answer such a query later (`baton.edge.runner`) leave no
such history, but there are those of earlier ones.
"""

from datetime import UTC, datetime

from temporalio import workflow

SETTLED = datetime(2026, 11, 25, 14, tzinfo=UTC)
"""What began after this moment was only ever run by code that has every change that asks `changed`."""


def changed(change: str) -> bool:
    """Return whether this run has a change that was made before `SETTLED`.

    A run that began later has it; one that began before is asked as ever, and its history has the answer. A change
    that is made today is none of these: ask `workflow.patched`, and not right after a local activity.

    Args:
        change: What holds with the change, as `workflow.patched` takes it.
    """
    return workflow.info().workflow_start_time >= SETTLED or workflow.patched(change)  # noqa: TID251 - as ever
