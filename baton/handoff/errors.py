"""What the handoff protocol raises, in one tree below `BatonError`.

```
HandoffError                  catch this for "no handoff could be made, read or routed"
├── MalformedMessageError         received bytes are not strict JSON
├── RoutingError                  no agent fits the target, or the chain goes round in circles
└── SchemaChangeError             a release of the schema would break agents that run today
BudgetExhaustedError          (a `PipelineError`) the money is gone and the pipeline declared to stop
```

What a sender did wrong in a well-formed message is no exception but a verdict (`baton.core.verdict`).
"""

from baton.errors import BatonError, PipelineError


class HandoffError(BatonError):
    """A handoff cannot be made, read or routed."""


class MalformedMessageError(HandoffError):
    """Received bytes are not JSON that every reader reads alike; the message never quotes them."""


class RoutingError(HandoffError):
    """No agent fits the target of a handoff; the message names what comes nearest."""


class BudgetExhaustedError(PipelineError):
    """The budget is used up, and the pipeline declared to stop then."""
