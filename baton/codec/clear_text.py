"""A worker that encrypts says so where others do not: what they send is stored in clear, and nothing else would tell.

Encryption is switched on in every process by itself. A service, or a terminal with the `baton` command, in which that
was forgotten starts runs as before; they work, and Temporal keeps their inputs readable.
"""

import logging

from temporalio.converter import SerializationContext

MOST_TOLD = 10_000
"""Of so many workflows it is remembered that they were told of."""

log = logging.getLogger("baton.worker")


class ClearText:
    """Warns of payloads in clear, once for each workflow."""

    def __init__(self) -> None:
        self._told: dict[str, None] = {}

    def tell(self, owner: SerializationContext | None) -> None:
        """Warn of a payload."""
        workflow_id: str | None = getattr(owner, "workflow_id", None)
        if workflow_id is None or workflow_id in self._told:
            return
        self._told[workflow_id] = None
        if len(self._told) > MOST_TOLD:
            del self._told[next(iter(self._told))]
        log.warning(
            "the workflow %r has payloads in clear, though this worker encrypts: who sent them does not, unless they"
            " are from before encryption was switched on. Set BATON_ENCRYPT=true, and the keys, wherever runs are"
            " started, signalled or decided; a program says BatonPlugin(keyring=…, encrypt=True)",
            workflow_id,
        )
