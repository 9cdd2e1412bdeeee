"""Evidence files: records of a ledger as lines of text that anybody can check with a public key and no ledger."""

import binascii
import hashlib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, Literal

import rfc8785
from pydantic import Field, JsonValue, ValidationError
from pydantic_core import to_json

from baton.errors import HandoffError
from baton.ledger.chain import (
    ChainHead,
    Claim,
    HeadSigner,
    HeadVerifier,
    SignatureCheck,
    Verdict,
    from_base64url,
    to_base64url,
)
from baton.ledger.proof import (
    EMPTY_ROOT,
    MOST_REPORTED,
    Checkpoint,
    LedgerReport,
    LedgerWalk,
    leaf_hash,
    verify_inclusion,
)
from baton.ledger.records import AuditRecord, EvidenceError, Identifier
from baton.wire.json_values import format_digest, loads_strict, pae, parse_digest
from baton.wire.records import CamelRecord, Count, Digest, Instant

_MANIFEST = "baton/evidence-manifest/v1"
BUNDLE: Final = "baton.evidence/1"
SEGMENT: Final = "baton.segment/1"
_INDEX_LINE = re.compile(
    rb'\{"hash":"sha256:([0-9a-f]{64})","position":([0-9]{1,18}),"signature":(?:null|"([0-9a-f]*)")\}'
)


class InclusionProof(CamelRecord):
    """The proof that a record stands in the ledger at a checkpoint, without the other tasks' records.

    Attributes:
        task_id: The record's task.
        sequence: Its place in the task's chain.
        index: Its place among all records of the ledger, from 0.
        size: The checkpoint's size.
        path: The hashes that lead to the checkpoint's root (RFC 6962 §2.1.1).
    """

    task_id: Identifier
    sequence: Count
    index: Count
    size: Count
    path: tuple[Digest, ...] = Field(strict=False)


class Manifest(CamelRecord):
    """What an evidence file says of itself; all of it is checked against its records.

    Attributes:
        format: `"baton.evidence/1"` or `"baton.segment/1"`.
        ledger: The ledger's name.
        created_at: When the file was made.
        records: How many records it has.
        index: The digest of all their index lines, which name each record by its hash.
        heads: The heads of the tasks that were asked for; none in a file of the whole ledger.
        checkpoints: Signed checkpoints of the ledger.
        proofs: That the heads' chains stand in one of these checkpoints.
        keys: Public keys as JWKs, for reading: trust is in keys that the verifier already has.
    """

    format: Literal["baton.evidence/1", "baton.segment/1"]
    ledger: Identifier
    created_at: Instant
    records: Count
    index: Digest
    heads: Annotated[tuple[ChainHead, ...], Field(strict=False)] = ()
    checkpoints: Annotated[tuple[Checkpoint, ...], Field(strict=False)] = ()
    proofs: Annotated[tuple[InclusionProof, ...], Field(strict=False)] = ()
    keys: Annotated[tuple[dict[str, JsonValue], ...], Field(strict=False)] = ()

    @property
    def line(self) -> bytes:
        """The manifest as its file holds it."""
        return rfc8785.dumps(self.model_dump(mode="json", exclude_none=True))


class EvidenceReport(LedgerReport):
    """What the verification of an evidence file found, beyond what a `LedgerReport` says.

    Attributes:
        created_at: When the file says it was made; None if it has no manifest.
        signed_by: The key whose signature over the manifest is good, or None.
        witnessed: The tasks that are proved to stand in a checkpoint of the whole ledger.
        task_ids: The tasks that it has records of, in the order of their first; the first `MOST_REPORTED` of them.
    """

    created_at: Instant | None = None
    signed_by: str | None = None
    witnessed: tuple[str, ...] = ()
    task_ids: tuple[str, ...] = ()


@dataclass(frozen=True)
class EvidenceFile:
    """An evidence file that is being read; nothing of it is verified yet."""

    manifest: Manifest
    signature: dict[str, Any]
    _lines: Iterator[bytes]
    _index: "hashlib._Hash" = field(default_factory=hashlib.sha256)

    @classmethod
    def open(cls, lines: Iterable[bytes]) -> "EvidenceFile":
        """Read the manifest of an evidence file."""
        rest = iter(lines)
        try:
            line, signed = next(rest, b""), next(rest, b"")
            if not line:
                raise ValueError("it is empty")
            manifest = Manifest.model_validate_json(line)
            signature = loads_strict(signed)
            if manifest.line != line or not isinstance(signature, dict):
                raise ValueError("its manifest is not in canonical form")
        except (ValidationError, ValueError, HandoffError, EvidenceError) as error:
            raise EvidenceError(f"it is not a file of {BUNDLE!r} or {SEGMENT!r}: {_first_fault(error)}") from error
        return cls(manifest, signature, rest)

    def records(self) -> Iterator[AuditRecord]:
        """Yield the records, once."""
        lines, unhexed, see = self._lines, binascii.unhexlify, self._index.update
        for number, line in enumerate(lines, 1):
            see(line)
            about = _INDEX_LINE.fullmatch(line)
            header, message = next(lines, None), next(lines, None)
            # Of hexadecimal digits two make a byte: a pattern that counts them takes thrice the time.
            if about is None or header is None or message is None or len(about[3] or b"") % 2:
                raise EvidenceError(f"record {number} of the file is torn")
            record_hash, position, signature = about.groups()
            signed = None if signature is None else unhexed(signature)
            yield AuditRecord(header, message, signed, int(position), unhexed(record_hash))

    @property
    def index(self) -> str:
        """The digest of the index lines that were read so far."""
        return format_digest(self._index.digest())


def pack(manifest: Manifest, records: Iterable[AuditRecord], signer: HeadSigner | None = None) -> Iterator[bytes]:
    """Yield an evidence file, in pieces of whole lines with their line breaks."""
    yield manifest.line + b"\n"
    yield _signed(manifest.line, signer) + b"\n"
    for record in records:
        yield record_lines(record)


def record_lines(record: AuditRecord) -> bytes:
    """Return the three lines of a record, with their line breaks."""
    if record.absence is not None:
        raise EvidenceError(f"record {record.position} is not at hand: {record.absence}")
    index = index_line(record.hash, record.position, record.signature)
    return b"%s\n%s\n%s\n" % (index, record.header, record.message)


def index_line(record_hash: bytes, position: int, signature: bytes | None) -> bytes:
    """Return the first line of a record: what the ledger's index says of it."""
    signed = None if signature is None else signature.hex()
    return to_json({"hash": format_digest(record_hash), "position": position, "signature": signed})


def index_digest(lines: Iterable[bytes]) -> str:
    """Return the digest, for a manifest, of index lines."""
    return format_digest(hashlib.sha256(b"".join(lines)).digest())


def verify_evidence(
    lines: Iterable[bytes],
    *,
    verifier: HeadVerifier | None = None,
    ledger: str | None = None,
    anchors: Iterable[ChainHead] = (),
    checkpoints: Iterable[Checkpoint] = (),
) -> EvidenceReport:
    """Return whether an evidence file is whole and genuine, with public keys only and without the ledger."""
    try:
        file = EvidenceFile.open(lines)
    except EvidenceError as error:
        return _unreadable(ledger or "", str(error))
    manifest = file.manifest
    reasons = [] if ledger in (None, manifest.ledger) else [f"it is of the ledger {manifest.ledger!r}, not {ledger!r}"]
    signed_by = _signed_by(file, verifier, reasons)  # 1.
    # The tree over a part of the ledger is not the ledger's: only a whole one can be held against checkpoints.
    whole = not manifest.heads
    kept = list(checkpoints)
    tasks = {head.task_id for head in manifest.heads}
    walk = LedgerWalk(
        manifest.ledger,
        verifier=verifier,
        anchors=[head for head in anchors if whole or head.task_id in tasks],
        checkpoints=kept if whole else (),
        claimed=manifest.checkpoints if whole else (),
    )
    roots = _trusted_roots(manifest, kept, verifier, reasons)
    outside = {one.size for one in kept if one.ledger == manifest.ledger}
    proofs = {(proof.task_id, proof.sequence): proof for proof in manifest.proofs}
    witnessed = []
    try:
        for record in file.records():  # 2.
            chain = walk.feed(record)
            proof = proofs.get((chain.task_id, chain.sequence)) if proofs and chain else None
            if chain is not None and proof is not None and proof.size in roots:  # 5.
                if _is_included(record, proof, roots[proof.size]):
                    witnessed.append(proof.task_id)
                    chain.covered(outside=proof.size in outside)
                else:
                    reasons.append(f"task {proof.task_id!r} does not stand in the checkpoint at {proof.size} records")
    except EvidenceError as error:
        reasons.append(str(error))
    reasons += _contradictions(file, walk)  # 3.-4.
    found = walk.finish()
    about = dict(found) | {"reasons": (*reasons, *found.reasons)} | ({"verdict": Verdict.INVALID} if reasons else {})
    return EvidenceReport(
        **about,
        created_at=manifest.created_at,
        signed_by=signed_by,
        witnessed=tuple(witnessed),
        task_ids=tuple(walk.task_ids[:MOST_REPORTED]),
    )


def _signed(line: bytes, signer: HeadSigner | None) -> bytes:
    """Return the line with the signature over the manifest."""
    if signer is None:
        return b"{}"
    key_id = signer.key_id  # first: a signer that follows rotations settles on its key here
    signature = to_base64url(signer.sign(pae(_MANIFEST, line)))
    return rfc8785.dumps({"keyId": key_id, "signature": signature})


def _signed_by(file: EvidenceFile, verifier: HeadVerifier | None, reasons: list[str]) -> str | None:
    """Return the key that signed the manifest; a signature that does not count is a reason."""
    if not file.signature or verifier is None:
        return None
    manifest = file.manifest
    try:
        key_id, signature = str(file.signature["keyId"]), from_base64url(str(file.signature["signature"]))
    except (KeyError, ValueError):
        reasons.append("the line after its manifest is not a signature")
        return None
    [check] = verifier.check([Claim(key_id, pae(_MANIFEST, manifest.line), signature, manifest.created_at)])
    if check is SignatureCheck.GOOD:
        return key_id
    reasons.append(f"the signature of its manifest, by the key {key_id!r}, does not count: {check.value}")
    return None


def _trusted_roots(
    manifest: Manifest, kept: list[Checkpoint], verifier: HeadVerifier | None, reasons: list[str]
) -> dict[int, bytes]:
    """Return the roots, by size, of the checkpoints that were kept elsewhere or are signed by a known key."""
    roots = {one.size: parse_digest(one.root) for one in kept if one.ledger == manifest.ledger}
    if verifier is None:
        return roots
    for checkpoint in manifest.checkpoints:
        check = checkpoint.check(verifier)
        if check is SignatureCheck.GOOD and checkpoint.ledger == manifest.ledger:
            if roots.setdefault(checkpoint.size, parse_digest(checkpoint.root)) != parse_digest(checkpoint.root):
                reasons.append(f"its checkpoint at {checkpoint.size} records is not the one that was kept: a fork")
        elif manifest.heads:  # of a whole ledger, the walk says so
            why = f"it is of the ledger {checkpoint.ledger!r}" if check is SignatureCheck.GOOD else check.value
            reasons.append(f"its checkpoint at {checkpoint.size} records does not count: {why}")
    return roots


def _is_included(record: AuditRecord, proof: InclusionProof, root: bytes) -> bool:
    path = [parse_digest(digest) for digest in proof.path]
    return verify_inclusion(leaf_hash(record.leaf), proof.index, proof.size, path, root)


def _contradictions(file: EvidenceFile, walk: LedgerWalk) -> list[str]:
    """Return what the manifest says and the records do not."""
    found = []
    if walk.tree.size != file.manifest.records:
        found.append(f"it has {walk.tree.size} records, and its manifest says {file.manifest.records}")
    elif file.index != file.manifest.index:
        found.append("its records are not those of its manifest, or not in that order")
    for head in file.manifest.heads:
        chain = walk.chain(head.task_id)
        if chain is None or (chain.sequence, format_digest(chain.hash)) != (head.sequence, head.record_hash):
            found.append(f"the chain of {head.task_id!r} does not end with the head in its manifest")
    return found


def _unreadable(ledger: str, reason: str) -> EvidenceReport:
    return EvidenceReport(
        verdict=Verdict.INVALID, ledger=ledger, records=0, tasks=0, root=format_digest(EMPTY_ROOT), reasons=(reason,)
    )


def _first_fault(error: Exception) -> str:
    """Return what is wrong in one line; of a record that does not fit, the member and why."""
    if isinstance(error, ValidationError):
        fault = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, fault["loc"]))
        return f"{where}: {fault['msg']}" if where else fault["msg"]
    return str(error).partition("\n")[0]
