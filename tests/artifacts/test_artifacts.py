"""Artifact stores: immutable bytes under their hash, in every store."""

import asyncio
import hashlib
import os
import stat
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from baton import ArtifactRef
from baton.artifacts.store import ArtifactStore, LocalArtifactStore, MemoryArtifactStore, open_store
from baton.artifacts.store_objects import ObjectArtifactStore
from baton.errors import ArtifactCorruptError, ArtifactError, ArtifactNotFoundError

PLAN = b"1. read the code\n2. change it\n"
PLAN_HASH = hashlib.sha256(PLAN).hexdigest()
ABSENT = "0" * 64


def _objects_in_folder(root: Path) -> ArtifactStore:
    root.mkdir()
    return ObjectArtifactStore(root.as_uri())


STORES = [
    pytest.param(lambda root: LocalArtifactStore(root), id="a folder"),
    pytest.param(lambda root: MemoryArtifactStore(), id="memory"),
    pytest.param(_objects_in_folder, id="an object store on disk"),
    pytest.param(lambda root: ObjectArtifactStore("memory:///"), id="an object store in memory"),
]


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ArtifactStore:
    """Every kind of store: all keep the same promise."""
    make: Callable[[Path], ArtifactStore] = request.param
    return make(tmp_path / "artifacts")


class TestArtifactStore:
    async def test_bytes_come_back_under_their_sha256(self, store: ArtifactStore) -> None:
        """A store returns the complete SHA-256 that a reference carries (C-11, S1-design-j)."""
        sha256 = await store.put(PLAN)
        assert ArtifactRef(id="art-001", type="plan", hash=sha256).hash == PLAN_HASH
        assert await store.get(sha256) == PLAN

    @pytest.mark.parametrize(
        "data",
        [pytest.param(b"", id="nothing at all"), pytest.param(bytes(range(256)) * 40_000, id="ten megabytes")],
    )
    async def test_artifacts_of_any_size_are_read_back(self, store: ArtifactStore, data: bytes) -> None:
        """An artifact may be empty, or larger than a part of a multipart upload."""
        assert await store.get(await store.put(data)) == data

    async def test_the_same_bytes_are_stored_once(self, store: ArtifactStore) -> None:
        """Putting an artifact again succeeds and changes nothing (S1-cmp-f)."""
        assert await store.put(PLAN) == await store.put(PLAN) == PLAN_HASH
        assert await store.get(PLAN_HASH) == PLAN

    async def test_many_writers_of_the_same_bytes_agree(self, store: ArtifactStore) -> None:
        """Concurrent activities may produce the same artifact."""
        assert set(await asyncio.gather(*(store.put(PLAN) for _ in range(16)))) == {PLAN_HASH}
        assert await store.get(PLAN_HASH) == PLAN

    async def test_it_says_whether_it_has_an_artifact(self, store: ArtifactStore) -> None:
        """`has` is true for a stored artifact and false for another one."""
        await store.put(PLAN)
        assert await store.has(PLAN_HASH)
        assert not await store.has(ABSENT)

    async def test_a_missing_artifact_is_named(self, store: ArtifactStore) -> None:
        """A missing artifact has a specific error, which names the hash."""
        with pytest.raises(ArtifactNotFoundError, match=ABSENT):
            await store.get(ABSENT)

    @pytest.mark.parametrize(
        "wrong",
        [
            pytest.param("../../etc/passwd", id="a path"),
            pytest.param(PLAN_HASH[:16], id="a short hash"),
            pytest.param(PLAN_HASH.upper(), id="upper case"),
            pytest.param(f"{PLAN_HASH}\n", id="a line end"),
            pytest.param("", id="nothing"),
        ],
    )
    async def test_only_a_complete_hash_is_looked_up(self, store: ArtifactStore, wrong: str) -> None:
        """A hash comes from an agent and becomes part of a path: anything else is refused (C-11)."""
        with pytest.raises(ValueError, match="is not a SHA-256"):
            await store.get(wrong)
        with pytest.raises(ValueError, match="is not a SHA-256"):
            await store.has(wrong)


def _file(root: Path) -> Path:
    return root / "sha256" / PLAN_HASH[:2] / PLAN_HASH


class TestLocalArtifactStore:
    async def test_a_file_is_named_by_its_hash_and_read_only(self, tmp_path: Path) -> None:
        """The layout is part of the contract: backups and people find an artifact by its hash (S1-cmp-f)."""
        await LocalArtifactStore(tmp_path).put(PLAN)
        assert [os.path.join(folder, name) for folder, _, names in os.walk(tmp_path) for name in names] == [
            str(_file(tmp_path))
        ]
        assert stat.S_IMODE(_file(tmp_path).stat().st_mode) == 0o444

    async def test_a_created_folder_is_readable_by_its_owner_only(self, tmp_path: Path) -> None:
        """It contains work products and the ledger's cold tier; create it yourself to let others read it."""
        shared = tmp_path / "shared"
        shared.mkdir(mode=0o755)
        for folder in (tmp_path / "made/here", shared):
            await LocalArtifactStore(folder).put(PLAN)

        assert stat.S_IMODE((tmp_path / "made/here").stat().st_mode) == 0o700
        assert stat.S_IMODE(shared.stat().st_mode) == 0o755

    async def test_two_stores_share_a_folder(self, tmp_path: Path) -> None:
        """Workers on one machine see each other's artifacts."""
        await LocalArtifactStore(tmp_path).put(PLAN)
        assert await LocalArtifactStore(tmp_path).get(PLAN_HASH) == PLAN

    @pytest.mark.parametrize(
        "damage",
        [pytest.param(PLAN[:-1], id="truncated"), pytest.param(PLAN.replace(b"1", b"7"), id="one byte changed")],
    )
    async def test_damage_is_found_and_healed_by_the_original(self, tmp_path: Path, damage: bytes) -> None:
        """Damaged bytes never reach a stage (S1-cmp-f)."""
        store = LocalArtifactStore(tmp_path)
        await store.put(PLAN)
        _file(tmp_path).chmod(0o644)
        _file(tmp_path).write_bytes(damage)
        with pytest.raises(ArtifactCorruptError, match=hashlib.sha256(damage).hexdigest()):
            await store.get(PLAN_HASH)
        await store.put(PLAN)
        assert await store.get(PLAN_HASH) == PLAN

    async def test_a_stored_file_is_not_written_again(self, tmp_path: Path) -> None:
        """Not even the modification time of a stored file changes (S1-cmp-f)."""
        store = LocalArtifactStore(tmp_path)
        await store.put(PLAN)
        stat_before = _file(tmp_path).stat()
        await store.put(PLAN)
        stat_after = _file(tmp_path).stat()
        assert (stat_after.st_ino, stat_after.st_mtime_ns) == (stat_before.st_ino, stat_before.st_mtime_ns)

    async def test_a_folder_that_cannot_be_written_is_named(self, tmp_path: Path) -> None:
        """The error for a full or missing disk names the folder, and no partial file stays."""
        (tmp_path / "sha256").write_bytes(b"a file where the folder should be")
        with pytest.raises(ArtifactError, match=r"cannot write artifact .*Not a directory"):
            await LocalArtifactStore(tmp_path).put(PLAN)


class TestObjectArtifactStore:
    async def test_an_object_is_never_replaced(self, tmp_path: Path) -> None:
        """The store itself refuses a second write (S1-cmp-f)."""
        _file(tmp_path).parent.mkdir(parents=True)
        _file(tmp_path).write_bytes(b"somebody else's bytes")
        store = ObjectArtifactStore(tmp_path.as_uri())
        await store.put(PLAN)
        with pytest.raises(ArtifactCorruptError):
            await store.get(PLAN_HASH)

    async def test_it_reads_artifacts_of_the_folder_store(self, tmp_path: Path) -> None:
        """Both have the same layout, so a folder can be copied into a bucket."""
        await LocalArtifactStore(tmp_path).put(PLAN)
        assert await ObjectArtifactStore(tmp_path.as_uri()).get(PLAN_HASH) == PLAN

    @pytest.mark.parametrize(
        "url", [pytest.param("nope://bucket", id="an unknown scheme"), pytest.param("plans", id="no URL")]
    )
    def test_a_url_that_names_no_store_is_refused(self, url: str) -> None:
        """The message has the URL and valid examples."""
        with pytest.raises(ValueError, match=rf"'{url}'.*s3://bucket/prefix"):
            ObjectArtifactStore(url)


class TestOpenStore:
    @pytest.mark.parametrize(
        ("where", "kind"),
        [
            pytest.param("memory:", MemoryArtifactStore, id="memory"),
            pytest.param("artifacts", LocalArtifactStore, id="a relative path"),
            pytest.param("/var/lib/artifacts", LocalArtifactStore, id="an absolute path"),
            pytest.param("C:\\artifacts", LocalArtifactStore, id="a path with a drive"),
            pytest.param(Path("memory:"), LocalArtifactStore, id="a path object is always a path"),
            pytest.param("file:///var/lib/artifacts", LocalArtifactStore, id="a file URL"),
            pytest.param("s3://bucket/prefix", ObjectArtifactStore, id="S3"),
            pytest.param("gs://bucket", ObjectArtifactStore, id="Google Cloud Storage"),
            pytest.param("abfss://container@account.dfs.core.windows.net/prefix", ObjectArtifactStore, id="Azure"),
        ],
    )
    def test_the_setting_decides(self, where: str | Path, kind: type) -> None:
        """Folders, memory and buckets are distinguished by their spelling."""
        assert type(open_store(where)) is kind

    def test_a_file_url_is_a_folder_with_its_escapes_undone(self) -> None:
        """`file:///a%20b` names the folder `/a b`."""
        store = open_store("file:///a%20b")
        assert isinstance(store, LocalArtifactStore)
        assert store.root == Path("/a b")

    def test_a_missing_extra_is_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Without the object store library the message says what to install."""
        monkeypatch.delitem(sys.modules, "baton.artifacts.store_objects")
        monkeypatch.setitem(sys.modules, "obstore", None)
        with pytest.raises(ArtifactError, match=r"pip install 'temporal-baton\[objects\]'"):
            open_store("s3://bucket/prefix")
