"""Personal data on the wire: ciphertext under a key of the data subject's own, or the mark of its erasure; errors."""

import base64
import binascii
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, JsonValue, StringConstraints, TypeAdapter, ValidationError

from baton.errors import BatonError, HandoffError
from baton.ledger.entries import PERSONAL_DATA, RedactionPolicy, commitment, is_commitment
from baton.wire.records import CamelRecord, Count, Instant, Name
from baton.wire.text import list_faults


class VaultError(BatonError):
    """The vault did not do what was asked."""


class VaultUnavailableError(VaultError):
    """The vault's file cannot be read or written right now; trying again is safe."""


class DataKeyMissingError(VaultError):
    """A key of a subject is missing though no one erased it; it may come back with a backup."""


class ForeignCiphertextError(VaultError):
    """A ciphertext does not belong where it stands: it was changed, or moved there."""


class SubjectErasedError(VaultError):
    """The data subject was erased."""


class ErasureUnrecordedError(VaultError):
    """A subject's keys are destroyed, but the ledger does not say so everywhere yet; repeating it heals this."""


VERSION: Literal[1] = 1
"""The member `v` of every entry."""
PADDING = 32
"""Values are padded to a multiple of so many bytes: the length of "yes" and "no" tells which it is."""

_TAG_BYTES, _NONCE_BYTES = 16, 12  # of AES-GCM


class PersonalDataError(HandoffError):
    """A `personalDataPayload` is not as the vault makes it, so it may hold personal data in clear; never quoted."""


def _ciphertext(text: str) -> str:
    """Refuse what cannot be a padded ciphertext with its tag."""
    if _length(text) % PADDING != _TAG_BYTES or _length(text) == _TAG_BYTES:
        raise ValueError("it is not a ciphertext in base64")
    return text


def _nonce(text: str) -> str:
    """Refuse what cannot be a nonce."""
    if _length(text) != _NONCE_BYTES:
        raise ValueError("it is not a nonce of 12 bytes in base64")
    return text


def _length(text: str) -> int:
    """Return how many bytes a text in strict base64 stands for, or -1."""
    try:
        raw = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return -1
    return len(raw) if base64.b64encode(raw).decode() == text else -1


Pseudonym = Annotated[str, StringConstraints(pattern=r"^sub-[0-9a-f]{32}$")]
"""What a data subject is called outside the vault: an HMAC of who they are."""
DataKeyId = Annotated[str, StringConstraints(pattern=r"^dk-[0-9a-f]{16}$")]
"""Names one key of one subject."""
FieldName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,63}$")]
"""The name of a field of personal data. It stays readable for ever, so it is a word of the pipeline's code."""


class SealedField(CamelRecord):
    """One encrypted value.

    Attributes:
        kid: The key of the subject that encrypted it.
        n: The nonce.
        ct: The ciphertext and its tag.
    """

    kid: DataKeyId
    n: Annotated[str, AfterValidator(_nonce)]
    ct: Annotated[str, AfterValidator(_ciphertext)]


class SealedSubject(CamelRecord):
    """The encrypted fields of one data subject."""

    v: Literal[1] = VERSION
    fields: Annotated[dict[FieldName, SealedField], Field(min_length=1)]


class ErasureMark(CamelRecord):
    """Which erasure took the data away, and when."""

    erasure_id: Name
    at: Instant


class ErasedSubject(CamelRecord):
    """What is left of a data subject: the mark of the erasure."""

    v: Literal[1] = VERSION
    erased: ErasureMark


class ErasureNotice(CamelRecord):
    """One line of the erasure list: what a restored backup must forget again.

    Attributes:
        subject: The pseudonym.
        index_key: The key that made the pseudonym and the proof.
        erasure_id: The id of the request.
        at: When the keys were destroyed.
        removed: How many keys and places were, by name.
        actor: Who carried it out.
        proof: An HMAC over all the others, so that no one erases by writing a line.
    """

    subject: Pseudonym
    index_key: Name
    erasure_id: Name
    at: Instant
    removed: dict[str, Count]
    actor: Name | None = None
    proof: Annotated[str, StringConstraints(pattern=r"^([0-9a-f]{64})?$")] = ""

    def statement(self) -> dict[str, Any]:
        """Return what the proof is made over, as a JSON object."""
        return self.model_dump(mode="json", exclude={"proof"})


@dataclass(frozen=True)
class Erased:
    """Stands, for who opens a payload, in place of all fields of a subject that was erased.

    Attributes:
        subject: The pseudonym.
        erasure_id: The id of the request.
        at: When.
    """

    subject: str
    erasure_id: str
    at: datetime


PersonalData = dict[str, dict[str, JsonValue] | Erased]
"""An opened payload: by pseudonym the fields of each subject, or the mark of its erasure."""

PersonalPayload = dict[str, SealedSubject | ErasedSubject]
"""A payload as records."""

_PAYLOAD: TypeAdapter[PersonalPayload] = TypeAdapter(
    Annotated[dict[Pseudonym, SealedSubject | ErasedSubject], Field(max_length=10_000)]
)


def read_payload(value: Any) -> PersonalPayload:
    """Return a `personalDataPayload` as records."""
    if value is None:
        return {}
    try:
        return _PAYLOAD.validate_python(value)
    except ValidationError as error:
        count = len({fault["loc"][:1] for fault in list_faults(error)})
        places = f"{count} place{'s' if count > 1 else ''}"
    raise PersonalDataError(
        f"personalDataPayload is not as the vault makes it, in {places}: seal personal data with Vault.seal "
        "and hand on what that returns"
    )


def write_payload(payload: PersonalPayload) -> dict[str, JsonValue]:
    """Return a payload as JSON, for the member `personalDataPayload`."""
    written: dict[str, JsonValue] = _PAYLOAD.dump_python(payload, mode="json")
    return written


def is_payload(value: Any) -> bool:
    """Return whether a value is a payload with nothing in clear, and may be recorded for ever."""
    try:
        read_payload(value)
    except PersonalDataError:
        return False
    return True


def merged(held: Mapping[str, Any], written: Mapping[str, Any]) -> dict[str, JsonValue]:
    """Return a payload with what a stage wrote, field by field: other stages may have written of the same person."""
    result = dict(held)
    for subject, entry in written.items():
        before = result.get(subject, {})
        if "erased" in before:
            continue
        together = {**before["fields"], **entry["fields"]} if "fields" in before and "fields" in entry else None
        result[subject] = entry if together is None else {**entry, "fields": together}
    return result


def written_onto(came: Mapping[str, Any], payload: Mapping[str, Any]) -> dict[str, JsonValue]:
    """Return what of a payload is new beside what had come: what stages beside this one wrote is left to them."""
    new: dict[str, JsonValue] = {}
    for subject, entry in payload.items():
        before = came.get(subject, {})
        if "fields" in entry and "fields" in before:
            fields = {name: one for name, one in entry["fields"].items() if before["fields"].get(name) != one}
            if fields:
                new[subject] = {**entry, "fields": fields}
        elif entry != before:
            new[subject] = entry
    return new


SEALED_ONLY = RedactionPolicy(is_sealed=is_payload)
"""The ledger's policy where there is a vault: its ciphertext is recorded as it is, anything else is refused.

Give it to `LedgerOptions(policy=…)` and to `baton.ledger.entries.redact`.
"""


def recordable(message: Mapping[str, Any], salt: Callable[[], bytes]) -> dict[str, Any]:
    """Return a handoff message as the ledger may have it: with what the vault sealed, or a commitment in its place."""
    member = PERSONAL_DATA.removeprefix("/")
    value = message.get(member)
    if value is None or is_commitment(value) or is_payload(value):
        return dict(message)
    return {**message, member: {"commitment": commitment(PERSONAL_DATA, salt(), value)}}
