"""How a run that was reset learns of it: its random seed is another one, and an activity reads the history.

A signal could tell the same and would need no key: anyone who may write to the namespace could charge the run.
"""

import asyncio
from collections.abc import Callable
from datetime import timedelta

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError

from baton.core.messages import RollBacks, RolledBack
from baton.errors import StageFailedError
from baton.wire.names import FIRST_SEED, ROLLED_BACK

_ATTEMPT = timedelta(seconds=30)
_WITHIN = timedelta(minutes=2)


class RollBackReader:
    """Reads who rolled the run back and what the abandoned part had spent, before the next step begins."""

    def __init__(self, heard: Callable[[RolledBack], None]) -> None:
        self._heard = heard
        first_seed = workflow.extern_functions().get(FIRST_SEED, workflow.random_seed)
        self._seed: int = first_seed()
        self._told = 0
        self._reading: asyncio.Task[None] | None = None

    async def known(self) -> None:
        """Return once the run knows of every time that it was reset.

        Raises:
            StageFailedError: The history of the part that was left cannot be read, so its bills are unknown.
        """
        while self._seed != workflow.random_seed():
            if self._reading is None or self._reading.done():
                self._reading = asyncio.create_task(self._read(workflow.random_seed()))
            await asyncio.shield(self._reading)

    async def _read(self, seed: int) -> None:
        try:
            found: RollBacks = await workflow.execute_activity(
                ROLLED_BACK,
                self._told,
                result_type=RollBacks,
                start_to_close_timeout=_ATTEMPT,
                schedule_to_close_timeout=_WITHIN,
                retry_policy=RetryPolicy(initial_interval=timedelta(milliseconds=200)),
                summary="bills of the part that was rolled back",
            )
        except ActivityError as error:
            why = error.cause or error
            raise StageFailedError(
                f"what the part that was rolled back had spent cannot be read: {why}. Roll the run back once its "
                "workers can read its history"
            ) from error
        for told in found.made:
            self._heard(told)
        self._told += len(found.made)
        self._seed = seed
