"""What an agent outside reads of a handoff: the contract and the baton, or a work product, inside the data fence."""

import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Self

from pydantic import ValidationError

from baton.artifacts.records import ArtifactRef
from baton.contract.draft import render_contract
from baton.contract.records import HandoffContract
from baton.contract.validation import validate_contract
from baton.core.baton import AnyBaton
from baton.core.rendering import render
from baton.errors import ArtifactError, PipelineError
from baton.wire.text import fence, single_line

CONTRACT = "contract"
"""The member that carries the contract: of a message's `step`, or of its `currentState`."""
_OF_A_CONTRACT = frozenset({"handoffId", "receivingAgent"})  # else it is the pipeline's own, of the same name
PAGE = 40_000
"""So many characters of an artifact are read at once."""
_NONCE_BYTES = 8


@dataclass(frozen=True)
class HandedOver:
    """What an accepted message hands over.

    Attributes:
        sender: Who hands on.
        description: What is to be done.
        rules: Rules of the form `key:value`.
        contract: What may be seen and done, as JSON, if the sender made a contract.
        judged: Whether the gate judged the contract when the message was accepted, and so its expiry.
        baton: The baton, if the state is one.
        state: The state, without the contract.
    """

    sender: str
    description: str
    rules: list[str] = field(default_factory=list)
    contract: Mapping[str, Any] | None = None
    judged: bool = False
    baton: AnyBaton | None = None
    state: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, message: Mapping[str, Any]) -> "HandedOver":
        """Return what a message hands over."""
        state, made = dict(message["currentState"]), (message.get("step") or {}).get(CONTRACT)
        sent = state.get(CONTRACT)
        is_contract = isinstance(sent, Mapping) and sent.keys() >= _OF_A_CONTRACT
        if is_contract:
            del state[CONTRACT]
        try:
            baton = AnyBaton.from_json_object(state)
        except ValidationError:
            baton = None
        return cls(
            sender=message["fromAgent"]["agentId"],
            description=message["taskDescription"],
            rules=list(message["constraints"]),
            contract=made or (sent if is_contract else None),
            judged=bool(made),
            baton=baton,
            state=state,
        )

    def checked(self, agent: str, now: datetime) -> Self:
        """Return this, if its contract may be worked under: it is whole, not expired, and the agent's."""
        if self.contract is None:
            return self
        faults = [single_line(one.text) for one in validate_contract(self.contract, now=now).errors]
        if not faults:
            contract = HandoffContract.from_json_object(self.contract)
            if contract.expires_at < now and not self.judged:
                faults.append(f"it expired at {contract.expires_at.isoformat()}")
            if contract.receiving_agent != agent:
                faults.append(f"it is for another agent than {agent!r}")
        if faults:
            told = "; ".join(faults)
            raise PipelineError(f"the contract may not be used: {told}; call ask_for_input, so that it is made again")
        return self

    def text(self) -> str:
        """Return it for an agent's user turn, inside a fence that its authors could not foresee."""
        rows = [f"**From:** {single_line(self.sender)}"]
        if self.contract is None:
            rows.append(f"**Task:** {single_line(self.description)}")
        rows += [f"**Rule:** {single_line(rule)}" for rule in self.rules]
        parts = ["\n".join(rows) + "\n"]
        if self.contract is not None:
            parts.append(render_contract(HandoffContract.from_json_object(self.contract)))
        return fence("\n".join([*parts, self._state()]), secrets.token_hex(_NONCE_BYTES))

    def artifact(self, id: str) -> ArtifactRef:
        """Return the reference to an artifact; what the baton does not name cannot be read."""
        refs = self.baton.artifacts if self.baton else []
        for ref in refs:
            if ref.id == id:
                return ref
        known = ", ".join(single_line(ref.id) for ref in refs[:20]) or "none"
        raise ArtifactError(f"the baton names no artifact {id[:60]!r}; it names {known}")

    def _state(self) -> str:
        """Return the state as Markdown: the baton's page, or a line for each member."""
        if self.baton is not None:
            return render(self.baton)
        lines = (f"{name}: {json.dumps(value, ensure_ascii=False)}" for name, value in self.state.items())
        return "\n".join(["## State", "", *(f"- {single_line(line)}" for line in lines), ""])


def artifact_page(ref: ArtifactRef, data: bytes, offset: int) -> str:
    """Return a part of a text artifact, fenced, and where it continues."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        raise ArtifactError(f"artifact {ref.id!r} is not a text: {len(data):,} bytes of type {ref.type!r}") from None
    if offset > len(text):
        raise ArtifactError(f"artifact {ref.id!r} has {len(text):,} characters; begin before {offset:,}")
    page = text[offset : offset + PAGE]
    end = offset + len(page)
    more = f"; continue with offset={end}" if end < len(text) else ", its end"
    return f"{fence(page, secrets.token_hex(_NONCE_BYTES))}Characters {offset:,} to {end:,} of {len(text):,}{more}.\n"
