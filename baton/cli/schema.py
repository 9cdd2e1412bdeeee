"""`baton schema` and `baton version`: what this release speaks, and what it stands on."""

import platform
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as version_of
from typing import Annotated

import typer

from baton.cli.output import make_table, plain
from baton.cli.session import Session, command
from baton.exchange.schemas import schema as schema_of
from baton.exchange.schemas import schema_names

_STANDS_ON = ("temporal-baton", "temporalio", "pydantic")


def _complete_name(incomplete: str) -> list[str]:
    """Return the schemas whose names begin like this."""
    return [name for name in schema_names() if name.startswith(incomplete)]


@command
async def schema(
    session: Session,
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help="A record; without one, all are listed.", autocompletion=_complete_name),
    ] = None,
) -> None:
    """Print the JSON Schema of a record.

    The schemas are published, and what crosses the wire keeps to them.
    """
    names = list(schema_names())
    if name is None:
        session.write_json(names) if session.json else session.show(*names)
        return
    if name not in names:
        raise typer.BadParameter(f"there is no schema {name!r}; there are {', '.join(names)}", param_hint="NAME")
    session.write_json(schema_of(name))


@command
async def version(session: Session) -> None:
    """Print the versions of Baton and its dependencies."""
    versions = {name: installed(name) or "not installed" for name in _STANDS_ON} | {"python": platform.python_version()}
    if session.json:
        session.write_json(versions)
        return
    table = make_table("", "")
    for name, number in versions.items():
        table.add_row(plain(name), plain(number, "bold"))
    session.show(table)


def installed(distribution: str) -> str | None:
    """Return the version of an installed distribution, or None."""
    try:
        return version_of(distribution)
    except PackageNotFoundError:
        return None
