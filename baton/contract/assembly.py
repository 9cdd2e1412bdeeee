"""The contract put together out of a draft, and the tools that it grants; no processor has a hand in either."""

from collections.abc import Sequence
from typing import Any

from baton.contract.draft import BUDGET, Draft, EventFate
from baton.contract.records import CONTRACT_CURRENT, Fact, HandoffContract
from baton.contract.request import ContractRequest
from baton.contract.session import EventType
from baton.contract.tool_names import tool_key, tool_keys


def assemble(draft: Draft, facts: Sequence[Fact] | None = None) -> HandoffContract:
    """Return the contract that a draft amounts to. It is not checked; `validate_contract` does that.

    Args:
        draft: The draft.
        facts: The facts to put in; the draft's by default.
    """
    request = draft.request
    counts = draft.label_counts()
    optional: dict[str, Any] = {
        "output_schema": request.output_schema,
        "receiving_agent_version": request.receiving_agent_version,
        "traceparent": request.traceparent,
        "message_id": request.message_id,
    }
    return HandoffContract.model_construct(
        handoff_id=request.handoff_id,
        receiving_agent=request.receiving_agent,
        task=request.task,
        facts=list(draft.facts if facts is None else facts),
        excluded_context=list(counts),
        allowed_tools=allowed_tools(request, used_tools(draft)),
        forbidden_tools=sorted(request.forbidden),
        expires_after_minutes=draft.policy.expires_after_minutes,
        created_at=request.created_at,
        trace_id=request.trace_id or trace_id_of(request.traceparent),
        schema_version=CONTRACT_CURRENT,
        excluded_counts=counts,
        **{name: value for name, value in optional.items() if value is not None},
    )


def trace_id_of(traceparent: str | None) -> str:
    """Return the trace id in a W3C traceparent, or nothing where there is none (C-44).

    Example:
        >>> trace_id_of("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
        '0af7651916cd43dd8448eb211c80319c'
    """
    _, _, rest = (traceparent or "").partition("-")
    return rest.partition("-")[0]


def used_tools(draft: Draft) -> frozenset[str]:
    """Return the tools that were used with success, and whose results crossed or only lacked room (S5-compiler-h).

    A tool that was called in vain, or in a brainstorm, or whose result was kept back, is none of them.
    """
    budget = f"{BUDGET}:"
    return frozenset(
        event.tool_name
        for event, fate, told in draft.fates()
        if event.success is True and event.type is EventType.TOOL_RESULT and event.tool_name
        if fate is EventFate.FACT or (told or "").startswith(budget)
    )


def allowed_tools(request: ContractRequest, used: frozenset[str]) -> list[str]:
    """Return the tools that a contract grants: ((used or granted) and capability and ceiling) without forbidden (C-37).

    Names are compared without case and outer blanks, and written as the receiver's capability spells them.

    Args:
        request: What the contract is compiled for.
        used: The tools that were used.

    Returns:
        The tools, sorted.
    """
    wanted = tool_keys(used | request.granted) - tool_keys(request.forbidden)
    if request.ceiling is not None:
        wanted &= tool_keys(request.ceiling)
    return sorted(tool for tool in request.capability if tool_key(tool) in wanted)


def withheld_tools(request: ContractRequest, used: frozenset[str]) -> dict[str, str]:
    """Return the tools that were used or granted and are not allowed all the same, each with the reason.

    Args:
        request: What the contract is compiled for.
        used: The tools that were used.

    Returns:
        `"forbidden"`, `"beyond the capability"` or `"beyond the ceiling"` by tool, in order of the names.
    """
    forbidden, capability = tool_keys(request.forbidden), tool_keys(request.capability)
    ceiling = None if request.ceiling is None else tool_keys(request.ceiling)
    reasons = {}
    for tool in sorted(used | request.granted):
        key = tool_key(tool)
        if key in forbidden:
            reasons[tool] = "forbidden"
        elif key not in capability:
            reasons[tool] = "beyond the capability"
        elif ceiling is not None and key not in ceiling:
            reasons[tool] = "beyond the ceiling"
    return reasons
