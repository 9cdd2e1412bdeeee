"""The vault's file, configured so that deleted data is overwritten, and the encryption of values."""

import asyncio
import base64
import contextlib
import os
import secrets
import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import rfc8785
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.keywrap import InvalidUnwrap, aes_key_unwrap, aes_key_wrap

from baton.keys.store_keyring import Key
from baton.personal.records import (
    PADDING,
    VERSION,
    DataKeyMissingError,
    ForeignCiphertextError,
    SealedField,
    VaultError,
    VaultUnavailableError,
)
from baton.wire.json_values import loads_strict, pae

KEY_BYTES, WRAPPED_BYTES = 32, 40
MAX_ENCRYPTIONS = 2**32
"""The maximum number of values per key with random nonces (NIST SP 800-38D §8.3)."""
_WRAP, _VALUE = "baton/vault-wrap/v1", "baton/vault-value/v1"
_NONCE_BYTES = 12


@dataclass(frozen=True)
class KeyPlace:
    """A key's id and subject, which are authenticated with everything that the key encrypts."""

    subject: str
    kid: str
    generation: int


@dataclass(frozen=True)
class Context:
    """The task and field of a value."""

    task_id: str
    name: str


def new_kid() -> str:
    """Return a random key id."""
    return f"dk-{secrets.token_hex(8)}"


def new_key() -> bytes:
    """Return a random key of 256 bits."""
    return secrets.token_bytes(KEY_BYTES)


def wrap(data_key: bytes, place: KeyPlace, wrapping: Key) -> bytes:
    """Return a subject's key, wrapped for storage: 40 bytes."""
    return aes_key_wrap(_key_for(place, wrapping), data_key)


def unwrap(wrapped: bytes, place: KeyPlace, wrapping: Key) -> bytes:
    """Return a subject's unwrapped key."""
    try:
        return aes_key_unwrap(_key_for(place, wrapping), wrapped)
    except (InvalidUnwrap, TypeError, ValueError):  # a column may hold any type
        raise DataKeyMissingError(
            f"the key {place.kid!r} of {place.subject!r} does not unwrap with {wrapping.id!r}: the vault's file is "
            "damaged or the keyring is another one; restore them, then try again"
        ) from None


def seal_value(value: Any, key: bytes, place: KeyPlace, context: Context) -> SealedField:
    """Encrypt a JSON value. The ciphertext reveals its length only in steps of 32 bytes."""
    plain = rfc8785.dumps(value)
    plain = plain.ljust(-(-len(plain) // PADDING) * PADDING)  # trailing blanks are not part of the JSON value
    nonce = secrets.token_bytes(_NONCE_BYTES)
    sealed = AESGCM(key).encrypt(nonce, plain, _associated_data(place, context))
    return SealedField(kid=place.kid, n=_text(nonce), ct=_text(sealed))


def open_value(field: SealedField, key: bytes, place: KeyPlace, context: Context) -> Any:
    """Decrypt a field."""
    plain = _decrypt(key, base64.b64decode(field.n), base64.b64decode(field.ct), place, context)
    return loads_strict(plain)


def _decrypt(key: bytes, nonce: bytes, sealed: bytes, place: KeyPlace, context: Context) -> bytes:
    try:
        return AESGCM(key).decrypt(nonce, sealed, _associated_data(place, context))
    except InvalidTag:
        raise ForeignCiphertextError(
            f"the field {context.name!r} of {place.subject!r} does not belong to task {context.task_id!r}: it was "
            "changed, or moved from another subject, task or field"
        ) from None


def _associated_data(place: KeyPlace, context: Context) -> bytes:
    """Return the associated data of a value's encryption."""
    members: dict[str, Any] = {
        "generation": place.generation,
        "kid": place.kid,
        "name": context.name,
        "subject": place.subject,
        "task": context.task_id,
        "v": VERSION,
    }
    return pae(_VALUE, rfc8785.dumps(members))


def _key_for(place: KeyPlace, wrapping: Key) -> bytes:
    """Derive the wrapping key of one place."""
    members: dict[str, Any] = {"generation": place.generation, "kid": place.kid, "subject": place.subject}
    info = pae(_WRAP, rfc8785.dumps(members))
    return HKDF(algorithm=SHA256(), length=KEY_BYTES, salt=None, info=info).derive(wrapping.secret)


def _text(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


T = TypeVar("T")
Work = Callable[[sqlite3.Connection], T]

_FILE_VERSION = 1
_APPLICATION = 0x6261747A  # marks the file as a vault
_PRAGMAS = (
    "secure_delete=ON",
    "journal_mode=DELETE",
    "synchronous=EXTRA",
    "temp_store=MEMORY",
    "foreign_keys=ON",
    "trusted_schema=OFF",
    "cell_size_check=ON",
)

_TABLES = f"""
CREATE TABLE index_key (id TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE subject (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    pseudonym TEXT NOT NULL UNIQUE,
    index_key TEXT NOT NULL REFERENCES index_key
);
CREATE TABLE wrapped_key (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    bytes BLOB NOT NULL CHECK (length(bytes) = 40)
);
CREATE TRIGGER wrapped_key_is_a_slot BEFORE DELETE ON wrapped_key
BEGIN SELECT raise(ABORT, 'a slot is overwritten, never deleted'); END;
CREATE TABLE data_key (
    id INTEGER PRIMARY KEY REFERENCES wrapped_key,
    subject INTEGER NOT NULL REFERENCES subject,
    kid TEXT NOT NULL UNIQUE,
    generation INTEGER NOT NULL,
    wrapping TEXT NOT NULL,
    used INTEGER NOT NULL,
    UNIQUE (subject, generation)
);
CREATE TABLE place (
    subject INTEGER NOT NULL REFERENCES subject,
    task_id TEXT NOT NULL,
    name TEXT NOT NULL,
    PRIMARY KEY (subject, task_id, name)
) WITHOUT ROWID;
CREATE TABLE erasure (
    subject TEXT PRIMARY KEY,
    index_key TEXT NOT NULL REFERENCES index_key,
    notice TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE unrecorded (
    subject TEXT NOT NULL REFERENCES erasure,
    task_id TEXT NOT NULL,
    PRIMARY KEY (subject, task_id)
) WITHOUT ROWID;
PRAGMA application_id = {_APPLICATION};
PRAGMA user_version = {_FILE_VERSION};
"""


class VaultFile:
    """The file, accessed by one thread. Several processes may use the same file."""

    def __init__(self, path: Path, *, wait: float = 15.0, create: bool = True) -> None:
        self.path = path
        self._wait = wait
        self._create = create
        self._connection: sqlite3.Connection | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="vault")

    async def open(self) -> None:
        """Open the file, and create its tables if it is new."""
        try:
            await self._run(self._open)
        except BaseException:
            await self.close()
            raise

    async def read(self, work: Work[T]) -> T:
        """Run ``work`` in a read transaction and return its result."""
        return await self._run(lambda: self._transaction(work, "BEGIN"))

    async def write(self, work: Work[T]) -> T:
        """Run ``work`` in a write transaction and return its result once it is durable; roll back if it raises."""
        return await self._run(lambda: self._transaction(work, "BEGIN IMMEDIATE"))

    async def close(self) -> None:
        """Close the file after pending work."""
        await self._run(self._close)
        self._thread.shutdown()

    async def _run(self, work: Callable[[], T]) -> T:
        # Shielded, because the thread finishes its work even if the caller is cancelled.
        return await asyncio.shield(asyncio.get_running_loop().run_in_executor(self._thread, work))

    def _open(self) -> None:
        with self._translate_errors():
            if not self.path.exists():
                if not self._create:
                    raise FileNotFoundError("there is no such file")
                self.path.parent.mkdir(parents=True, exist_ok=True)
                with contextlib.suppress(FileExistsError):
                    os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
            connection = sqlite3.connect(
                self.path, timeout=self._wait, isolation_level=None, check_same_thread=False, cached_statements=64
            )
            self._connection = connection
            self._transaction(self._is_vault, "BEGIN")  # before a pragma changes a file that is not a vault
            answers = [connection.execute(f"PRAGMA {pragma}").fetchone() for pragma in _PRAGMAS]
            if answers[:2] != [(1,), ("delete",)]:
                raise VaultError(
                    f"this build of SQLite cannot delete securely in {str(self.path)!r}: it answers {answers[:2]}"
                )
            self._transaction(self._prepare, "BEGIN IMMEDIATE")

    def _is_vault(self, connection: sqlite3.Connection) -> bool:
        """Return True for a vault and False for an empty file; raise an error for any other file."""
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if (application, version, tables) == (0, 0, 0):
            return False
        if application != _APPLICATION:
            raise VaultError(f"{str(self.path)!r} is a database, but not a vault; name the vault's file")
        if version != _FILE_VERSION:
            raise VaultError(
                f"the vault {str(self.path)!r} has version {version}; this release reads {_FILE_VERSION}; upgrade Baton"
            )
        return True

    def _prepare(self, connection: sqlite3.Connection) -> None:
        """Create the tables of a new file."""
        if not self._is_vault(connection):
            for statement in _statements(_TABLES):
                connection.execute(statement)

    def _transaction(self, work: Work[T], begin: str) -> T:
        with self._translate_errors():
            if self._connection is None:
                raise sqlite3.ProgrammingError("it is not open; use `async with Vault(…)`")
            self._connection.execute(begin)
            try:
                result = work(self._connection)
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise
            return result

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    @contextlib.contextmanager
    def _translate_errors(self) -> Iterator[None]:
        """Turn errors of SQLite and the disk into a VaultUnavailableError."""
        try:
            yield
        except (sqlite3.Error, OSError, UnicodeDecodeError) as error:  # SQLite quotes a damaged schema
            raise VaultUnavailableError(
                f"the vault {str(self.path)!r} cannot be used: {error}; nothing was changed. Check the file, its "
                "folder and its disk, then try again"
            ) from error


def _statements(script: str) -> Iterator[str]:
    """Yield the statements of a script; semicolons inside a trigger do not split it."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
