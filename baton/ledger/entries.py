"""The ledger's entries, made of what happened: a receiver's answer, the end of a task, an erasure.

A rejected message may be anything, and must be recorded all the same. So nothing here trusts it: a member that is
missing or of a wrong type is left out of the header, and stands in the message as it came.

A record is hashed for ever, so what may have to be erased never enters it in clear. In its place stands a
**commitment**, an HMAC under a random salt that is kept elsewhere: who has salt and value can prove what
was recorded; without the salt no one can test a guess, which a bare hash of an e-mail address would allow.
Erasing the salt (or the key of a ciphertext) changes no byte of any record (EAAPL-MAG006 §12.3).
"""

import hashlib
import hmac
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

import rfc8785

from baton.core.history import Spend
from baton.core.verdict import HandoffStatus
from baton.ledger.records import AuditCost, AuditEntry, Kind
from baton.wire.canonical import digest, digest_of, pae
from baton.wire.money import micro_usd

PERSONAL_DATA = "/personalDataPayload"
"""Where a handoff message carries personal data (§12.3)."""
FEWEST_SALT_BYTES = 16

_COMMITMENT = "baton/commitment/v1"
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


@dataclass(frozen=True)
class RedactionPolicy:
    """Which members of a message hold personal data.

    Attributes:
        fields: JSON pointers (RFC 6901); a `*` stands for every member or item. An object that one leads to
            is redacted member by member, so that each can have a data subject of its own.
        is_sealed: Whether a value is ciphertext of the vault and may stay as it is; by default nothing is.
    """

    fields: frozenset[str] = frozenset({PERSONAL_DATA})
    is_sealed: Callable[[Any], bool] = lambda value: False


@dataclass(frozen=True)
class Opening:
    """What opens a commitment; it goes to the vault, under the data subject's key, and never into the ledger.

    Attributes:
        pointer: Where in the message the value was.
        salt: The random salt.
        value: The value.
    """

    pointer: str
    salt: bytes
    value: Any


@dataclass(frozen=True)
class Redaction:
    """A message that may be recorded, and what was taken out of it."""

    message: dict[str, Any]
    openings: tuple[Opening, ...]


def redact(message: dict[str, Any], policy: RedactionPolicy, salt: Callable[[str], bytes]) -> Redaction:
    """Return ``message`` with a commitment in place of each value that the policy names."""
    copy = _copied(message)
    openings = []
    for holder, name, pointer in list(_targets(copy, policy)):
        opening = Opening(pointer, salt(pointer), holder[name])
        holder[name] = {"commitment": commitment(opening)}
        openings.append(opening)
    return Redaction(copy, tuple(openings))


def in_clear(message: dict[str, Any], policy: RedactionPolicy) -> list[str]:
    """Return the pointers at which a message still holds personal data in clear; it must not be recorded then."""
    return [pointer for _, _, pointer in _targets(message, policy)]


def commitment(opening: Opening) -> str:
    """Return the commitment to a value at its place."""
    if len(opening.salt) < FEWEST_SALT_BYTES:
        raise ValueError(f"a salt of {len(opening.salt)} bytes can be guessed: take {FEWEST_SALT_BYTES} random ones")
    value = rfc8785.dumps({"at": opening.pointer, "value": opening.value})
    return digest_of(hmac.digest(opening.salt, pae(_COMMITMENT, value), hashlib.sha256))


def opens(recorded: Any, opening: Opening) -> bool:
    """Return whether ``opening`` is what stood in a message in place of the ``recorded`` commitment."""
    return is_commitment(recorded) and hmac.compare_digest(recorded["commitment"], commitment(opening))


def is_commitment(value: Any) -> bool:
    """Return whether a value is a commitment and nothing else."""
    return (
        isinstance(value, dict) and value.keys() == {"commitment"} and bool(_DIGEST.fullmatch(str(value["commitment"])))
    )


def _targets(message: Any, policy: RedactionPolicy) -> Iterator[tuple[Any, Any, str]]:
    """Yield the holder, the name in it, and the pointer of each value that is still in clear."""
    for field in sorted(policy.fields):
        for holder, name, pointer in _at(message, field.split("/")[1:], ""):
            value = holder[name]
            if isinstance(value, dict) and not _is_safe(value, policy):
                inner = [(value, member, f"{pointer}/{_escaped(member)}") for member in value]
            else:
                inner = [(holder, name, pointer)]
            yield from (found for found in inner if not _is_safe(found[0][found[1]], policy))


def _at(holder: Any, path: list[str], pointer: str) -> Iterator[tuple[Any, Any, str]]:
    """Yield every place that a pointer leads to."""
    if not path:
        return
    head, *rest = path
    if isinstance(holder, dict):
        wanted = head.replace("~1", "/").replace("~0", "~")
        names: list[Any] = list(holder) if head == "*" else [wanted] if wanted in holder else []
    elif isinstance(holder, list):
        names = [place for place in range(len(holder)) if head in ("*", str(place))]
    else:
        return
    for name in names:
        here = f"{pointer}/{_escaped(str(name))}"
        if rest:
            yield from _at(holder[name], rest, here)
        else:
            yield holder, name, here


def _is_safe(value: Any, policy: RedactionPolicy) -> bool:
    """Return whether a value tells nothing about anybody."""
    return value in (None, {}, []) or is_commitment(value) or policy.is_sealed(value)


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")


def _copied(value: Any) -> Any:
    """Return a deep copy of JSON."""
    if isinstance(value, dict):
        return {name: _copied(inner) for name, inner in value.items()}
    return [_copied(inner) for inner in value] if isinstance(value, list) else value


LONGEST_NAME = 255
_LONGEST_WORKFLOW_ID = 200  # Temporal takes 1,000 characters, the ledger 255 with the run behind it
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
AGAIN = "#"
"""Behind an event's id: something else of an event that is on record already, with the beginning of its digest."""
LONGEST_DETAILS = 16_000


def handoff_entry(
    message: dict[str, Any],
    *,
    task_id: str,
    status: HandoffStatus,
    timestamp: datetime,
    kind: str = Kind.HANDOFF,
    attempt: int = 1,
    reason: str | None = None,
    details: str | None = None,
    actor: str | None = None,
    run_id: str | None = None,
) -> AuditEntry:
    """Return the entry of a receiver's answer to a handoff (EAAPL-MAG006 §6.2, §7.2)."""
    return AuditEntry(
        kind=kind,
        task_id=task_id,
        event_id=usable_name(message.get("handoffId")) or digest(message),
        attempt=attempt,
        status=status,
        timestamp=timestamp,
        from_agent=usable_name(_inner(message, "fromAgent", "agentId")),
        to_agent=usable_name(_inner(message, "toAgent", "agentType")),
        reason=reason,
        details=details if details is None else details[:LONGEST_DETAILS],
        actor=actor,
        run_id=run_id,
        cost=cost_of(message),
        message=message,
    )


def erasure_entry(
    erasure_id: str,
    *,
    task_id: str,
    subject: str,
    removed: Mapping[str, int],
    timestamp: datetime,
    actor: str | None = None,
) -> AuditEntry:
    """Return the entry, in one task's chain, of the erasure of a data subject (§12.3)."""
    return AuditEntry(
        kind=Kind.ERASURE,
        task_id=task_id,
        event_id=erasure_id,
        status="ERASED",
        timestamp=timestamp,
        actor=actor,
        message={"removed": dict(removed), "subject": subject},
    )


def cost_of(message: Mapping[str, Any]) -> AuditCost | None:
    """Return what `costTracking` of a handoff message says, or None if it says nothing that can be read."""
    try:
        tracking = message["costTracking"]
        tokens = tracking["tokenSpent"]
        return AuditCost(
            spent_micro_usd=_micro(tracking["costSpentSoFarUSD"]),
            remaining_micro_usd=_micro(tracking["costBudgetRemainingUSD"]),
            prompt_tokens=tokens["prompt"],
            completion_tokens=tokens["completion"],
        )
    except (KeyError, TypeError, ValueError, ArithmeticError):
        return None


def cost_after(message: Mapping[str, Any], spend: Spend) -> AuditCost | None:
    """Return the figures of a handoff after its receiver's own cost, or None if it says none that can be read."""
    cost = cost_of(message)
    return None if cost is None else cost_with(cost, spend)


def cost_with(cost: AuditCost, spend: Spend) -> AuditCost:
    """Return the figures of a task after somebody's own cost."""
    left = cost.remaining_micro_usd
    return cost.model_copy(
        update={
            "spent_micro_usd": cost.spent_micro_usd + spend.micro_usd,
            "remaining_micro_usd": None if left is None else left - spend.micro_usd,
            "own_micro_usd": spend.micro_usd,
            "own_prompt_tokens": spend.prompt_tokens,
            "own_completion_tokens": spend.completion_tokens,
            "prompt_tokens": cost.prompt_tokens + spend.prompt_tokens,
            "completion_tokens": cost.completion_tokens + spend.completion_tokens,
        }
    )


def _micro(amount: Any) -> int:
    if isinstance(amount, bool) or not isinstance(amount, int | float | Decimal):
        raise TypeError("an amount of money is a number")
    return micro_usd(Decimal(repr(amount)) if isinstance(amount, float) else Decimal(amount))


def _inner(message: Mapping[str, Any], outer: str, member: str) -> Any:
    holder = message.get(outer)
    return holder.get(member) if isinstance(holder, dict) else None


def run_name(workflow_id: str, run_id: str | None = None) -> str:
    """Return the name under which a header tells a workflow, and its run: who starts one may choose any id."""
    shown = _CONTROL.sub("\ufffd", workflow_id[:_LONGEST_WORKFLOW_ID])
    return shown if run_id is None else f"{shown}/{run_id}"


def usable_name(value: Any) -> str | None:
    """Return a value that can stand in a header as a name, or None: the sender may have put anything there."""
    usable = isinstance(value, str) and 0 < len(value) <= LONGEST_NAME and value.isprintable()
    return value if usable else None
