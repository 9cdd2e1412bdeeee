"""Rules that a project's tool settings state: versions, line length, strictness, indentation.

An agent that breaks one of these is stopped by a tool later; it is cheaper to know them before.
"""

import re
from collections.abc import Iterator
from typing import Any

from activities.project_init.files import SourceTree
from activities.project_init.outline import outline
from activities.project_init.parsing import Lines, UnreadableError, parse_json, parse_toml, string, table
from activities.project_init.records import Evidence, Manifest

Rule = tuple[str, Evidence]


def find_rules(tree: SourceTree, manifests: tuple[Manifest, ...]) -> tuple[Rule, ...]:
    """Return the rules that settings at the top of the project state, each with its evidence."""
    found = [
        (each.runtime, Evidence(path=each.path, line=each.runtime_line))
        for each in manifests
        if each.runtime and "/" not in each.path
    ]
    for name, reader in (
        ("pyproject.toml", _pyproject),
        ("ruff.toml", _ruff),
        (".ruff.toml", _ruff),
        ("tsconfig.json", _tsconfig),
        (".prettierrc", _prettier),
        (".prettierrc.json", _prettier),
        (".editorconfig", _editorconfig),
        ("rustfmt.toml", _rustfmt),
        (".pre-commit-config.yaml", _pre_commit),
    ):
        text = tree.text(name)
        if text is not None:
            try:
                found.extend(reader(name, text))
            except UnreadableError:
                continue
    return tuple(found)


def _pyproject(path: str, text: str) -> Iterator[Rule]:
    tools = table(parse_toml(text), "tool")
    lines = Lines(text)
    yield from _line_length(path, table(tools, "ruff").get("line-length"), "Ruff", lines)
    yield from _line_length(path, table(tools, "black").get("line-length"), "Black", lines)
    if table(tools, "mypy").get("strict") is True:
        yield "Types are complete: mypy runs in strict mode", Evidence(path=path, line=lines.of("strict"))
    if "error" in str(table(tools, "pytest", "ini_options").get("filterwarnings", "")):
        yield "A warning fails the tests", Evidence(path=path, line=lines.of("filterwarnings"))
    least = table(tools, "coverage", "report").get("fail_under")
    if isinstance(least, int | float):
        yield f"Coverage stays at {least:g}% or above", Evidence(path=path, line=lines.of("fail_under"))
    convention = string(table(tools, "ruff", "lint", "pydocstyle").get("convention"))
    if convention:
        yield f"Docstrings follow the {convention} convention", Evidence(path=path, line=lines.of("convention"))
    if table(tools, "importlinter"):
        yield "Imports keep the contracts of import-linter", Evidence(path=path, line=lines.of("tool.importlinter"))


def _line_length(path: str, value: Any, tool: str, lines: Lines) -> Iterator[Rule]:
    if isinstance(value, int):
        evidence = Evidence(path=path, line=lines.of("line-length"))
        yield f"Lines have at most {value} characters ({tool})", evidence


def _ruff(path: str, text: str) -> Iterator[Rule]:
    yield from _line_length(path, parse_toml(text).get("line-length"), "Ruff", Lines(text))


def _tsconfig(path: str, text: str) -> Iterator[Rule]:
    if table(parse_json(text), "compilerOptions").get("strict") is True:
        yield "TypeScript is strict", Evidence(path=path, line=Lines(text).of("strict"))


def _prettier(path: str, text: str) -> Iterator[Rule]:
    width = table(parse_json(text)).get("printWidth")
    if isinstance(width, int):
        evidence = Evidence(path=path, line=Lines(text).of("printWidth"))
        yield f"Lines have at most {width} characters (Prettier)", evidence


def _rustfmt(path: str, text: str) -> Iterator[Rule]:
    width = parse_toml(text).get("max_width")
    if isinstance(width, int):
        yield f"Lines have at most {width} characters (rustfmt)", Evidence(path=path, line=Lines(text).of("max_width"))


def _editorconfig(path: str, text: str) -> Iterator[Rule]:
    section, settings = "", dict[str, tuple[str, int]]()
    for number, line in enumerate(text.split("\n"), 1):
        heading = re.match(r"\s*\[(.+)\]\s*$", line[:300])
        if heading:
            section = heading[1]
        key, equals, value = (part.strip().lower() for part in line[:300].partition("="))
        if equals and section == "*":
            settings[key] = (value, number)
    style, line_number = settings.get("indent_style", ("", 0))
    if style == "tab":
        yield "Indentation is a tab", Evidence(path=path, line=line_number)
    elif style == "space":
        width = settings.get("indent_size", ("", 0))[0]
        count = f"{width} spaces" if width.isdigit() else "spaces"
        yield f"Indentation is {count}", Evidence(path=path, line=line_number)


def _pre_commit(path: str, text: str) -> Iterator[Rule]:
    hooks = [node.value for node in outline(text) if node.path[-1] == "id" and "hooks" in node.path]
    if hooks:
        shown = ", ".join(hooks[:8]) + (f" and {len(hooks) - 8} more" if len(hooks) > 8 else "")
        yield f"pre-commit hooks must pass: {shown}", Evidence(path=path)
