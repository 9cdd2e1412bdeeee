"""Sampling: the sampler that is set decides once about a task that was started in no trace, the same in every worker.

Such a task's trace id is its own id, a random UUID, of which six bits are fixed: of ids that are judged by their bits,
a share of a tenth would be none of them. And its traceparent says that it is sampled because nobody has decided, not
because somebody did. So the sampler is asked as for a trace that begins, by an id that is hashed.
"""

import hashlib
from collections.abc import Sequence

from opentelemetry.context import Context, create_key, get_value, set_value
from opentelemetry.sdk.trace.sampling import Sampler, SamplingResult
from opentelemetry.trace import Link, SpanKind, TraceState
from opentelemetry.util.types import Attributes

_UNDECIDED = create_key("baton-undecided")


def undecided(context: Context) -> Context:
    """Return the context of a span of a task about whose trace nobody has decided."""
    return set_value(_UNDECIDED, True, context)


class TaskSampler(Sampler):
    """Asks another sampler, about an `undecided` span as if its trace began with it.

    Example:
        >>> from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
        >>> half = TaskSampler(ParentBased(TraceIdRatioBased(0.5)))
        >>> tasks = [0x550E8400E29B41D4A716446655440000 + number for number in range(1000)]
        >>> found = [half.should_sample(undecided(Context()), task, "handoff").decision.is_sampled() for task in tasks]
        >>> 400 < sum(found) < 600
        True
    """

    def __init__(self, inner: Sampler) -> None:
        """Ask ``inner``, the sampler that is set."""
        self._inner = inner

    def should_sample(
        self,
        parent_context: Context | None,
        trace_id: int,
        name: str,
        kind: SpanKind | None = None,
        attributes: Attributes = None,
        links: Sequence[Link] | None = None,
        trace_state: TraceState | None = None,
    ) -> SamplingResult:
        """Return whether a span is recorded."""
        if parent_context is not None and get_value(_UNDECIDED, parent_context):
            hashed = hashlib.sha256(trace_id.to_bytes(16, "big")).digest()
            return self._inner.should_sample(None, int.from_bytes(hashed[:16], "big"), name, kind, attributes, links)
        return self._inner.should_sample(parent_context, trace_id, name, kind, attributes, links)

    def get_description(self) -> str:
        """Return what it is, for those who look."""
        return f"TaskSampler({self._inner.get_description()})"
