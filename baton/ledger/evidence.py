"""Evidence files: records of a ledger as lines of text, verifiable with public keys and without the ledger."""

import binascii
import functools
import hashlib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Annotated, Any, Final, Literal

import rfc8785
from pydantic import Field, JsonValue, ValidationError
from pydantic_core import to_json

from baton.errors import HandoffError
from baton.keys.claims import Claim, HeadSigner, HeadVerifier, SignatureCheck
from baton.ledger.chain import ChainHead, Finding, Flaw
from baton.ledger.proof import MAX_REPORTED, Checkpoint, Report, Scope, Trust, Verification, latest, verify
from baton.ledger.records import AuditRecord, EvidenceError, Identifier
from baton.wire.base64url import from_base64url, to_base64url
from baton.wire.json_values import format_digest, loads_strict, pae
from baton.wire.records import CamelRecord, Count, Digest, Instant

_MANIFEST = "baton/evidence-manifest/v1"
BUNDLE: Final = "baton.evidence/1"
SEGMENT: Final = "baton.segment/1"
_INDEX_LINE = re.compile(
    rb'\{"hash":"sha256:([0-9a-f]{64})","position":([0-9]{1,18}),"signature":(?:null|"([0-9a-f]*)")\}'
)


class Manifest(CamelRecord):
    """The manifest of an evidence file; verification checks it against the records.

    Attributes:
        index: The digest of all index lines, which contain each record's hash.
        heads: The heads of the exported tasks; none in a file of the whole ledger.
        checkpoints: Signed checkpoints of the ledger, in a file of the whole ledger.
        keys: Public keys as JWKs, for information only: a verifier trusts its own keys.
    """

    format: Literal["baton.evidence/1", "baton.segment/1"]
    ledger: Identifier
    created_at: Instant
    records: Count
    index: Digest
    heads: Annotated[tuple[ChainHead, ...], Field(strict=False)] = ()
    checkpoints: Annotated[tuple[Checkpoint, ...], Field(strict=False)] = ()
    keys: Annotated[tuple[dict[str, JsonValue], ...], Field(strict=False)] = ()

    @property
    def line(self) -> bytes:
        """The manifest's line in the file."""
        return rfc8785.dumps(self.model_dump(mode="json", exclude_none=True))


@dataclass(frozen=True)
class EvidenceFile:
    """An unverified evidence file during reading."""

    manifest: Manifest
    signature: dict[str, Any]
    _lines: Iterator[bytes]

    @classmethod
    def open(cls, lines: Iterable[bytes]) -> "EvidenceFile":
        """Read the manifest of an evidence file."""
        rest = iter(lines)
        try:
            line, signature_line = next(rest, b""), next(rest, b"")
            if not line:
                raise ValueError("it is empty")
            manifest = Manifest.model_validate_json(line)
            signature = loads_strict(signature_line)
            if manifest.line != line or not isinstance(signature, dict):
                raise ValueError("its manifest is not in canonical form")
        except (ValidationError, ValueError, HandoffError, EvidenceError) as error:
            raise EvidenceError(f"it is not a {BUNDLE!r} or {SEGMENT!r} file: {_describe_error(error)}") from error
        return cls(manifest, signature, rest)

    def records(self) -> Iterator[AuditRecord]:
        """Yield the records, once; raise an error where they are not those of the manifest."""
        lines, unhexlify, index, number = self._lines, binascii.unhexlify, hashlib.sha256(), 0
        for number, line in enumerate(lines, 1):
            index.update(line)
            match = _INDEX_LINE.fullmatch(line)
            header, message = next(lines, None), next(lines, None)
            # The length is checked here: a pattern that counts pairs of digits takes three times as long.
            if match is None or header is None or message is None or len(match[3] or b"") % 2:
                raise EvidenceError(f"record {number} of the file is truncated")
            record_hash, position, signature = match.groups()
            signature_bytes = None if signature is None else unhexlify(signature)
            yield AuditRecord(header, message, signature_bytes, int(position), unhexlify(record_hash))
            if number > self.manifest.records:
                break
        if number != self.manifest.records:
            raise EvidenceError(f"it has {number} records, and its manifest says {self.manifest.records}")
        if format_digest(index.digest()) != self.manifest.index:
            raise EvidenceError("its records are not those of its manifest, or not in that order")


def pack(manifest: Manifest, records: Iterable[AuditRecord], signer: HeadSigner | None = None) -> Iterator[bytes]:
    """Yield an evidence file in chunks of whole lines."""
    yield manifest.line + b"\n"
    yield _sign_manifest(manifest.line, signer) + b"\n"
    for record in records:
        yield record_lines(record)


def record_lines(record: AuditRecord) -> bytes:
    """Return the three lines of a record, with their line breaks."""
    if record.absence is not None:
        raise EvidenceError(f"record {record.position} is missing: {record.absence}")
    index = index_line(record.hash, record.position, record.signature)
    return b"%s\n%s\n%s\n" % (index, record.header, record.message)


def index_line(record_hash: bytes, position: int, signature: bytes | None) -> bytes:
    """Return the first line of a record: its hash, position and signature."""
    signature_hex = None if signature is None else signature.hex()
    return to_json({"hash": format_digest(record_hash), "position": position, "signature": signature_hex})


def index_digest(lines: Iterable[bytes]) -> str:
    """Return the digest of index lines for a manifest."""
    return format_digest(hashlib.sha256(b"".join(lines)).digest())


def verify_evidence(lines: Iterable[bytes], trust: Trust, ledger: str | None = None) -> Report:
    """Verify that an evidence file is complete and genuine, with public keys and without the ledger."""
    try:
        file = EvidenceFile.open(lines)
    except EvidenceError as error:
        return verify((), Trust(), Scope(ledger or ""), [Finding(flaw=Flaw.FILE, reason=str(error))])
    manifest, signed_by, problem = file.manifest, *_find_signer(file, trust.keys)
    trust = replace(trust, claimed=manifest.checkpoints)
    if manifest.heads:
        # Checkpoints cover the whole ledger, so records of a few tasks cannot be compared with them.
        tasks = {head.task_id for head in manifest.heads}
        heads = [head for head in trust.anchors if head.task_id in tasks]
        trust = replace(trust, anchors=heads, checkpoints=(), claimed=())
    verification = Verification(trust, Scope(manifest.ledger))
    if ledger not in (None, manifest.ledger):
        verification.add(f"it is of the ledger {manifest.ledger!r}, not {ledger!r}")
    if problem is not None:
        verification.add(problem)
    verification.feed(file.records())
    for head in manifest.heads:
        if not verification.ends_with(head):
            verification.add(f"the chain of {head.task_id!r} does not end with the head in its manifest")
    about = {
        "created_at": manifest.created_at,
        "signed_by": signed_by,
        "task_ids": tuple(verification.task_ids[:MAX_REPORTED]),
    }
    return verification.report().model_copy(update=about)


def _sign_manifest(line: bytes, signer: HeadSigner | None) -> bytes:
    if signer is None:
        return b"{}"
    key_id = signer.key_id  # before signing: a signer that follows rotations chooses its key here
    signature = to_base64url(signer.sign(pae(_MANIFEST, line)))
    return rfc8785.dumps({"keyId": key_id, "signature": signature})


def _find_signer(file: EvidenceFile, keys: HeadVerifier | None) -> tuple[str | None, str | None]:
    """Return the key that signed the manifest, and why a signature is not valid."""
    if not file.signature or keys is None:
        return None, None
    manifest = file.manifest
    try:
        key_id, signature = str(file.signature["keyId"]), from_base64url(str(file.signature["signature"]))
    except (KeyError, ValueError):
        return None, "the line after its manifest is not a signature"
    dates = [checkpoint.made_at for checkpoint in manifest.checkpoints]  # what it contains is not younger than it
    made_at = functools.reduce(latest, dates, manifest.created_at)
    [check] = keys.check([Claim(key_id, pae(_MANIFEST, manifest.line), signature, made_at)])
    if check is SignatureCheck.GOOD:
        return key_id, None
    return None, f"the signature of its manifest, by the key {key_id!r}, does not count: {check.value}"


def _describe_error(error: Exception) -> str:
    """Return an error in one line; of a validation error, the first invalid member."""
    if isinstance(error, ValidationError):
        detail = error.errors(include_url=False, include_input=False)[0]
        member = ".".join(map(str, detail["loc"]))
        return f"{member}: {detail['msg']}" if member else detail["msg"]
    return str(error).partition("\n")[0]
