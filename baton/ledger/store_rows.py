"""Records as rows: their index, and their bytes in one Zstandard frame with a shared dictionary (§9).

Writing them to the tables, and checking the signatures in the index. The dictionary is
a readable file beside this one. Once released it is never changed; a better one is a new file with a new number.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Any

from baton.ledger.chain import Claim, HeadVerifier, SignatureCheck, head_statement
from baton.ledger.records import AuditRecord, Claims
from baton.ledger.store_database import Connection, Row
from baton.wire.zstandard import dictionary, zstd

HASH_AT = "SELECT record_hash FROM handoff_audit WHERE task_id = ? AND sequence = ?"
"""The hash of the record in one place of a task's chain."""

NEWEST_SIGNED = (
    "SELECT task_id, sequence, record_hash, recorded_at, key_id, signature FROM handoff_audit "
    "WHERE key_id IS NOT NULL ORDER BY position DESC LIMIT ?"
)
"""The newest records that name a key."""

_ADD = """INSERT INTO handoff_audit (
    task_id, sequence, previous_hash, record_hash, event_key, message_hash, recorded_at, key_id, signature
) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"""
_ADD_CONTENT = """INSERT INTO handoff_audit_content (position, codec, bytes)
VALUES ((SELECT position FROM handoff_audit WHERE task_id = ? AND sequence = ?), ?, ?)"""


@dataclass(frozen=True)
class StoredRecord:
    """A record as the tables hold it: the values of its two rows."""

    index: tuple[Any, ...]
    content: tuple[Any, ...]

    @classmethod
    def of(cls, record: AuditRecord) -> "StoredRecord":
        """Return the rows of a record."""
        task_id, sequence, previous_hash, *others = Claims.of(record.members)
        return cls(
            (task_id, sequence, previous_hash, record.hash, *others, record.signature),
            (task_id, sequence, CODEC, compressed(record.header, record.message)),
        )


def check_heads(ledger: str, rows: Sequence[Row], verifier: HeadVerifier) -> list[SignatureCheck]:
    """Return what the signature in each row of the index is worth."""
    claims = [_claim(ledger, row) for row in rows]
    checks = iter(verifier.check([claim for claim in claims if claim is not None]))
    return [SignatureCheck.BAD if claim is None else next(checks) for claim in claims]


def _claim(ledger: str, row: Row) -> Claim | None:
    """Return what the signature in a row claims; None where the row holds values of other types."""
    task_id, sequence, record_hash, at = (row[name] for name in ("task_id", "sequence", "record_hash", "recorded_at"))
    key_id, signature = row["key_id"] or "", row["signature"] or b""
    if tuple(map(type, (task_id, sequence, record_hash, at, key_id, signature))) != (str, int, bytes, str, str, bytes):
        return None
    try:
        moment = datetime.fromisoformat(at)
    except ValueError:
        return None
    return Claim(key_id, head_statement(ledger, task_id, sequence, record_hash, row["key_id"]), signature, moment)


def insert(connection: Connection, records: Sequence[StoredRecord]) -> None:
    """Add records to the tables, in their order."""
    connection.many(_ADD, [record.index for record in records])
    connection.many(_ADD_CONTENT, [record.content for record in records])


CODEC = 1
"""The codec that new records are written with: Zstandard with dictionary 1."""
MOST_BYTES = 64 * 1024 * 1024
"""A record that would grow beyond this is taken for damaged; Temporal's payloads end at 2 MiB."""

# Level 1, of which level 3 would take 1 to 2 % of the bytes for half as much time again, with smaller tables: a worker
# has forgotten them by the next record, and takes a third less time to find its way in 16 KiB; 1 to 2 % more bytes.
_OPTIONS: dict[int, int] = {zstd.CompressionParameter.compression_level: 1, zstd.CompressionParameter.hash_log: 12}
_FILES = {1: "dictionary-1.txt"}


class DamagedContentError(Exception):
    """Stored bytes are not a record; the ledger reports such a record as flawed."""


def compressed(header: bytes, message: bytes) -> bytes:
    """Return a record's bytes as `CODEC` stores them."""
    compressor = _compressor()
    return compressor.compress(b"%s\n%s" % (header, message), zstd.ZstdCompressor.FLUSH_FRAME)


def restored(codec: int, stored: bytes) -> tuple[bytes, bytes]:
    """Return the header and the message of stored bytes; what they say is not checked."""
    if codec not in _FILES:
        raise DamagedContentError(f"it is stored with the codec {codec}; this version has {sorted(_FILES)}")
    decompressor = zstd.ZstdDecompressor(zstd_dict=dictionary("baton.ledger", _FILES[codec]))
    try:
        plain = decompressor.decompress(stored, max_length=MOST_BYTES)
    except zstd.ZstdError as error:
        raise DamagedContentError(f"its stored bytes are damaged: {error}") from error
    if not decompressor.eof or decompressor.unused_data:
        raise DamagedContentError("its stored bytes are not exactly one frame")
    header, _, message = plain.partition(b"\n")
    return header, message


@cache
def _compressor() -> zstd.ZstdCompressor:
    """Return the compressor, made once: it holds the dictionary's tables, and its calls exclude each other."""
    return zstd.ZstdCompressor(options=_OPTIONS, zstd_dict=dictionary("baton.ledger", _FILES[CODEC]).as_undigested_dict)
