"""`baton keys`: making keys, rotating them, and giving others what they verify with. Nothing here shows a secret."""

import os
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from baton.cli.options import ExitCode
from baton.cli.output import fit_columns, format_time, make_table, plain
from baton.cli.session import KEYS_FOLDER, Session, command
from baton.handoff.pending import name_refusal
from baton.keys.store_keyring import (
    ALGORITHMS,
    DEVELOPMENT_FILE,
    Key,
    KeyFile,
    Keyring,
    KeyringError,
    Purpose,
    changing,
    read_file,
    write_file,
)
from baton.keys.store_keys import decider_entry
from baton.ledger.chain import to_base64url

DEVELOPMENT = KEYS_FOLDER / DEVELOPMENT_FILE
_ROTATED_TOGETHER = (Purpose.SEAL, Purpose.SIGN, Purpose.ENCRYPT)

KeysOption = Annotated[
    Path | None,
    typer.Option("--keys", metavar="FILE", dir_okay=False, help=f"The file of keys. [BATON_KEYS, {DEVELOPMENT}]"),
]


@command
async def new(
    session: Session,
    file: Annotated[
        Path, typer.Argument(metavar="FILE", dir_okay=False, help="Where the keys go.", show_default=False)
    ],
    seal_with: Annotated[
        str, typer.Option(metavar="|".join(ALGORITHMS), help="With which algorithm handoffs are sealed.")
    ] = "hmac-sha256",
) -> None:
    """Make a file of keys, one for every purpose.

    Only its owner may read it. A file that is there is never overwritten. With ed25519, others can verify handoffs
    with the public key alone (`baton keys public`); with hmac-sha256, who can verify can also seal.
    """
    if seal_with not in ALGORITHMS:
        raise typer.BadParameter(f"expected one of {', '.join(ALGORITHMS)}", param_hint="--seal-with")
    at = datetime.now(UTC)
    keys = tuple(Key.generate(purpose, at) for purpose in Purpose)
    write_file(file, KeyFile(keys, ALGORITHMS[seal_with]), replace=False)
    _show(session, file, list(keys))
    session.say(f"set BATON_KEYS to {file.resolve()} for workers, clients and the codec server", "dim")


@command
async def decider(
    session: Session,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Whose key it is.", show_default=False)],
    file: Annotated[
        Path, typer.Argument(metavar="FILE", dir_okay=False, help="Where the key goes.", show_default=False)
    ],
) -> None:
    """Make the key with which a person signs decisions.

    The file is for that person alone: `baton approve --key FILE`. What is printed goes into the workers' file of
    deciders (BATON_DECIDERS): add it only if you know who sent it to you.
    """
    if unnamed := name_refusal(name):
        raise typer.BadParameter(unnamed, param_hint="NAME")
    key = Key.generate(Purpose.SIGN, datetime.now(UTC))
    write_file(file, KeyFile((key,), Purpose.SIGN, owner=name), replace=False)
    if session.json:
        session.write_json({"file": str(file), "name": name, "id": key.id, "key": to_base64url(key.public.raw)})
        return
    session.write(decider_entry(name, key.public))
    session.say(f"the key of {name} is in {file}; what is printed goes into the workers' file of deciders", "dim")


@command
async def list_(session: Session, keys: KeysOption = None) -> None:
    """List the keys, without their secrets.

    What each is for, and whether it still makes anything new.
    """
    file = _file(keys)
    found = Keyring.from_file(file)
    _show(session, file, found.all_keys(), development=found.is_development)


@command
async def rotate(
    session: Session,
    purpose: Annotated[
        list[str] | None,
        typer.Argument(metavar="PURPOSE", help=f"Of {', '.join(Purpose)}; without any, the first three."),
    ] = None,
    keys: KeysOption = None,
) -> None:
    """Make new keys current; the old ones still open what they sealed.

    The old ones are retired: they verify and decrypt what was made with them, and make nothing new. Never remove
    one that a history or a ledger was written with. Anyone who shares the file takes the new keys up by itself; where
    each has a file of its own, give everybody the new key first. `wrap` and `index` are the vault's, and are rotated
    only if they are named.
    """
    file = _file(keys)
    chosen = _purposes(purpose) if purpose else _ROTATED_TOGETHER
    with changing(file):
        content = read_file(file)
        at = datetime.now(UTC)
        kept = [
            replace(key, retired_at=at) if key.purpose in chosen and key.retired_at is None else key
            for key in content.keys
        ]
        made = [Key.generate(one, at) for one in chosen]
        write_file(file, replace(content, keys=(*kept, *made)), replace=True)
    _show(session, file, made)


@command
async def public(
    session: Session,
    keys: KeysOption = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", dir_okay=False, help="Where they go.")
    ] = None,
) -> None:
    """Print the public keys, with which others verify.

    It is a JWK Set, with every key that ever signed. It holds no secret.
    """
    text = Keyring.from_file(_file(keys)).public().to_json()
    if output is None:
        session.write(text)
        return
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        session.say(f"cannot write {str(output)!r}: {error.strerror}", "red")
        raise typer.Exit(ExitCode.FAILURE) from error


def _file(keys: Path | None) -> Path:
    """Return the file of keys that is meant."""
    named = os.environ.get("BATON_KEYS")
    if keys is not None or named:
        return keys or Path(named or "")
    if not DEVELOPMENT.exists():
        raise KeyringError(
            f"no file of keys is named, and there is none at {str(DEVELOPMENT)!r}: give --keys, set BATON_KEYS, or "
            "make one with `baton keys new FILE`"
        )
    return DEVELOPMENT


def _purposes(names: list[str]) -> tuple[Purpose, ...]:
    """Return the purposes of these names, each once."""
    unknown = [name for name in names if name not in list(Purpose)]
    if unknown:
        raise typer.BadParameter(f"there is no purpose {unknown[0]!r}; there are {', '.join(Purpose)}")
    return tuple(dict.fromkeys(Purpose(name) for name in names))


def _show(session: Session, file: Path | None, keys: list[Key], *, development: bool = False) -> None:
    """Write what is known of keys, but never a secret."""
    if session.json:
        where = str(file) if file else None
        session.write_json({"file": where, "development": development, "keys": [_as_json(key) for key in keys]})
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


def _as_json(key: Key) -> dict[str, Any]:
    """Return what is known of a key, but never its secret."""
    return {
        "id": key.id,
        "purpose": key.purpose.value,
        "created_at": key.created_at.isoformat(),
        "retired_at": key.retired_at.isoformat() if key.retired_at else None,
    }
