"""Workflows and an activity that put a marker into every text they can."""

import asyncio
from datetime import timedelta

from temporalio import activity, workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, ApplicationError

from tests.patience import IN_TIME

MARK = "MARKER-7f3a-hunter2"
"""What must be found nowhere in what the server stores."""


@activity.defn
async def work(text: str) -> str:
    """Return the text, or fail with it in message, details, cause and heartbeat."""
    activity.heartbeat(f"heartbeat {text}")
    if text.startswith("fail"):
        raise ApplicationError(f"message {text}", f"details {text}") from ValueError(f"cause {text}")
    return f"result of {text}"


@workflow.defn
class SecretChild:
    """Returns what it is given and what it is told, or fails with it."""

    def __init__(self) -> None:
        self._told: str | None = None

    @workflow.run
    async def run(self, text: str) -> str:
        if text.startswith("wait"):
            await workflow.wait_condition(lambda: self._told is not None)
            return f"child result of {self._told}"
        if text.startswith("fail"):
            raise ApplicationError(f"child {text}", f"child details {text}")
        return f"child result of {text}"

    @workflow.signal
    async def tell(self, text: str) -> None:
        """Accept a text."""
        self._told = text


@workflow.defn
class Secret:
    """Calls, hears and says the marker in every way that Temporal has."""

    def __init__(self) -> None:
        self._heard: list[str] = []

    @workflow.run
    async def run(self, text: str) -> list[str]:
        workflow.set_current_details(f"details {text}")
        workflow.upsert_memo({"later": f"memo {text}"})
        answers = [await self._work(f"input {text}"), await self._work(f"fail {text}")]
        child = await workflow.start_child_workflow(SecretChild.run, f"wait {text}")
        await child.signal(SecretChild.tell, f"signal {text}")
        answers.append(await child)
        try:
            await workflow.execute_child_workflow(SecretChild.run, f"fail {text}")
        except Exception as error:
            answers.append(f"{type(error).__name__} {error.__cause__}")
        await workflow.wait_condition(lambda: len(self._heard) > 0)
        return [*answers, *self._heard]

    async def _work(self, text: str) -> str:
        """Return the activity's result, or its failure."""
        try:
            return await workflow.execute_activity(
                work,
                text,
                summary=f"summary {text}",
                start_to_close_timeout=IN_TIME,
                retry_policy=RetryPolicy(maximum_attempts=2, initial_interval=timedelta(milliseconds=10)),
            )
        except ActivityError as error:
            return f"failed: {error.__cause__}"

    @workflow.signal
    async def hear(self, text: str) -> None:
        """Receive a text."""
        self._heard.append(f"heard {text}")

    @workflow.update
    async def ask(self, text: str) -> str:
        """Return an answer."""
        await asyncio.sleep(0)
        return f"answer to {text}"

    @workflow.query
    def heard(self) -> list[str]:
        """Return the received texts."""
        return self._heard


@workflow.defn
class SecretFailure:
    """Fails with the marker."""

    @workflow.run
    async def run(self, text: str) -> str:
        raise ApplicationError(f"message {text}", f"details {text}") from ValueError(f"cause {text}")
