"""How a stage reads and writes artifacts."""

import asyncio
import hashlib
import logging
from pathlib import Path

import pytest

from baton import ArtifactRef, estimate_tokens
from baton.artifacts.activity import ArtifactAccess
from baton.artifacts.store import LocalArtifactStore, MemoryArtifactStore
from baton.errors import ArtifactConflictError, ArtifactNotFoundError


async def open_access(*texts: tuple[str, bytes], scope: tuple[str, ...] = ()) -> ArtifactAccess:
    """Return access with references to some texts."""
    store = MemoryArtifactStore()
    refs = [ArtifactRef(id=id, type="text", hash=await store.put(data)) for id, data in texts]
    return ArtifactAccess(store, refs, list(scope), estimate_tokens)


class TestWrite:
    async def test_it_returns_a_reference_to_the_stored_bytes(self) -> None:
        """Id, hash and length, without content (S1-design-j, C-11)."""
        access = await open_access()
        ref = await access.write("plan", "é", type="plan", path="plan.md", summary="The plan")

        assert ref.hash == hashlib.sha256("é".encode()).hexdigest()
        assert (ref.id, ref.type, ref.size, ref.path, ref.summary) == ("plan", "plan", 2, "plan.md", "The plan")
        assert await access.read("plan") == "é".encode()
        assert access.written == [ref]

    async def test_the_same_bytes_again_are_harmless(self) -> None:
        """A retried stage writes the same artifacts (C-11)."""
        access = await open_access(("old", b"x"))

        for _ in range(2):
            await access.write("new", b"y", type="t")
            await access.write("old", b"x", type="t")
        assert [ref.id for ref in access.refs] == ["old", "new"]

    @pytest.mark.parametrize("id", ["old", "new"])
    async def test_other_bytes_under_a_taken_id_are_refused(self, id: str) -> None:
        """Artifacts are immutable, also those of this stage, and nothing is stored (C-11, S1-cmp-f)."""
        access = await open_access(("old", b"x"))
        await access.write("new", b"y", type="t")

        with pytest.raises(ArtifactConflictError, match=f"artifact '{id}' already has the hash .* new id"):
            await access.write(id, b"z", type="t")
        assert await access.read(id) in (b"x", b"y")
        assert not await access.store.has(hashlib.sha256(b"z").hexdigest())

    async def test_concurrent_writes_of_the_same_artifact_store_it_once(self, tmp_path: Path) -> None:
        """Two parts of a stage may write the same artifact; different bytes conflict."""
        access = ArtifactAccess(LocalArtifactStore(tmp_path), [], [], estimate_tokens)
        await asyncio.gather(*(access.write("plan", b"x", type="t") for _ in range(3)))
        both = await asyncio.gather(
            *(access.write("notes", data, type="t") for data in (b"y", b"z")), return_exceptions=True
        )

        assert sorted(ref.id for ref in access.written) == ["notes", "plan"]
        assert sum(isinstance(outcome, ArtifactConflictError) for outcome in both) == 1


class TestRead:
    async def test_an_unknown_id_is_an_error_that_names_the_known_ones(self) -> None:
        """A typo is reported immediately."""
        with pytest.raises(ArtifactNotFoundError, match="no artifact 'plam'; it refers to: 'plan'"):
            await (await open_access(("plan", b"x"))).read("plam")

    async def test_without_references_there_are_none(self) -> None:
        """The message does not end in a colon."""
        with pytest.raises(ArtifactNotFoundError, match="it refers to: none"):
            await (await open_access()).read("plan")


class TestSelect:
    async def test_it_returns_the_texts_that_fit_those_in_scope_first(self) -> None:
        """`work_scope` and the budget decide (S1-cmp-d, S1-cmp-h, S1-design-g)."""
        access = await open_access(("a", b"a" * 40), ("b", b"b" * 40), ("c", b"c" * 4), scope=("a",))

        assert await access.select(11) == {"a": "a" * 40, "c": "cccc"}
        assert [(verdict.id, verdict.included) for verdict in access.selected] == [
            ("a", True),
            ("b", False),
            ("c", True),
        ]

    async def test_an_artifact_that_is_not_text_is_left_out_with_a_reason(self) -> None:
        """An image does not belong in a prompt (S1-cmp-d)."""
        access = await open_access(("image", b"\xff\xfe"), ("text", b"x"))

        assert await access.select(10) == {"text": "x"}
        assert "its content is not text" in access.selected[0].reason


async def test_a_store_that_cannot_be_written_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A full disk makes a stage wait instead of failing its run."""
    monkeypatch.setattr("baton.artifacts.activity.MIN_PAUSE", 0.01)
    monkeypatch.setattr("baton.artifacts.activity.MAX_PAUSE", 0.02)
    root = tmp_path / "artifacts"
    logged = asyncio.Event()

    def note_log(_: logging.LogRecord) -> bool:
        logged.set()
        return True

    monkeypatch.setattr(logging.getLogger("baton.artifacts.activity"), "filters", [note_log])
    root.touch()  # no folder can be made in its place
    access = ArtifactAccess(LocalArtifactStore(root), [], [], estimate_tokens)

    writing = asyncio.create_task(access.write("plan", "the plan", type="plan"))
    await logged.wait()
    root.unlink()
    ref = await writing

    assert access.written == [ref]
    assert len(caplog.records) == 1, "it is said once"
