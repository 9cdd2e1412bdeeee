"""Contracts in a pipeline: before a stage, its contract is compiled from the session events of the steps before.

Without terms of the pipeline's own, each stage that is an agent gets one, which leaves its tools as it declares them.

Compiling is a pure function of these events, so it runs in workflow code, adds only the contract to the history, and
gives the same contract in a replay.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from pydantic import JsonValue
from temporalio import workflow

from baton.contract.compiler import DEFAULT_PROCESSORS, Compiled, compile_contract
from baton.contract.draft import ContractPolicy, ContractRequest, Processor
from baton.contract.records import (
    MAX_TASK_LENGTH,
    Explanation,
    OutputSchemaRef,
    SessionEvent,
    UnknownAgentError,
    explain_stage,
    verdict_log_fields,
)
from baton.contract.registry import AgentRegistry, OutputSchemas, tool_key, tool_keys, tool_set
from baton.contract.session import MAX_OPEN_EVENTS, Session, SessionState, imported_events
from baton.contract.validation import validate_contract
from baton.core.messages import PipelineInput, StageInput, StageReturn, ToolLimits
from baton.core.receivers import ReceiverRequirements, choose_receiver
from baton.core.stages import StageSpec
from baton.core.state import PipelineState
from baton.errors import PipelineError, RoutingError, StageFailedError
from baton.telemetry.metrics import CONTRACTS, EMPTY_CONTRACTS, Metrics
from baton.wire.names import QUERY_EXPLAIN

MAX_READ_AT_ONCE = 2_000
"""The most session events that a workflow task reads for one contract, give or take a step's."""
MAX_CONTRACT_TOKENS = 1_000
"""The default token budget of a contract."""


@dataclass(frozen=True)
class ContractTerms:
    """The terms of the contracts of all stages of a pipeline; pass them as `@pipeline(contracts=…)`.

    Attributes:
        policy: The age limits of facts and the lifetime of contracts.
        granted: The tools that stages may use even if no earlier stage did; None grants those each stage declares.
        forbidden: Tools that no stage may use, by name; patterns are rejected.
        max_tokens: The token budget of a contract; the most certain and newest facts are kept, whole if they fit.
            None leaves it to the context window of each stage's agent.
        agents: The registry of agents; a stage that is not in it is rejected before anything is sent.
        schemas: The registry of output schemas.
        processors: The steps of the compiler, in order.

    Raises:
        TypeError: A list of tools is a string.
        ValueError: A tool name is a pattern or blank, or no agent of the registry has the tool.

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
        """Check the lists of tools: a name that matches no tool would forbid nothing."""
        registered = self.agents is not None
        known_tools = {tool for entry in (self.agents.entries if self.agents else ()) for tool in entry.tools}
        lists = {"granted": self.granted, "forbidden": self.forbidden}
        for name, names in lists.items():
            if names is not None:
                object.__setattr__(self, name, tool_set(names, name, known_tools, complete=registered))


def find_trace_id(start: PipelineInput, task_id: str) -> str:
    """Return the trace id of a pipeline: that of its start, or else its task id."""
    return start.traceparent.split("-")[1] if start.traceparent else task_id.replace("-", "").lower()


def child_limits(
    limits: ToolLimits | None, terms: ContractTerms | None, pipeline: str, child: str
) -> ToolLimits | None:
    """Return what a pipeline lets a child call: what it forbids and grants itself, and what it inherited."""
    inherited = limits or ToolLimits(child=child)
    forbidden, granted = dict(inherited.forbidden), dict(inherited.granted)
    if terms is not None:
        forbidden = dict.fromkeys(sorted(terms.forbidden), pipeline) | forbidden
        if terms.granted is not None:
            granted[pipeline] = sorted(terms.granted)
    return ToolLimits(child=child, forbidden=forbidden, granted=granted) if forbidden or granted else None


class ContractIssuer:
    """Issues the contracts of one pipeline."""

    def __init__(
        self,
        terms: ContractTerms | None,
        start: PipelineInput,
        task_id: str,
        state: PipelineState,
        metrics: Metrics,
    ) -> None:
        """Set up the issuer; without terms only stages that are agents get contracts."""
        limits = start.tool_limits
        self._is_default = terms is None
        self._terms = terms or ContractTerms()
        self._inherited = frozenset(limits.forbidden if limits else ())
        self._grants = [tool_keys(tools) for tools in limits.granted.values()] if limits else []
        self._metrics = metrics
        self._state = state
        self._trace_id = find_trace_id(start, task_id)
        self._start = start
        self._session: Session | None = None  # until the first contract
        self._inputs: dict[str, StageInput] = {}
        self._sent_labels: list[dict[str, str]] = []
        self._positions: dict[str, tuple[int, int]] = {}
        self._prompts: dict[str, StageReturn] = {}
        workflow.set_query_handler(QUERY_EXPLAIN, self._on_explain)

    def serves(self, spec: StageSpec) -> bool:
        """Return whether a stage gets contracts."""
        return spec.agent or not self._is_default

    def route(self, spec: StageSpec) -> None:
        """Raise `StageFailedError` if no registered agent can do the stage."""
        agents = self._terms.agents
        if agents is None:
            return
        candidates = (ReceiverRequirements(entry.name, entry.version) for entry in agents.entries)
        try:  # for an outside agent, any version of a range is accepted
            version = choose_receiver(spec.name, spec.version, candidates).agent_version
            agents.route(spec.name, version, capability=spec.capability, tools=spec.tools)
        except (RoutingError, UnknownAgentError, ValueError) as error:
            raise StageFailedError(f"nothing was sent to stage {spec.name!r}: {error}") from error

    def issue(
        self, spec: StageSpec, stage_input: StageInput, handoff_id: str, now: datetime, *, persisted: bool = True
    ) -> StageInput:
        """Return a stage's input with its compiled and validated contract."""
        terms = self._terms
        task = " ".join((spec.task or str(stage_input.baton.get("goal", spec.name))).split())
        request = ContractRequest(
            handoff_id=handoff_id,
            receiving_agent=spec.name,
            task=task if spec.task else task[:MAX_TASK_LENGTH],
            trace_id=self._trace_id,
            created_at=now,
            capability=frozenset(tool for tool in spec.tools if all(tool_key(tool) in keys for keys in self._grants)),
            granted=spec.tools if terms.granted is None else terms.granted,
            forbidden=terms.forbidden | spec.forbids | self._inherited,
            output_schema=None if spec.output is None else OutputSchemaRef.parse(spec.output),
            max_tokens=terms.max_tokens,
            tools_as_declared=self._is_default,
        )
        compiled = self._compile(request)
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
        for kind, count in (("facts", verdict.facts), ("tools", verdict.tools or self._is_default)):
            if not count:
                self._metrics.count(EMPTY_CONTRACTS, kind, spec.name)
        if verdict.errors:
            raise StageFailedError(
                f"the contract for {spec.name!r} is not valid, and nothing was sent: "
                + "; ".join(finding.text for finding in verdict.errors)
            )
        # Only new labels are sent: all of them in each message would let the history grow quadratically.
        left_out = self._get_session().left_out(persisted=persisted)
        self._sent_labels.append(left_out)
        update = {"contract": compiled.contract.to_json_object(), "left_out": left_out}
        issued = stage_input.model_copy(update=update)
        explained = issued.model_copy(update={"baton": {}, "params": {}, "inputs": {}, "turns": []})
        for name in (spec.name, issued.title):
            self._positions[name], self._inputs[name] = (len(self._state.outcomes), len(self._sent_labels)), explained
        return issued

    def record_prompt(self, result: StageReturn) -> None:
        """Record the prompt data of a stage's result."""
        self._prompts[result.title] = result

    def _on_explain(self, stage: str) -> Explanation:
        """Explain what a stage was given, what was left out and why; the last stage of that name."""
        stage_input = self._inputs.get(stage)
        if stage_input is None:
            raise PipelineError(f"no contract was made for {stage!r}, only for {', '.join(self._inputs)}")
        outcome_count, message_count = self._positions[stage]
        result = self._prompts.get(stage_input.title)
        return explain_stage(
            stage_input.contract or {},
            self._sent_labels[:message_count],
            [
                *imported_events(self._start.session),
                *(
                    SessionEvent.from_json_object(event)
                    for outcome in self._state.outcomes[:outcome_count]
                    for event in outcome.events
                ),
            ],
            stage=stage_input.title,
            seq=stage_input.seq,
            attempt=stage_input.attempt,
            tokens_read=result.tokens_read if result else 0,
            prompt=result.prompt if result else (),
        )

    def carried(self) -> dict[str, JsonValue]:
        """Return the session for the run that continues this one."""
        return {} if self._session is None else self._session.state().model_dump(mode="json")

    def restore(self, carried: Mapping[str, Any]) -> None:
        """Restore the session of the previous run."""
        self._session = Session(SessionState.model_validate(carried)) if carried else None

    def _get_session(self) -> Session:
        """Return the session, which begins with the events that the run starts from."""
        if self._session is None:
            self._session = Session(imported=imported_events(self._start.session))
        return self._session

    async def read_on(self) -> None:
        """Read the events of many steps in slices: a workflow task has two seconds, whatever the run did before."""
        while self._count_unread() > MAX_READ_AT_ONCE:
            for _ in range(MAX_READ_AT_ONCE // MAX_OPEN_EVENTS):
                self._read_slice(
                    ContractRequest(
                        handoff_id="",
                        receiving_agent="",
                        task="",
                        trace_id=self._trace_id,
                        created_at=workflow.now(),
                        capability=frozenset(),
                        max_tokens=self._terms.max_tokens,
                    )
                )
            await workflow.sleep(timedelta(milliseconds=1), summary="the next slice of many session events")

    def _count_unread(self) -> int:
        return sum(len(outcome.events) for outcome in self._state.outcomes[self._get_session().read :])

    def _compile(self, request: ContractRequest) -> Compiled:
        """Compile a contract from what the session has and what the steps since then recorded."""
        while True:
            compiled = self._read_slice(request)
            if self._get_session().read == len(self._state.outcomes):
                return compiled

    def _read_slice(self, request: ContractRequest) -> Compiled:
        """Compile a contract from what the session has and the next steps, and settle what no later one lets cross."""
        session, terms, outcomes = self._get_session(), self._terms, self._state.outcomes
        if session.read > len(outcomes):  # the code has changed, and does not take the steps that it was made from
            self._session = None
            session = self._get_session()
        added = 0
        while session.read < len(outcomes) and added < MAX_OPEN_EVENTS:
            events = outcomes[session.read].events
            session.events += [SessionEvent.from_json_object(event) for event in events]
            session.read, added = session.read + 1, added + len(events)
        settled = dict(session.settled)
        compiled = compile_contract(session.events, request, terms.policy, terms.processors, settled=settled)
        session.settle(compiled, request.created_at)
        return compiled
