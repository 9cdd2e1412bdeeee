"""The context compiler: session events in, a handoff contract and a report out (S5 L96-108).

It stands between two agents and is a deterministic function without a model, a clock or an id of its own, so that a
workflow may call it at every boundary and a replay compiles the same contract (S5-compiler-j).
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pydantic import Field

from baton.contract.assembly import assemble, used_tools, withheld_tools
from baton.contract.draft import UNSUPPORTED, Disposition, Draft, EventFate, Processor
from baton.contract.errors import ContractError
from baton.contract.processors import DEFAULT_PROCESSORS
from baton.contract.records import HandoffContract
from baton.contract.rendering import contract_tokens
from baton.contract.request import ContractPolicy, ContractRequest
from baton.contract.session import SessionEvent
from baton.wire.records import CompactRecord
from baton.wire.tokens import TokenEstimator, estimate_tokens
from baton.wire.values import Count

__all__ = [
    "DEFAULT_PROCESSORS",
    "CompileReport",
    "Compiled",
    "ContractPolicy",
    "ContractRequest",
    "Disposition",
    "EventFate",
    "Processor",
    "compile_contract",
]


class CompileReport(CompactRecord):
    """What the compiler did with each event: the evidence that the validation checks a contract against (C-41).

    It names events and never quotes them.

    Attributes:
        dispositions: What became of each event, in the order of the session.
        withheld: Tools that were used or granted and are not allowed all the same, each with the reason.
        processors: The names of the processors, in their order.
        session_tokens: How many tokens the whole session would have taken.
        contract_tokens: How many the contract takes as its receiver reads it.
    """

    dispositions: list[Disposition]
    withheld: dict[str, str] = Field(default_factory=dict)
    processors: list[str]
    session_tokens: Count
    contract_tokens: Count

    @property
    def label_counts(self) -> Mapping[str, int]:
        """How many events each label stands for, in order of their first appearance."""
        return Counter(one.label for one in self.dispositions if one.label is not None)

    def ids(self, fate: EventFate) -> frozenset[str]:
        """Return the ids of the events that became of something."""
        return frozenset(one.event_id for one in self.dispositions if one.fate is fate)


@dataclass(frozen=True)
class Compiled:
    """A contract and the report of its making.

    Attributes:
        contract: The contract; not validated yet.
        report: What became of each event.
    """

    contract: HandoffContract
    report: CompileReport


def compile_contract(
    events: Iterable[SessionEvent],
    request: ContractRequest,
    policy: ContractPolicy | None = None,
    processors: Sequence[Processor] = DEFAULT_PROCESSORS,
    estimator: TokenEstimator = estimate_tokens,
) -> Compiled:
    """Return the contract that a receiver may see instead of a session, and what became of each event.

    Each event ends as a fact, under one label, or as a call consumed by its result; what no processor settled is
    left out as `unsupported:<type>` (C-39). The allowed tools do not depend on the processors.

    Args:
        events: The session, in order.
        request: What is compiled for whom.
        policy: Which events become facts, and how long everything lasts; the default policy if left out.
        processors: The steps, in their order.
        estimator: Counts tokens.

    Returns:
        The contract and the report. Validate it before it is handed over (S5-compiler-i).

    Raises:
        ContractError: Two events have the same id, or a processor raised or broke a rule of the draft.

    Example:
        >>> from datetime import UTC, datetime
        >>> now = datetime(2026, 6, 27, 9, 25, tzinfo=UTC)
        >>> events = [
        ...     SessionEvent(id="e1", type="tool_result", timestamp="2026-06-27T09:20:00Z", success=True,
        ...                  tool_name="crm.lookup_customer", content="The recipient is an enterprise customer."),
        ...     SessionEvent(id="e2", type="brainstorm", timestamp="2026-06-27T09:21:00Z", content="Skip the check?"),
        ... ]
        >>> request = ContractRequest("risk-review-2026-001", "ComplianceReviewAgent", "Review the email.", "t-1", now,
        ...                           capability=frozenset({"policy.search"}), granted=frozenset({"policy.search"}))
        >>> made = compile_contract(events, request)
        >>> [fact.claim for fact in made.contract.facts], made.contract.excluded_context, made.contract.allowed_tools
        (['The recipient is an enterprise customer.'], ['type:brainstorm'], ['policy.search'])
        >>> made.report.withheld
        {'crm.lookup_customer': 'beyond the capability'}
    """
    draft = Draft(events, request, policy or ContractPolicy(), estimator)
    for processor in processors:
        try:
            processor.run(draft)
        except Exception as error:
            raise ContractError(f"the processor {processor.name!r} failed: {type(error).__name__}: {error}") from error
    for event in draft.rest:
        draft.leave_out(event, UNSUPPORTED)
    contract = assemble(draft)
    report = CompileReport(
        dispositions=draft.dispositions(),
        withheld=withheld_tools(request, used_tools(draft)),
        processors=[processor.name for processor in processors],
        session_tokens=sum(event.tokens or estimator(event.content) for event in draft.events),
        contract_tokens=contract_tokens(contract, estimator),
    )
    return Compiled(contract, report)
