"""`WorkerParts`: what a worker provides to its stages."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from temporalio.common import MetricMeter

from baton.artifacts.store import ArtifactStore
from baton.compression.rules import Summariser
from baton.contract.activity_transcript import KEPT_FOR
from baton.contract.registry import OutputSchemas
from baton.handoff.store_gate import Gate
from baton.personal.store import Vault
from baton.telemetry.metrics import Metrics
from baton.wire.store_clock import now_utc
from baton.wire.text import TokenEstimator, estimate_tokens

_UNMEASURED = Metrics(MetricMeter.noop)


@dataclass(frozen=True)
class WorkerParts:
    """What a worker provides to its stages; `BatonPlugin` sets it up.

    Attributes:
        artifacts: The artifact store, or None.
        counter: Counts the tokens of prompts and artifacts.
        gate: Validates handoffs; a worker without one runs only pipelines without signed handoffs.
        vault: The vault of personal data, or None.
        summariser: The model that summarises long conversations, or None to use rules.
        schemas: The registered schemas of stage outputs, or None.
        clock: The clock for session events and the expiry of contracts.
        metrics: The worker's metrics; `BatonPlugin` sets them.
        deciders: The file of people and groups for approvals that need proof or name groups.
        transcripts: How long the artifact store keeps what agents were asked and answered; None keeps nothing of it.
    """

    artifacts: ArtifactStore | None = None
    counter: TokenEstimator = estimate_tokens
    gate: Gate | None = None
    vault: Vault | None = None
    summariser: Summariser | None = None
    schemas: OutputSchemas | None = None
    clock: Callable[[], datetime] = now_utc
    metrics: Metrics = _UNMEASURED
    deciders: Path | None = None
    transcripts: timedelta | None = KEPT_FOR


_parts: ContextVar[WorkerParts | None] = ContextVar("baton_worker_parts", default=None)


def current_parts() -> WorkerParts:
    """Return the parts of the worker that runs the current stage."""
    return _parts.get() or WorkerParts()


@contextmanager
def worker_parts(parts: WorkerParts) -> Iterator[None]:
    """Provide ``parts`` to the stages that run inside the `with` block."""
    token = _parts.set(parts)
    try:
        yield
    finally:
        _parts.reset(token)
