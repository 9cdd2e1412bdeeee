"""The recorded steps of a long run as pages: texts that are read one by one, and carried along as they are.

A run that continues as new returns its recorded steps again. Read all at once, they would take a workflow task longer
the older the run is; so each workflow task reads one page at most, and none is ever written twice.
"""

from collections.abc import Callable, Sequence
from typing import Any

from pydantic import TypeAdapter, ValidationError

from baton.core.history import Outcome
from baton.errors import PipelineError
from baton.wire.text import describe_faults

PAGE = 500
"""How many outcomes a page holds."""

_OUTCOMES = TypeAdapter(list[Outcome])


def read_page(page: str, check: Callable[[Outcome], None]) -> list[Outcome]:
    """Return the outcomes of a page.

    Args:
        page: The page.
        check: Raises pydantic's ValidationError if an outcome is malformed.

    Raises:
        PipelineError: It is not a page.
    """
    try:
        outcomes = _OUTCOMES.validate_json(page)
        for outcome in outcomes:
            check(outcome)
    except ValidationError as error:
        raise PipelineError(f"a page of recorded steps cannot be read: {describe_faults(error)}") from None
    if len(outcomes) != PAGE:
        raise PipelineError(f"a page of recorded steps has {len(outcomes)} of them; expected {PAGE}")
    return outcomes


def write_pages(outcomes: Sequence[Outcome], pages: Sequence[str] = ()) -> dict[str, Any]:
    """Return the members `pages` and `outcomes` of a pipeline's input that hold these outcomes.

    Args:
        outcomes: All outcomes, in the order in which the steps ended.
        pages: Pages that hold the first of them already.
    """
    full = len(outcomes) // PAGE
    written = [*pages[:full]]
    for number in range(len(written), full):
        written.append(_OUTCOMES.dump_json([*outcomes[number * PAGE : (number + 1) * PAGE]]).decode())
    return {"pages": written, "outcomes": [*outcomes[full * PAGE :]]}
