"""A workflow that refuses an update until a signal has come; apart, because the sandbox loads it again by its name."""

from temporalio import workflow
from temporalio.exceptions import ApplicationError


@workflow.defn
class Refuses:
    """Takes one update `say`, once it has heard the signal `listen`; ends then."""

    def __init__(self) -> None:
        self._listens = False
        self._heard = ""

    @workflow.run
    async def run(self) -> str:
        """Wait for the update."""
        await workflow.wait_condition(lambda: bool(self._heard) and workflow.all_handlers_finished())
        return self._heard

    @workflow.signal
    def listen(self) -> None:
        """Take updates from now on."""
        self._listens = True

    @workflow.update
    async def say(self, what: str) -> str:
        """Take what is said."""
        self._heard = what
        return f"heard {what}"

    @say.validator
    def _refuse(self, what: str) -> None:
        if not self._listens:
            raise ApplicationError("nobody listens yet", type="DecisionRefused", non_retryable=True)
