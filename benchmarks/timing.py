"""The processor time of workflow tasks, measured by a worker and read by the process that measures."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from temporalio.worker import WorkerConfig, WorkflowInstance, WorkflowInstanceDetails

from baton.plugin import BatonPlugin
from baton.sdk.early_queries import GuardedInstance
from baton.sdk.runner import GuardedRunner

_FILE = "longest-task-ms"


class TimedPlugin(BatonPlugin):
    """The plugin, with a clock round each workflow task.

    Attributes:
        folder: Where the longest time is written.
    """

    folder: Path

    def configure_worker(self, config: WorkerConfig) -> WorkerConfig:
        """Wrap the runner that the plugin sets."""
        config = super().configure_worker(config)
        config["workflow_runner"] = _TimedRunner(config["workflow_runner"], times=_Times(self.folder / _FILE))
        return config


class _Times:
    """The longest time so far."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._longest = 0.0

    def note(self, seconds: float) -> None:
        if seconds > self._longest:
            self._longest = seconds
            self._path.write_text(str(seconds * 1_000), encoding="utf-8")


@dataclass(frozen=True, kw_only=True)
class _TimedRunner(GuardedRunner):
    times: _Times

    def create_instance(self, det: WorkflowInstanceDetails) -> WorkflowInstance:
        return _TimedInstance(self.inner.create_instance(det), self.times)


class _TimedInstance(GuardedInstance):
    def __init__(self, inner: WorkflowInstance, times: _Times) -> None:
        super().__init__(inner, None)
        self._times = times

    def activate(self, act: Any) -> Any:
        started = time.thread_time()
        try:
            return super().activate(act)
        finally:
            self._times.note(time.thread_time() - started)


def longest_task_ms(folder: Path) -> float:
    """Return the milliseconds of processor time of a worker's longest workflow task."""
    return float((folder / _FILE).read_text(encoding="utf-8"))
