"""What a workflow asks its worker about a sealed message, and is told: the workflow itself holds no keys."""

import base64
from collections.abc import Mapping
from typing import Any

from pydantic import Field, JsonValue

from baton.artifacts.records import Name
from baton.core.baton import Baton
from baton.handoff.receipts import Receipt
from baton.handoff.records import CostTracking
from baton.handoff.routing import ReceiverRequirements
from baton.wire.records import CompactRecord
from baton.wire.values import Digest

ADMIT = "baton.admit"
"""The activity that leads a handoff through the worker's gate."""
OPEN = "baton.open"
"""The activity that verifies the signature of an acknowledgement, a chunk, or a move of an external agent."""
REPLY_TO = "replyTo"
"""Member of a handoff's `step`: the workflow that its sender waits in."""
ATTEMPT = "attempt"
"""Member of a handoff's `step`: how often it was corrected, from 1."""


def reply_to_of(message: Mapping[str, Any]) -> str | None:
    """Return the workflow that the sender of a handoff waits in; None if an agent did not hand it on."""
    step = message.get("step")
    named = step.get(REPLY_TO) if isinstance(step, Mapping) else None
    return named if isinstance(named, str) else None


class AcceptRequest(CompactRecord):
    """A handoff as a workflow received it, and what its receiver requires.

    Attributes:
        raw: The message's bytes, in base64.
        audience: The receiving workflow, which the message must name.
        agent_type: What kind of agent the receiver is.
        agent_version: Its version.
        state: What it needs in `currentState`.
        expects_work: Whether completed subtasks are expected.
        schema_version: The version of the schema that it speaks.
    """

    raw: str
    audience: str
    agent_type: Name
    agent_version: str
    state: list[str] = Field(default_factory=list)
    expects_work: bool = True
    schema_version: str

    @classmethod
    def of(cls, raw: bytes, audience: str, receiver: ReceiverRequirements) -> "AcceptRequest":
        """Return the request for a message and a receiver."""
        return cls(
            raw=base64.b64encode(raw).decode(),
            audience=audience,
            agent_type=receiver.agent_type,
            agent_version=receiver.agent_version,
            state=sorted(receiver.state),
            expects_work=receiver.expects_work,
            schema_version=receiver.schema_version,
        )

    @property
    def message(self) -> bytes:
        """The message's bytes."""
        return base64.b64decode(self.raw)

    @property
    def requirements(self) -> ReceiverRequirements:
        """What the receiver requires."""
        return ReceiverRequirements(
            self.agent_type, self.agent_version, frozenset(self.state), self.expects_work, self.schema_version
        )


class Admission(CompactRecord):
    """What the gate made of a handoff; it is on record.

    Attributes:
        receipt: The answer.
        digest: Of what the message says; absent if its seal does not hold, and then nothing else is known of it.
        sender: Who handed on.
        reply_to: The workflow that waits for the answer; absent if it is meant for somebody else.
        message: The message, if it was accepted.
    """

    receipt: Receipt
    digest: Digest | None = None
    sender: str = ""
    reply_to: str | None = None
    message: dict[str, JsonValue] | None = None


class Opened(CompactRecord):
    """What a sealed message says.

    Attributes:
        message: The message, if its seal holds.
        fault: Why it does not hold.
        unsafe: What the safety scan rejects in it, if that was asked for.
        missing: The hashes of artifacts in its patch that the worker's store does not have.
    """

    message: dict[str, JsonValue] | None = None
    fault: str = ""
    unsafe: list[str] = Field(default_factory=list)
    missing: list[str] = Field(default_factory=list)


class Received(CompactRecord):
    """A handoff that a pipeline accepted; what `Exchange.receive` returns.

    Attributes:
        handoff_id: The handoff.
        task_id: The task.
        digest: Of what the message says.
        sender: Who handed on.
        reply_to: The workflow that was answered; absent if nobody waits there.
        description: What the receiver is to do.
        constraints: Rules of the form `key:value`.
        state: The message's `currentState`; the sender's baton is in here.
        trail: How the task came here.
        step: What the sender sent along.
        cost: What the chain had spent by then, and what is left.
        flags: What the safety scan noticed and let pass.
        anchor: The head of the task's audit chain with the acceptance in it.
        seconds: From the sender's dispatch to the acceptance.
    """

    handoff_id: str
    task_id: str
    digest: Digest
    sender: str
    reply_to: str | None = None
    description: str
    constraints: list[str] = Field(default_factory=list)
    state: dict[str, JsonValue]
    trail: dict[str, JsonValue] | None = None
    step: dict[str, JsonValue] = Field(default_factory=dict)
    cost: CostTracking | None = None
    flags: list[str] = Field(default_factory=list)
    anchor: str | None = None
    seconds: float = 0.0

    @classmethod
    def of(cls, admission: Admission, seconds: float) -> "Received":
        """Return what was received."""
        message: Mapping[str, Any] | None = admission.message
        if message is None or admission.digest is None:
            raise ValueError("only an accepted handoff is received")
        return cls(
            handoff_id=message["handoffId"],
            task_id=message["taskId"],
            digest=admission.digest,
            sender=admission.sender,
            reply_to=admission.reply_to,
            description=message["taskDescription"],
            constraints=message["constraints"],
            state=message["currentState"],
            trail=message.get("trail"),
            step=message.get("step") or {},
            cost=CostTracking.model_validate(message["costTracking"], strict=False),
            flags=admission.receipt.flags,
            anchor=admission.receipt.anchor,
            seconds=round(seconds, 6),
        )


def taken_over(baton: Baton, received: Received) -> dict[str, JsonValue]:
    """Return the patch by which a receiver takes over the baton that it was handed; its own goal stays."""
    mine = baton.to_json_object()
    patch: dict[str, JsonValue] = {}
    for name in Baton.FIELDS:
        theirs = received.state.get(name)
        if name == "goal" or not isinstance(theirs, list) or not theirs:
            continue
        own = mine.get(name)
        own = own if isinstance(own, list) else []
        new = [one for one in theirs if one not in own]
        if name == "current_state":
            patch[name] = theirs
        elif new:
            patch[name] = new if name == "decision_log" else [*own, *new]
    return patch
