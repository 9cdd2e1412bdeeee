"""The handoff protocol in plain functions, for agents of other systems: sign, verify, validate, answer with a receipt.

The order is the document's (EAAPL-MAG006 §6.1, §10.2): verify the bytes as received, validate what they say, record the
answer, and only then act. These functions record nothing; Baton's own receivers write to the ledger before they answer.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from pydantic import ValidationError
from pydantic_core import to_json

from baton.core.outline import Outline
from baton.core.receivers import ReceiverRequirements
from baton.core.verdict import Code, Finding, Receipt, Verdict
from baton.errors import MalformedMessageError
from baton.handoff.records import Handoff
from baton.handoff.sealed import KEY_ID, NAMESPACE, SIGNATURE, SealError, VerifiedHandoff
from baton.handoff.store_gate import AUDIENCE_RUN, REPLAY, Freshness, audience_check, contract_check, judge_opened
from baton.handoff.store_signing import open_sealed, seal
from baton.handoff.validation import Check
from baton.keys.store_keyring import Keyring
from baton.keys.store_keys import PublicKeys, Purpose
from baton.ledger.entries import usable_name
from baton.safety.detector import detect
from baton.safety.scan import Detector, ScanPolicy
from baton.wire.json_values import format_digest, loads_strict, sha256
from baton.wire.store_clock import now_utc


def sign(message: Handoff | Mapping[str, Any], keys: Keyring, *, namespace: str | None = None) -> bytes:
    """Return a handoff as sealed bytes, to be sent exactly as they are.

    The seal is HMAC-SHA256 or, with `Keyring(…, seal_with=Purpose.SIGN)`, an Ed25519 signature over the canonical JSON
    (RFC 8785) of all other members; it adds `signature` and `keyId`, and `namespace` if one is given.

    Args:
        message: The handoff; a seal that it has is replaced. It is not validated.
        keys: The keyring; its current key seals.
        namespace: The Temporal namespace of a receiver that is a pipeline.

    Raises:
        SealError: JSON cannot represent it exactly, such as a number of more than 2**53.
        KeyringError: The keyring has no current key to seal with.

    Example:
        >>> from baton.protocol import Keyring
        >>> keys = Keyring.generate()
        >>> verify(sign({"handoffId": "h-1"}, keys), keys).message["handoffId"]
        'h-1'
    """
    return seal(message.to_json_object() if isinstance(message, Handoff) else message, keys, namespace)


def verify(raw: bytes, keys: Keyring | PublicKeys, *, namespace: str | None = None) -> VerifiedHandoff:
    """Return the message in received bytes whose seal holds.

    It checks neither schema, age and audience, which `validate_handoff` does, nor whether the message was received
    before: keep the ids of what you accepted.

    Args:
        raw: The message as received.
        keys: All keys, or the senders' public keys, which verify Ed25519 seals only.
        namespace: The namespace that it must have been sealed for, if any.

    Raises:
        SealError: It is not sealed or not JSON, its key is unknown or was retired, its seal does not hold, or it was
            sealed for another namespace. The text never quotes the message.

    Example:
        >>> from baton.protocol import Keyring
        >>> keys = Keyring.generate()
        >>> verify(sign({"goal": "a"}, keys).replace(b'"a"', b'"b"'), keys)  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        baton.handoff.sealed.SealError: its seal does not hold: ...
    """
    return open_sealed(raw, keys, namespace)


def validate_handoff(
    message: VerifiedHandoff | Handoff | Mapping[str, Any],
    receiver: ReceiverRequirements,
    *,
    at: datetime | None = None,
    max_age: timedelta | None = None,
    audience: str | None = None,
    namespace: str | None = None,
    audience_run: str | None = None,
    policy: ScanPolicy | None = None,
    detector: Detector = detect,
) -> Verdict:
    """Return a receiver's verdict on a message: valid, or the deciding code and all findings (§6.1, §7.1.4).

    Schema, destination, audience, completeness, budget, safety of all texts, age, and the contract in it if it carries
    one. The most severe code decides: `verdict.disposition()` says what happens next. It does not verify the seal, nor
    remember what was received.

    Args:
        message: The verified message. A mapping counts as read without a seal.
        receiver: The receiving agent, its version, and what it needs in `currentState`.
        at: The receiver's time, with an offset; now by default.
        max_age: How old the message may be; by default only its `expiresAt` limits it.
        audience: The receiver's address, which the message must name. Without one, no message that names one is valid.
        namespace: The receiver's namespace, likewise.
        audience_run: The first run of the receiver's chain; a message need not name it.
        policy: What the safety scan rejects, and what it only flags.
        detector: Finds injected instructions.

    Example:
        >>> receiver = ReceiverRequirements("risk-scoring-agent", "1.6.0")
        >>> verdict = validate_handoff({"schemaVersion": "2.0"}, receiver)
        >>> verdict.valid, verdict.reason.value, verdict.disposition().value
        (False, 'SCHEMA_INVALID', 'back_to_sender')
    """
    members = message.message if isinstance(message, VerifiedHandoff) else message
    freshness = Freshness(max_age)
    now = at or now_utc()
    return judge_opened(
        members.to_json_object() if isinstance(members, Handoff) else members,
        receiver,
        policy or ScanPolicy(),
        detector,
        freshness,
        clock=lambda: now,
        extra_checks=[
            contract_check(lambda: now, freshness.tolerance),
            address_check(audience, namespace, audience_run),
        ],
    ).verdict


def address_check(audience: str | None, namespace: str | None = None, audience_run: str | None = None) -> Check:
    """Return the `audience_check` of what the receiver said of itself, which refuses what only the message names."""
    own = {"/audience": audience, f"/{NAMESPACE}": namespace, f"/{AUDIENCE_RUN}": audience_run}
    names_it = audience_check(audience or "", namespace or "", audience_run or "")

    def check(handoff: Handoff) -> list[Finding]:
        named = dict(zip(own, (handoff.audience, handoff.namespace, handoff.audience_run), strict=True))
        unsaid = [
            Finding(
                code=Code.SIGNATURE_INVALID,
                text=f"its member {at[1:]!r} says for whom it is, and the receiver did not say who it is; give its "
                f"own {at[1:]!r}",
                at=at,
                rule=REPLAY,
            )
            for at, said in own.items()
            if said is None and named[at] is not None
        ]
        return [*unsaid, *(finding for finding in names_it(handoff) if own[finding.at] is not None)]

    return check


_RECEIPT, _AT = "receipt", "timestamp"
_MEMBERS = {_RECEIPT, _AT, KEY_ID, SIGNATURE}


def issue_receipt(raw: bytes, verdict: Verdict, keys: Keyring, *, at: datetime | None = None) -> bytes:
    """Return a receiver's signed answer to a handoff, which names the received bytes by their digest.

    Issue it once the answer is recorded: from then on the sender counts on it.

    Args:
        raw: The message as received.
        verdict: The receiver's verdict.
        keys: The receiver's keyring. With Ed25519 the sender can show the receipt to others.
        at: When the receiver answered, with an offset; now by default.

    Example:
        >>> from baton.protocol import Keyring
        >>> keys = Keyring.generate()
        >>> raw = sign({"handoffId": "h-1"}, keys)
        >>> verify_receipt(issue_receipt(raw, Verdict.of([]), keys), keys, raw).verdict.answer.value
        'ACCEPTED'
    """
    now = at or now_utc()
    try:
        message = loads_strict(raw)
    except MalformedMessageError:
        message = None
    outline = Outline.of(message if isinstance(message, dict) else {})
    receipt = Receipt(
        handoff_id=usable_name(outline.handoff_id) or "",
        task_id=usable_name(outline.task_id) or "",
        digest=format_digest(sha256(raw)),
        attempt=outline.step.attempt,
        verdict=verdict,
        at=now,
    )
    return seal_receipt(receipt, keys)


def seal_receipt(receipt: Receipt, keys: Keyring, *, purpose: Purpose | None = None) -> bytes:
    """Return a recorded answer as a signed receipt; see `issue_receipt`. With `Purpose.SIGN` others can verify it."""
    return seal({_RECEIPT: receipt.model_dump(mode="json"), _AT: receipt.at.isoformat()}, keys, purpose=purpose)


def verify_receipt(receipt: bytes, keys: Keyring | PublicKeys, raw: bytes) -> Receipt:
    """Return a receiver's answer to the message that was sent, if its seal holds.

    Args:
        receipt: The receipt as received.
        keys: The keys, or the receiver's public keys. A shared secret proves only that somebody who has it answered.
        raw: The message as it was sent.

    Raises:
        SealError: Its seal does not hold, it is not a receipt, or it answers another message.
    """
    members = open_sealed(receipt, keys).message
    try:
        if members.keys() != _MEMBERS:
            raise ValueError
        answer = Receipt.model_validate_json(to_json(members[_RECEIPT]))
    except (ValidationError, ValueError):
        raise SealError("it is sealed, and is not a receipt; send what `issue_receipt` returned") from None
    if answer.digest != format_digest(sha256(raw)):
        raise SealError("it is the receipt of another message; compare it with the bytes that were sent")
    return answer
