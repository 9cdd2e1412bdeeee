"""The workflow sandbox, without a detour that Baton's payloads never need.

For every payload that enters or leaves a workflow, the SDK asks the sandboxed instance for a serialization
context, and each question enters the sandbox: a fifth of a worker's time in short pipelines. The answer only
matters to converters and codecs that take a context (`WithSerializationContext`). Where none does, this runner
answers "none" at once; where only Baton's own encryption does, which wants to know the workflow and no more, another
one answers for the workflow and its activities.

Each entry into the sandbox is two lines of Python that the SDK gives to `exec` as text; they are compiled once here,
and not at each entry, as are the workflow's modules (`baton.sdk.workflow_code`). The sandbox itself, its restrictions
and its determinism, is Temporal's, unchanged.

And a run that has ended sends no more commands. Where its code ends while a step that was cancelled is still ending,
the SDK goes on with that one in the same workflow task; what it leaves would stand behind the run's end, for which the
server refuses the task as a whole, again and again: the run would never close. So it is with local activities that end
as the run does, of which the SDK records what they gave behind the run's end: they are cancelled, and the run ends with
the last of them. Nor is a signal to another workflow cancelled that has reached it or found nobody: the SDK cancels it
where both are told in one workflow task, and fails that task if it found nobody, again and again.

And no query is answered while a local activity runs. The SDK ends the workflow task where it answers its queries: the
marker of a local activity that ended meanwhile goes with that task, but the run is told of it in the next one, after
the signals that came between, and in a replay before them. What it asks for is in another order then, and the run does
not fit its history any more, for ever. The server does not take silence for an answer: it asks again as the task is
over, and apart from any task. There it does no harm, unless it brings news (`baton.sdk.early_queries`).
"""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from types import CodeType
from typing import Any

from temporalio.api.enums.v1 import CommandType
from temporalio.converter import (
    DataConverter,
    SerializationContext,
    StorageDriverStoreContext,
    WorkflowSerializationContext,
)
from temporalio.worker import WorkflowInstance, WorkflowInstanceDetails, WorkflowRunner
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner

from baton.codec.conversion import binds_to_workflow
from baton.sdk.early_queries import EarlyQueries, refusal
from baton.sdk.workflow_code import WorkflowCode

_ENTER = "_run_code"  # the method of the SDK's instance that gives a text to `exec`
_ENDS = frozenset(
    f"{end}_workflow_execution" for end in ("complete", "fail", "cancel", "continue_as_new")
)  # the commands that end a run
ENDS_WITH_THE_LAST = "a run ends once its local activities have"
"""Marks the runs of which that is so, where it makes a difference, in Temporal's way of changing workflow code."""
_APART = "legacy_query"  # the id that the SDK gives to a query that comes apart from workflow tasks


@dataclass(frozen=True)
class PipelineRunner(SandboxedWorkflowRunner):
    """Temporal's sandbox, for any data converter: its code is read and compiled once in the life of a worker.

    Attributes:
        code: The modules of the workflows.
        early: What a worker refuses; a replayer, where nobody asks, has none.
    """

    code: WorkflowCode = field(default_factory=WorkflowCode, repr=False, compare=False)
    early: EarlyQueries | None = field(default=None, repr=False, compare=False)

    def create_instance(self, det: WorkflowInstanceDetails) -> WorkflowInstance:
        """Return a sandboxed instance made of the code as it was at first."""
        return _Instance(self._sandboxed(det), self.early)

    def _sandboxed(self, det: WorkflowInstanceDetails) -> WorkflowInstance:
        with self.code.in_use():
            return _compiling_once(super().create_instance(det))


@dataclass(frozen=True)
class ContextFreeRunner(PipelineRunner):
    """Temporal's sandbox for data converters that take no serialization context.

    Example:
        >>> from baton.codec.conversion import data_converter
        >>> takes_context(data_converter())
        False
    """

    def create_instance(self, det: WorkflowInstanceDetails) -> WorkflowInstance:
        """Return a sandboxed instance that is not asked for contexts."""
        return _ContextFreeInstance(self._sandboxed(det), self.early)


@dataclass(frozen=True)
class WorkflowContextRunner(PipelineRunner):
    """Temporal's sandbox for Baton's encryption: what an activity is sent counts as its workflow's own.

    Children, and other workflows that are signalled, are still asked for inside the sandbox.
    """

    def create_instance(self, det: WorkflowInstanceDetails) -> WorkflowInstance:
        """Return a sandboxed instance that is asked for the contexts of other workflows only."""
        own = WorkflowSerializationContext(namespace=det.info.namespace, workflow_id=det.info.workflow_id)
        return _WorkflowContextInstance(self._sandboxed(det), self.early, own)


@dataclass(frozen=True)
class GuardedRunner(WorkflowRunner):
    """Any other runner, as one without a sandbox: what its runs command is looked at all the same.

    Attributes:
        given: The runner.
        early: What a worker refuses.
    """

    given: WorkflowRunner
    early: EarlyQueries | None = field(default=None, repr=False, compare=False)

    def prepare_workflow(self, defn: Any) -> None:
        """Have it prepare a workflow."""
        self.given.prepare_workflow(defn)

    def create_instance(self, det: WorkflowInstanceDetails) -> WorkflowInstance:
        """Return its instance, guarded."""
        return _Instance(self.given.create_instance(det), self.early)

    def set_worker_level_failure_exception_types(self, types: Sequence[type[BaseException]]) -> None:
        """Tell it."""
        self.given.set_worker_level_failure_exception_types(types)


def runner_for(converter: DataConverter) -> type[PipelineRunner]:
    """Return the sandbox that fits a data converter.

    Example:
        >>> from baton.codec.conversion import data_converter
        >>> runner_for(data_converter()).__name__
        'ContextFreeRunner'
    """
    if not takes_context(converter):
        return ContextFreeRunner
    return WorkflowContextRunner if binds_to_workflow(converter) else PipelineRunner


def takes_context(converter: DataConverter) -> bool:
    """Return whether any part of the converter wants to know what a payload belongs to."""
    probe = WorkflowSerializationContext(namespace="namespace", workflow_id="workflow")
    return converter.with_context(probe) is not converter


class _Instance(WorkflowInstance):
    """An instance that forwards everything, but commands after its run's end, and answers that come too soon."""

    def __init__(self, inner: WorkflowInstance, early: EarlyQueries | None) -> None:
        self._inner = inner
        self._early = early
        self._told = (0, 0)  # the history's length and the time, when it was told something last
        self._ended = False
        self._local: dict[int, bool] = {}  # the local activities that have not ended, and whether each was cancelled
        self._signals: set[int] = set()  # the signals to other workflows of which nothing was heard yet
        self._end: Any = None  # the command that ends the run, while it waits for them
        self._waits = False  # whether the history says that it does

    def activate(self, act: Any) -> Any:
        if self._early is not None and self._early.refuses(act, *self._told):
            return refusal(act)
        self._told = (act.history_length, act.timestamp.ToNanoseconds())
        completion = self._inner.activate(act)
        commands = completion.successful.commands
        # What comes after the end in the same activation the SDK puts before it, and so it is in recorded histories.
        if self._ended:
            _leave_out(commands, lambda one: not one.HasField("respond_to_query"))
        self._heed(act.jobs)
        end = self._noted(commands)
        if end is not None:
            self._ended = True
            if self._local and (self._waits or not act.is_replaying):
                self._wait_for_the_last(commands, end)
        if self._local:
            _leave_out(commands, _answers_within_task)
        elif self._end is not None:
            commands.append(self._end)
            self._end = None
        return completion

    def _heed(self, jobs: Any) -> None:
        """Note which local activities have ended, which signals arrived or could not, and how the run is to end."""
        for job in jobs:
            match job.WhichOneof("variant"):
                case "resolve_activity":
                    self._local.pop(job.resolve_activity.seq, None)
                case "resolve_signal_external_workflow":
                    self._signals.discard(job.resolve_signal_external_workflow.seq)
                case "notify_has_patch":
                    self._waits = self._waits or job.notify_has_patch.patch_id == ENDS_WITH_THE_LAST

    def _noted(self, commands: Any) -> Any:
        """Note local activities and signals, leave out what cancels a signal too late; return what ends the run."""
        end = None
        for one in [*commands]:
            match one.WhichOneof("variant"):
                case "signal_external_workflow_execution":
                    self._signals.add(one.signal_external_workflow_execution.seq)
                case "cancel_signal_workflow" if one.cancel_signal_workflow.seq not in self._signals:
                    commands.remove(one)
                case "schedule_local_activity":
                    self._local[one.schedule_local_activity.seq] = False
                case "request_cancel_local_activity" if one.request_cancel_local_activity.seq in self._local:
                    self._local[one.request_cancel_local_activity.seq] = True
                case kind if kind in _ENDS:
                    end = one
        return end

    def _wait_for_the_last(self, commands: Any, end: Any) -> None:
        """Keep the command that ends the run, and cancel the local activities that it did not wait for."""
        self._end = copy.deepcopy(end)
        commands.remove(end)
        commands.add().set_patch_marker.patch_id = ENDS_WITH_THE_LAST
        for seq, canceled in self._local.items():
            if not canceled:
                commands.add().request_cancel_local_activity.seq = seq

    def get_serialization_context(self, command_info: Any) -> SerializationContext | None:
        return self._inner.get_serialization_context(command_info)

    def get_external_store_context(self, command_info: Any) -> StorageDriverStoreContext:
        return self._inner.get_external_store_context(command_info)

    def get_info(self) -> Any:
        return self._inner.get_info()

    def get_thread_id(self) -> int | None:
        return self._inner.get_thread_id()


class _ContextFreeInstance(_Instance):
    """An instance that is not asked for a context."""

    def get_serialization_context(self, command_info: Any) -> SerializationContext | None:
        return None

    def get_external_store_context(self, command_info: Any) -> StorageDriverStoreContext:
        return StorageDriverStoreContext(target=None)


class _WorkflowContextInstance(_ContextFreeInstance):
    """An instance that forwards the questions for a context where another workflow may be meant."""

    def __init__(self, inner: WorkflowInstance, early: EarlyQueries | None, own: WorkflowSerializationContext) -> None:
        super().__init__(inner, early)
        self._own = own

    def get_serialization_context(self, command_info: Any) -> SerializationContext | None:
        if command_info is None or command_info.command_type == CommandType.COMMAND_TYPE_SCHEDULE_ACTIVITY_TASK:
            return self._own
        return self._inner.get_serialization_context(command_info)


def _answers_within_task(command: Any) -> bool:
    """Return whether a command answers a query that came with a workflow task."""
    return bool(command.HasField("respond_to_query") and command.respond_to_query.query_id != _APART)


def _leave_out(commands: Any, which: Callable[[Any], bool]) -> None:
    """Take these commands out of an activation's."""
    kept = [one for one in commands if not which(one)]
    if len(kept) < len(commands):
        del commands[:]
        commands.extend(kept)


def _compiling_once(instance: WorkflowInstance) -> WorkflowInstance:
    """Return a sandboxed instance whose entries are compiled once; one that enters otherwise, as it is."""
    enter = getattr(instance, _ENTER, None)
    if enter is not None:  # not part of the SDK's interface: another version may do without
        setattr(instance, _ENTER, lambda code, **given: enter(_compiled(code), **given))
    return instance


@cache  # the SDK has four such texts
def _compiled(code: str) -> CodeType:
    return compile(code, "<workflow sandbox>", "exec")
