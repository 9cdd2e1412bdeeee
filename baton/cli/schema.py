"""`baton schema`: the published JSON Schemas (draft 2020-12)."""

from typing import Annotated

import typer

from baton.cli.session import Session, command
from baton.client import SCHEMAS, schema_of


@command
async def schema(
    session: Session,
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help="The record's name; without it, lists all."),
    ] = None,
) -> None:
    """Print the JSON Schema of a record."""
    names = list(SCHEMAS)
    if name is None:
        session.write_json(names) if session.json else session.show(*names)
        return
    if name not in names:
        raise typer.BadParameter(f"there is no schema {name!r}; the schemas are {', '.join(names)}", param_hint="NAME")
    session.write_json(schema_of(name))
