"""Which tools a stage may call, and what calling another one raises.

A list in a prompt is a request; what is here is the check where a tool is called (S5-fields-k): whatever the model
was told, a tool outside its contract does not run.
"""

from collections.abc import Collection

from baton.errors import BatonError

TOOL_DENIED = "TOOL_DENIED"
"""The code of a denied call, in messages, in logs and as the status of its record in the ledger."""

_NAMED = 20


class ToolDeniedError(BatonError):
    """A tool was called that the contract does not allow; it did not run.

    Attributes:
        code: Always `TOOL_DENIED`.
        tool: The tool.
        handoff_id: The handoff under which it was called.

    Example:
        >>> print(ToolDeniedError("email.send", "h-1", allowed=["policy.search"]))
        TOOL_DENIED: 'email.send' is not among the tools of handoff 'h-1': policy.search. Do without it, or ask for more
        >>> print(ToolDeniedError("email.send", "h-1", allowed=[]))
        TOOL_DENIED: 'email.send' was called under handoff 'h-1', which allows no tools. Do without it, or ask for more
    """

    code = TOOL_DENIED

    def __init__(self, tool: str, handoff_id: str, *, allowed: Collection[str]) -> None:
        self.tool = tool
        self.handoff_id = handoff_id
        names = sorted(allowed)
        listed = ", ".join(names[:_NAMED]) + (f" (+{len(names) - _NAMED} more)" if len(names) > _NAMED else "")
        if names:
            text = f"{tool!r} is not among the tools of handoff {handoff_id!r}: {listed}"
        else:
            text = f"{tool!r} was called under handoff {handoff_id!r}, which allows no tools"
        super().__init__(f"{TOOL_DENIED}: {text}. Do without it, or ask for more")
