"""What an agent was asked and what it answered: one record for the agents of every framework.

It is not part of the history, which has its digest only: the worker's artifact store keeps it, for a time.
"""

from datetime import datetime

from pydantic import Field, JsonValue

from baton.core.history import Spend
from baton.wire.records import CompactRecord, Integer, Timestamp


class Message(CompactRecord):
    """One message to a model, or one that it had written before.

    Attributes:
        role: `system`, `user`, `assistant`, `tool` or `thought`.
        text: The text.
    """

    role: str
    text: str


class ModelRequest(CompactRecord):
    """One request to a model.

    Attributes:
        agent: The agent that made it.
        at: When it was made.
        milliseconds: How long its answer took; None if there was none.
        asked: What it was asked: the messages, by their index in the transcript.
        model: The model that answered.
        spend: The cost.
        said: What the model answered, without thoughts and calls of tools.
    """

    agent: str
    at: Timestamp
    milliseconds: Integer | None = None
    asked: list[Integer] = Field(default_factory=list)
    model: str = ""
    spend: Spend = Spend()
    said: str = ""


class KeptEvent(CompactRecord):
    """An event of a stage's session with its whole text.

    Attributes:
        id: The event's id; facts refer to it.
        type: Its type, such as `tool_call`.
        at: When it happened; for a tool's result, when the data was retrieved.
        agent: Who recorded it.
        tool: The tool that was called, or that answered.
        call_id: For a result the id of its call.
        success: Whether the tool succeeded.
        text: The arguments of a call as JSON, the whole result, or what was said, thought or decided.
    """

    id: str
    type: str
    at: str = ""
    agent: str = ""
    tool: str = ""
    call_id: str = ""
    success: bool | None = None
    text: str = ""


class Transcript(CompactRecord):
    """What the agents of one attempt of a stage were asked and answered.

    Attributes:
        messages: Every message that a model read, once.
        requests: The requests to models, in order; none of an agent whose requests are not seen, such as a program.
        answer: The last answer as the agent gave it.
        events: The events of its session, with what the history leaves out: arguments, whole results, thoughts.
    """

    messages: list[Message] = Field(default_factory=list)
    requests: list[ModelRequest] = Field(default_factory=list)
    answer: str = ""
    events: list[KeptEvent] = Field(default_factory=list)

    def asked(self, request: ModelRequest) -> list[Message]:
        """Return what a request asked."""
        return [self.messages[index] for index in request.asked if 0 <= index < len(self.messages)]


class SealedText(CompactRecord):
    """A text that can be read as long as nobody of whom it may speak was erased.

    Attributes:
        payload: A share of its key for each person, sealed as their personal data.
        nonce: The nonce, in base64.
        ciphertext: The text, encrypted under the key of all shares together, in base64.
    """

    payload: dict[str, JsonValue]
    nonce: str
    ciphertext: str


class KeptTranscript(CompactRecord):
    """A transcript as the artifact store has it.

    Attributes:
        stage: The stage.
        handoff_id: The handoff under which its agents acted.
        until: When it expires; it is not shown afterwards.
        transcript: The transcript, unless it is sealed.
        sealed: The sealed transcript, as JSON.
    """

    stage: str
    handoff_id: str = ""
    until: Timestamp
    transcript: Transcript | None = None
    sealed: SealedText | None = None

    def has_expired(self, now: datetime) -> bool:
        """Return whether its time is over."""
        return now >= self.until
