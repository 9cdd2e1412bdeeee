"""AGENTS.md: the few things that whoever changes the project must know, person or program."""

from collections.abc import Sequence

from activities.project_init.commands import all_checks, best_command
from activities.project_init.ignore import may_hold_secrets
from activities.project_init.markdown import bullets, fence, page, prose, some, text
from activities.project_init.pages.material import DATA_NOTE, Material, about_folder
from activities.project_init.records import Command
from activities.project_init.roles import is_lock_file, role_of

_MOST_FOLDERS = 14
_MOST_MODULES = 6
KNOWLEDGE_FILE = "knowledge.sqlite3"
"""The search index that stage build-knowledge puts beside the documents."""


def write_agents(material: Material) -> str:
    """Return the short rules: set up, check, keep to, leave alone, look up."""
    stack = material.stack
    about = text(stack.description, 300) or text(stack.summary[0], 300)
    return page(
        f"# Working on {text(stack.name)}",
        DATA_NOTE,
        about,
        _commands("Set up", [best_command(stack, "install")]),
        _commands("Before you hand over a change", all_checks(stack))
        or "## Before you hand over a change\n\nNo check is known to run. Say so when you hand over.",
        _commands("Run it", [best_command(stack, "run")]),
        "## Keep to\n\n" + bullets(prose(each, 300) for each in stack.constraints) if stack.constraints else "",
        _folders(material),
        _start_reading(material),
        _leave_alone(material),
        "## Ask a person\n\n" + bullets(prose(each, 300) for each in stack.open_questions)
        if stack.open_questions
        else "",
        "## Look up\n\n"
        + bullets(
            [
                "[COMMANDS.md](COMMANDS.md): every command",
                "[ARCHITECTURE.md](ARCHITECTURE.md): what depends on what",
                "[ROADMAP.md](ROADMAP.md): known weak places; do not add to them",
                f"[{KNOWLEDGE_FILE}]({KNOWLEDGE_FILE}): a full-text index of the sources and these pages",
            ]
        ),
    )


def _commands(title: str, commands: Sequence[Command | None]) -> str:
    lines = [each.line for each in commands if each is not None]
    return f"## {title}\n\n{fence(lines, 'sh')}" if lines else ""


def _folders(material: Material) -> str:
    tops = sorted({path.partition("/")[0] for path in material.tree.by_path if "/" in path})
    items = []
    for folder in tops:
        about = about_folder(material, folder)
        items.append(f"{material.source(folder, label=folder + '/')}" + (f": {about}" if about else ""))
    return "## Where things are\n\n" + bullets(some(items, _MOST_FOLDERS, "folders")) if items else ""


def _start_reading(material: Material) -> str:
    """Return the modules that most of the others rest on: whoever knows these can read the rest."""
    modules = [each for each in material.structure.modules.values() if each.importers and each.role == "source"]
    modules.sort(key=lambda each: (-len(each.importers), each.path))
    lines = []
    for each in modules[:_MOST_MODULES]:
        about = f": {prose(each.about)}" if each.about else ""
        lines.append(f"{material.source(each.path)}, imported by {len(each.importers)}{about}")
    return "## Start reading at\n\n" + bullets(lines) if lines else ""


def _leave_alone(material: Material) -> str:
    paths = list(material.tree.by_path)
    locks = [path for path in paths if is_lock_file(path)]
    generated = [path for path in paths if role_of(path) == "generated" and not is_lock_file(path)]
    vendored = sorted({path.rpartition("/")[0] for path in paths if role_of(path) == "vendored"})
    secrets = [path for path in paths if may_hold_secrets(path)]
    items = [
        (locks, "written by the package manager; change the manifest instead"),
        (generated, "generated; change what they are made from"),
        (vendored, "code of others"),
        (secrets, "may hold secrets; do not read, quote or commit"),
    ]
    lines = [
        ", ".join(some([material.source(path) for path in found], 4, "files")) + f": {why}"
        for found, why in items
        if found
    ]
    return "## Leave alone\n\n" + bullets(lines) if lines else ""
