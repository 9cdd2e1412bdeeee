"""What a run starts from besides its goal, baton, parameters and inputs: recorded steps, carried state, an edit.

A past crosses into a run with its input (`baton.core.messages.PipelineInput`), where anybody may have written it. So it
is parsed like the rest of the input, and what reads runs can rely on its form. Whoever writes one names its `Heir`, the
run that may start from it, and its payload is sealed when it leaves; `SealCheck` is what came of verifying that.
"""

import re
from ast import literal_eval
from collections.abc import Mapping
from typing import Annotated, Any, Self

from pydantic import ConfigDict, Field, JsonValue, TypeAdapter

from baton.core.history import HistoryEntry, Outcome, Spend, StepKind
from baton.wire.records import CompactRecord, Integer, Record, Timestamp, Uuid4


class Heir(CompactRecord):
    """The only run that may start from a past.

    Attributes:
        namespace: Its namespace.
        workflow_id: Its workflow.
        run_id: The first run of the chain that it continues, or its parent's run. No client can set either. Absent in a
            fork, whose run has to start right after.
    """

    namespace: str
    workflow_id: str
    run_id: str | None = None


class ParentHandoff(CompactRecord):
    """The handoff that brought a task to a child's parent.

    Attributes:
        handoff_id: The handoff; the child's first one names it as its parent.
        completed: The parts of the task that are done, as in the handoff message.
    """

    handoff_id: Uuid4
    completed: list[dict[str, JsonValue]]


class ChildHandoff(ParentHandoff):
    """A child's last handoff, which its parent's next one names as its parent.

    Attributes:
        handoff_id: The handoff.
        completed: The parts of the task that are done, as in the handoff message.
        sender: Who hands on next, as in the handoff message.
    """

    sender: dict[str, JsonValue]


class SealCheck(CompactRecord):
    """The result of verifying the seal of a past; ``fault`` follows the words "its past".

    Attributes:
        unknown_key: Whether it could not be verified here: another worker may have the key.
    """

    fault: str = ""
    unknown_key: bool = False
    at: Timestamp | None = None


class RolledBack(CompactRecord):
    """A roll-back or other reset, read from the histories of the old and the new run.

    Attributes:
        to: The step before which the run resumed; empty for a reset by Temporal's own tools.
        left: What the abandoned part was charged; it stays charged.
        topped_up_micro_usd: What people added to the budget in the abandoned part; it stays added.
    """

    to: str = ""
    by: str = ""
    why: str = ""
    from_run_id: str = ""
    stopped_children: list[str] = Field(default_factory=list)
    left: Spend = Spend()
    topped_up_micro_usd: Integer = Field(default=0, ge=0)

    @property
    def note(self) -> str:
        """One sentence for operators; also the reset reason that the server stores."""
        return f"rolled back to before {self.to!r} by {self.by}: {self.why}" if self.to else f"reset: {self.why}"

    @classmethod
    def from_reason(cls, reason: str, **further: Any) -> Self:
        """Return the roll-back described by a reset reason."""
        match = _ROLL_BACK.fullmatch(reason)
        if match is None:
            return cls(why=reason, **further)
        return cls(to=literal_eval(match[1]), by=match[2], why=match[3], **further)


_ROLL_BACK = re.compile(
    r"""rolled back to before ('(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*") by (.+?): (.*)""", re.DOTALL
)


class RollBacks(CompactRecord):
    """The roll-backs that are new to a run, in order: the result of the activity `ROLLED_BACK`."""

    made: list[RolledBack]


class _Operators(CompactRecord):
    notes: list[str] = Field(default_factory=list)
    roll_backs: list[RolledBack] = Field(default_factory=list)


class _Billed(CompactRecord):
    unrecorded: Spend = Spend()


class _Open(Record):
    """The members that readers and forks use; the owner of the state checks the others, see `Pipeline.carried`."""

    model_config = ConfigDict(extra="allow")


class _PersonalEntry(_Open):
    fields: dict[str, JsonValue] = Field(default_factory=dict)


class _Relayed(_Open):
    personal_data: dict[str, _PersonalEntry] = Field(default_factory=dict)


class _Handed(_Open):
    turns: list[dict[str, JsonValue]] = Field(default_factory=list)
    summary: str = ""
    upstream: Spend = Spend()
    released: dict[str, str] = Field(default_factory=dict)
    on_record: bool | None = None
    relay: _Relayed | None = None


class _Streamed(_Open):
    opening: list[str] = Field(default_factory=list)


class _Carried(_Open):
    __pydantic_extra__: dict[str, dict[str, JsonValue]]

    operators: _Operators = _Operators()
    budget: _Billed = _Billed()
    handoffs: _Handed = _Handed()
    streams: _Streamed = _Streamed()


_ENTRIES = TypeAdapter(Annotated[list[HistoryEntry], Field(min_length=1)])
_PERSONAL_DATA = TypeAdapter(dict[str, _PersonalEntry])


def check_carried(carried: Mapping[str, Any]) -> None:
    """Raise pydantic's ValidationError if carried state is malformed where readers and forks use it."""
    _Carried.model_validate(carried)


def check_personal_data(payload: Mapping[str, Any]) -> None:
    """Raise pydantic's ValidationError if encrypted personal data cannot be merged with other personal data."""
    _PERSONAL_DATA.validate_python(payload, strict=True)


class _Log(_Open):
    decision_log: list[str] = Field(default_factory=list)


def check_outcome(outcome: Outcome) -> None:
    """Raise pydantic's ValidationError if a recorded step lacks what restoring it takes."""
    if outcome.kind is StepKind.STAGE and outcome.failure is None:
        _ENTRIES.validate_python(outcome.entries)
    for entry in outcome.entries:
        _Log.model_validate(entry.effective)
