"""The receiving end of a streamed handoff."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from baton.exchange.workflow_streams import Arrival, Chunk, ChunkStream, whole_digest

AT = datetime(2026, 11, 21, 10, tzinfo=UTC)
ID, OTHER = "7c9e6679-7425-40de-944b-e07fc1f90ae7", "1b9d6bcd-bbfd-4b2d-9b5d-ab8dfbbd4bed"


def chunk(seq: int, *, handoff_id: str = ID, **content: Any) -> Chunk:
    return Chunk(handoff_id=handoff_id, seq=seq, content=content or {"n": seq}, at=AT)


def last(count: int) -> Chunk:
    """Return the last chunk of a stream of that length."""
    return Chunk(
        handoff_id=ID, seq=count + 1, at=AT, last=True, whole=whole_digest([{"n": n + 1} for n in range(count)])
    )


class TestAdd:
    def test_the_receiver_begins_with_the_minimum_and_knows_the_end(self) -> None:
        """It begins before the end, and the end is checked (S3-14.1-b, S3-14.1-d)."""
        stream = ChunkStream(ID, minimum=2)
        begins = []
        for part in (chunk(1), chunk(2), chunk(3), last(3)):
            assert stream.add(part) is Arrival.NEXT
            begins.append(stream.may_begin)

        assert begins == [False, True, True, True]
        assert (stream.complete, stream.contents) == (True, [{"n": 1}, {"n": 2}, {"n": 3}])

    def test_chunks_after_a_gap_wait(self) -> None:
        """They are kept, and added in order."""
        stream = ChunkStream(ID)

        assert [stream.add(chunk(3)), stream.add(chunk(2))] == [Arrival.AHEAD, Arrival.AHEAD]
        assert (stream.contents, stream.missing) == ([], 1)
        assert stream.add(chunk(1)) is Arrival.NEXT
        assert ([content["n"] for content in stream.contents], stream.missing) == ([1, 2, 3], None)

    def test_each_chunk_is_checked(self) -> None:
        """An invalid one breaks the stream (S3-14.1-c)."""

        def check(content: Mapping[str, Any]) -> list[str]:
            return [] if isinstance(content.get("n"), int) else ["'n' must be a number; send one"]

        stream = ChunkStream(ID, check=check)
        stream.add(chunk(1))

        assert stream.add(chunk(2, n="two")) is Arrival.INVALID
        assert stream.faults == ["chunk 2: 'n' must be a number; send one"]
        assert (stream.add(chunk(3)), stream.may_begin) == (Arrival.REFUSED, False)

    @pytest.mark.parametrize(
        ("before", "arriving", "arrival"),
        [
            pytest.param([chunk(1)], chunk(1), Arrival.DUPLICATE, id="a duplicate"),
            pytest.param([chunk(2)], chunk(2), Arrival.DUPLICATE, id="a duplicate of one that waits"),
            pytest.param([chunk(1), last(1)], last(1), Arrival.DUPLICATE, id="the end twice"),
            pytest.param([chunk(1)], chunk(1, n=7), Arrival.CONFLICT, id="another one of that number"),
            pytest.param([chunk(2)], chunk(2, n=7), Arrival.CONFLICT, id="another one of one that waits"),
            pytest.param([chunk(1), last(1)], chunk(3), Arrival.REFUSED, id="after the end"),
            pytest.param([], chunk(1, handoff_id=OTHER), Arrival.REFUSED, id="of another handoff"),
            pytest.param([chunk(1)], last(0).model_copy(update={"seq": 2}), Arrival.INVALID, id="an end that lies"),
            pytest.param([chunk(1), chunk(3)], last(1), Arrival.INVALID, id="chunks beyond the end"),
        ],
    )
    def test_each_arrival_is_classified(self, before: list[Chunk], arriving: Chunk, arrival: Arrival) -> None:
        """Duplicates change nothing; contradictions and a wrong final digest break the stream (S3-14.1-d)."""
        stream = ChunkStream(ID)
        for part in before:
            stream.add(part)
        contents = list(stream.contents)

        assert stream.add(arriving) is arrival
        assert stream.contents == contents
        assert bool(stream.faults) is (arrival in (Arrival.CONFLICT, Arrival.INVALID))

    @given(st.integers(0, 6).flatmap(lambda n: st.tuples(st.just(n), st.lists(st.integers(0, n), max_size=20))))
    def test_order_and_duplicates_do_not_change_the_result(self, case: tuple[int, list[int]]) -> None:
        """A chunk counts once, whenever it arrives."""
        count, order = case
        sent = [*(chunk(n + 1) for n in range(count)), last(count)]
        stream = ChunkStream(ID)
        for at in order:
            stream.add(sent[at])
        prefix = next((n for n in range(count + 1) if n not in order), count + 1)

        assert [content["n"] for content in stream.contents] == list(range(1, min(prefix, count) + 1))
        assert stream.complete is (prefix == count + 1)
        assert stream.faults == []
