"""Content-addressed artifact stores in memory and in a folder."""

import asyncio
import contextlib
import hashlib
import os
import re
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit
from urllib.request import url2pathname

from baton.errors import ArtifactCorruptError, ArtifactError, ArtifactNotFoundError, ArtifactUnavailableError
from baton.wire.names import DEFAULT_STORE

_HASH = re.compile(r"[0-9a-f]{64}")
_URL = re.compile(r"[a-z][a-z0-9+.-]+:", re.IGNORECASE)  # two letters at least: C:\ is a drive, not a scheme
_READ_ONLY, _OWNER_ONLY = 0o444, 0o700
_REMEDY = "restore it from a backup, or put the original back with `baton artifact put FILE`"
_MARK_TEXT = """\
Baton has kept artifacts in the folder {name!r} beside this file. If that folder is gone, Baton does not make it again:
restore it from a backup, or make an empty one if its artifacts are not needed.
"""


class ArtifactStore(Protocol):
    """A store of artifacts: write-once and content-addressed."""

    async def put(self, data: bytes) -> str:
        """Store ``data`` once, and return its SHA-256 as 64 hexadecimal digits."""

    async def get(self, sha256: str) -> bytes:
        """Return the bytes with this SHA-256, verified."""

    async def has(self, sha256: str) -> bool:
        """Return whether the store has ``sha256``, without reading the bytes."""


class MemoryArtifactStore:
    """An artifact store in this process's memory, for tests and examples.

    Example:
        >>> async def example() -> bytes:
        ...     store = MemoryArtifactStore()
        ...     return await store.get(await store.put(b"the plan"))
        >>> asyncio.run(example())
        b'the plan'
    """

    def __init__(self) -> None:
        self._blobs: dict[str, bytes] = {}

    async def put(self, data: bytes) -> str:
        """Store ``data`` and return its SHA-256."""
        sha256 = hashlib.sha256(data).hexdigest()
        self._blobs[sha256] = bytes(data)
        return sha256

    async def get(self, sha256: str) -> bytes:
        """Return the bytes with this SHA-256."""
        try:
            return self._blobs[check_hash(sha256)]
        except KeyError:
            raise not_found_error(sha256, "memory") from None

    async def has(self, sha256: str) -> bool:
        """Return whether the store has ``sha256``."""
        return check_hash(sha256) in self._blobs


class LocalArtifactStore:
    """An artifact store in a folder, with one read-only file per artifact: `sha256/ab/abcdef…`."""

    def __init__(self, root: Path) -> None:
        self.root = root

    async def put(self, data: bytes) -> str:
        """Store ``data`` durably, and return its SHA-256."""
        sha256 = hashlib.sha256(data).hexdigest()
        try:
            await asyncio.to_thread(_write_once, self.root, self._path(sha256), data)
        except OSError as error:
            raise ArtifactUnavailableError(
                f"cannot write artifact {sha256!r} below {str(self.root)!r}: {error.strerror or error}; "
                "check that the folder exists, is writable and has space"
            ) from error
        return sha256

    async def get(self, sha256: str) -> bytes:
        """Return the bytes with this SHA-256, verified."""
        path = self._path(check_hash(sha256))
        try:
            data = await asyncio.to_thread(path.read_bytes)
        except FileNotFoundError:
            raise not_found_error(sha256, str(self.root)) from None
        except OSError as error:
            raise ArtifactError(f"cannot read artifact {sha256!r} at {str(path)!r}: {error}") from error
        return verify(sha256, data, str(path))

    async def has(self, sha256: str) -> bool:
        """Return whether the folder has ``sha256``, without reading the bytes."""
        return await asyncio.to_thread(self._path(check_hash(sha256)).is_file)

    def _path(self, sha256: str) -> Path:
        return self.root / "sha256" / sha256[:2] / sha256


def open_store(location: str | Path) -> ArtifactStore:
    """Open the artifact store at a folder or URL.

    Example:
        >>> type(open_store("memory:")).__name__, open_store("artifacts").root.as_posix()
        ('MemoryArtifactStore', 'artifacts')
    """
    url = str(location)
    if isinstance(location, Path) or not _URL.match(url):
        return LocalArtifactStore(Path(location))
    scheme = urlsplit(url).scheme
    if scheme == "memory":
        return MemoryArtifactStore()
    if scheme == "file":
        return LocalArtifactStore(Path(url2pathname(urlsplit(url).path)))
    try:
        objects = import_module("baton.artifacts.store_objects")  # an extra of 15 MB
    except ModuleNotFoundError as error:
        raise ArtifactError(
            f"artifacts at {url!r} need the object store library: pip install 'temporal-baton[objects]'"
        ) from error
    store: ArtifactStore = objects.ObjectArtifactStore(url)
    return store


def default_store() -> ArtifactStore:
    """Open the deployment's artifact store: `BATON_ARTIFACTS`, or the folder `.baton/artifacts`."""
    return open_store(os.environ.get("BATON_ARTIFACTS") or DEFAULT_STORE)


def is_on_this_machine(store: ArtifactStore | None) -> bool:
    """Return whether a store, if any, is reached without a network."""
    return store is None or isinstance(store, LocalArtifactStore | MemoryArtifactStore)


async def read_texts(get: Callable[[str], Awaitable[bytes]], hashes: Mapping[str, str]) -> dict[str, str]:
    """Return texts by name, as far as `get` finds their artifacts."""
    found = {}
    for name, sha256 in hashes.items():
        with contextlib.suppress(ArtifactError):
            found[name] = (await get(sha256)).decode(errors="replace")
    return found


def check_hash(sha256: str) -> str:
    """Return a valid SHA-256 in lower-case hexadecimal; it becomes part of a path."""
    if not _HASH.fullmatch(sha256):
        raise ValueError(f"{sha256!r} is not a SHA-256: expected 64 lower-case hexadecimal digits")
    return sha256


def verify(sha256: str, data: bytes, location: str) -> bytes:
    """Return ``data`` if its SHA-256 is ``sha256``."""
    actual = hashlib.sha256(data).hexdigest()
    if actual != sha256:
        raise ArtifactCorruptError(
            f"artifact {sha256!r} at {location!r} is damaged: its {len(data)} bytes have the SHA-256 {actual!r}; "
            f"{_REMEDY}"
        )
    return data


def not_found_error(sha256: str, location: str) -> ArtifactNotFoundError:
    """Return the error for an artifact that a store does not have."""
    return ArtifactNotFoundError(
        f"no artifact {sha256!r} in the store at {location!r}: it was deleted, or this process opened another store "
        f"(BATON_ARTIFACTS); {_REMEDY}"
    )


def _write_once(root: Path, path: Path, data: bytes) -> None:
    """Write ``path`` below ``root``, atomically and durably, unless it already holds ``data``."""
    with contextlib.suppress(FileNotFoundError):
        if path.read_bytes() == data:
            return
    _make_root(root)
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(prefix=".new-", dir=path.parent)
    try:
        with open(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(descriptor)
        os.chmod(name, _READ_ONLY)
        os.replace(name, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)
        raise
    for folder in (path.parent, path.parent.parent, path.parent.parent.parent):
        sync_folder(folder)


def _make_root(root: Path) -> None:
    """Make a store's folder, with a mark beside it that it was made; refuse to make it a second time."""
    absolute = Path(os.path.abspath(root))
    mark = absolute.with_name(f".{absolute.name}.made") if absolute.name else None
    if mark is not None and mark.exists() and not root.is_dir():  # in this order: another process may be making both
        raise ArtifactUnavailableError(
            f"the artifact store's folder {str(root)!r} is gone: it was moved or deleted. Restore it from a backup, or "
            "make an empty folder there if its artifacts are not needed"
        )
    root.mkdir(mode=_OWNER_ONLY, parents=True, exist_ok=True)
    if mark is not None and not mark.exists():
        with contextlib.suppress(OSError):  # who cannot write here cannot make the folder again either
            mark.write_text(_MARK_TEXT.format(name=absolute.name), encoding="utf-8")


def sync_folder(folder: Path) -> None:
    """Make a folder's entries durable, if the system can open folders."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
