"""What Baton is measured against: the same four activities without it, as one would write them by hand.

The texts, the timeouts and the retries are those of `benchmarks.stages`. What is left out is what Baton is
for: checks, history entries, search, details, approvals, fork.
"""

from datetime import timedelta
from typing import TypedDict

from temporalio import activity
from temporalio.common import RetryPolicy

from benchmarks.peers.job import State
from benchmarks.samples import patch


class Terms(TypedDict):
    """The terms of an activity."""

    start_to_close_timeout: timedelta
    heartbeat_timeout: timedelta
    retry_policy: RetryPolicy


TERMS: Terms = {
    "start_to_close_timeout": timedelta(minutes=10),
    "heartbeat_timeout": timedelta(seconds=10),
    "retry_policy": RetryPolicy(
        initial_interval=timedelta(seconds=1),
        backoff_coefficient=2.0,
        maximum_interval=timedelta(minutes=1),
        maximum_attempts=5,
        non_retryable_error_types=["TypeError", "NotImplementedError"],
    ),
}
"""What `@stage` stands for unless it is told otherwise."""


@activity.defn
async def raw_plan(state: State) -> dict[str, list[str]]:
    """Answer step 1."""
    return patch(1, len(state.current_state))


@activity.defn
async def raw_implement(state: State) -> dict[str, list[str]]:
    """Answer step 2."""
    return patch(2, len(state.current_state))


@activity.defn
async def raw_review(state: State) -> dict[str, list[str]]:
    """Answer step 3."""
    return patch(3, len(state.current_state))


@activity.defn
async def raw_release(state: State) -> dict[str, list[str]]:
    """Answer step 4."""
    return patch(4, len(state.current_state))


def merge(state: State, change: dict[str, list[str]]) -> State:
    """Return ``state`` with ``change`` put over it, and its decisions appended."""
    decisions = [*state.decision_log, *change.get("decision_log", [])]
    return state.model_copy(update={**change, "decision_log": decisions})
