"""Contracts in a pipeline: before each stage, what its agent may see and do is compiled from all that happened.

Compiling is a pure function of the session events that earlier stages recorded, so it runs in workflow code, at no
cost in history beyond the contract itself, and a replay makes the same contract.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from temporalio import workflow

from baton.contract.compiler import DEFAULT_PROCESSORS, compile_contract
from baton.contract.draft import ContractPolicy, ContractRequest, Processor
from baton.contract.records import (
    Explanation,
    OutputSchemaRef,
    SessionEvent,
    UnknownAgentError,
    explanation_of,
    verdict_log_fields,
)
from baton.contract.registry import AgentRegistry, OutputSchemas, tool_set
from baton.contract.validation import validate_contract
from baton.core.messages import PipelineInput, StageInput, StageReturn
from baton.core.stages import StageSpec
from baton.core.state import PipelineState
from baton.errors import PipelineError, RoutingError, StageFailedError
from baton.handoff.validation import ReceiverRequirements, choose_receiver
from baton.telemetry.metrics import CONTRACTS, EMPTY_CONTRACTS, Metrics
from baton.wire.names import QUERY_EXPLAIN

MAX_CONTRACT_TOKENS = 1_000
"""How many tokens of what was learned before cross with a contract, unless the terms say otherwise."""

_LONGEST_TASK = 500


@dataclass(frozen=True)
class ContractTerms:
    """How a pipeline makes the contracts of its stages; give it to `Pipeline(start, contracts=…)`.

    Attributes:
        policy: Which events become facts, when they are stale, when the contract expires.
        granted: The tools that stages may use although none before them did; None grants what each one declares.
        forbidden: Tools that no stage may use, by name; patterns are refused.
        max_tokens: How many tokens task and facts may take; the newest and surest facts are kept, as many of them
            whole as fit. None leaves it to the window of each stage's agent.
        agents: The registry of agents: a stage that is not in it is refused before it is sent anything.
        schemas: The registry of output schemas that stages name.
        processors: The steps of the compiler, in order.

    Raises:
        TypeError: A list of tools is one string.
        ValueError: A name in it is a pattern, blank, or a misspelling of a tool of the registry's agents.

    Example:
        >>> ContractTerms(forbidden=frozenset({"email.send"})).max_tokens
        1000
    """

    policy: ContractPolicy = field(default_factory=ContractPolicy)
    granted: frozenset[str] | None = None
    forbidden: frozenset[str] = frozenset()
    max_tokens: int | None = MAX_CONTRACT_TOKENS
    agents: AgentRegistry | None = None
    schemas: OutputSchemas | None = None
    processors: Sequence[Processor] = DEFAULT_PROCESSORS

    def __post_init__(self) -> None:
        """Check the lists of tools: one that can match nothing would forbid nothing."""
        known = {tool for entry in (self.agents.entries if self.agents else ()) for tool in entry.tools}
        lists = {"granted": self.granted, "forbidden": self.forbidden}
        for what, names in lists.items():
            if names is not None:
                object.__setattr__(self, what, tool_set(names, what, known))


def trace_of(start: PipelineInput, task_id: str) -> str:
    """Return the trace that a pipeline belongs to: the trace id it was started in, or else its task's."""
    return start.traceparent.split("-")[1] if start.traceparent else task_id.replace("-", "").lower()


class ContractIssuer:
    """Makes the contracts of one pipeline."""

    def __init__(self, terms: ContractTerms, state: PipelineState, trace_id: str, metrics: Metrics) -> None:
        self._terms = terms
        self._metrics = metrics
        self._state = state
        self._trace_id = trace_id
        self._events: list[SessionEvent] = []
        self._read = 0
        self._given: dict[str, StageInput] = {}
        self._labels: dict[str, str] = {}
        self._told: list[dict[str, str]] = []
        self._known: dict[str, tuple[int, int]] = {}
        self._prompts: dict[str, StageReturn] = {}
        workflow.set_query_handler(QUERY_EXPLAIN, self._on_explain)

    def route(self, spec: StageSpec) -> None:
        """Check that a stage's agent is registered and able to do it, before anything is sent."""
        agents = self._terms.agents
        if agents is None:
            return
        known = (ReceiverRequirements(one.name, one.version) for one in agents.entries)
        try:  # of an agent outside, any version of a range will do
            version = choose_receiver(spec.name, spec.version, known).agent_version
            agents.route(spec.name, version, tools=spec.tools)
        except (RoutingError, UnknownAgentError, ValueError) as error:
            raise StageFailedError(f"stage {spec.name!r} is not sent anything: {error}") from error

    def contracted(
        self, spec: StageSpec, given: StageInput, handoff_id: str, now: datetime, *, kept: bool = True
    ) -> StageInput:
        """Return a stage's input with its contract, compiled and validated."""
        terms = self._terms
        task = " ".join((spec.task or str(given.baton.get("goal", spec.name))).split())
        request = ContractRequest(
            handoff_id=handoff_id,
            receiving_agent=spec.name,
            task=task if spec.task else task[:_LONGEST_TASK],
            trace_id=self._trace_id,
            created_at=now,
            capability=spec.tools,
            granted=spec.tools if terms.granted is None else terms.granted,
            forbidden=terms.forbidden | spec.forbids,
            output_schema=None if spec.output is None else OutputSchemaRef.parse(spec.output),
            max_tokens=terms.max_tokens,
        )
        compiled = compile_contract(self._so_far(), request, terms.policy, terms.processors)
        verdict = validate_contract(
            compiled.contract,
            now=now,
            report=compiled.report,
            max_tokens=terms.max_tokens,
            schemas=terms.schemas,
            parent_trace_id=self._trace_id,
        )
        log = workflow.logger.error if verdict.errors else workflow.logger.info
        log("contract of %r for %r: %s", handoff_id, spec.name, verdict_log_fields(verdict))
        outcome = "refused" if verdict.errors else "flagged" if verdict.warnings else "valid"
        self._metrics.count(CONTRACTS, outcome)
        for lack, count in (("facts", verdict.facts), ("tools", verdict.tools)):
            if not count:
                self._metrics.count(EMPTY_CONTRACTS, lack, spec.name)
        if verdict.errors:
            raise StageFailedError(
                f"the contract for {spec.name!r} is not valid, and nothing was sent: "
                + "; ".join(finding.text for finding in verdict.errors)
            )
        labels = {one.event_id: one.label for one in compiled.report.dispositions if one.label is not None}
        # Only what is new goes along: with all of it in each message, history would grow with the run's square.
        left_out = {id: label for id, label in labels.items() if self._labels.get(id) != label}
        if kept:  # else `explain` reads it from the next message that is kept
            self._labels.update(left_out)
        self._told.append(left_out)
        told = {"contract": compiled.contract.to_json_object(), "left_out": left_out}
        self._known[spec.name] = len(self._events), len(self._told)
        self._given[spec.name] = given.model_copy(update=told)
        return self._given[spec.name]

    def answered(self, returned: StageReturn) -> None:
        """Note what the prompt of a stage had."""
        self._prompts[returned.stage] = returned

    def _on_explain(self, stage: str) -> Explanation:
        """What a stage was given, what was left out and why; of several with one name the last."""
        given = self._given.get(stage)
        if given is None:
            raise PipelineError(f"no contract was made for {stage!r}; there are those of: {', '.join(self._given)}")
        events, told = self._known[stage]
        returned = self._prompts.get(stage)
        return explanation_of(
            given.contract or {},
            self._told[:told],
            self._so_far()[:events],
            stage=stage,
            seq=given.seq,
            attempt=given.attempt,
            tokens_read=returned.tokens_read if returned else 0,
            prompt=returned.prompt if returned else (),
        )

    def _so_far(self) -> list[SessionEvent]:
        """Return the session events of all steps so far; each is read once."""
        outcomes = self._state.outcomes
        for outcome in outcomes[self._read :]:
            self._events += [SessionEvent.from_json_object(event) for event in outcome.events]
        self._read = len(outcomes)
        return self._events
