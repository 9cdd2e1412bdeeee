"""An artifact store in S3, GCS or Azure (extra `objects`)."""

import asyncio
import hashlib

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError
from obstore.store import ObjectStore, from_url

from baton.artifacts.store import check_hash, not_found_error, verify
from baton.errors import ArtifactError, ArtifactUnavailableError


class ObjectArtifactStore:
    """An artifact store in an object store, with one object per artifact: `sha256/ab/abcdef…`."""

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
        """Store ``data`` and return its SHA-256."""
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
        """Return the bytes with this SHA-256, verified."""
        path = _path(sha256)
        try:
            data = await asyncio.to_thread(lambda: bytes(obstore.get(self._store, path).bytes()))
        except FileNotFoundError:
            raise not_found_error(sha256, self.url) from None
        except (BaseError, OSError) as error:
            raise self._read_error(sha256, error) from error
        return verify(sha256, data, f"{self.url}/{path}")

    async def has(self, sha256: str) -> bool:
        """Return whether the store has ``sha256``, without reading the bytes."""
        path = _path(sha256)
        try:
            await asyncio.to_thread(obstore.head, self._store, path)
        except FileNotFoundError:
            return False
        except (BaseError, OSError) as error:
            raise self._read_error(sha256, error) from error
        return True

    def _create(self, sha256: str, data: bytes) -> None:
        try:
            # A multipart upload is not conditional in every store.
            obstore.put(self._store, _path(sha256), data, mode="create", use_multipart=False)
        except AlreadyExistsError:
            return

    def _read_error(self, sha256: str, error: Exception) -> ArtifactError:
        return ArtifactError(
            f"cannot read artifact {sha256!r} from {self.url!r}: {_reason(error)}; "
            "check the bucket's name and that these credentials may read it"
        )


def _path(sha256: str) -> str:
    return f"sha256/{check_hash(sha256)[:2]}/{sha256}"


def _reason(error: Exception) -> str:
    """Return the first line of the library's message; the rest is internal detail."""
    return str(error).partition("\n")[0]
