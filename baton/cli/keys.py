"""`baton keys`: makes, lists and rotates keys, and exports public keys. No command shows a secret."""

import os
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from baton.cli.options import ExitCode
from baton.cli.output import fit_columns, format_time, make_table, plain
from baton.cli.session import KEYS_FOLDER, Session, command
from baton.client.faces import name_refusal
from baton.keys.store_keyring import (
    ALGORITHMS,
    DEVELOPMENT_FILE,
    Key,
    KeyFile,
    Keyring,
    KeyringError,
    Purpose,
    lock_file,
    read_file,
    write_file,
)
from baton.keys.store_keys import decider_entry
from baton.wire.base64url import to_base64url

DEVELOPMENT = KEYS_FOLDER / DEVELOPMENT_FILE
_ROTATED_TOGETHER = (Purpose.SEAL, Purpose.SIGN, Purpose.ENCRYPT)

KeysOption = Annotated[
    Path | None,
    typer.Option("--keys", metavar="FILE", dir_okay=False, help=f"The file of keys. [BATON_KEYS, {DEVELOPMENT}]"),
]


@command
async def new(
    session: Session,
    file: Annotated[Path, typer.Argument(metavar="FILE", dir_okay=False, help="The new key file.", show_default=False)],
    seal_with: Annotated[
        str, typer.Option(metavar="|".join(ALGORITHMS), help="The algorithm that seals handoffs.")
    ] = "hmac-sha256",
) -> None:
    """Make a key file with a key for every purpose.

    Only its owner can read it. An existing file is never overwritten. With ed25519, others can verify handoffs with
    the public key alone (`baton keys public`); with hmac-sha256, anyone who can verify can also seal.
    """
    if seal_with not in ALGORITHMS:
        raise typer.BadParameter(f"expected one of {', '.join(ALGORITHMS)}", param_hint="--seal-with")
    created_at = datetime.now(UTC)
    keys = tuple(Key.generate(purpose, created_at) for purpose in Purpose)
    write_file(file, KeyFile(keys, ALGORITHMS[seal_with]), replace=False)
    _show_keys(session, file, list(keys))
    session.say(f"set BATON_KEYS to {file.resolve()} for workers, clients and the codec server", "dim")


@command
async def decider(
    session: Session,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The owner of the key.", show_default=False)],
    file: Annotated[Path, typer.Argument(metavar="FILE", dir_okay=False, help="The new key file.", show_default=False)],
) -> None:
    """Make a key for a person to sign decisions.

    The file is for that person alone: `baton approve --key FILE`. Add the output to the workers' file of deciders
    (BATON_DECIDERS), but only if you know who sent it to you.
    """
    if refusal := name_refusal(name):
        raise typer.BadParameter(refusal, param_hint="NAME")
    key = Key.generate(Purpose.SIGN, datetime.now(UTC))
    write_file(file, KeyFile((key,), Purpose.SIGN, owner=name), replace=False)
    if session.json:
        session.write_json({"file": str(file), "name": name, "id": key.id, "key": to_base64url(key.public.raw)})
        return
    session.write(decider_entry(name, key.public))
    session.say(f"the key of {name} is in {file}; add the output to the workers' file of deciders", "dim")


@command
async def list_(session: Session, keys: KeysOption = None) -> None:
    """List the keys with their purposes, without their secrets."""
    file = _find_file(keys)
    keyring = Keyring.from_file(file)
    _show_keys(session, file, keyring.all_keys(), development=keyring.is_development)


@command
async def rotate(
    session: Session,
    purpose: Annotated[
        list[str] | None,
        typer.Argument(metavar="PURPOSE", help=f"Of {', '.join(Purpose)}; the first three by default."),
    ] = None,
    keys: KeysOption = None,
) -> None:
    """Replace the current keys with new ones, and retire the old ones.

    Retired keys still verify and decrypt what was made with them. Never remove a key that a history or a ledger was
    written with. Processes that share the file reload it; if each has its own file, distribute the new key first.
    `wrap` and `index` belong to the vault, and are rotated only if named.
    """
    file = _find_file(keys)
    purposes = _parse_purposes(purpose) if purpose else _ROTATED_TOGETHER
    with lock_file(file):
        content = read_file(file)
        now = datetime.now(UTC)
        existing = [
            replace(key, retired_at=now) if key.purpose in purposes and key.retired_at is None else key
            for key in content.keys
        ]
        new_keys = [Key.generate(kind, now) for kind in purposes]
        write_file(file, replace(content, keys=(*existing, *new_keys)), replace=True)
    _show_keys(session, file, new_keys)


@command
async def public(
    session: Session,
    keys: KeysOption = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", dir_okay=False, help="The file to write.")
    ] = None,
) -> None:
    """Print the public keys for verifiers: a JWK Set with every key that ever signed, without secrets."""
    text = Keyring.from_file(_find_file(keys)).public().to_json()
    if output is None:
        session.write(text)
        return
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        session.say(f"cannot write {str(output)!r}: {error.strerror}", "red")
        raise typer.Exit(ExitCode.FAILURE) from error


def _find_file(keys: Path | None) -> Path:
    """Return the key file: the option, the environment variable, or the default."""
    configured = os.environ.get("BATON_KEYS")
    if keys is not None or configured:
        return keys or Path(configured or "")
    if not DEVELOPMENT.exists():
        raise KeyringError(
            f"no key file is named, and {str(DEVELOPMENT)!r} does not exist: give --keys, set BATON_KEYS, or make one "
            "with `baton keys new FILE`"
        )
    return DEVELOPMENT


def _parse_purposes(names: list[str]) -> tuple[Purpose, ...]:
    """Return the purposes with these names, without duplicates."""
    unknown = [name for name in names if name not in list(Purpose)]
    if unknown:
        raise typer.BadParameter(f"unknown purpose {unknown[0]!r}; expected one of {', '.join(Purpose)}")
    return tuple(dict.fromkeys(Purpose(name) for name in names))


def _show_keys(session: Session, file: Path | None, keys: list[Key], *, development: bool = False) -> None:
    """Write keys without their secrets."""
    if session.json:
        where = str(file) if file else None
        session.write_json({"file": where, "development": development, "keys": [_describe_key(key) for key in keys]})
        return
    table = make_table("Key", "Purpose", "Retired", "Made", whole=["Key"])
    for key in keys:
        retired = format_time(key.retired_at) if key.retired_at else "current"
        style = "dim" if key.retired_at else ""
        row = (key.id, key.purpose.value, retired, format_time(key.created_at))
        table.add_row(*(plain(text, style) for text in row))
    session.show(fit_columns(table, session.out, keep=3))
    if development:
        session.note("these are development keys; BATON_ENV=production refuses them")


def _describe_key(key: Key) -> dict[str, Any]:
    """Return a key without its secret."""
    return {
        "id": key.id,
        "purpose": key.purpose.value,
        "created_at": key.created_at.isoformat(),
        "retired_at": key.retired_at.isoformat() if key.retired_at else None,
    }
