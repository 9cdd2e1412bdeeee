"""Compensation: undoing external effects, which rolling back the baton cannot do.

A reset of the workflow does not undo a booking, a payment or a mail. Compensating stages do, newest first, if later
work fails.
"""

import asyncio
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from pydantic import JsonValue
from temporalio import workflow

from baton.core.history import CompensationRecord
from baton.core.inputs import decode_inputs, encode_inputs
from baton.core.stages import HasSpec, step
from baton.errors import PipelineError
from baton.pipelines.workflow import Pipeline
from baton.runtime.workflow_visibility import upsert_memo
from baton.wire.json_values import Json
from baton.wire.names import MEMO_UNDONE
from baton.wire.text import single_line

_MAX_REASON_LENGTH = 1_000


class Compensations:
    """Stages that undo external effects of earlier ones; they run if the `async with` block fails.

    They are ordinary stages: recorded, retried, and not repeated by continued and forked runs. If one fails, was
    approved with other arguments, or the budget is used up, that is noted for operators and in the history, and the
    others still run, even if the pipeline is canceled meanwhile. A roll-back (`baton rollback`) runs no compensations,
    so its reason should say what was undone by hand.

    Example:
        ```python
        async with Compensations(self.pipeline) as undo:
            booked = await self.pipeline.stage(book)
            undo.later(cancel_booking, inputs={"booking": booked})
            await self.pipeline.stage(pay)
        ```
    """

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self._calls = pipeline._calls
        self._pending: list[tuple[HasSpec, dict[str, JsonValue], Mapping[str, Json] | None]] = []
        self._since = pipeline._run.steps + 1

    def later(
        self,
        stage: HasSpec,
        *,
        inputs: Mapping[str, Any] | None = None,
        params: Mapping[str, Json] | None = None,
    ) -> None:
        """Register a stage to run if the block fails.

        Args:
            stage: The compensating stage.
            inputs: Its inputs, as in `Pipeline.stage`; copied now.
            params: The parameters in its context; the pipeline's own by default.

        Raises:
            InputError: The name or value of an input is not allowed.
        """
        self._pending.append((stage, encode_inputs(inputs), params))

    @step
    async def run(self) -> None:
        """Run all registered stages now, newest first, each once."""
        if self._pending:
            self._publish(None)
        while self._pending:
            stage, inputs, params = self._pending.pop()
            try:
                await self._pipeline.stage(stage, inputs=decode_inputs(inputs), params=params)
            except PipelineError as error:
                by_hand = f"compensation {stage.spec.name!r} failed, see to it by hand: {error}"
                self._pipeline.note(by_hand)
                self._publish(single_line(by_hand[:_MAX_REASON_LENGTH]))

    def _publish(self, by_hand: str | None) -> None:
        """Record it in the memo, for readers without a worker; notes end with the run."""
        upsert_memo({MEMO_UNDONE: CompensationRecord(undone_since=self._since, by_hand=by_hand)})

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None or isinstance(error, workflow.ContinueAsNewError | GeneratorExit):
            return
        task, cancellation = asyncio.ensure_future(self.run()), None
        while not task.done():
            try:
                await asyncio.shield(task)  # a canceled pipeline compensates as well
            except asyncio.CancelledError as canceled:
                if task.done():
                    raise
                cancellation = canceled
        if cancellation is not None:
            raise cancellation
