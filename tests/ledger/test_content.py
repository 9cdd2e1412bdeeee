"""A record's bytes, compressed."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from baton.ledger.entries import handoff_entry
from baton.ledger.store_schema import CODEC, MAX_RECORD_BYTES, DamagedContentError, compress_record, restore_record
from tests.ledger.material import NOW, TASK, chain, message

[RECORD] = chain(entries=[handoff_entry(message(), task_id=TASK, status="ACCEPTED", timestamp=NOW)])  # type: ignore[arg-type]
STORED = compress_record(RECORD.header, RECORD.message)


class TestCompressed:
    @given(header=st.binary().filter(lambda data: b"\n" not in data), body=st.binary())
    def test_stored_content_round_trips(self, header: bytes, body: bytes) -> None:
        """Any header without a line break, any message."""
        assert restore_record(CODEC, compress_record(header, body)) == (header, body)

    def test_a_short_record_shrinks_to_less_than_half(self) -> None:
        """The dictionary contains the text common to all records (S3-9-f)."""
        assert len(STORED) * 2 < len(RECORD.header) + len(RECORD.message)

    def test_the_compressor_is_thread_safe(self) -> None:
        """One compressor serves all of them."""
        texts = [rfc8785.dumps(message(number)) for number in range(200)]
        with ThreadPoolExecutor(8) as threads:
            stored = list(threads.map(lambda text: compress_record(b"{}", text), texts))

        assert [restore_record(CODEC, data)[1] for data in stored] == texts


class TestRestored:
    @pytest.mark.parametrize(
        ("codec", "stored"),
        [
            pytest.param(CODEC, b"", id="nothing"),
            pytest.param(CODEC, b"{}", id="no frame"),
            pytest.param(CODEC, STORED[:-1], id="torn"),
            pytest.param(CODEC, STORED + b"x", id="something behind it"),
            pytest.param(CODEC, STORED + STORED, id="two frames"),
            pytest.param(99, STORED, id="an unknown codec"),
        ],
    )
    def test_damaged_content_is_an_error(self, codec: int, stored: bytes) -> None:
        """It never returns half a record, or two."""
        with pytest.raises(DamagedContentError):
            restore_record(codec, stored)

    @pytest.mark.slow
    def test_a_decompression_bomb_is_refused(self) -> None:
        """Content that would fill the memory counts as damaged."""
        with pytest.raises(DamagedContentError, match="one frame"):
            restore_record(CODEC, compress_record(b"{}", b"x" * (MAX_RECORD_BYTES + 1)))
