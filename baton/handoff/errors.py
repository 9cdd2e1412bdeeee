"""What the handoff protocol raises, in one tree below `BatonError`."""

from baton.errors import BatonError, PipelineError


class HandoffError(BatonError):
    """A handoff cannot be made, read or routed."""


class MalformedMessageError(HandoffError):
    """Received bytes are not JSON that every reader reads alike; the message never quotes them."""


class RoutingError(HandoffError):
    """No agent fits the target of a handoff; the message names what comes nearest."""


class BudgetExhaustedError(PipelineError):
    """The budget is used up, and the pipeline declared to stop then."""
