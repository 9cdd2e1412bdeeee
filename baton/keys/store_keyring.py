"""The keyring of a deployment, and its TOML file, which only its owner may read."""

import contextlib
import json
import logging
import os
import stat
import sys
import tempfile
import threading
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic
from typing import Literal, Self

from pydantic import Field, ValidationError

from baton.keys.claims import Claim, HeadSigner, SignatureCheck
from baton.keys.store_keys import Base64Url, Key, KeyringError, PublicKeys, Purpose, UnknownKeyError
from baton.wire.base64url import to_base64url
from baton.wire.records import Record, Timestamp
from baton.wire.text import describe_faults

if sys.platform != "win32":
    import fcntl

DEVELOPMENT_FILE = "keys.toml"
"""The file name of development keys."""

ALGORITHMS = {"hmac-sha256": Purpose.SEAL, "ed25519": Purpose.SIGN}
"""The algorithms for sealing handoffs, and the purpose of their keys."""

_HEADER = """\
# Baton's keys. Anyone who can read this file can seal, sign and decrypt: keep it out of version control,
# and out of backups that others can read. `baton keys rotate PURPOSE` adds a key and retires the previous one.
"""
_OTHERS_MODE = 0o077


@dataclass(frozen=True)
class KeyFile:
    """The content of a key file."""

    keys: tuple[Key, ...]
    seal_with: Purpose = Purpose.SEAL
    is_development: bool = False
    owner: str | None = None


def read_file(path: Path) -> KeyFile:
    """Read a key file; it must not be readable by others."""
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            if os.name == "posix" and stat.S_IMODE(mode) & _OTHERS_MODE:
                raise KeyringError(
                    f"others can read the keys in {str(path)!r} (mode {stat.S_IMODE(mode):o}); run "
                    f"`chmod 600 {path}`, and rotate them if other people use this machine"
                )
            members = tomllib.load(file)
    except OSError as error:
        missing = isinstance(error, FileNotFoundError)
        remedy = f"make them with `baton keys new {path}`" if missing else "name a file that this user can read"
        raise KeyringError(f"cannot read the keys in {str(path)!r}: {error.strerror}; {remedy}") from error
    except (ValueError, RecursionError) as error:
        # The parser's message can quote a secret.
        raise KeyringError(f"the keys in {str(path)!r} are not TOML") from error
    try:
        parsed = _File.model_validate(members)
    except ValidationError as error:
        raise KeyringError(
            f"the keys in {str(path)!r} are malformed: {describe_faults(error)}; expected the format of "
            "`baton keys new FILE`"
        ) from None  # its message quotes the secret
    keys = tuple(Key(**dict(row)) for row in parsed.key)
    return KeyFile(keys, ALGORITHMS[parsed.seal_with], parsed.development, parsed.owner)


def write_file(path: Path, content: KeyFile, *, replace: bool) -> None:
    """Write a key file atomically, readable by its owner only."""
    if replace:
        path = path.resolve()  # keep a symbolic link
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=path.parent, delete=False) as file:  # mode 0600
            file.write(_render_file(content))
            file.flush()
            os.fsync(file.fileno())
        try:
            if replace:
                os.replace(file.name, path)
            else:
                os.link(file.name, path)  # unlike a rename, never replaces a file
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(file.name)
    except FileExistsError as error:
        raise KeyringError(
            f"{str(path)!r} already has keys, which were not changed; add keys with `baton keys rotate`"
        ) from error
    except OSError as error:
        raise KeyringError(f"cannot write keys to {str(path)!r}: {error.strerror}") from error


@contextlib.contextmanager
def lock_file(path: Path) -> Iterator[None]:
    """Lock a key file against other processes while it is read and rewritten."""
    if sys.platform == "win32":
        yield
        return
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):  # reading the file reports the error
            folder = os.open(path.resolve().parent, os.O_RDONLY)  # the file itself is replaced
            stack.callback(os.close, folder)
            fcntl.flock(folder, fcntl.LOCK_EX)
        yield


def development_file(folder: Path) -> Path:
    """Return the file of development keys; create it if missing."""
    path = folder / DEVELOPMENT_FILE
    if not path.exists():
        created_at = datetime.now(UTC)
        content = KeyFile(tuple(Key.generate(purpose, created_at) for purpose in Purpose), is_development=True)
        try:
            write_file(path, content, replace=False)
        except KeyringError:
            if not path.exists():
                raise
    return path


class _Row(Record):
    """A key in the file."""

    id: str
    purpose: Purpose = Field(strict=False)
    secret: Base64Url
    created_at: Timestamp
    retired_at: Timestamp | None = None


class _File(Record):
    """The structure of a key file."""

    key: list[_Row]
    seal_with: Literal["hmac-sha256", "ed25519"] = "hmac-sha256"
    development: bool = False
    owner: str | None = None


def _render_file(content: KeyFile) -> str:
    algorithm = next(name for name, purpose in ALGORITHMS.items() if purpose is content.seal_with)
    lines = [_HEADER, f'seal_with = "{algorithm}"\n']
    if content.is_development:
        lines.append("development = true\n")
    if content.owner is not None:
        lines.append(f"owner = {json.dumps(content.owner)}\n")
    for key in content.keys:
        lines.append(
            f'\n[[key]]\nid = "{key.id}"\npurpose = "{key.purpose.value}"\ncreated_at = {key.created_at.isoformat()}\n'
        )
        if key.retired_at is not None:
            lines.append(f"retired_at = {key.retired_at.isoformat()}\n")
        lines.append(f'secret = "{to_base64url(key.secret)}"\n')
    return "".join(lines)


__all__ = ["ENVIRONMENT", "PRODUCTION", "Key", "Keyring", "KeyringError", "Purpose", "UnknownKeyError", "is_production"]

ENVIRONMENT = "BATON_ENV"
"""The environment variable for the kind of deployment."""
PRODUCTION = "production"
"""Its value for production, which refuses development keys."""

_DEVELOPMENT = "development"
"""Its default."""

_RELOAD_SECONDS = 1.0
_log = logging.getLogger(__name__)


class _RotatingSigner(threading.local):
    """A `HeadSigner` that follows rotations: `sign` uses the key whose id the thread read last."""

    def __init__(self, keyring: "Keyring") -> None:
        self._keyring = keyring
        self._key = keyring.current(Purpose.SIGN)

    @property
    def key_id(self) -> str:
        self._key = self._keyring.current(Purpose.SIGN)
        return self._key.id

    def sign(self, statement: bytes) -> bytes:
        return self._key.private.sign(statement)

    def check(self, claims: Sequence[Claim]) -> list[SignatureCheck]:
        for key_id in {claim.key_id for claim in claims}:
            with contextlib.suppress(UnknownKeyError):  # reloads the file, which may have the key by now
                self._keyring.find(Purpose.SIGN, key_id)
        return self._keyring.public().check(claims)


class Keyring:
    """The keys of a deployment, by purpose and id. Thread-safe.

    Args:
        keys: The keys. Ids are unique, and at most one key of each purpose is current.
        seal_with: `Purpose.SEAL` to seal handoffs with HMAC-SHA256, `Purpose.SIGN` for Ed25519.
        is_development: Whether these are development keys.

    Raises:
        KeyringError: Two keys have the same id, or two keys of the same purpose are current.

    Example:
        >>> keys = Keyring.generate()
        >>> keys.current(Purpose.SEAL).purpose.value
        'seal'
        >>> keys.find(Purpose.SEAL, "seal-1999")  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        baton.keys.store_keys.UnknownKeyError: the keyring has no key 'seal-1999' to seal; add it, ...
    """

    def __init__(self, keys: Iterable[Key], *, seal_with: Purpose = Purpose.SEAL, is_development: bool = False) -> None:
        self._source: Path | None = None
        self._version: object = None
        self._checked_at = monotonic()
        self.seal_with = seal_with
        self.is_development = is_development
        self._set_keys(keys)
        if seal_with not in (Purpose.SEAL, Purpose.SIGN):
            raise KeyringError(f"handoffs are sealed with 'seal' or 'sign' keys, not with {seal_with.value!r}")

    @classmethod
    def generate(cls, *, seal_with: Purpose = Purpose.SEAL, at: datetime | None = None) -> Self:
        """Return a keyring with a new key of every purpose."""
        created = at or datetime.now(UTC)
        return cls((Key.generate(purpose, created) for purpose in Purpose), seal_with=seal_with)

    @classmethod
    def from_file(cls, path: Path) -> Self:
        """Return the keyring of a TOML file; it reloads the file when that changes."""
        version = _file_version(path)
        content = read_file(path)
        keyring = cls(content.keys, seal_with=content.seal_with, is_development=content.is_development)
        keyring._source, keyring._version = path, version
        return keyring

    @classmethod
    def development(cls, folder: Path, environment: Mapping[str, str] | None = None) -> Self:
        """Return the development keyring in ``folder``/keys.toml; create it if missing.

        Raises:
            KeyringError: This is production, or the file is malformed.
        """
        if is_production(os.environ if environment is None else environment):
            raise _production_error("no development keys are made")
        return cls.from_file(development_file(folder))

    @classmethod
    def from_environment(cls, environment: Mapping[str, str], folder: Path = Path(".baton")) -> Self:
        """Return the keyring of `BATON_KEYS`, or outside production the development keyring by default."""
        production = is_production(environment)
        path = environment.get("BATON_KEYS")
        keyring = cls.from_file(Path(path)) if path else cls.development(folder, environment)
        if production:
            keyring.require_production()
        return keyring

    @staticmethod
    def is_configured(environment: Mapping[str, str], folder: Path = Path(".baton")) -> bool:
        """Return whether `from_environment` finds existing keys.

        Example:
            >>> Keyring.is_configured({"BATON_KEYS": "keys.toml"})
            True
        """
        return bool(environment.get("BATON_KEYS")) or (folder / DEVELOPMENT_FILE).exists()

    def current(self, purpose: Purpose) -> Key:
        """Return the current key of a purpose."""
        if monotonic() - self._checked_at > _RELOAD_SECONDS:
            self._reload()
        key = self._current.get(purpose)
        if key is None and (not self._reload() or (key := self._current.get(purpose)) is None):
            raise KeyringError(
                f"the keyring has no current key to {purpose.value}; make one with `baton keys rotate {purpose.value}`"
            )
        return key

    def derive(self, label: str) -> bytes:
        """Return a secret for one use, the same wherever these keys are, until the key to index is rotated."""
        mac = self.current(Purpose.INDEX).mac.copy()
        mac.update(label.encode())
        return mac.digest()

    def find(self, purpose: Purpose, key_id: str) -> Key:
        """Return the key with this purpose and id, current or retired."""
        key = self._keys.get((purpose, key_id))
        if key is None and self._reload():
            key = self._keys.get((purpose, key_id))
        if key is None:
            raise UnknownKeyError(
                f"the keyring has no key {key_id[:80]!r} to {purpose.value}; add it, as a retired key if others made it"
            )
        return key

    def all_keys(self, purpose: Purpose | None = None) -> list[Key]:
        """Return the keys by purpose: the current one first, then the most recently retired."""
        if monotonic() - self._checked_at > _RELOAD_SECONDS:
            self._reload()
        keys = [key for key in self._keys.values() if purpose is None or key.purpose is purpose]
        order = list(Purpose)
        return sorted(
            keys,
            key=lambda key: (order.index(key.purpose), -(key.retired_at or _NEVER).timestamp()),
        )

    def require_production(self) -> None:
        """Raise an error for development keys."""
        if self.is_development:
            raise _production_error("these are development keys")

    def signer(self) -> HeadSigner:
        """Return the signer of the ledger's heads, which follows rotations."""
        return _RotatingSigner(self)

    def public(self) -> PublicKeys:
        """Return the public keys for verifiers."""
        return PublicKeys(key.public for key in self.all_keys(Purpose.SIGN))

    def _set_keys(self, keys: Iterable[Key]) -> None:
        """Replace all keys."""
        by_id: dict[str, Key] = {}
        current: dict[Purpose, Key] = {}
        for key in keys:
            if key.id in by_id:
                raise KeyringError(f"two keys have the id {key.id!r}; ids must be unique across purposes")
            by_id[key.id] = key
            if key.retired_at is None and current.setdefault(key.purpose, key) is not key:
                raise KeyringError(
                    f"the keys {current[key.purpose].id!r} and {key.id!r} are both current to {key.purpose.value}; "
                    "retire one of them with a retired_at"
                )
        # The tables are replaced, not changed, so other threads see a consistent state.
        self._keys = {(key.purpose, key.id): key for key in by_id.values()}
        self._current = current

    def _reload(self) -> bool:
        """Reload a changed file, and return whether the keys changed. An invalid file is logged and ignored."""
        self._checked_at = monotonic()
        if self._source is None or (version := _file_version(self._source)) == self._version:
            return False
        self._version = version
        try:
            content = read_file(self._source)
            if content.is_development and not self.is_development:
                raise KeyringError(f"those in {str(self._source)!r} became development keys")
            self._set_keys(content.keys)
        except KeyringError as error:
            _log.warning("the keys were not reloaded: %s", error)
            return False
        self.seal_with = content.seal_with
        self.is_development = content.is_development
        return True


_NEVER = datetime.max.replace(tzinfo=UTC)


def _file_version(path: Path) -> object:
    """Return a value that changes with the file; None if it is missing."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino  # ctime changes with the mode too


def is_production(environment: Mapping[str, str]) -> bool:
    """Return whether `BATON_ENV` is production."""
    value = environment.get(ENVIRONMENT, "").strip().lower()
    if value not in ("", _DEVELOPMENT, PRODUCTION):
        raise KeyringError(f"{ENVIRONMENT} is {value!r}; expected {PRODUCTION} or {_DEVELOPMENT}")
    return value == PRODUCTION


def _production_error(problem: str) -> KeyringError:
    return KeyringError(
        f"{problem}, but {ENVIRONMENT} is {PRODUCTION}: make keys with `baton keys new FILE`, let only the workers "
        "read that file, and set BATON_KEYS to its path"
    )


class KeySource:
    """The keys of a client and its workers."""

    def __init__(self, keyring: Keyring | None = None, *, from_environment: bool = False) -> None:
        if keyring is not None and is_production(os.environ):
            keyring.require_production()
        self._keyring = keyring
        self._from_environment = from_environment

    @property
    def has_keys(self) -> bool:
        """Whether there is a keyring, or the environment provides one."""
        return self._from_environment or self._keyring is not None

    def find(self) -> Keyring | None:
        """Return the keyring if it exists."""
        if self._keyring is None and self._from_environment and Keyring.is_configured(os.environ):
            self._keyring = Keyring.from_environment(os.environ)
        return self._keyring

    def require(self) -> Keyring:
        """Return the keyring; outside production it is created if missing."""
        if self._keyring is None:
            self._keyring = Keyring.from_environment(os.environ)
        return self._keyring
