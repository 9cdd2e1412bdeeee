"""The artifact store in S3, GCS or Azure, by the extra `objects`; nothing imports it until a URL names one."""

import asyncio
import hashlib

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError
from obstore.store import ObjectStore, from_url

from baton.artifacts.store import checked_hash, not_found, verified
from baton.errors import ArtifactError, ArtifactUnavailableError


class ObjectArtifactStore:
    """An artifact store in an object store: one object for each artifact, `sha256/ab/abcdef…`."""

    def __init__(self, url: str) -> None:
        self.url = url
        try:
            self._store: ObjectStore = from_url(url)
        except (BaseError, OSError, ValueError) as error:
            raise ValueError(
                f"cannot use {url!r} as an artifact store: {_reason(error)}; "
                "expected for example s3://bucket/prefix, gs://bucket or az://container/prefix"
            ) from error

    async def put(self, data: bytes) -> str:
        """Keep ``data`` and return its SHA-256; bytes that the store already holds are fine."""
        sha256 = hashlib.sha256(data).hexdigest()
        try:
            await asyncio.to_thread(self._create, sha256, data)
        except (BaseError, OSError) as error:
            raise ArtifactUnavailableError(
                f"cannot write artifact {sha256!r} to {self.url!r}: {_reason(error)}; "
                "check the bucket's name and that these credentials may write to it"
            ) from error
        return sha256

    async def get(self, sha256: str) -> bytes:
        """Return the bytes whose SHA-256 is ``sha256``, verified."""
        path = _path(sha256)
        try:
            data = await asyncio.to_thread(lambda: bytes(obstore.get(self._store, path).bytes()))
        except FileNotFoundError:
            raise not_found(sha256, self.url) from None
        except (BaseError, OSError) as error:
            raise self._unreadable(sha256, error) from error
        return verified(sha256, data, f"{self.url}/{path}")

    async def has(self, sha256: str) -> bool:
        """Return whether the store holds ``sha256``; the bytes are not read."""
        path = _path(sha256)
        try:
            await asyncio.to_thread(obstore.head, self._store, path)
        except FileNotFoundError:
            return False
        except (BaseError, OSError) as error:
            raise self._unreadable(sha256, error) from error
        return True

    def _create(self, sha256: str, data: bytes) -> None:
        try:
            # In one request: an upload in parts can't be conditional everywhere.
            obstore.put(self._store, _path(sha256), data, mode="create", use_multipart=False)
        except AlreadyExistsError:
            return

    def _unreadable(self, sha256: str, error: Exception) -> ArtifactError:
        return ArtifactError(
            f"cannot read artifact {sha256!r} from {self.url!r}: {_reason(error)}; "
            "check the bucket's name and that these credentials may read it"
        )


def _path(sha256: str) -> str:
    return f"sha256/{checked_hash(sha256)[:2]}/{sha256}"


def _reason(error: Exception) -> str:
    """The library's first line: what follows is a dump of its internals."""
    return str(error).partition("\n")[0]
