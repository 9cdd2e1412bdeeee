"""What an agent saw, from where, how sure, what was left out and why, and what that cost.

An explanation is made from a contract and the session events that it was compiled from, wherever they are read: by a
query in a running pipeline, or from the history of one that ended.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pydantic import Field, JsonValue

from baton.contract.records import HandoffContract, SessionEvent
from baton.core.messages import PromptPart
from baton.wire.records import CompactRecord, Whole
from baton.wire.text import single_line


class LeftOut(CompactRecord):
    """One session event that did not cross, and why; its content is not told.

    Attributes:
        event_id: The event.
        label: Why, for example `"type:brainstorm"`.
        agent: Who recorded it.
    """

    event_id: str
    label: str
    agent: str | None = None


class Explanation(CompactRecord):
    """Why an agent did what it did, as far as what it was given can tell.

    Attributes:
        stage: The stage.
        seq: The step's number.
        attempt: Which attempt; earlier ones may have had other contracts.
        contract: The contract, as JSON; empty in a pipeline without contracts.
        left_out: The events that did not cross.
        prompt: The parts of the prompt, each with its tokens before and after it was made to fit, and why.
        tokens_read: Tokens of the prompt that the agent was given; 0 if it asked for none, or has not ended.
        transcript_tokens: What handing on everything that was said and fetched before would have cost.
    """

    stage: str
    seq: Whole
    attempt: Whole = 1
    contract: dict[str, JsonValue] = Field(default_factory=dict)
    left_out: list[LeftOut] = Field(default_factory=list)
    prompt: list[PromptPart] = Field(default_factory=list)
    tokens_read: Whole = 0
    transcript_tokens: Whole = 0

    @property
    def terms(self) -> HandoffContract:
        """The contract, as a record."""
        return HandoffContract.from_json_object(self.contract)

    @property
    def times_fewer(self) -> float | None:
        """How many times fewer tokens it read than the transcript has; None while that is not known."""
        return self.transcript_tokens / self.tokens_read if self.tokens_read else None

    def to_markdown(self) -> str:
        """Return the explanation for a person."""
        lines = [f"# What {self.stage!r} was given (step {self.seq}, attempt {self.attempt})", ""]
        lines += self._of_contract() if self.contract else ["- no contract"]
        lines += ["", "## What its prompt had", ""]
        lines += [
            f"- {single_line(part.name)}: {part.shown:,} of {part.tokens:,} tokens"
            + (f"; {single_line(part.why)}" if part.why else "")
            for part in self.prompt
        ] or ["- not known"]
        return "\n".join([*lines, *self._cost()]) + "\n"

    def _of_contract(self) -> list[str]:
        """Return the lines on the contract: task, tools, facts, and what was left out."""
        contract = self.terms
        lines = [
            f"- **Task:** {single_line(contract.task)}",
            f"- **Handoff:** `{contract.handoff_id}` in trace `{contract.trace_id}`",
            f"- **Contract:** made {contract.created_at.isoformat()}, valid for {contract.expires_after_minutes} min",
        ]
        if contract.output_schema is not None:
            lines.append(f"- **Its output must fit:** {contract.output_schema}")
        lines.append(f"- **Tools allowed:** {_names(contract.allowed_tools)}")
        lines.append(f"- **Tools forbidden:** {_names(contract.forbidden_tools)}")
        lines += ["", f"## Facts it saw ({len(contract.facts)})", ""]
        lines += [
            f"- {single_line(fact.claim)}\n  - {fact.confidence.value}, from `{single_line(fact.source.source)}` by "
            f"{single_line(fact.source.method)}, retrieved {fact.source.timestamp.isoformat()} "
            f"(event `{fact.event_id}`)"
            for fact in contract.facts
        ] or ["- none"]
        lines += ["", f"## Left out ({len(self.left_out)})", ""]
        by_label: dict[str, list[str]] = {}
        for one in self.left_out:
            by_label.setdefault(one.label, []).append(one.event_id)
        lines += [
            f"- `{label}`: {len(ids)} ({', '.join(ids[:_LISTED])}{', …' if len(ids) > _LISTED else ''})"
            for label, ids in by_label.items()
        ] or ["- nothing"]
        return lines

    def _cost(self) -> list[str]:
        """Return the lines on what the prompt cost."""
        lines = ["", "## What it cost to read", ""]
        if self.times_fewer is None:
            lines.append(
                "- not known: the stage asked for no prompt, or has returned nothing; everything before it has "
                f"{self.transcript_tokens} tokens"
            )
        else:
            ratio = f" ({self.times_fewer:.1f} times fewer)" if self.times_fewer > 1 else ""
            lines.append(
                f"- {self.tokens_read} tokens, against {self.transcript_tokens} for everything said and fetched "
                f"before it{ratio}"
            )
        return lines


_LISTED = 10


def explanation_of(
    contract: Mapping[str, Any],
    told: Iterable[Mapping[str, str]],
    before: Iterable[SessionEvent],
    *,
    stage: str,
    seq: int,
    attempt: int = 1,
    tokens_read: int = 0,
    prompt: Sequence[PromptPart] = (),
) -> Explanation:
    """Return the explanation of one stage."""
    events = {event.id: event for event in before}
    labels = {id: label for message in told for id, label in message.items()}
    facts = {fact["eventId"] for fact in contract.get("facts", [])}  # one that was left out before may cross by now
    left_out = [
        LeftOut(event_id=id, label=label, agent=events[id].agent if id in events else None)
        for id, label in labels.items()
        if id not in facts
    ]
    return Explanation(
        stage=stage,
        seq=seq,
        attempt=attempt,
        contract=dict(contract),
        left_out=left_out,
        prompt=[*prompt],
        tokens_read=tokens_read,
        transcript_tokens=sum(event.tokens for event in events.values()),
    )


def _names(tools: Iterable[str]) -> str:
    """Return names of tools for a line."""
    return ", ".join(f"`{single_line(tool)}`" for tool in tools) or "none"
