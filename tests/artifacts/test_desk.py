"""Where a stage reads and writes artifacts."""

import asyncio
import hashlib
import logging
from pathlib import Path

import pytest

from baton.artifacts.activity import ArtifactAccess
from baton.artifacts.records import ArtifactRef
from baton.artifacts.store import LocalArtifactStore, MemoryArtifactStore
from baton.errors import ArtifactConflictError, ArtifactNotFoundError
from baton.wire.text import estimate_tokens


async def desk(*texts: tuple[str, bytes], scope: tuple[str, ...] = ()) -> ArtifactAccess:
    """Return a desk that was handed references to some texts."""
    store = MemoryArtifactStore()
    refs = [ArtifactRef(id=id, type="text", hash=await store.put(data)) for id, data in texts]
    return ArtifactAccess(store, refs, list(scope), estimate_tokens)


class TestWrite:
    async def test_it_returns_a_reference_to_the_stored_bytes(self) -> None:
        """Id, hash and length, no content (S1-design-j, C-11)."""
        one = await desk()
        ref = await one.write("plan", "é", type="plan", path="plan.md", summary="The plan")

        assert ref.hash == hashlib.sha256("é".encode()).hexdigest()
        assert (ref.id, ref.type, ref.size, ref.path, ref.summary) == ("plan", "plan", 2, "plan.md", "The plan")
        assert await one.read("plan") == "é".encode()
        assert one.written == [ref]

    async def test_the_same_bytes_again_are_harmless(self) -> None:
        """A stage that is run again writes what it wrote (C-11)."""
        one = await desk(("old", b"x"))

        for _ in range(2):
            await one.write("new", b"y", type="t")
            await one.write("old", b"x", type="t")
        assert [ref.id for ref in one.refs] == ["old", "new"]

    @pytest.mark.parametrize("id", ["old", "new"])
    async def test_other_bytes_under_a_taken_id_are_refused(self, id: str) -> None:
        """Artifacts are immutable, those of this stage too, and nothing of it is kept (C-11, S1-cmp-f)."""
        one = await desk(("old", b"x"))
        await one.write("new", b"y", type="t")

        with pytest.raises(ArtifactConflictError, match=f"artifact '{id}' already has the hash .* new id"):
            await one.write(id, b"z", type="t")
        assert await one.read(id) in (b"x", b"y")
        assert not await one.store.has(hashlib.sha256(b"z").hexdigest())

    async def test_what_is_written_twice_at_once_is_there_once(self, tmp_path: Path) -> None:
        """Two parts of a stage may come to the same, and two that differ are told apart."""
        one = ArtifactAccess(LocalArtifactStore(tmp_path), [], [], estimate_tokens)
        await asyncio.gather(*(one.write("plan", b"x", type="t") for _ in range(3)))
        both = await asyncio.gather(
            *(one.write("notes", data, type="t") for data in (b"y", b"z")), return_exceptions=True
        )

        assert sorted(ref.id for ref in one.written) == ["notes", "plan"]
        assert sum(isinstance(one, ArtifactConflictError) for one in both) == 1


class TestRead:
    async def test_an_unknown_id_is_an_error_that_names_the_known_ones(self) -> None:
        """A typing mistake is seen at once."""
        with pytest.raises(ArtifactNotFoundError, match="no artifact 'plam'; it refers to: 'plan'"):
            await (await desk(("plan", b"x"))).read("plam")

    async def test_without_references_there_are_none(self) -> None:
        """The message does not end in a colon."""
        with pytest.raises(ArtifactNotFoundError, match="it refers to: none"):
            await (await desk()).read("plan")


class TestSelect:
    async def test_it_returns_the_texts_that_fit_those_in_scope_first(self) -> None:
        """`work_scope` and the budget decide (S1-cmp-d, S1-cmp-h, S1-design-g)."""
        one = await desk(("a", b"a" * 40), ("b", b"b" * 40), ("c", b"c" * 4), scope=("a",))

        assert await one.select(11) == {"a": "a" * 40, "c": "cccc"}
        assert [(verdict.id, verdict.included) for verdict in one.selected] == [("a", True), ("b", False), ("c", True)]

    async def test_what_is_no_text_is_left_out_and_said_so(self) -> None:
        """An image has no place in a prompt (S1-cmp-d)."""
        one = await desk(("image", b"\xff\xfe"), ("text", b"x"))

        assert await one.select(10) == {"text": "x"}
        assert "its content is not text" in one.selected[0].reason


async def test_a_store_that_cannot_be_written_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A full disk failed runs for good after 16 seconds, where a full ledger waits."""
    monkeypatch.setattr("baton.artifacts.activity.MIN_PAUSE", 0.01)
    monkeypatch.setattr("baton.artifacts.activity.MAX_PAUSE", 0.02)
    root = tmp_path / "artifacts"
    said = asyncio.Event()

    def heard(_: logging.LogRecord) -> bool:
        said.set()
        return True

    monkeypatch.setattr(logging.getLogger("baton.artifacts.activity"), "filters", [heard])
    root.touch()  # no folder can be made in its place
    one = ArtifactAccess(LocalArtifactStore(root), [], [], estimate_tokens)

    writing = asyncio.create_task(one.write("plan", "the plan", type="plan"))
    await said.wait()
    root.unlink()
    ref = await writing

    assert one.written == [ref]
    assert len(caplog.records) == 1, "it is said once"
