"""The input of a run: whether it is usable, whether the run may have its past, and whether the code fits it."""

import hashlib
import json
from datetime import timedelta
from typing import Any, NoReturn, cast
from uuid import UUID

from pydantic import ValidationError
from temporalio import workflow

from baton.core.baton import Baton
from baton.core.fit import Fit
from baton.core.history import Outcome
from baton.core.messages import PipelineInput
from baton.core.past import Heir, SealCheck
from baton.errors import PipelineError
from baton.wire.names import FIT, SEALS
from baton.wire.records import Record
from baton.wire.text import describe_faults, describe_recorded_faults, list_faults

_UNUSABLE = "(unusable input)"


def run_fit() -> Fit:
    """Return whether the running code fits its run, which the worker keeps.

    Raises:
        TypeError: The worker has no `BatonPlugin`; it fails the workflow task, not the run.
    """
    fit = workflow.extern_functions().get(FIT)
    if fit is None:
        raise TypeError("the worker has no BatonPlugin: connect its client with plugins=[BatonPlugin()]")
    return cast("Fit", fit())


async def suspend(fit: Fit, why: str) -> NoReturn:
    """Suspend the run because its code does not fit; this never returns to that code."""
    fit.suspend(why)
    while True:
        await workflow.wait_condition(lambda: False)


class RunInput:
    """The input of a run, which may be unusable.

    Attributes:
        start: The workflow's argument, or a substitute.
        fit: Whether the code fits the run.
    """

    def __init__(self, start: PipelineInput | bytes | None) -> None:
        self.fit = run_fit()
        self._fault: Exception | None = None
        if start is None or isinstance(start, bytes):  # which the SDK accepts for any type
            actual = "null" if start is None else "bytes (encoding binary/plain)"
            self._fault = PipelineError(
                f'the pipeline was started with {actual}; expected JSON: an object with a goal, such as {{"goal": "…"}}'
            )
            start = PipelineInput(goal=_UNUSABLE)
        try:
            start.check_past()
        except ValidationError as error:
            self._fault = PipelineError(f"the pipeline cannot start from this input: {describe_faults(error)}")
            start = start.without_past()
        if why := _past_fault(start, self.fit):
            self.refuse(why)
            start = start.without_past()
        self.start = start

    def task_id(self) -> str:
        """Return the task id of the input, or one derived from the run, which a roll-back keeps."""
        if self.start.task_id:
            return self.start.task_id
        info = workflow.info()
        seed = f"baton task {info.namespace} {info.workflow_id} {info.original_execution_run_id}"
        return str(UUID(bytes=hashlib.sha256(seed.encode()).digest()[:16], version=4))

    def baton(self, kind: type[Baton]) -> Baton:
        """Return the first baton, or a placeholder if the input is unusable."""
        try:
            return self.start.first_baton(kind)
        except ValidationError as error:
            if self.start.continued or self.start.recorded_count:
                recorded = describe_recorded_faults(error, {**self.start.baton, "goal": self.start.goal})
                self.fit.suspend(
                    f"the run's first baton does not fit {kind.__name__}: {recorded}. {remedy(self.start)}"
                )
                return kind(goal=_UNUSABLE)
            why = describe_faults(error)
            if any(fault["type"] == "extra_forbidden" for fault in list_faults(error)):
                why += f". Its baton type is {kind.__name__}; additional fields need `baton_type=…`"
            self.refuse(f"the pipeline cannot start from this input: {why}")
            return kind(goal=_UNUSABLE)

    def carried(self, name: str, form: type[Record] | None) -> dict[str, Any]:
        """Return carried state of a form; the input is unusable if it does not fit."""
        state: Any = self.start.carried.get(name, {})
        try:
            if form is not None and state:
                form.model_validate_json(json.dumps(state), by_alias=True, by_name=False)
        except ValidationError as error:
            self.refuse(
                f"the pipeline cannot start from this input: carried.{name} is malformed: {describe_faults(error)}"
            )
            return {}
        return dict(state)

    def read_page(self, page: str) -> list[Outcome]:
        """Return the recorded steps of a page; the input is unusable if it is malformed."""
        try:
            return self.start.read_page(page)
        except PipelineError as error:
            self._fault = PipelineError(f"the pipeline cannot start from this input: {error}")
            raise self._fault from None

    def refuse(self, why: str) -> None:
        """Note that the input is unusable; the first reason stays."""
        self._fault = self._fault or PipelineError(why)

    @property
    def is_usable(self) -> bool:
        """Whether no fault is known."""
        return self._fault is None

    def check(self) -> None:
        """Raise the error of an unusable input."""
        if self._fault is not None:
            raise self._fault


def remedy(start: PipelineInput) -> str:
    """Return what to do about code that does not fit a run."""
    again = "" if start.continued else "; or fork at an earlier step"
    return f"The run continues once workers have code that fits{again}"


FORK_WINDOW = timedelta(minutes=5)
"""How far a fork's start may be from the time of its seal; after that its past cannot be sent to the same id again."""
_REPLAYED = "ReplayNamespace"  # the SDK's Replayer has neither the run's namespace nor its id
_SENTENCE = (
    "the run was given a past (recorded steps, carried state or an edit), and {}. Only a worker, or `baton fork` with "
    "the deployment's keys, may write one; others start a run with goal, baton, params and inputs"
)


def _past_fault(start: PipelineInput, fit: Fit) -> str:
    """Return why a run may not have its past, empty if it may; suspend the run where its workers cannot know."""
    info = workflow.info()
    if not start.has_past or SEALS not in workflow.extern_functions() or info.namespace == _REPLAYED:
        return ""
    seal = start.seal
    if seal is None:
        # A run that another one continues, that has gone on or was reset began before its workers had safeguards.
        is_reset = info.original_execution_run_id != info.run_id
        if info.continued_run_id is not None or is_reset or workflow.unsafe.is_replaying():
            fit.suspend(_SENTENCE.format("it is not sealed: it was written while safeguards were off"))
        return _SENTENCE.format("it is not sealed")
    if seal.unknown_key:
        fault = f"its seal cannot be verified: {seal.fault}"
        fit.suspend(f"{_SENTENCE.format(fault)}. The run continues once workers have the key")
        return fault
    fault = seal.fault or _heir_fault(start.heir, seal)
    return _SENTENCE.format(fault) if fault else ""


def _heir_fault(heir: Heir | None, seal: SealCheck) -> str:
    """Return why a past was not written for this run; empty if it was."""
    info = workflow.info()
    if heir is None or (heir.namespace, heir.workflow_id) != (info.namespace, info.workflow_id):
        return "it was written for another run"
    if heir.run_id is None:
        if seal.at is not None and abs(info.workflow_start_time - seal.at) <= FORK_WINDOW:
            return ""
        return (
            f"it was sealed at {seal.at}, more than {FORK_WINDOW} from this run's start: fork again, from a machine "
            "whose clock is right"
        )
    writers = [info.first_execution_run_id, info.parent.run_id if info.parent else None]
    return "" if heir.run_id in writers else "it was written for another run"
