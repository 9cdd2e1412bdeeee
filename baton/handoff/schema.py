"""The published JSON Schema of the handoff message (EAAPL-MAG006 §7.1.1).

It is made of the record, and accepts exactly what that accepts, given a validator that also checks formats. Objects
are open: a member that a version does not know is kept and not judged. `docs/schemas` is the registry that every agent
can read; a test compares it with what is made here, and each version with the one before.
"""

import copy
from functools import cache
from typing import Any

from baton.handoff.records import Handoff
from baton.wire.schemas import published_document

RELEASED = ("2.0",)
"""Every version that was released, oldest first."""
CURRENT = RELEASED[-1]
"""The version that this release of Baton writes."""


def handoff_schema() -> dict[str, Any]:
    """Return the JSON Schema of the handoff message, a new object that refers to nothing outside itself."""
    return copy.deepcopy(_document())


@cache
def _document() -> dict[str, Any]:
    return published_document(Handoff, "handoff", CURRENT)
