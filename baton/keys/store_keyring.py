"""The keys of a deployment: what each is for, since when, and until when it made something new."""

import contextlib
import logging
import os
import threading
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic
from typing import Self

from baton.keys.store_files import DEVELOPMENT_FILE, development_file, read_environment, read_file
from baton.keys.store_key import Key, KeyringError, Purpose, UnknownKeyError
from baton.keys.store_public import PublicKeys
from baton.ledger.chain import Claim, HeadSigner, SignatureCheck

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
        baton.keys.store_key.UnknownKeyError: the keyring has no key 'seal-1999' to seal; add it, ...
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
        """Return the keyring that a TOML file describes; it takes up what is added to the file later.

        Raises:
            KeyringError: The file is missing, may be read by others than its owner (POSIX), or is not as
                `baton keys new` writes it.
        """
        stamp = _stamp(path)
        found = read_file(path)
        ring = cls(found.keys, seal_with=found.seal_with, is_development=found.is_development)
        ring._source, ring._stamp = path, stamp
        return ring

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Self:
        """Return the keyring that environment variables name: `BATON_KEYS`, a file, or `BATON_KEY_<PURPOSE>`.

        Such as `BATON_KEY_SEAL="k2:<base64url> k1:<base64url>@2026-11-21T10:00:00Z"`: the current key first, then
        those that are retired, each with the time of it.

        Raises:
            KeyringError: Neither is set, both are, or one is not as it should be.
        """
        path = environment.get("BATON_KEYS")
        inline = read_environment(environment)
        if path and inline.keys:
            raise KeyringError("both BATON_KEYS and BATON_KEY_… are set; keep one of them")
        if path:
            return cls.from_file(Path(path))
        if not inline.keys:
            raise KeyringError(
                "no keys are given: make a file with `baton keys new FILE` and set BATON_KEYS to its path"
            )
        return cls(inline.keys, seal_with=inline.seal_with)

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
        """Return the keyring of the environment; where it names none and this is not production, the development one.

        Raises:
            KeyringError: As for `from_environment` and `development`, or production was given development keys.
        """
        guarded = is_production(environment)
        named = _names_keys(environment)
        ring = cls.from_environment(environment) if named else cls.development(folder, environment)
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
        return _names_keys(environment) or (folder / DEVELOPMENT_FILE).exists()

    def current(self, purpose: Purpose) -> Key:
        """Return the key that makes new things.

        Raises:
            KeyringError: There is none.
        """
        if monotonic() - self._looked > _LOOK_AGAIN_SECONDS:
            self._look_again()
        key = self._current.get(purpose)
        if key is None and (not self._look_again() or (key := self._current.get(purpose)) is None):
            raise KeyringError(
                f"the keyring has no current key to {purpose.value}; make one with `baton keys rotate {purpose.value}`"
            )
        return key

    def find(self, purpose: Purpose, key_id: str) -> Key:
        """Return the key of that id for that purpose, retired or not.

        Raises:
            UnknownKeyError: There is none; an id of another purpose's key does not count.
        """
        key = self._keys.get((purpose, key_id))
        if key is None and self._look_again():
            key = self._keys.get((purpose, key_id))
        if key is None:
            raise UnknownKeyError(
                f"the keyring has no key {key_id[:80]!r} to {purpose.value}; add it, retired if others made it"
            )
        return key

    def marked(self, purpose: Purpose, mark: bytes) -> Sequence[Key]:
        """Return the keys of that mark for that purpose, retired or not: almost always one.

        Raises:
            UnknownKeyError: There is none.
        """
        found = self._marked.get((purpose, mark))
        if found is None and self._look_again():
            found = self._marked.get((purpose, mark))
        if found is None:
            raise UnknownKeyError(
                f"the keyring has no key of the mark {mark.hex()} to {purpose.value} (`baton keys list` shows marks); "
                "add it, retired if others made it"
            )
        return found

    def all_keys(self, purpose: Purpose | None = None) -> list[Key]:
        """Return all keys, or those of one purpose: the current one first, then the latest retired."""
        found = [key for key in self._keys.values() if purpose is None or key.purpose is purpose]
        order = list(Purpose)
        return sorted(
            found,
            key=lambda key: (order.index(key.purpose), -(key.retired_at or _NEVER).timestamp()),
        )

    def require_production(self) -> None:
        """Do nothing, unless these are development keys.

        Raises:
            KeyringError: They are.
        """
        if self.is_development:
            raise _refused("these are development keys, made by themselves on this machine")

    def signer(self) -> HeadSigner:
        """Return what signs the ledger's heads: the current Ed25519 key, from each asking for its `key_id` on.

        Raises:
            KeyringError: There is none.
        """
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
        marked: dict[tuple[Purpose, bytes], list[Key]] = {}
        for key in by_id.values():
            marked.setdefault((key.purpose, key.mark), []).append(key)
        self._marked = marked
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


def _names_keys(environment: Mapping[str, str]) -> bool:
    """Return whether environment variables name keys, or hold them."""
    return bool(environment.get("BATON_KEYS")) or any(name.startswith("BATON_KEY_") for name in environment)


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
