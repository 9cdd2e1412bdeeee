"""Orders to pipelines of other companies: a handoff of a run leaves as a relay file, and one that arrives starts a run.

What leaves is the task, the contract, the baton and the inputs. Personal data, the conversation, the results of earlier
stages, parameters and the requester stay, and keys and passwords in the rest are withheld. The contract goes as it was
compiled, with a new time: it says what the receiver may know.
"""

import hashlib
import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from pydantic import JsonValue, ValidationError
from temporalio.client import Client
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

from baton.artifacts.store import ArtifactStore
from baton.codec.secrets import mask_values
from baton.contract.validation import validate_contract
from baton.core.baton import Baton
from baton.core.budget import Budget
from baton.core.inputs import encode_inputs
from baton.core.messages import PipelineInput, ToolLimits
from baton.core.operations import Fact, Operation, Preview
from baton.core.past import ParentHandoff
from baton.core.receivers import ReceiverRequirements
from baton.core.requester import Requester
from baton.core.verdict import Code, Finding, Receipt, Verdict
from baton.errors import HistoryError, InputError, PatchError
from baton.handoff.records import Handoff
from baton.handoff.store_gate import Gate, contract_check
from baton.handoff.store_order import (
    OpenOrder,
    OrderError,
    sign_message,
    write_order,
)
from baton.handoff.store_protocol import address_check, seal_receipt
from baton.handoff.store_signing import open_sealed
from baton.handoff.validation import Check
from baton.keys.store_keys import Purpose
from baton.ledger.entries import run_name, usable_name
from baton.ledger.records import AuditEntry, AuditHeader, Kind
from baton.ledger.store import Ledger
from baton.runs.client_connection import DEFAULT_TASK_QUEUE
from baton.runs.client_executions import describe
from baton.runs.client_handoffs import RunHandoffs, read_handoffs
from baton.runs.client_start import Start
from baton.telemetry.trace import handoff_span_id
from baton.wire.json_values import JsonFields, canonical_json, digest
from baton.wire.records import format_instant
from baton.wire.text import describe_faults, quantity

MAX_VALID = timedelta(hours=24)
"""The longest time in which an order may be accepted: that of a contract."""
RECEIVER_VERSION = "1.0.0"
CONTRACT_INPUT = "contract"
"""The input in which a run that an order started has the order's task, facts and constraints."""

_KEPT = ("schemaVersion", "taskId", "fromAgent", "constraints", "costTracking", "traceparent", "initial")
_TERMS = ("task", "facts", "constraints", "outputSchema")


@dataclass(frozen=True)
class ExportPreview(Preview):
    """What would leave now.

    Attributes:
        message: The handoff of the stage, its seal verified.
    """

    message: Mapping[str, Any] = field(kw_only=True, repr=False)


@dataclass(frozen=True)
class ExportHandoff(Operation[ExportPreview, bytes]):
    """Export the handoff of a step as an order to a pipeline of another company. The result is the relay file.

    The export is on record in the task's chain, whose head is in the file. `preview` and `commit` raise `HistoryError`
    if the run has no such step or the step had no signed handoff, `OrderError` if it had no contract, and `SealError`
    if its seal does not hold.

    Attributes:
        client: A connected client.
        gate: Its keyring signs, and its ledger records.
        workflow_id: The pipeline.
        step: The step's number, or its or its stage's name, for the last of that name.
        to: The receiving pipeline's name; by default that of the stage.
        audience: The only company that may accept it, by the name that it goes by; by default any that trusts the key.
        valid: How long it may be accepted: a minute to 24 hours.
        run_id: Which of its runs; the newest by default.

    Example:
        ```python
        operation = ExportHandoff(client, gate, "contract-7", "score", to="risk_scoring", audience="globex")
        Path("order.baton.json").write_bytes(await operation.commit(by="ann"))
        ```
    """

    client: Client
    gate: Gate
    workflow_id: str
    step: str
    to: str | None = None
    audience: str | None = None
    valid: timedelta = MAX_VALID
    run_id: str | None = None
    nothing_done = "nothing was exported"

    async def preview(self) -> ExportPreview:
        """Return what would leave."""
        read = await read_handoffs(self.client, self.workflow_id, self.run_id)
        message = open_sealed(
            canonical_json(dict(_find_message(read, self.step))), self.gate.keyring, self.client.namespace
        ).message
        order = self._order(message, self.gate.clock())
        step, contract = order["step"], order["step"]["contract"]
        stays = [name for name in ("personalDataPayload", "conversationHistoryVerbatim") if message.get(name)]
        facts = [
            Fact(f"Its task leaves, and {quantity(len(contract['facts']), 'fact')} of its contract."),
            Fact(f"Of the baton: {', '.join(name for name, value in order['currentState'].items() if value)}."),
            *([Fact(f"Its inputs: {', '.join(step['inputs'])}.")] if step["inputs"] else []),
            *([Fact(f"What stays: {', '.join(stays)}.")] if stays else []),
            Fact(f"{self.audience or 'Whoever trusts the key'} may accept it until {order['expiresAt']}."),
        ]
        title = f"Export handoff {message['handoffId']} of {self.workflow_id} to {order['toAgent']['agentType']}"
        basis = {"run": read.run.run_id, "handoff": message["handoffId"]}
        return ExportPreview(title, facts, basis, message=message)

    def _order(self, message: Mapping[str, Any], at: datetime) -> dict[str, Any]:
        """Return the order's handoff without what this company's data policy keeps out of records."""
        made = order_message(message, to=self.to, audience=self.audience, at=at, valid=self.valid)
        recorded = self.gate.without_redacted(made, made["handoffId"])
        if recorded["step"]["contract"] != made["step"]["contract"]:
            raise OrderError("its contract has what `Safeguards.redact` keeps back; leave that out of the facts")
        recorded["currentState"] = _unchanged(made["currentState"], recorded["currentState"])
        recorded["step"]["inputs"] = _unchanged(made["step"]["inputs"], recorded["step"]["inputs"])
        return recorded

    async def _perform(self, preview: ExportPreview, by: str, why: str) -> bytes:
        at = self.gate.clock()
        message = sign_message(self._order(preview.message, at), self.gate.keyring)
        entry = AuditEntry(
            kind=Kind.RELAY,
            task_id=message["taskId"],
            event_id=message["handoffId"],
            status="EXPORTED",
            timestamp=at,
            from_agent=message["fromAgent"]["agentId"],
            to_agent=message["toAgent"]["agentType"],
            actor=by,
            details=why or None,
            run_id=run_name(self.workflow_id, str(preview.basis["run"])),
            message={"message": digest(message), "contract": digest(message["step"]["contract"])}
            | ({"audience": self.audience} if self.audience else {}),
        )
        await self.gate.record(entry)
        head = await self.gate.ledger.head(entry.task_id)
        assert head is not None  # noqa: S101 - the record is there
        return write_order(message, head, self.gate.keyring, at=at)

    def _changes(self, shown: Mapping[str, Any], preview: ExportPreview) -> list[str]:
        return ["the step has another handoff by now"]


def _unchanged(made: Mapping[str, Any], recorded: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in made.items() if recorded[name] == value}


def _find_message(read: RunHandoffs, reference: str) -> Mapping[str, Any]:
    """Return the last handoff that brought a step its task."""
    sent = [sent for sent in read.run.handed if reference in (sent.title, str(sent.seq), sent.stage)]
    if not sent:
        step = read.run.step(reference)
        sent = [handed for handed in read.run.handed if handed.seq == step.seq]
    if not sent:
        raise HistoryError(f"step {reference!r} had no contract, which says what may leave; export a step of an agent")
    message = read.messages.get(sent[-1].handoff_id)
    if message is None:
        raise HistoryError(f"step {reference!r} had no signed handoff: its worker had no safeguards")
    return message


def order_message(
    message: Mapping[str, Any], *, to: str | None, audience: str | None, at: datetime, valid: timedelta
) -> dict[str, Any]:
    """Return the handoff of an order, not yet signed, made of the one that a stage received.

    Raises:
        OrderError: It has no contract, or `valid` is out of its range.
    """
    if not timedelta(minutes=1) <= valid <= MAX_VALID:
        raise OrderError(f"the order would be valid for {valid}; give a time from a minute to {MAX_VALID}")
    step = message.get("step") or {}
    contract = step.get("contract")
    if not isinstance(contract, dict):
        raise OrderError("the step has no contract, which says what may leave; export a step of an agent")
    to = to or message["toAgent"]["agentType"]
    order_id, made = _order_id(message["handoffId"], to, audience), format_instant(at)
    contract = contract | {
        "receivingAgent": to,
        "messageId": order_id,
        "createdAt": made,
        "expiresAfterMinutes": int(valid.total_seconds() // 60),
    }
    contract.pop("receivingAgentVersion", None)
    if faults := validate_contract(contract, now=at).errors:
        raise OrderError(f"its contract is not valid: {'; '.join(fault.text for fault in faults)}")
    state = {name: value for name, value in message["currentState"].items() if name in Baton.FIELDS}
    return {
        **{name: message[name] for name in _KEPT if name in message},
        "handoffId": order_id,
        "parentHandoffId": None if message.get("initial") is True else message["handoffId"],
        "toAgent": {"agentType": to, "agentVersion": ">=0.0.0"},
        "timestamp": made,
        "expiresAt": format_instant(at + valid),
        "taskDescription": mask_values(message["taskDescription"]),
        "completedSubtasks": [
            {
                **{name: subtask[name] for name in ("subtaskId", "completedAt")},
                "description": subtask["subtaskId"],
                "result": {"digest": digest(subtask["result"])},
            }
            for subtask in message["completedSubtasks"]
        ],
        "remainingSubtasks": mask_values(message["remainingSubtasks"]),
        "currentState": mask_values(state),
        "relevantContext": [],
        "conversationHistorySummary": "",
        "conversationHistoryVerbatim": [],
        "toolCallHistory": [],
        **({} if audience is None else {"audience": audience}),
        "step": {"contract": contract, "inputs": mask_values(step.get("inputs") or {})},
    }


def _order_id(handoff_id: str, to: str, audience: str | None) -> str:
    """Return the id of an order: that of the same handoff to the same receiver, however often it is exported."""
    hashed = hashlib.sha256(json.dumps(["baton.order", handoff_id, to, audience]).encode()).digest()
    return str(uuid.UUID(bytes=hashed[:16], version=4))


class OrderTakenError(OrderError):
    """An order was accepted for another's run, which has not started. Have them send it again."""


@dataclass(frozen=True)
class AcceptPreview(Preview):
    """What accepting an order would do now.

    Attributes:
        verdict: What the gate says of it; a rejected one starts nothing.
        running: The run that it has started already, if any.
        accepted: When it was accepted, if that run has started: the answer stays as it was then.
    """

    verdict: Verdict = field(kw_only=True)
    running: str | None = field(kw_only=True, default=None)
    accepted: datetime | None = field(kw_only=True, default=None)


@dataclass(frozen=True)
class AcceptedHandoff(JsonFields):
    """The answer to an order.

    Attributes:
        receipt: The answer, as it is on record.
        signed: The receipt for the sender, signed; `baton.protocol.verify_receipt` verifies it.
        workflow_id: The run that the order started; None if it was rejected.
        started: Whether it was started now, and not before.
    """

    receipt: Receipt
    signed: str
    workflow_id: str | None = None
    started: bool = False


async def find_acceptance(ledger: Ledger, order: OpenOrder) -> AuditHeader | None:
    """Return the record of the first acceptance of an order, whose `run_id` is the workflow that it was for."""
    earlier = await ledger.acceptances(order.order.head.task_id, order.id)
    return earlier[0] if earlier else None


@dataclass(frozen=True)
class AcceptHandoff(Operation[AcceptPreview, AcceptedHandoff]):
    """Accept an order of another company: its gate judges it, and a run of the pipeline that it is for starts.

    The answer is on record before the run starts, with the run's id. So the same order starts one run, however often
    it is accepted, and also if a process dies in between: the next call continues there. Once the run has started,
    the receipt stays the same, also after the order has expired. `preview` and `commit` raise `OrderError` if an
    artifact is missing, or the order was accepted under another id whose run has not started.

    Attributes:
        client: A connected client, with `BatonPlugin`.
        gate: Judges the handoff as any other, with this company's policy, and records the answer.
        order: The order, as `baton.protocol.open_order` verified it with the sender's public keys.
        pipeline: The only pipeline that may be started; by default the one that the order is for.
        audience: The name that this company goes by; an order that names another one is rejected.
        task_queue: The task queue of the pipeline's workers.
        budget: What the run may spend.
        artifacts: The workers' artifact store: an order whose artifacts it lacks is not accepted yet.
        requester: Who the run works for.
        workflow_id: The run's id. It ends with `order-` and the id of the order, which is all of it by default.

    Example:
        ```python
        trust = PublicKeys.from_json(Path("acme.jwks").read_bytes())
        order = open_order(Path("order.baton.json").read_bytes(), trust)
        accepted = await AcceptHandoff(client, gate, order, audience="globex").commit(by="bob")
        ```
    """

    client: Client
    gate: Gate
    order: OpenOrder = field(repr=False)
    pipeline: str | None = None
    audience: str | None = None
    task_queue: str = DEFAULT_TASK_QUEUE
    budget: Budget | None = None
    artifacts: ArtifactStore | None = None
    requester: Requester | None = None
    workflow_id: str | None = None
    nothing_done = "nothing was started"

    async def preview(self) -> AcceptPreview:
        """Return what the order would start, or why it would be rejected."""
        order, own_id = self.order, self._own_id
        await self._require_artifacts()
        await self._require_task()
        first = await find_acceptance(self.gate.ledger, order)
        earlier = first if first and self._gate_as_of(None).is_answer_to(order.raw, first) else None
        workflow_id = earlier.run_id if earlier and earlier.run_id else own_id
        running = workflow_id if earlier and await self._find_run(workflow_id) else None
        if workflow_id != own_id and running is None:
            raise OrderTakenError(
                f"it was accepted for {workflow_id!r}, which has not started; have it sent again in the way it came "
                "first"
            )
        accepted = earlier.timestamp if earlier and running else None
        gate = self._gate_as_of(accepted)
        judgement = gate.judge(order.raw, self._receiver, extra_checks=self._checks(gate))
        signer = f"Key {order.order.key_id} signed it, for the task {order.order.head.task_id}."
        started = [Fact(f"It has started {workflow_id} already; nothing starts again, and the answer is the same.")]
        if not judgement.verdict:
            follows = [Fact(f"It is rejected ({judgement.verdict.reason}): {judgement.verdict.details}", is_loss=True)]
        elif first is not None and earlier is None:
            at = format_instant(first.timestamp)
            follows = [Fact(f"It is rejected: another file of this order was accepted on {at}.", is_loss=True)]
        elif running:
            follows = started
        else:
            assert judgement.handoff is not None  # noqa: S101 - it is valid
            try:
                follows = (await self._start(judgement.handoff).preview()).facts
            except WorkflowAlreadyStartedError:  # meanwhile, by another call
                running, follows = workflow_id, started
        basis: dict[str, JsonValue] = {"order": order.digest, "running": running or ""}
        facts = [Fact(signer), *follows]
        return AcceptPreview(
            f"Accept the order {order.id}", facts, basis, verdict=judgement.verdict, running=running, accepted=accepted
        )

    @property
    def _receiver(self) -> ReceiverRequirements:
        return ReceiverRequirements(self.pipeline or self.order.receiver, RECEIVER_VERSION)

    @property
    def _own_id(self) -> str:
        return self.workflow_id or f"order-{self.order.id}"

    def _gate_as_of(self, at: datetime | None) -> Gate:
        """Return the gate that opens the sender's seal, and judges as of a time, or as of now."""
        gate = replace(self.gate, trust=self.order.trust)
        return gate if at is None else replace(gate, clock=lambda: at)

    def _start(self, handoff: Handoff) -> Start:
        receiver = self.order.receiver
        start = pipeline_input(handoff, receiver, self.budget).model_copy(update={"requester": self.requester})
        return Start(self.client, receiver, start, self._own_id, self.task_queue)

    def _checks(self, gate: Gate) -> list[Check]:
        contract = contract_check(gate.clock, gate.freshness.tolerance)

        def check_start(handoff: Handoff) -> list[Finding]:
            """Return findings if no run could start with it: once it is accepted, one has to."""
            if faults := [*contract(handoff)]:
                return faults
            try:
                pipeline_input(handoff, handoff.to_agent.agent_type).first_baton()
            except (ValidationError, InputError, PatchError) as error:
                fault = describe_faults(error)
                return [Finding(code=Code.SCHEMA_INVALID, text=f"no run can start with it: {fault}", at="/step")]
            return []

        return [check_start, address_check(self.audience)]

    async def _require_artifacts(self) -> None:
        store = self.artifacts
        missing = [ref for ref in self.order.order.artifacts if store is not None and not await store.has(ref.hash)]
        if missing:
            named = ", ".join(f"{ref.id} (sha256 {ref.hash})" for ref in missing)
            raise OrderError(
                f"the artifact store lacks {named}; put what came with the order there with `baton artifact put FILE`"
            )

    async def _require_task(self) -> None:
        """Raise if the task is this company's own and was ordered from nobody: others do not add to its record."""
        headers = await self._headers()
        if headers and not any(_is_of_order(header) for header in headers):
            task_id = self.order.order.head.task_id
            raise OrderError(f"its task {task_id} is one of the receiver's own; expected a task of the sender's")

    async def _headers(self) -> Sequence[AuditHeader]:
        return (await self.gate.ledger.trace(self.order.order.head.task_id)).headers

    async def _perform(self, preview: AcceptPreview, by: str, why: str) -> AcceptedHandoff:
        own_id, gate = self._own_id, self._gate_as_of(preview.accepted)
        receipt, judgement = await gate.accept(
            self.order.raw, self._receiver, run_id=own_id, extra_checks=self._checks(gate)
        )
        signed = seal_receipt(receipt, self.gate.keyring, purpose=Purpose.SIGN).decode()
        if judgement.handoff is None or not receipt.verdict:
            return AcceptedHandoff(receipt, signed)
        earlier = await find_acceptance(self.gate.ledger, self.order)
        if earlier is not None and earlier.run_id != own_id:  # the first to accept it starts it
            return AcceptedHandoff(receipt, signed, earlier.run_id)
        started = preview.running is None and await self._has_started(judgement.handoff, by, why)
        await self._record_start(judgement.handoff, by, why)
        return AcceptedHandoff(receipt, signed, own_id, started)

    async def _has_started(self, handoff: Handoff, by: str, why: str) -> bool:
        """Start the run; return whether this call did, and no other at the same time."""
        try:
            await self._start(handoff).commit(by=by, why=why)
        except WorkflowAlreadyStartedError:
            return False
        return True

    async def _record_start(self, handoff: Handoff, by: str, why: str) -> None:
        """Record the start; a record that there is stays as it is."""
        order = self.order
        await self.gate.record(
            AuditEntry(
                kind=Kind.RELAY,
                task_id=handoff.task_id,
                event_id=handoff.handoff_id,
                status="STARTED",
                timestamp=self.gate.clock(),
                to_agent=usable_name(order.receiver),
                actor=by,
                details=why or None,
                run_id=await self._find_run(self._own_id),
                message={"order": order.digest, "key": order.order.key_id, "head": order.order.head.to_json_object()},
            )
        )

    async def _find_run(self, workflow_id: str) -> str | None:
        """Return the name of a workflow's first run, of which the ledger has records once the server forgets it."""
        try:
            return run_name(workflow_id, (await describe(self.client, workflow_id)).info.first_run_id)
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:
                raise
        prefix = run_name(workflow_id, "")
        names = [header.run_id for header in await self._headers() if (header.run_id or "").startswith(prefix)]
        return names[0] if names else None

    def _changes(self, shown: Mapping[str, Any], preview: AcceptPreview) -> list[str]:
        return ["it is another file" if shown["order"] != preview.basis["order"] else "it has started a run meanwhile"]


def _is_of_order(header: AuditHeader) -> bool:
    """Return whether a record is of an order that left, arrived or was answered."""
    return header.kind == Kind.RELAY or (header.run_id or "").endswith(f"order-{header.event_id}")


def pipeline_input(handoff: Handoff, pipeline: str, budget: Budget | None = None) -> PipelineInput:
    """Return what an accepted order starts its pipeline with.

    The contract binds the whole run: its stages and children call no tool that it forbids, and only those that it
    allows where it limits them. Its task, facts and constraints are the input `contract`.
    """
    step: dict[str, Any] = handoff.step or {}
    contract: dict[str, Any] = step["contract"]
    source = f"order {handoff.handoff_id}"
    limits = ToolLimits(
        child=pipeline,
        forbidden=dict.fromkeys(contract["forbiddenTools"], source),
        granted={} if contract.get("toolsAsDeclared") else {source: contract["allowedTools"]},
    )
    baton = {name: value for name, value in handoff.current_state.items() if name in Baton.FIELDS and name != "goal"}
    terms = {name: contract[name] for name in _TERMS if name in contract}
    completed = [subtask.to_json_object() for subtask in handoff.completed_subtasks]
    return PipelineInput(
        goal=handoff.task_description,
        baton=baton,
        inputs={**encode_inputs(step.get("inputs"), tagged=True), CONTRACT_INPUT: terms},
        task_id=handoff.task_id,
        budget=budget,
        traceparent=handoff.traceparent if handoff.traceparent.startswith("00-") else None,
        follows=handoff_span_id(handoff.handoff_id, handoff.to_agent.agent_type),
        parent_handoff=ParentHandoff(handoff_id=handoff.handoff_id, completed=completed),
        tool_limits=limits,
    )
