"""Personal data on the wire: ciphertext under the data subject's key, or the mark of an erasure. Errors."""

import base64
import binascii
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, JsonValue, StringConstraints, TypeAdapter, ValidationError

from baton.errors import BatonError, HandoffError
from baton.ledger.entries import PERSONAL_DATA, RedactionPolicy, commitment, is_commitment
from baton.wire.json_values import JsonFields
from baton.wire.records import CamelRecord, Count, Instant, Name
from baton.wire.text import list_faults


class VaultError(BatonError):
    """An operation on the vault failed. See the more specific errors."""


class VaultUnavailableError(VaultError):
    """The vault's file cannot be read or written now; a retry is safe. See its disk."""


class DataKeyMissingError(VaultError):
    """A subject's key is missing although the subject was not erased; a backup may have it. Restore the vault."""


class ForeignCiphertextError(VaultError):
    """A ciphertext was changed, or belongs to another subject, task or field.

    Find out who put it there; it cannot be opened.
    """


class SubjectErasedError(VaultError):
    """The data subject was erased. Nothing can bring the data back; continue without it."""


class ErasureUnrecordedError(VaultError):
    """A subject's keys are destroyed, but not every task's chain has the record. Erase again to complete it."""


VERSION: Literal[1] = 1
"""The member `v` of every entry."""
PADDING = 32
"""Values are padded to a multiple of this many bytes, so that the length does not reveal a short value."""

_TAG_BYTES, _NONCE_BYTES = 16, 12  # of AES-GCM


class PersonalDataError(HandoffError):
    """A `personalDataPayload` is not from the vault and may contain plaintext, so messages never quote it.

    Write it by `context.personal`.
    """


def _ciphertext(text: str) -> str:
    """Require a padded ciphertext with its tag."""
    if _length(text) % PADDING != _TAG_BYTES or _length(text) == _TAG_BYTES:
        raise ValueError("it is not a ciphertext in base64")
    return text


def _nonce(text: str) -> str:
    if _length(text) != _NONCE_BYTES:
        raise ValueError("it is not a nonce of 12 bytes in base64")
    return text


def _length(text: str) -> int:
    """Return the number of bytes that a strict base64 text encodes, or -1."""
    try:
        raw = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return -1
    return len(raw) if base64.b64encode(raw).decode() == text else -1


Pseudonym = Annotated[str, StringConstraints(pattern=r"^sub-[0-9a-f]{32}$")]
"""A data subject's name outside the vault: an HMAC of their real name."""
DataKeyId = Annotated[str, StringConstraints(pattern=r"^dk-[0-9a-f]{16}$")]
"""The id of a subject's key."""
FieldName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,63}$")]
"""The name of a field of personal data. It stays readable forever, so it must be an identifier, not data."""


class SealedField(CamelRecord):
    """One encrypted value: the key's id, the nonce, and the ciphertext with its tag."""

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
    """One line of the erasure list, which a restored backup must forget again; ``proof`` is an HMAC over the rest."""

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
class Erased(JsonFields):
    """The result of opening personal data of an erased subject.

    Attributes:
        subject: The pseudonym.
        erasure_id: The id of the request.
        at: When the subject was erased.
    """

    subject: str
    erasure_id: str
    at: datetime


PersonalData = dict[str, dict[str, JsonValue] | Erased]
"""An opened payload: the fields of each subject, or `Erased`, by pseudonym."""

PersonalPayload = dict[str, SealedSubject | ErasedSubject]
"""A payload as records."""

_PAYLOAD: TypeAdapter[PersonalPayload] = TypeAdapter(
    Annotated[dict[Pseudonym, SealedSubject | ErasedSubject], Field(max_length=10_000)]
)


def read_payload(value: Any) -> PersonalPayload:
    """Parse a `personalDataPayload`."""
    if value is None:
        return {}
    try:
        return _PAYLOAD.validate_python(value)
    except ValidationError as error:
        count = len({fault["loc"][:1] for fault in list_faults(error)})
        places = f"{count} place{'s' if count > 1 else ''}"
    raise PersonalDataError(
        f"personalDataPayload is not from the vault, in {places}: seal personal data with Vault.seal and hand on "
        "its result"
    )


def write_payload(payload: PersonalPayload) -> dict[str, JsonValue]:
    """Return a payload as a JSON object, for the member `personalDataPayload`."""
    json_object: dict[str, JsonValue] = _PAYLOAD.dump_python(payload, mode="json")
    return json_object


def is_payload(value: Any) -> bool:
    """Return whether a value is a valid payload, which has no plaintext and may be recorded forever."""
    try:
        read_payload(value)
    except PersonalDataError:
        return False
    return True


def merge_payloads(payload: Mapping[str, Any], written: Mapping[str, Any]) -> dict[str, JsonValue]:
    """Merge what a stage wrote into a payload, by field, since other stages may have written about the same person."""
    result = dict(payload)
    for subject, entry in written.items():
        current = result.get(subject, {})
        if "erased" in current:
            continue
        fields = {**current["fields"], **entry["fields"]} if "fields" in current and "fields" in entry else None
        result[subject] = entry if fields is None else {**entry, "fields": fields}
    return result


def payload_changes(base: Mapping[str, Any], payload: Mapping[str, Any]) -> dict[str, JsonValue]:
    """Return the part of a payload that differs from ``base``, without what parallel stages wrote."""
    new: dict[str, JsonValue] = {}
    for subject, entry in payload.items():
        current = base.get(subject, {})
        if "fields" in entry and "fields" in current:
            fields = {name: sealed for name, sealed in entry["fields"].items() if current["fields"].get(name) != sealed}
            if fields:
                new[subject] = {**entry, "fields": fields}
        elif entry != current:
            new[subject] = entry
    return new


SEALED_ONLY = RedactionPolicy(is_sealed=is_payload)
"""The ledger's policy with a vault: record its ciphertext unchanged, refuse anything else.

Pass it to `LedgerOptions(policy=…)` and to `baton.ledger.entries.redact`.
"""


def commit_unsealed(message: Mapping[str, Any], salt: Callable[[], bytes]) -> dict[str, Any]:
    """Return a handoff message with personal data that is not sealed replaced by a commitment, for the ledger."""
    member = PERSONAL_DATA.removeprefix("/")
    value = message.get(member)
    if value is None or is_commitment(value) or is_payload(value):
        return dict(message)
    return {**message, member: {"commitment": commitment(PERSONAL_DATA, salt(), value)}}
