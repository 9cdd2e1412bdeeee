"""How keys are written down: a TOML file that only its owner may read, or one environment variable a purpose."""

import contextlib
import os
import stat
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from baton.keys.store_key import Key, KeyringError, Purpose
from baton.ledger.chain import from_base64url, to_base64url

if sys.platform != "win32":
    import fcntl

DEVELOPMENT_FILE = "keys.toml"
"""The name of the file with the keys of a developer's machine."""

ALGORITHMS = {"hmac-sha256": Purpose.SEAL, "ed25519": Purpose.SIGN}
"""How handoffs can be sealed, and with keys of which purpose."""

_HEADER = """\
# Baton's keys. Who can read this file can seal, sign and decrypt: keep it out of backups that others read,
# and out of version control. `baton keys rotate PURPOSE` adds a key and retires the one before it.
"""
_OTHERS = 0o077
_KEY_MEMBERS = {"id", "purpose", "secret", "created_at"}


@dataclass(frozen=True)
class KeyFile:
    """What a file of keys, or the environment, says.

    Attributes:
        keys: The keys.
        seal_with: Which kind of key seals handoffs.
        is_development: Whether the keys were made by themselves, for a developer's machine.
    """

    keys: tuple[Key, ...]
    seal_with: Purpose = Purpose.SEAL
    is_development: bool = False


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
    return _file(members, path)


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


def read_environment(environment: Mapping[str, str]) -> KeyFile:
    """Return what the variables `BATON_KEY_<PURPOSE>` and `BATON_SEAL_WITH` say."""
    keys: list[Key] = []
    for name in sorted(environment):
        if name.startswith("BATON_KEY_") and environment[name].strip():
            keys += _inline(name, environment[name])
    return KeyFile(tuple(keys), _seal_with(environment.get("BATON_SEAL_WITH", "hmac-sha256"), "BATON_SEAL_WITH"))


def _inline(name: str, value: str) -> Iterable[Key]:
    """Return the keys in one variable: `id:secret`, the current one first, retired ones with `@time`."""
    try:
        purpose = Purpose(name.removeprefix("BATON_KEY_").lower())
    except ValueError:
        purposes = ", ".join(f"BATON_KEY_{one.name}" for one in Purpose)
        raise KeyringError(f"{name} names no purpose of a key; expected one of {purposes}") from None
    for number, part in enumerate(value.split()):
        body, retired, at = part.partition("@")
        key_id, given, secret = body.partition(":")
        if not given or bool(retired) != bool(number):
            raise KeyringError(
                f"{name} is not '<id>:<secret> <older id>:<secret>@<retired at> …', at its part {number + 1}"
            )
        # When it was made is not on record here, and nothing depends on it.
        yield Key(key_id, purpose, _secret(secret, key_id), _EPOCH, _time(at, key_id) if retired else None)


def _file(members: Mapping[str, Any], path: Path) -> KeyFile:
    rows = members.get("key")
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise KeyringError(f"the file {str(path)!r} has no [[key]]; `baton keys new FILE` writes one that has")
    development = members.get("development", False)
    if not isinstance(development, bool):
        raise KeyringError(f"development in {str(path)!r} is {development!r}; it is true or false, without quotes")
    return KeyFile(
        tuple(_key(row, path) for row in rows),
        _seal_with(members.get("seal_with", "hmac-sha256"), f"seal_with in {str(path)!r}"),
        development,
    )


def _key(row: Mapping[str, Any], path: Path) -> Key:
    """Return the key that one table of the file describes."""
    missing = sorted(_KEY_MEMBERS - row.keys())
    unknown = sorted(row.keys() - _KEY_MEMBERS - {"retired_at"})
    if missing or unknown:
        raise KeyringError(
            f"the key {row.get('id')!r} in {str(path)!r} needs {', '.join(sorted(_KEY_MEMBERS))} and may have "
            f"retired_at; missing: {missing}, unknown: {unknown}"
        )
    key_id = str(row["id"])
    try:
        purpose = Purpose(row["purpose"])
    except ValueError:
        expected = ", ".join(repr(one.value) for one in Purpose)
        raise KeyringError(f"the key {key_id!r} is there to {row['purpose']!r}; expected one of {expected}") from None
    retired = row.get("retired_at")
    return Key(
        key_id,
        purpose,
        _secret(str(row["secret"]), key_id),
        _time(row["created_at"], key_id),
        None if retired is None else _time(retired, key_id),
    )


def _seal_with(value: object, where: str) -> Purpose:
    purpose = ALGORITHMS.get(value) if isinstance(value, str) else None
    if purpose is None:
        raise KeyringError(f"{where} is {value!r}; expected one of {', '.join(ALGORITHMS)}")
    return purpose


def _secret(text: str, key_id: str) -> bytes:
    try:
        return from_base64url(text)
    except ValueError:
        raise KeyringError(
            f"the secret of key {key_id!r} is not base64url without padding, as `baton keys new` writes it"
        ) from None


def _time(value: object, key_id: str) -> datetime:
    if isinstance(value, datetime):
        return value
    try:
        return datetime.fromisoformat(str(value))
    except ValueError:
        raise KeyringError(f"the key {key_id!r} has the time {value!r}; write it as 2026-11-21T10:00:00Z") from None


def _text(content: KeyFile) -> str:
    """Return the file's text."""
    algorithm = next(name for name, purpose in ALGORITHMS.items() if purpose is content.seal_with)
    lines = [_HEADER, f'seal_with = "{algorithm}"\n']
    if content.is_development:
        lines.append("development = true\n")
    for key in content.keys:
        lines.append(
            f'\n[[key]]\nid = "{key.id}"\npurpose = "{key.purpose.value}"\ncreated_at = {key.created_at.isoformat()}\n'
        )
        if key.retired_at is not None:
            lines.append(f"retired_at = {key.retired_at.isoformat()}\n")
        lines.append(f'secret = "{to_base64url(key.secret)}"\n')
    return "".join(lines)


_EPOCH = datetime.fromtimestamp(0, UTC)
