"""How a record's bytes are stored: header and message in one Zstandard frame, with a shared dictionary (§9).

A record is short, so most of its size is what every record says; the dictionary, a readable file beside this
one, holds that. Its number is stored with each record. **A dictionary that was released is never changed**, or
ledgers written with it are lost; a better one is a new file with a new number.
"""

from functools import cache

from baton.wire.zstandard import dictionary, zstd

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
    """Return a record's bytes as `CODEC` stores them.

    Example:
        >>> stored = compressed(b'{"attempt":1}', b'{"taskId":"t-1"}')
        >>> restored(CODEC, stored)
        (b'{"attempt":1}', b'{"taskId":"t-1"}')
    """
    compressor = _compressor()
    return compressor.compress(b"%s\n%s" % (header, message), zstd.ZstdCompressor.FLUSH_FRAME)


def restored(codec: int, stored: bytes) -> tuple[bytes, bytes]:
    """Return the header and the message of stored bytes; what they say is not checked.

    Raises:
        DamagedContentError: The bytes are damaged, or need a dictionary that this version does not have.
    """
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
