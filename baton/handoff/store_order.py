"""Relay files: an order to a pipeline of another company in one file, sent by mail or otherwise, and opened offline.

An order holds a handoff, signed with Ed25519, its contract, the digests of both and of the artifacts that it refers
to, the signer's public key, the head of the task's chain in the sender's ledger, and a signature over all of this. It
is JSON, and the signatures are over its canonical form: a mail program may wrap and indent it.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, Any, Final, Literal

from pydantic import Field, JsonValue, ValidationError

from baton.core.artifacts import ArtifactRef, find_artifacts
from baton.errors import HandoffError, MalformedMessageError
from baton.handoff.sealed import NAMESPACE, SealError
from baton.handoff.store_signing import open_sealed, seal
from baton.keys.claims import Claim, SignatureCheck
from baton.keys.store_keyring import Keyring
from baton.keys.store_keys import PublicKey, PublicKeys, PublicKeysError, Purpose
from baton.ledger.chain import ChainHead, head_statement
from baton.ledger.records import ChainLink
from baton.wire.base64url import from_base64url
from baton.wire.json_values import (
    MAX_MESSAGE_VALUES,
    canonical_json,
    digest,
    find_excess,
    loads_strict,
    parse_digest,
)
from baton.wire.records import CamelRecord, Digest, Instant, Name, Signature, format_instant
from baton.wire.text import describe_faults

FORMAT: Final = "baton.order/1"
MAX_ORDER_BYTES = 4 * 1024 * 1024
"""The most bytes of a relay file; no more of a larger one is read."""


class OrderError(HandoffError):
    """A relay file is refused, or cannot be made; the text says what was found, and what was expected.

    Ask the sender for the file again.
    """


class OrderDigests(CamelRecord):
    """The digests of an order's parts, over their canonical JSON."""

    message: Digest
    contract: Digest


class Order(CamelRecord):
    """An order as it is written. Nothing in it counts before `open_order` has verified it.

    Attributes:
        format: `"baton.order/1"`.
        message: The signed handoff; its contract is in `step`.
        digests: The digests of the message and of its contract.
        artifacts: What the message refers to; the bytes travel by themselves.
        key: The signer's public key as a JWK, for information: the receiver trusts its own list.
        head: The head of the task's chain in the sender's ledger when the order was made, for a later comparison.
        timestamp: When it was made.
        key_id: The key that signed it.
        signature: The signature over the canonical form of all other members.
    """

    format: Literal["baton.order/1"]
    message: dict[str, JsonValue]
    digests: OrderDigests
    artifacts: list[ArtifactRef] = Field(max_length=1_000)
    key: dict[str, JsonValue]
    head: ChainHead
    timestamp: Instant
    key_id: Name
    signature: Annotated[Signature, Field(max_length=200)]


@dataclass(frozen=True)
class OpenOrder:
    """A verified order.

    Attributes:
        order: The order.
        raw: The handoff's bytes, in canonical form, to be judged by a gate and named by a receipt.
        digest: The digest of the whole order.
        trust: The public keys that it was verified with.
    """

    order: Order
    raw: bytes
    digest: str
    trust: PublicKeys = field(repr=False)

    @property
    def id(self) -> str:
        """The id of the order, which is its handoff's."""
        return str(self.order.message.get("handoffId"))

    @property
    def receiver(self) -> str:
        """The pipeline that the order is for; empty if it does not say."""
        target = self.order.message.get("toAgent")
        name = target.get("agentType") if isinstance(target, dict) else None
        return name if isinstance(name, str) else ""


def sign_message(message: Mapping[str, Any], keyring: Keyring) -> dict[str, Any]:
    """Return an order's handoff, signed with the key that others verify."""
    signed: dict[str, Any] = loads_strict(seal(message, keyring, purpose=Purpose.SIGN))
    return signed


def write_order(message: Mapping[str, Any], head: ChainHead, keyring: Keyring, *, at: datetime) -> bytes:
    """Return a relay file.

    Args:
        message: The handoff, as `sign_message` returned it.
        head: The head of the task's chain.
        keyring: The keyring; its current key to sign signs.
        at: Now.

    Raises:
        OrderError: It would be larger than `MAX_ORDER_BYTES`.
    """
    members = {
        "format": FORMAT,
        "message": dict(message),
        "digests": {"message": digest(dict(message)), "contract": digest(message["step"]["contract"])},
        "artifacts": [artifact.to_json_object() for artifact in _list_artifacts(message)],
        "key": keyring.current(Purpose.SIGN).public.to_jwk(),
        "head": head.model_dump(mode="json", exclude_none=True),
        "timestamp": format_instant(at),
    }
    sealed = loads_strict(seal(members, keyring, purpose=Purpose.SIGN))
    written = json.dumps(sealed, ensure_ascii=False, indent=2).encode() + b"\n"
    if len(written) > MAX_ORDER_BYTES:
        raise OrderError(
            f"the order has {len(written):,} bytes; at most {MAX_ORDER_BYTES:,} are allowed: write large inputs as "
            "artifacts, and send those beside it"
        )
    return written


def _list_artifacts(message: Mapping[str, Any]) -> list[ArtifactRef]:
    """Return the artifacts that a message refers to, each content of an id once."""
    return list({(artifact.id, artifact.hash): artifact for artifact in find_artifacts(dict(message))}.values())


def open_order(data: bytes, trust: PublicKeys) -> OpenOrder:
    """Return the order in a relay file, verified with the sender's public keys and nothing else.

    1. It has at most `MAX_ORDER_BYTES`, is unambiguous JSON, and has the members of an order and no others.
    2. The key that it names is in `trust`, and is the same key there.
    3. The digests are those of the message and of its contract; the artifacts are those that the message refers to.
    4. The signature over the whole file is by that key, and so is the one over the message.
    5. The head is of the message's task, and signed by a key of `trust`.

    It does not judge the handoff, which `Gate` does: schema, receiver, audience, age, contract, safety. It does not say
    whether the order was accepted before.

    Args:
        data: The file.
        trust: The sender's public keys, from the sender and not from the file.

    Raises:
        OrderError: One of these does not hold; the first is named.
    """
    order, members = _parse_order(data)
    key = _trusted_key(order, trust)
    _check_digests(order)
    raw = _check_seals(members, order, key, trust)
    _check_head(order, trust)
    return OpenOrder(order, raw, digest(members), trust)


_ASK = "ask the sender for the file again"
_WRITTEN = "what `baton handoff export` wrote"


def _parse_order(data: bytes) -> tuple[Order, dict[str, Any]]:
    if len(data) > MAX_ORDER_BYTES:
        raise OrderError(f"the file has more than {MAX_ORDER_BYTES:,} bytes; an order has at most as many: {_ASK}")
    try:
        members = loads_strict(data)
    except MalformedMessageError as error:
        raise OrderError(f"the file is not an order: {error}; expected {_WRITTEN}") from error
    if (excess := find_excess(members, MAX_MESSAGE_VALUES)) is not None:
        raise OrderError(f"the file is not an order: {excess}; {_ASK}")
    if not isinstance(members, dict) or members.get("format") != FORMAT:
        raise OrderError(f"the file is not an order: its member 'format' is not {FORMAT!r}; expected {_WRITTEN}")
    try:
        order = Order.from_json_object(members)
    except ValidationError as error:
        raise OrderError(f"the file is not an order: {describe_faults(error)}; expected {_WRITTEN}") from None
    return order, members


def _trusted_key(order: Order, trust: PublicKeys) -> PublicKey:
    known = trust.get(order.key_id)
    if known is None:
        raise OrderError(
            f"it is signed with the key {order.key_id!r}, which is not among the trusted ones ({_names(trust)}); get "
            "the sender's keys (`baton keys public`) from the sender, and not from the file"
        )
    try:
        stated = PublicKey.from_jwk(order.key)
    except PublicKeysError as error:
        raise OrderError(f"its member 'key' is not a public key: {error}; {_ASK}") from error
    if (stated.id, stated.raw) != (known.id, known.raw):
        raise OrderError(
            f"its member 'key' is the key {stated.id!r}, and not the trusted key {known.id!r} that it names as the "
            f"signer's: {_ASK}"
        )
    return known


def _names(trust: PublicKeys) -> str:
    return ", ".join(jwk["kid"] for jwk in json.loads(trust.to_json())["keys"]) or "none"


def _check_digests(order: Order) -> None:
    step = order.message.get("step")
    contract = step.get("contract") if isinstance(step, dict) else None
    for name, part, expected in (
        ("message", order.message, order.digests.message),
        ("contract", contract, order.digests.contract),
    ):
        if not isinstance(part, dict):
            raise OrderError(f"its {name} is missing; expected the one with the digest {expected}: {_ASK}")
        if (found := digest(part)) != expected:
            raise OrderError(
                f"its {name} has the digest {found}, expected {expected}: one of them was changed on the way; {_ASK}"
            )
    if (named := _list_artifacts(order.message)) != order.artifacts:
        raise OrderError(
            f"it lists the artifacts {_ids(order.artifacts)}, and its message refers to {_ids(named)}; {_ASK}"
        )


def _ids(artifacts: list[ArtifactRef]) -> str:
    return ", ".join(f"{artifact.id} ({artifact.short_hash})" for artifact in artifacts[:10]) or "none"


def _check_seals(members: Mapping[str, Any], order: Order, key: PublicKey, trust: PublicKeys) -> bytes:
    """Return the bytes of the message once both signatures hold."""
    if NAMESPACE in order.message:
        raise OrderError(f"its message was sealed for a namespace, and so for a run of the sender's own; {_ASK}")
    raw = canonical_json(order.message)
    for name, sealed in (("the file", canonical_json(dict(members))), ("its message", raw)):
        try:
            opened = open_sealed(sealed, trust)
        except SealError as error:
            raise OrderError(f"{name} is not as the sender signed it: {error}; {_ASK}") from error
        if opened.key_id != key.id:
            raise OrderError(f"{name} is signed with the key {opened.key_id!r}, expected {key.id!r}; {_ASK}")
    return raw


def _check_head(order: Order, trust: PublicKeys) -> None:
    head = order.head
    if head.task_id != order.message.get("taskId"):
        raise OrderError(f"its head is of the task {head.task_id[:80]!r}, and its message is not; {_ASK}")
    link = ChainLink(head.ledger, head.task_id, head.sequence, parse_digest(head.record_hash))
    try:
        signature = from_base64url(head.signature or "")
    except ValueError:
        signature = b""
    [check] = trust.check([Claim(head.key_id or "", head_statement(link, head.key_id), signature, order.timestamp)])
    if check is not SignatureCheck.GOOD:
        raise OrderError(
            f"the signature of its head, by the key {(head.key_id or '')[:80]!r}, does not count ({check.value}); "
            f"expected one by a trusted key ({_names(trust)}): {_ASK}"
        )
