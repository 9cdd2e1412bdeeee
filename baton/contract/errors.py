"""What contracts and registries raise, in one tree below `HandoffError`.

```
ContractError                 the events or processors break a rule of the compiler
UnknownAgentError             (a `RoutingError`) no such agent is registered, or it cannot do what is asked
UnknownSchemaError            no such output schema is registered
RegistryError                 a file or an installed package registers something that cannot be used
```

A contract that is not valid is no exception but a verdict (`baton.contract.checks`).
"""

from baton.handoff.errors import HandoffError, RoutingError


class ContractError(HandoffError):
    """No contract can be compiled: an id appears twice, or a processor breaks a rule."""


class UnknownAgentError(RoutingError):
    """No such agent is registered, or it cannot do what is asked; the message names what comes nearest."""


class UnknownSchemaError(HandoffError):
    """No such output schema is registered; the message names what comes nearest."""


class RegistryError(HandoffError):
    """A registry's source cannot be used; the message names the source, the place and what is expected there."""
