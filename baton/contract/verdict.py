"""What the validation of a contract answers: errors that prevent the handoff, warnings that do not (S5-valid-i)."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any

from pydantic import Field

from baton.core.verdict import Code, Finding
from baton.wire.records import CompactRecord
from baton.wire.values import Count


class Check(StrEnum):
    """What a finding is about: the document's seven checks, and the three that came with what they missed."""

    REQUIRED = "required_fields"
    PROVENANCE = "source_provenance"
    CONTEXT = "forbidden_context"
    BUDGET = "token_budget"
    TOOLS = "tool_alignment"
    SCHEMA = "output_schema"
    TRACE = "trace_id"
    SHAPE = "shape"
    TIME = "time"
    RECEIVER = "receiver"


class ContractFinding(CompactRecord):
    """One thing that is wrong with a contract, or that a person should know.

    Attributes:
        check: Which check found it.
        text: A sentence that says what was expected and what to do; never a claim or a task.
        at: Where, as a JSON pointer; empty for the contract as a whole.
    """

    check: Annotated[Check, Field(strict=False)]
    text: str
    at: str = ""


class ContractVerdict(CompactRecord):
    """The verdict on a contract, with what a log line and a monitor need of it.

    Attributes:
        errors: What prevents the handoff.
        warnings: What does not, and should be looked at.
        handoff_id: The contract's handoff; empty if it names none.
        receiving_agent: Its receiver; empty if it names none.
        trace_id: Its trace; empty if it names none.
        facts: How many facts it has.
        tools: How many tools it allows.
        excluded: How many events each of its labels stands for, where it says so; 1 where it does not.

    Example:
        >>> bool(ContractVerdict(warnings=[ContractFinding(check=Check.TOOLS, text="it allows no tools")]))
        True
        >>> bool(ContractVerdict(errors=[ContractFinding(check=Check.TRACE, text="'/traceId' is missing; send it")]))
        False
    """

    errors: list[ContractFinding] = Field(default_factory=list)
    warnings: list[ContractFinding] = Field(default_factory=list)
    handoff_id: str = ""
    receiving_agent: str = ""
    trace_id: str = ""
    facts: Count = 0
    tools: Count = 0
    excluded: dict[str, Count] = Field(default_factory=dict)

    def __bool__(self) -> bool:
        """Return whether the contract may be handed over."""
        return not self.errors

    def findings(self) -> list[Finding]:
        """Return the errors as a receiver's gate reports them (X-7).

        Example:
            >>> verdict = ContractVerdict(errors=[ContractFinding(check=Check.RECEIVER, text="there is no agent 'A'")])
            >>> verdict.findings()[0].code
            <Code.ROUTING_ERROR: 'ROUTING_ERROR'>
        """
        return [
            Finding(
                code=Code.ROUTING_ERROR if one.check is Check.RECEIVER else Code.SCHEMA_INVALID,
                text=one.text,
                at=one.at,
                rule=one.check.value,
            )
            for one in self.errors
        ]


def verdict_log_fields(verdict: ContractVerdict) -> Mapping[str, Any]:
    """Return a verdict as the members of a structured log line (S5-valid-j, S5-check-i, S5-check-j).

    Contracts without facts are usually a bug (S5-fm-c), so they have a member to count, and so have those without
    tools.

    Example:
        >>> fields = verdict_log_fields(ContractVerdict(handoff_id="h-1", excluded={"type:brainstorm": 2}))
        >>> fields["valid"], fields["zero_facts"], fields["excluded"]
        (True, 1, {'type:brainstorm': 2})
    """
    return {
        "handoff_id": verdict.handoff_id,
        "receiving_agent": verdict.receiving_agent,
        "trace_id": verdict.trace_id,
        "valid": bool(verdict),
        "errors": [f"{one.check.value}: {one.text}" for one in verdict.errors],
        "warnings": [f"{one.check.value}: {one.text}" for one in verdict.warnings],
        "facts": verdict.facts,
        "tools": verdict.tools,
        "zero_facts": int(verdict.facts == 0),
        "zero_tools": int(verdict.tools == 0),
        "excluded": dict(verdict.excluded),
    }
