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
    """Return what closes a stream of so many chunks."""
    return Chunk(
        handoff_id=ID, seq=count + 1, at=AT, last=True, whole=whole_digest([{"n": n + 1} for n in range(count)])
    )


class TestTake:
    def test_the_receiver_may_begin_with_the_least_and_knows_when_all_is_there(self) -> None:
        """It begins before the end, and the end is checked (S3-14.1-b, S3-14.1-d)."""
        stream = ChunkStream(ID, minimum=2)
        begins = []
        for one in (chunk(1), chunk(2), chunk(3), last(3)):
            assert stream.add(one) is Arrival.NEXT
            begins.append(stream.may_begin)

        assert begins == [False, True, True, True]
        assert (stream.complete, stream.contents) == (True, [{"n": 1}, {"n": 2}, {"n": 3}])

    def test_a_gap_is_waited_for(self) -> None:
        """What comes after it is kept, and taken in order."""
        stream = ChunkStream(ID)

        assert [stream.add(chunk(3)), stream.add(chunk(2))] == [Arrival.AHEAD, Arrival.AHEAD]
        assert (stream.contents, stream.missing) == ([], 1)
        assert stream.add(chunk(1)) is Arrival.NEXT
        assert ([one["n"] for one in stream.contents], stream.missing) == ([1, 2, 3], None)

    def test_each_chunk_is_checked(self) -> None:
        """One that is not what it should be breaks the stream (S3-14.1-c)."""

        def check(content: Mapping[str, Any]) -> list[str]:
            return [] if isinstance(content.get("n"), int) else ["'n' must be a number; send one"]

        stream = ChunkStream(ID, check=check)
        stream.add(chunk(1))

        assert stream.add(chunk(2, n="two")) is Arrival.INVALID
        assert stream.faults == ["chunk 2: 'n' must be a number; send one"]
        assert (stream.add(chunk(3)), stream.may_begin) == (Arrival.REFUSED, False)

    @pytest.mark.parametrize(
        ("before", "one", "arrival"),
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
    def test_whatever_comes_is_told_apart(self, before: list[Chunk], one: Chunk, arrival: Arrival) -> None:
        """Duplicates change nothing; contradictions, and an end that is not that of what came, break it (S3-14.1-d)."""
        stream = ChunkStream(ID)
        for each in before:
            stream.add(each)
        taken = list(stream.contents)

        assert stream.add(one) is arrival
        assert stream.contents == taken
        assert bool(stream.faults) is (arrival in (Arrival.CONFLICT, Arrival.INVALID))

    @given(st.integers(0, 6).flatmap(lambda n: st.tuples(st.just(n), st.lists(st.integers(0, n), max_size=20))))
    def test_any_order_and_number_of_copies_gives_the_same(self, case: tuple[int, list[int]]) -> None:
        """What arrived at least once is all that counts."""
        count, order = case
        sent = [*(chunk(n + 1) for n in range(count)), last(count)]
        stream = ChunkStream(ID)
        for at in order:
            stream.add(sent[at])
        prefix = next((n for n in range(count + 1) if n not in order), count + 1)

        assert [one["n"] for one in stream.contents] == list(range(1, min(prefix, count) + 1))
        assert stream.complete is (prefix == count + 1)
        assert stream.faults == []
