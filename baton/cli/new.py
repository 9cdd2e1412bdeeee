"""`baton new` and `baton add`: make, upgrade and extend a project."""

import shlex
from pathlib import Path
from typing import Annotated

import typer

from baton.cli.options import ExitCode
from baton.cli.output import Command, plain
from baton.cli.session import Session, command
from baton.new.names import Addition, Template, identifier, package_of
from baton.new.store_examples import copy_example
from baton.new.store_examples import examples as list_examples
from baton.new.store_projects import add, make
from baton.new.store_projects import upgrade as upgrade_project

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Its name, as of a function.", show_default=False)]


@command
async def new(
    session: Session,
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="The project's name, and its folder's.", show_default=False)
    ] = None,
    template: Annotated[Template, typer.Option(help="Its first pipeline.")] = Template.AGENTS,
    upgrade: Annotated[
        bool, typer.Option("--upgrade", help="Bring the project in this folder up to this version of Baton.")
    ] = False,
    example: Annotated[
        str | None,
        typer.Option(metavar="EXAMPLE", help="Write an example into this folder instead.", show_default=False),
    ] = None,
    examples: Annotated[bool, typer.Option("--examples", help="List the examples.")] = False,
) -> None:
    """Make a project: a pipeline, its stages, worker, service and tests, image and CI.

    Its agents answer from a script until a key is configured, so its tests pass at once. With --upgrade, the changes
    of newer templates are merged into the project in this folder; conflicts are marked as git does.
    """
    if sum((upgrade, examples, example is not None, name is not None)) != 1:
        ways = "give the NAME of a new project, --upgrade in the folder of one, --examples, or --example EXAMPLE"
        raise typer.BadParameter(ways, param_hint="NAME")
    if name is None:
        _upgrade(session) if upgrade else _example(session, example)
        return
    try:
        package = package_of(name)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="NAME") from error
    files = make(Path(name), name, package, template)
    if session.json:
        session.write_json({"folder": name, "package": package, "template": template.value, "files": files})
        return
    session.show(plain(f"{name} has {len(files)} files; next:"))
    session.show(Command(f"cd {shlex.quote(name)}"), Command("python -m pytest"), Command(f"python -m {package}"))


@command
async def stage(session: Session, name: NameArgument) -> None:
    """Add a stage and its test to the project in this folder; call it from a pipeline."""
    _add(session, Addition.STAGE, name)


@command
async def pipeline(session: Session, name: NameArgument) -> None:
    """Add a pipeline, its first stage and its test to the project in this folder."""
    _add(session, Addition.PIPELINE, name)


def _add(session: Session, addition: Addition, name: str) -> None:
    try:
        files = add(Path(), addition, identifier(name))
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="NAME") from error
    if session.json:
        session.write_json({"files": files})
        return
    session.show(*(plain(file) for file in files))


def _example(session: Session, name: str | None) -> None:
    """List the examples, or write one."""
    if name is None:
        examples = list_examples()
        if session.json:
            session.write_json({"examples": examples})
            return
        width = max(map(len, examples))
        session.show(*(plain(f"{each:<{width}}  {sentence}") for each, sentence in examples.items()))
        return
    files = copy_example(name, Path())
    if session.json:
        session.write_json({"files": files})
        return
    session.show(*(plain(file) for file in files))


def _upgrade(session: Session) -> None:
    result = upgrade_project(Path())
    if session.json:
        session.write_json(vars(result))
    elif result.before == result.after:
        session.show(plain(f"the project is up to date: template {result.after}"))
    else:
        session.show(plain(f"template {result.before} is now {result.after}; look at it, test it, commit it:"))
        session.show(Command("git diff"), Command("python -m pytest"))
    if result.conflicts:
        session.note(f"resolve the marked conflicts in {', '.join(result.conflicts)}")
        raise typer.Exit(ExitCode.FAILURE)
