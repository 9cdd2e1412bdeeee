"""Workflows that reject updates, in their own module because the sandbox reloads it."""

from temporalio import workflow
from temporalio.exceptions import ApplicationError


@workflow.defn
class Refuses:
    """Accepts one update `say` after the signal `listen`, then ends."""

    def __init__(self) -> None:
        self._listens = False
        self._heard = ""

    @workflow.run
    async def run(self) -> str:
        await workflow.wait_condition(lambda: bool(self._heard) and workflow.all_handlers_finished())
        return self._heard

    @workflow.signal
    def listen(self) -> None:
        """Accept updates from now on."""
        self._listens = True

    @workflow.update
    async def say(self, what: str) -> str:
        """Accept the update."""
        self._heard = what
        return f"heard {what}"

    @say.validator
    def _refuse(self, what: str) -> None:
        if not self._listens:
            raise ApplicationError("nobody listens yet", type="DecisionRefused", non_retryable=True)
