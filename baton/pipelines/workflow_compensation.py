"""Compensation: what undoes effects outside, where rolling back the baton cannot.

A stage that booked, paid or sent something leaves a trace that no reset of a workflow takes back. Anyone who declares
how it is undone has that done, newest first, if the work fails later on.
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
from baton.errors import BudgetExhaustedError, StageFailedError
from baton.pipelines.workflow import Pipeline
from baton.pipelines.workflow_visibility import upsert_memo
from baton.wire.json_values import Json
from baton.wire.names import MEMO_UNDONE
from baton.wire.text import single_line

_LONGEST_TOLD = 1_000


class Compensations:
    """Stages that undo what earlier ones did outside, run if the block they are collected in fails.

    They are ordinary stages: on record, retried, and taken over by continued and forked runs. One that fails, or for
    which no money is left, is noted for the operators, in the history as well, and the others still run, also if the
    pipeline is canceled meanwhile. A person's roll-back (`baton rollback`) runs none of them: it
    goes back to before the stage as if it had not been, so its reason should say what was undone by hand.

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
        self._later: list[tuple[HasSpec, dict[str, JsonValue], Mapping[str, Json] | None]] = []
        self._since = pipeline._handlers.steps + 1

    def later(
        self,
        stage: HasSpec,
        *,
        inputs: Mapping[str, Any] | None = None,
        params: Mapping[str, Json] | None = None,
    ) -> None:
        """Have a stage run if the block fails.

        Args:
            stage: What undoes the effect.
            inputs: What it works on, by name, as of `Pipeline.stage`; what they are now, also if they change later.
            params: What it finds in its context; the pipeline's own by default.

        Raises:
            InputError: An input has no usable name, or cannot be handed on.
        """
        self._later.append((stage, encode_inputs(inputs), params))

    @step
    async def run(self) -> None:
        """Undo everything now, newest first; each only once."""
        if self._later:
            self._tell(None)
        while self._later:
            stage, inputs, params = self._later.pop()
            try:
                await self._pipeline.stage(stage, inputs=decode_inputs(inputs), params=params)
            except (StageFailedError, BudgetExhaustedError) as error:
                by_hand = f"compensation {stage.spec.name!r} failed, see to it by hand: {error}"
                self._pipeline.note(by_hand)
                self._tell(single_line(by_hand[:_LONGEST_TOLD]))

    def _tell(self, by_hand: str | None) -> None:
        """Leave it in the history for readers without a worker: the run's own notes end with the run."""
        upsert_memo({MEMO_UNDONE: CompensationRecord(undone_since=self._since, by_hand=by_hand)})

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None or isinstance(error, workflow.ContinueAsNewError | GeneratorExit):
            return
        undoing, canceled = asyncio.ensure_future(self.run()), None
        while not undoing.done():
            try:
                await asyncio.shield(undoing)  # a canceled pipeline undoes as well
            except asyncio.CancelledError as again:
                if undoing.done():
                    raise
                canceled = again
        if canceled is not None:
            raise canceled
