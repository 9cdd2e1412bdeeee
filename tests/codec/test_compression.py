"""The compression codec: what it compresses, passes through and refuses."""

import asyncio
import hashlib
import json
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from temporalio.api.common.v1 import Payload
from temporalio.converter import DataConverter

from baton.codec.encryption import MAX_DECODED_BYTES, PREFIX, CompressionCodec
from baton.errors import PayloadError

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

BATONS = sorted(Path(__file__).with_name("batons").glob("*.json"))

# A text that was compressed with dictionary 1.
COMPRESSED = bytes.fromhex("28b52ffd60a001f5000040206c6f6769225d7d060049ae500db84012aa9a80a42c74386e88eb6180")


def _json(data: bytes) -> Payload:
    return Payload(metadata={"encoding": b"json/plain"}, data=data)


def _compact(path: Path) -> bytes:
    return json.dumps(json.loads(path.read_text("utf-8")), separators=(",", ":"), ensure_ascii=False).encode()


def _encode(payload: Payload) -> Payload:
    [encoded] = asyncio.run(CompressionCodec().encode([payload]))
    return encoded


def _decode(payload: Payload) -> Payload:
    [decoded] = asyncio.run(CompressionCodec().decode([payload]))
    return decoded


class TestEncode:
    @pytest.mark.parametrize("path", [pytest.param(path, id=path.stem) for path in BATONS])
    def test_a_baton_shrinks_to_less_than_half(self, path: Path) -> None:
        """This holds for batons outside the dictionary's source, with prose of people and agents."""
        plain = _json(_compact(path))
        encoded = _encode(plain)
        assert encoded.metadata["encoding"] == PREFIX + b"1"
        assert encoded.ByteSize() < plain.ByteSize() / 2
        assert _decode(encoded) == plain

    @pytest.mark.parametrize("path", [pytest.param(path, id=path.stem) for path in BATONS])
    def test_the_dictionary_saves_a_tenth(self, path: Path) -> None:
        """The comparison is the same compressor without a dictionary."""
        text = _compact(path)
        assert len(_encode(_json(text)).data) < 0.9 * len(zstd.compress(text, level=19))

    @pytest.mark.parametrize(
        "payload",
        [
            pytest.param(_json(b'"' + b"a" * 253 + b'"'), id="JSON below 256 bytes"),
            pytest.param(
                Payload(metadata={"encoding": b"json/protobuf", "messageType": b"x"}, data=b"a" * 5000),
                id="workflow metadata, which the UI reads by itself",
            ),
            pytest.param(Payload(metadata={"encoding": b"binary/plain"}, data=b"a" * 5000), id="bytes"),
            pytest.param(Payload(metadata={"encoding": b"binary/null"}), id="null"),
            pytest.param(Payload(data=b"a" * 5000), id="no encoding at all"),
            pytest.param(
                _json(hashlib.shake_256(b"seed").digest(2_000)),
                id="what does not get a tenth smaller",
            ),
        ],
    )
    def test_other_payloads_are_unchanged(self, payload: Payload) -> None:
        """Small, foreign and incompressible payloads pass both ways."""
        assert _encode(payload) == payload
        assert _decode(payload) == payload

    def test_other_metadata_stay_readable(self) -> None:
        """Only the encoding changes; other metadata are kept."""
        plain = _json(b'["word"]' * 200)
        plain.metadata["origin"] = b"tests"
        encoded = _encode(plain)
        assert encoded.metadata["origin"] == b"tests"
        assert _decode(encoded) == plain

    def test_nothing_is_compressed_twice(self) -> None:
        """A compressed payload passes through."""
        once = _encode(_json(b'["word"]' * 200))
        assert _encode(once) == once

    def test_the_codec_is_thread_safe(self) -> None:
        """All threads of a worker share the compressor."""
        codec = CompressionCodec()
        texts = [_json(f'["{n}"]'.encode() * 400) for n in range(64)]

        def there_and_back(payload: Payload) -> bool:
            return asyncio.run(codec.decode(asyncio.run(codec.encode([payload])))) == [payload]

        with ThreadPoolExecutor(8) as pool:
            assert all(pool.map(there_and_back, texts * 4))

    @given(st.lists(st.text(max_size=400), min_size=8, max_size=24))
    def test_every_json_value_round_trips(self, value: list[str]) -> None:
        """Decoding is the inverse of encoding for any characters."""
        payload = _json(json.dumps(value, ensure_ascii=True).encode())
        assert _decode(_encode(payload)) == payload

    async def test_the_codec_works_in_a_data_converter(self) -> None:
        """A value goes through Temporal's own converter and back."""
        converter = DataConverter(payload_codec=CompressionCodec())
        value = {"decision_log": ["Chose JWT over sessions for statelessness"] * 30}
        [payload] = await converter.encode([value])
        assert payload.metadata["encoding"] == PREFIX + b"1"
        assert await converter.decode([payload]) == [value]


class TestDecode:
    @pytest.mark.parametrize(
        ("data", "reason"),
        [
            pytest.param(b"not zstd at all", "damaged", id="other bytes"),
            pytest.param(b"", "damaged", id="no bytes"),
            pytest.param(COMPRESSED[:-3], "damaged", id="truncated"),
            pytest.param(COMPRESSED[:20] + b"\xff" + COMPRESSED[21:], "damaged", id="one byte changed"),
            pytest.param(COMPRESSED + b"more", "damaged", id="something after it"),
            pytest.param(COMPRESSED + COMPRESSED, "damaged", id="two frames"),
        ],
    )
    def test_the_error_for_damage_names_the_encoding(self, data: bytes, reason: str) -> None:
        """The reader never gets a partial value."""
        payload = Payload(metadata={"encoding": PREFIX + b"1"}, data=data)
        with pytest.raises(PayloadError, match=f"'binary/zstd-1'.*{reason}"):
            _decode(payload)

    @pytest.mark.parametrize("declared", [True, False], ids=["that says its size", "that does not"])
    def test_a_decompression_bomb_is_refused(self, declared: bool) -> None:
        """A few kilobytes never take more memory than the limit."""
        options: dict[int, int] = {zstd.CompressionParameter.content_size_flag: int(declared)}
        bomb = zstd.compress(b"0" * (MAX_DECODED_BYTES + 1), options=options)
        assert len(bomb) < 10_000
        payload = Payload(metadata={"encoding": PREFIX + b"1"}, data=bomb)
        with pytest.raises(PayloadError, match=f"more than {MAX_DECODED_BYTES}"):
            _decode(payload)

    @pytest.mark.parametrize("number", [pytest.param(b"2", id="a later one"), pytest.param(b"../1", id="a path")])
    def test_an_unknown_dictionary_is_named(self, number: bytes) -> None:
        """A payload of a newer version is an error that says so."""
        payload = Payload(metadata={"encoding": PREFIX + number}, data=COMPRESSED)
        with pytest.raises(PayloadError, match=r"needs the dictionary .* upgrade temporal-baton"):
            _decode(payload)

    def test_a_payload_without_a_dictionary_is_refused(self) -> None:
        """Another codec's `binary/zstd` is not accepted."""
        with pytest.raises(PayloadError, match="needs the dictionary b''"):
            _decode(Payload(metadata={"encoding": PREFIX}, data=zstd.compress(b"{}" * 400)))
