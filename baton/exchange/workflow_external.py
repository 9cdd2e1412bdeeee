"""`Outside`: attached to an exchange, it hands the task to outside agents, which fetch their work.

The handoff waits in the workflow. The MCP server of `baton.doors.client_mcp`, or a program with
`baton.outside.client_external`, lists it by a query and sends the agent's actions as sealed updates.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from pydantic import JsonValue, ValidationError
from temporalio import workflow
from temporalio.exceptions import ActivityError, ApplicationError

from baton.contract.records import EventType, SessionEvent
from baton.contract.validation import expiry_findings
from baton.core.messages import PipelineStatus, StageInput, StageReturn
from baton.core.notes import MAX_NOTE_LENGTH, MAX_NOTES, NO_REASONS, NOTE_MEMBERS, Notes, notes_in
from baton.core.patching import patch_effect, without_echo
from baton.core.stages import OnReport, StageSpec, step
from baton.core.verdict import HandoffStatus
from baton.errors import PatchError, StageFailedError
from baton.exchange.external import (
    ACTION,
    ENDS,
    QUERY_DONE,
    QUERY_MESSAGE,
    QUERY_OUTSIDE,
    ActionKind,
    AgentAction,
    ExternalHandoffs,
    OutsideHandoff,
    OutsideResult,
    OutsideState,
    outside_address,
)
from baton.exchange.records import OpenedMessage
from baton.exchange.workflow import Exchange
from baton.exchange.workflow_messages import Receiver, message_of, open_message
from baton.handoff.records import Handoff
from baton.handoff.sealed import SealedAction
from baton.report.records import find_report, report_faults
from baton.telemetry.metrics import LATENCY, Transport, slo_breach
from baton.wire.json_values import Json, format_digest, loads_strict, sha256
from baton.wire.names import HAND_OFF, OUTSIDE
from baton.wire.text import estimate_tokens

_NO_KEYS = "the worker has no keys to verify actions; start it with BatonPlugin(safeguards=…)"


@dataclass
class _OpenHandoff:
    """An open handoff: its message, and how to make the next one."""

    message: Handoff
    make: Callable[[int], Handoff]
    attempt: int = 1
    measured: bool = False

    def has_expired_contract(self, now: datetime) -> bool:
        """Return whether it has a contract that has expired."""
        contract = (self.message.step or {}).get("contract")
        return isinstance(contract, Mapping) and bool(expiry_findings(contract, now))

    def remake(self) -> Handoff:
        """Make the message again, as the next attempt."""
        self.message = self.make(self.attempt + 1)
        self.attempt += 1
        self.measured = False
        return self.message


class Outside:
    """A pipeline's handoffs to outside agents."""

    def __init__(self, exchange: Exchange) -> None:
        """Attach to an exchange, in the workflow's `__init__`."""
        self._exchange = exchange
        self._calls = exchange._calls
        self._open = ExternalHandoffs(exchange.pipeline.carried("outside", OutsideState))
        exchange.pipeline.carries["outside"] = self._open.carried
        self._waiting: dict[str, _OpenHandoff] = {}
        workflow.set_query_handler(QUERY_OUTSIDE, self._on_list)
        workflow.set_query_handler(QUERY_DONE, self._on_done)
        workflow.set_query_handler(QUERY_MESSAGE, self._on_message)
        workflow.set_update_handler(ACTION, self._on_action, validator=self._validate)

    @step
    async def hand_off(
        self,
        agent: str,
        description: str,
        *,
        within: timedelta,
        version: str = "*",
        constraints: Sequence[str] = (),
        state: Mapping[str, Json] | None = None,
        tools: Iterable[str] = (),
    ) -> OutsideResult:
        """Hand the task to an outside agent, and wait for its result.

        A returned patch is checked with its notes against this pipeline's rules at once, so that the agent can correct
        it, and is applied like a stage's. In a pipeline with `ContractTerms` the agent gets a contract; if it expires
        before the handoff is accepted, it is compiled again when an agent claims the handoff.

        Args:
            agent: The agent's name, to which its token belongs.
            description: What it is to do.
            within: How long it may take in total.
            version: The accepted range of its versions.
            constraints: Rules of the form `key:value`.
            state: The state that it receives; the baton by default.
            tools: The tools that it has; its contract may allow some of them.

        Returns:
            Its answer, with the patch or the report. A rejection is not an exception.

        Raises:
            StageFailedError: Nothing was returned in time; its report says failed or blocked (`on_report`); or the
                handoff could not be made, because no valid contract can be compiled or the registry has no such agent.
        """
        name = f"{HAND_OFF}{agent}{OUTSIDE}"[:200]

        async def act(seq: int) -> StageReturn:
            here = workflow.info().first_execution_run_id  # an agent takes it from this run or one that continues it
            receiver = Receiver(outside_address(agent), agent, version, run_chain=here)
            spec = StageSpec(agent, version=version, task=description, tools=frozenset(tools))
            await self._exchange.pipeline._handoffs.read_on(spec)
            handoff_id, until = str(workflow.uuid4()), workflow.now() + within

            def make(attempt: int) -> Handoff:
                step, remaining = self._contract(spec, seq, handoff_id), until - workflow.now()
                return self._exchange.outgoing.message(
                    receiver, description, constraints, state, remaining, identity=(handoff_id, attempt), step=step
                )

            end = await self._wait(_OpenHandoff(make(1), make), agent, within, name)
            result, notes = OutsideResult.of(end), notes_in(end.notes) or Notes()
            report = find_report(result.report)
            stops = report is not None and not report.status.delivers
            if report is not None and stops and self._exchange.pipeline._reports.on_report is OnReport.STOP:
                raise StageFailedError(f"{agent!r} outside: {report.stop_reason}")
            baton = self._exchange.pipeline.state.baton
            warnings = notes.warnings(baton)
            if end.kind is ActionKind.PATCH and not (notes or end.patch or report):
                warnings.append(NO_REASONS)
            return StageReturn(
                stage=name,
                seq=seq,
                baton_patch=without_echo(baton.decision_log, notes.patch(baton, None, result.patch)),
                output=result.model_dump(mode="json"),
                report=None if report is None else report.reported,
                events=_noted_events(notes, end, workflow.now()),
                warnings=warnings,
            )

        return OutsideResult.model_validate(await self._exchange.step(name, act), strict=False)

    def _contract(self, spec: StageSpec, seq: int, handoff_id: str) -> dict[str, JsonValue]:
        """Return a new contract as the member of `step`, in a pipeline with `ContractTerms`."""
        pipeline = self._exchange.pipeline
        baton = pipeline.state.baton.to_json_object()
        stage_input = StageInput(stage=spec.name, seq=seq, task_id=pipeline.task_id, baton=baton)
        contract = pipeline._handoffs.contracted(spec, stage_input, handoff_id, kept=False).contract
        return {} if contract is None else {"contract": contract}

    async def _wait(self, waiting: _OpenHandoff, agent: str, within: timedelta, name: str) -> AgentAction:
        handoff_id, visibility = waiting.message.handoff_id, self._exchange.pipeline._run.visibility
        self._waiting[handoff_id] = waiting
        self._open.add(OutsideHandoff.of(waiting.message, within))
        summary = f"answer of {agent} outside"[:200]
        try:
            with visibility.show_waiting(PipelineStatus.WAITING, name):
                await workflow.wait_condition(
                    lambda: self._end(handoff_id) is not None, timeout=within, timeout_summary=summary
                )
        except TimeoutError:
            visibility.show_rejected(name)
            reason = f"{agent!r} has returned nothing for handoff {handoff_id} within {within}"
            self._exchange.note(f"escalated: {reason}")
            raise StageFailedError(reason) from None
        finally:
            end = self._end(handoff_id)
            del self._waiting[handoff_id]
            self._open.remove(handoff_id)
        visibility.resume()
        assert end is not None  # noqa: S101 - the condition above
        return end

    def _end(self, handoff_id: str) -> AgentAction | None:
        waiting = self._open.get(handoff_id)
        return None if waiting is None else waiting.end

    def _validate(self, *arguments: Any) -> None:
        """Reject anything but a sealed action before it enters the history."""
        if message_of(arguments) is None:
            raise _refusal_error(f"an update {ACTION!r} carries one sealed action of 4 MiB at most")
        [action] = arguments
        if isinstance(action, SealedAction) and action.fault != "":
            raise _refusal_error(action.fault or _NO_KEYS)

    async def _on_action(self, *arguments: Any) -> OutsideHandoff:
        """Claim, answer or return a handoff, by one sealed action of an outside agent."""
        raw = message_of(arguments)
        assert raw is not None  # noqa: S101 - the validator has checked
        try:
            return self._apply_action(await self._open_action(raw, is_verified=isinstance(arguments[0], SealedAction)))
        except ActivityError as error:
            raise _refusal_error(f"the action could not be verified: {error.cause or error}") from error

    async def _open_action(self, raw: bytes, *, is_verified: bool) -> OpenedMessage:
        """Open an action, with the artifacts that are missing; `is_verified` if the validator has checked its seal."""
        if not is_verified:
            return await open_message(raw)
        opened = OpenedMessage(message=loads_strict(raw))
        patch = (opened.message or {}).get("patch")
        has_artifacts = isinstance(patch, Mapping) and patch.get("artifacts")
        return await open_message(raw) if has_artifacts else opened

    def _apply_action(self, opened: OpenedMessage) -> OutsideHandoff:
        try:
            if opened.message is None:
                raise _refusal_error(opened.fault)
            action = AgentAction.from_json_object(opened.message)
        except ValidationError:
            raise _refusal_error("this is not an action, though its seal holds") from None
        now = workflow.now()
        refusal = (
            self._open.refusal(action, now) or self._patch_refusal(action, opened.missing) or _report_refusal(action)
        )
        if refusal:
            raise _refusal_error(refusal)
        handoff = self._open.get(action.handoff_id)
        if handoff is not None:
            self._measure(action, handoff)
        if action.kind is ActionKind.CLAIM and handoff is not None:
            self._renew_contract(handoff, now)
        updated = self._open.apply(action, now)
        if action.kind in ENDS and updated.end is not None and updated.end.reason:
            self._exchange.note(f"{action.agent!r} outside: {action.kind.value}: {updated.end.reason}")
        if updated.end is None:
            return updated
        return updated.model_copy(update={"end": updated.end.without_work()})  # the caller has the work

    def _renew_contract(self, claimed: OutsideHandoff, now: datetime) -> None:
        """Compile the contract of a claimed handoff again if it has expired and nobody works under it."""
        handoff_id, waiting = claimed.handoff_id, self._waiting[claimed.handoff_id]
        in_progress = claimed.accepted and claimed.held_by(now) is not None
        if in_progress or not waiting.has_expired_contract(now):
            return
        try:
            self._open.renew(waiting.remake())
        except StageFailedError as error:
            raise _refusal_error(f"the contract of handoff {handoff_id!r} has expired: {error}") from error
        self._exchange.note(
            f"the contract of the handoff to {claimed.agent!r} outside had expired; it was compiled again"
        )

    def _patch_refusal(self, action: AgentAction, missing: Sequence[str]) -> str | None:
        """Return why a patch breaks a rule of the pipeline or refers to missing artifacts, or None."""
        if action.kind is not ActionKind.PATCH:
            return f"{action.kind.value!r} takes neither patch nor notes" if action.patch or action.notes else None
        state = self._exchange.pipeline.state
        notes = notes_in(action.notes) if action.notes else Notes()
        if notes is None or action.notes.keys() - NOTE_MEMBERS.keys():
            return (
                f"the notes are refused: expected lists under {', '.join(NOTE_MEMBERS)}, together at most {MAX_NOTES} "
                f"sentences of at most {MAX_NOTE_LENGTH:,} characters"
            )
        try:
            patch_effect(state.baton, notes.patch(state.baton, None, action.patch), state.stage_rules())
        except PatchError as error:
            return f"the patch is refused: {error}"
        known_hashes = {ref.hash for ref in state.baton.artifacts}
        refs: Any = action.patch.get("artifacts") or ()
        unavailable = sorted(
            repr(ref["id"]) for ref in refs if ref["hash"] in missing and ref["hash"] not in known_hashes
        )
        if unavailable:
            return (
                f"the patch is refused: artifacts: the workers' store has no {', '.join(unavailable)}; put it there "
                "first. If it is in the store of the agent's server, that server uses another store than the workers "
                "(BATON_ARTIFACTS, --artifacts)"
            )
        return None

    def _measure(self, action: AgentAction, waiting: OutsideHandoff) -> None:
        """Count the gate's answer once for each message; measure the latency of an accepted one."""
        verdict = HandoffStatus.ACCEPTED.value if action.kind is ActionKind.ACCEPT else action.code
        open_handoff = self._waiting[action.handoff_id]
        if verdict is None or open_handoff.measured:  # a later holder gets the same answer
            return
        open_handoff.measured = True
        metrics, sender = self._exchange.pipeline._run.metrics, open_handoff.message.from_agent.agent_id
        metrics.handoff(verdict, sender, action.agent)
        if action.kind is not ActionKind.ACCEPT:
            return
        seconds = max((workflow.now() - waiting.since).total_seconds(), 0.0)
        metrics.measure(LATENCY, seconds, Transport.QUEUE, sender, action.agent)
        breach = slo_breach(Transport.QUEUE, seconds)
        if breach:
            self._exchange.note(f"{sender!r} to {action.agent!r} outside: {breach}")

    def _on_list(self) -> list[OutsideHandoff]:
        """Return the handoffs that wait for outside agents, oldest first."""
        return self._open.open()

    def _on_done(self) -> list[OutsideHandoff]:
        """Return the handoffs that outside agents ended, oldest first."""
        return self._open.done()

    def _on_message(self, handoff_id: str) -> Handoff | None:
        """Return the message of an open handoff, which is sealed when it leaves."""
        waiting = self._waiting.get(handoff_id)
        return None if waiting is None else waiting.message


def _refusal_error(text: str) -> ApplicationError:
    return ApplicationError(text, type="ActionRefused", non_retryable=True)


def _noted_events(notes: Notes, end: AgentAction, now: datetime) -> list[dict[str, JsonValue]]:
    """Return what an agent decided and what must not pass for a fact, for the contracts of later stages."""
    noted = [(EventType.DECISION, text) for text in notes.decided]
    noted += [(EventType.REJECTED_ASSUMPTION, text) for text in notes.rejected]
    noted += [(EventType.BRAINSTORM, text) for text in notes.thoughts]
    events = []
    for number, (kind, text) in enumerate(noted, 1):
        is_decision = kind is EventType.DECISION
        event = SessionEvent(
            id=f"{end.handoff_id}.{number}",
            type=kind,
            timestamp=now,
            content=text if is_decision else "",
            ref=None if is_decision else format_digest(sha256(text.encode())),
            tokens=estimate_tokens(text),
            accepted=True if is_decision else None,
            agent=end.agent,
            handoff_id=end.handoff_id,
        )
        events.append(event.to_json_object())
    return events


def _report_refusal(action: AgentAction) -> str | None:
    """Return why a report is malformed, so that its agent can correct it, or None."""
    faults = report_faults(action.report)
    return None if faults is None else f"the report is refused: {faults}"
