"""COMMANDS.md: how to install, run, test, check and build, each command with the file it comes from."""

from activities.project_init.markdown import code, fence, page, prose, table, text
from activities.project_init.pages.material import DATA_NOTE, Material
from activities.project_init.records import Command, Purpose

TITLES: dict[Purpose, str] = {
    "install": "Install",
    "run": "Run",
    "test": "Test",
    "lint": "Check",
    "format": "Format",
    "build": "Build",
    "release": "Release",
    "other": "Other tasks",
}
_IN_FULL = 3
_MOST_CI = 40


def write_commands(material: Material) -> str:
    """Return the commands by purpose, what CI runs, and the commands that are missing."""
    stack = material.stack
    sections = [
        _section(material, purpose, [each for each in stack.commands if each.purpose == purpose]) for purpose in TITLES
    ]
    missing = [TITLES[purpose].lower() for purpose in ("install", "run", "test") if not _has(material, purpose)]
    return page(
        f"# Commands of {text(stack.name)}",
        "Type them in the project's folder. *Declared* commands are named by the project itself; *by custom* means "
        "that nothing declares the command, but a tool that the project uses is usually called so.",
        *sections,
        f"## Not found\n\nNo command is known to {' or '.join(missing)}." if missing else "",
        _ci(material),
        DATA_NOTE.replace("below", "on this page"),
    )


def _has(material: Material, purpose: str) -> bool:
    return any(each.purpose == purpose for each in material.stack.commands)


def _section(material: Material, purpose: Purpose, commands: list[Command]) -> str:
    if not commands:
        return ""
    parts = [f"## {TITLES[purpose]}"]
    in_full = commands[:_IN_FULL] if purpose != "other" else []
    for command in in_full:
        about = f"{prose(command.about, 300)}\n" if command.about else ""
        parts.append(f"{fence([command.line], 'sh')}\n\n{about}({_origin(material, command)})")
    rest = commands[len(in_full) :]
    if rest:
        rows = [(code(each.line, 300), prose(each.about), _origin(material, each)) for each in rest]
        parts.append(table(("Command", "What it does", "From"), rows))
    return "\n\n".join(parts)


def _origin(material: Material, command: Command) -> str:
    words = "declared" if command.origin == "declared" else "by custom"
    return f"{words}, {material.evidence(command.evidence)}"


def _ci(material: Material) -> str:
    ran = material.stack.ci
    if not ran:
        return ""
    parts = ["## What continuous integration runs", "As written there; expressions are filled in by the CI service."]
    for script in ran[:_MOST_CI]:
        lines = [line for line in script.body.split("\n") if line.strip()]
        parts.append(f"In {code(script.name)}, {material.evidence(script.evidence)}:\n\n{fence(lines, 'text')}")
    if len(ran) > _MOST_CI:
        parts.append(f"… and {len(ran) - _MOST_CI} more steps.")
    return "\n\n".join(parts)
