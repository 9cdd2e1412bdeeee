"""An exporter of spans that tells once when its collector is out of reach, and once when it is back.

OpenTelemetry's own tells of every attempt, some thirty lines a minute for as long as the collector is down, and tries
at a worker's end for half a minute to send what waits.
"""

import logging
from collections.abc import Sequence
from urllib.parse import urlsplit

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

_log = logging.getLogger(__name__)


class PatientExporter(SpanExporter):
    """Sends by another exporter, and keeps the log quiet while that fails.

    Args:
        inner: Sends.
        logger: The name of the logger by which it tells of failures.
        address: Where it sends to, for the log.
    """

    def __init__(self, inner: SpanExporter, logger: str, address: str) -> None:
        self._inner = inner
        self._logger = logging.getLogger(logger)
        parts = urlsplit(address)
        self._address = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()  # without a name and a password
        self._failing = False
        self._closing = False
        self._logger.addFilter(self._may_tell)

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Send spans; once it is to close, a collector that was out of reach is not waited for again."""
        if self._closing and self._failing:
            return SpanExportResult.FAILURE
        result = self._inner.export(spans)
        failed = result is not SpanExportResult.SUCCESS
        if failed and not self._failing:
            _log.warning("spans cannot be sent to %s and are dropped; it is tried again in silence", self._address)
        elif self._failing and not failed:
            _log.warning("spans are sent to %s again", self._address)
        self._failing = failed
        return result

    def close_soon(self) -> None:
        """Send what waits, and give up at the first failure; called before the processor is shut down."""
        self._closing = True

    def shutdown(self) -> None:
        """Stop, and leave the logger as it was."""
        self._inner.shutdown()
        self._logger.removeFilter(self._may_tell)

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Nothing is held back here."""
        return self._inner.force_flush(timeout_millis)

    def _may_tell(self, record: logging.LogRecord) -> bool:
        """Return whether the exporter may tell: of the first failure, by which it says why."""
        return not self._failing
