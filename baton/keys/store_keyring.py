"""The keys of a deployment: what each is for, since when, and until when it made something new.

They are written down in a TOML file that only its owner may read.
"""

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

from baton.keys.store_keys import Base64Url, Key, KeyringError, PublicKeys, Purpose, UnknownKeyError
from baton.ledger.chain import Claim, HeadSigner, SignatureCheck, to_base64url
from baton.wire.records import Record, Timestamp
from baton.wire.text import describe_faults

if sys.platform != "win32":
    import fcntl

DEVELOPMENT_FILE = "keys.toml"
"""The name of the file with the keys of a developer's machine."""

ALGORITHMS = {"hmac-sha256": Purpose.SEAL, "ed25519": Purpose.SIGN}
"""How handoffs can be sealed, and the purpose of the keys for it."""

_HEADER = """\
# Baton's keys. Who can read this file can seal, sign and decrypt: keep it out of backups that others read,
# and out of version control. `baton keys rotate PURPOSE` adds a key and retires the one before it.
"""
_OTHERS = 0o077


@dataclass(frozen=True)
class KeyFile:
    """What a file of keys says."""

    keys: tuple[Key, ...]
    seal_with: Purpose = Purpose.SEAL
    is_development: bool = False
    owner: str | None = None


def read_file(path: Path) -> KeyFile:
    """Return what a file of keys says."""
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            if os.name == "posix" and stat.S_IMODE(mode) & _OTHERS:
                raise KeyringError(
                    f"others may read the keys in {str(path)!r} (mode {stat.S_IMODE(mode):o}); run "
                    f"`chmod 600 {path}`, and rotate them if anybody else is on this machine"
                )
            members = tomllib.load(file)
    except OSError as error:
        missing = isinstance(error, FileNotFoundError)
        remedy = f"make them with `baton keys new {path}`" if missing else "name a file that this user may read"
        raise KeyringError(f"cannot read the keys in {str(path)!r}: {error.strerror}; {remedy}") from error
    except (ValueError, RecursionError) as error:
        # Without the parser's own words, which may quote a secret.
        raise KeyringError(f"the keys in {str(path)!r} are not TOML") from error
    try:
        found = _File.model_validate(members)
    except ValidationError as error:
        raise KeyringError(
            f"the keys in {str(path)!r} are not as `baton keys new FILE` writes them: {describe_faults(error)}"
        ) from None  # its own words quote the secret
    keys = tuple(Key(**dict(row)) for row in found.key)
    return KeyFile(keys, ALGORITHMS[found.seal_with], found.development, found.owner)


def write_file(path: Path, content: KeyFile, *, replace: bool) -> None:
    """Write a file of keys that only its owner may read: whole, or not at all."""
    if replace:
        path = path.resolve()  # a link stays one
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=path.parent, delete=False) as file:  # mode 0600
            file.write(_text(content))
            file.flush()
            os.fsync(file.fileno())
        try:
            if replace:
                os.replace(file.name, path)
            else:
                os.link(file.name, path)  # unlike a rename, it never replaces
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(file.name)
    except FileExistsError as error:
        raise KeyringError(
            f"there are keys in {str(path)!r} already; `baton keys rotate` adds to them, and none were changed"
        ) from error
    except OSError as error:
        raise KeyringError(f"cannot write keys to {str(path)!r}: {error.strerror}") from error


@contextlib.contextmanager
def changing(path: Path) -> Iterator[None]:
    """Keep other processes from changing a file of keys that is read and written again inside the block."""
    if sys.platform == "win32":
        yield
        return
    with contextlib.ExitStack() as held:
        with contextlib.suppress(OSError):  # what is wrong with the file, its reader says
            folder = os.open(path.resolve().parent, os.O_RDONLY)  # the file itself is replaced by another one
            held.callback(os.close, folder)
            fcntl.flock(folder, fcntl.LOCK_EX)
        yield


def development_file(folder: Path) -> Path:
    """Return the file with the keys of this machine, made if it is not there."""
    path = folder / DEVELOPMENT_FILE
    if not path.exists():
        at = datetime.now(UTC)
        content = KeyFile(tuple(Key.generate(purpose, at) for purpose in Purpose), is_development=True)
        try:
            write_file(path, content, replace=False)
        except KeyringError:
            if not path.exists():
                raise
    return path


class _Row(Record):
    """A key as its file has it."""

    id: str
    purpose: Purpose = Field(strict=False)
    secret: Base64Url
    created_at: Timestamp
    retired_at: Timestamp | None = None


class _File(Record):
    """A file of keys, as it is written."""

    key: list[_Row]
    seal_with: Literal["hmac-sha256", "ed25519"] = "hmac-sha256"
    development: bool = False
    owner: str | None = None


def _text(content: KeyFile) -> str:
    """Return the file's text."""
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
"""The environment variable that tells where Baton runs."""
PRODUCTION = "production"
"""Its value where development keys are refused."""

_DEVELOPMENT = "development"
"""Its other value, which says what its absence says."""

_LOOK_AGAIN_SECONDS = 1.0
_log = logging.getLogger(__name__)


class _Signer(threading.local):
    """A `HeadSigner` that goes with rotations: who asks for the key's id first, gets the signature by that key."""

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
            with contextlib.suppress(UnknownKeyError):  # it may have been added to the file since
                self._keyring.find(Purpose.SIGN, key_id)
        return self._keyring.public().check(claims)


class Keyring:
    """The keys of a deployment, by purpose and id. May be shared by any number of threads.

    Args:
        keys: The keys. Ids are unique among all of them, and of each purpose at most one is not retired.
        seal_with: `Purpose.SEAL` to seal handoffs with HMAC-SHA256, `Purpose.SIGN` for Ed25519.
        is_development: Whether they were made for a developer's machine.

    Raises:
        KeyringError: Two keys have one id, or two keys of one purpose are both current.

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
        self._stamp: object = None
        self._looked = monotonic()
        self.seal_with = seal_with
        self.is_development = is_development
        self._take(keys)
        if seal_with not in (Purpose.SEAL, Purpose.SIGN):
            raise KeyringError(f"handoffs are sealed with 'seal' or 'sign' keys, not with {seal_with.value!r}")

    @classmethod
    def generate(cls, *, seal_with: Purpose = Purpose.SEAL, at: datetime | None = None) -> Self:
        """Return a keyring with a new key of every purpose."""
        created = at or datetime.now(UTC)
        return cls((Key.generate(purpose, created) for purpose in Purpose), seal_with=seal_with)

    @classmethod
    def from_file(cls, path: Path) -> Self:
        """Return the keyring that a TOML file describes; it takes up what is added to the file later."""
        stamp = _stamp(path)
        found = read_file(path)
        ring = cls(found.keys, seal_with=found.seal_with, is_development=found.is_development)
        ring._source, ring._stamp = path, stamp
        return ring

    @classmethod
    def development(cls, folder: Path, environment: Mapping[str, str] | None = None) -> Self:
        """Return the keyring of this machine, in ``folder``/keys.toml; made on first use.

        Raises:
            KeyringError: This is production, or the file is there and not as it should be.
        """
        if is_production(os.environ if environment is None else environment):
            raise _refused("development keys are not made here")
        return cls.from_file(development_file(folder))

    @classmethod
    def find_out(cls, environment: Mapping[str, str], folder: Path = Path(".baton")) -> Self:
        """Return the keyring of the environment; if it names none and this is not production, the development one."""
        guarded = is_production(environment)
        path = environment.get("BATON_KEYS")
        ring = cls.from_file(Path(path)) if path else cls.development(folder, environment)
        if guarded:
            ring.require_production()
        return ring

    @staticmethod
    def is_at_hand(environment: Mapping[str, str], folder: Path = Path(".baton")) -> bool:
        """Return whether there are keys for `find_out`, so that it makes none.

        Example:
            >>> Keyring.is_at_hand({"BATON_KEYS": "keys.toml"})
            True
        """
        return bool(environment.get("BATON_KEYS")) or (folder / DEVELOPMENT_FILE).exists()

    def current(self, purpose: Purpose) -> Key:
        """Return the key that makes new things."""
        if monotonic() - self._looked > _LOOK_AGAIN_SECONDS:
            self._look_again()
        key = self._current.get(purpose)
        if key is None and (not self._look_again() or (key := self._current.get(purpose)) is None):
            raise KeyringError(
                f"the keyring has no current key to {purpose.value}; make one with `baton keys rotate {purpose.value}`"
            )
        return key

    def find(self, purpose: Purpose, key_id: str) -> Key:
        """Return the key of that id for that purpose, retired or not."""
        key = self._keys.get((purpose, key_id))
        if key is None and self._look_again():
            key = self._keys.get((purpose, key_id))
        if key is None:
            raise UnknownKeyError(
                f"the keyring has no key {key_id[:80]!r} to {purpose.value}; add it, retired if others made it"
            )
        return key

    def all_keys(self, purpose: Purpose | None = None) -> list[Key]:
        """Return all keys, or those of one purpose: the current one first, then the latest retired."""
        found = [key for key in self._keys.values() if purpose is None or key.purpose is purpose]
        order = list(Purpose)
        return sorted(
            found,
            key=lambda key: (order.index(key.purpose), -(key.retired_at or _NEVER).timestamp()),
        )

    def require_production(self) -> None:
        """Do nothing, unless these are development keys."""
        if self.is_development:
            raise _refused("these are development keys, made by themselves on this machine")

    def signer(self) -> HeadSigner:
        """Return what signs the ledger's heads: the current Ed25519 key, from each asking for its `key_id` on."""
        return _Signer(self)

    def public(self) -> PublicKeys:
        """Return what others verify with; it holds no secret."""
        return PublicKeys(key.public for key in self.all_keys(Purpose.SIGN))

    def _take(self, keys: Iterable[Key]) -> None:
        """Hold these keys from now on, and no others."""
        by_id: dict[str, Key] = {}
        current: dict[Purpose, Key] = {}
        for key in keys:
            if key.id in by_id:
                raise KeyringError(f"two keys are named {key.id!r}; an id names one key, whatever its purpose")
            by_id[key.id] = key
            if key.retired_at is None and current.setdefault(key.purpose, key) is not key:
                raise KeyringError(
                    f"the keys {current[key.purpose].id!r} and {key.id!r} would both {key.purpose.value}; "
                    "retire one of them: give it a retired_at"
                )
        # Whole tables take the place of the old ones, so no thread ever sees half a change.
        self._keys = {(key.purpose, key.id): key for key in by_id.values()}
        self._current = current

    def _look_again(self) -> bool:
        """Take up the file's keys if it changed since; return whether it did. A file in disorder changes nothing."""
        self._looked = monotonic()
        if self._source is None or (stamp := _stamp(self._source)) == self._stamp:
            return False
        self._stamp = stamp
        try:
            found = read_file(self._source)
            if found.is_development and not self.is_development:
                raise KeyringError(f"those in {str(self._source)!r} are development keys now, and were not")
            self._take(found.keys)
        except KeyringError as error:
            _log.warning("the keys stay as they were: %s", error)
            return False
        self.seal_with = found.seal_with
        self.is_development = found.is_development
        return True


_NEVER = datetime.max.replace(tzinfo=UTC)


def _stamp(path: Path) -> object:
    """Return what changes whenever a file does; None if it is not there."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino  # the second goes with rights, too


def is_production(environment: Mapping[str, str]) -> bool:
    """Return whether `BATON_ENV` says production."""
    value = environment.get(ENVIRONMENT, "").strip().lower()
    if value not in ("", _DEVELOPMENT, PRODUCTION):
        raise KeyringError(f"{ENVIRONMENT} is {value!r}; expected {PRODUCTION} or {_DEVELOPMENT}")
    return value == PRODUCTION


def _refused(why: str) -> KeyringError:
    return KeyringError(
        f"{why}, and {ENVIRONMENT} is {PRODUCTION}: make keys with `baton keys new FILE`, keep that file "
        "where only the workers read it, and set BATON_KEYS to its path"
    )


class KeySource:
    """The keys of a client and its workers."""

    def __init__(self, keyring: Keyring | None = None, *, finds: bool = False) -> None:
        if keyring is not None and is_production(os.environ):
            keyring.require_production()
        self._keyring = keyring
        self._finds = finds

    @property
    def has_keys(self) -> bool:
        """Whether `needed` has keys to return."""
        return self._finds or self._keyring is not None

    def at_hand(self) -> Keyring | None:
        """Return the keys if there are any; none are made."""
        if self._keyring is None and self._finds and Keyring.is_at_hand(os.environ):
            self._keyring = Keyring.find_out(os.environ)
        return self._keyring

    def needed(self) -> Keyring:
        """Return the keys; on a developer's machine without any they are made."""
        if self._keyring is None:
            self._keyring = Keyring.find_out(os.environ)
        return self._keyring
