"""The named tasks of task runners: make, just, Task, tox, nox; and the commands that CI runs.

All are read as text. A Makefile that builds its targets' names is not evaluated, so such targets are unknown.
"""

import ast
import configparser
import re
from collections.abc import Callable, Iterator

from activities.project_init.files import SourceTree
from activities.project_init.outline import outline
from activities.project_init.parsing import Lines, UnreadableError, parse_python, parse_toml, string, strings, table
from activities.project_init.records import Evidence, Script
from activities.project_init.roles import belongs_to_project

_MOST_FILES = 50
_MAKE_TARGET = re.compile(r"([A-Za-z0-9_][\w.\- ]*)::?(?![:=])([^#]*)(?:##\s*(.*))?")
_PHONY = re.compile(r"\.PHONY\s*:\s*(.*)")
_JUST_RECIPE = re.compile(r"@?([a-zA-Z_][\w-]*)((?:\s+[^\s:=]+(?:=(?:'[^']*'|\"[^\"]*\"|\S+))?)*)\s*:(?!=)")
_CI_FILE = re.compile(
    r"\.github/workflows/[^/]+\.ya?ml|\.gitlab-ci\.yml|\.circleci/config\.yml|azure-pipelines\.ya?ml|\.travis\.yml"
    r"|bitbucket-pipelines\.yml|\.drone\.ya?ml|\.woodpecker(/[^/]+)?\.ya?ml|\.buildkite/[^/]+\.ya?ml|\.cirrus\.yml"
    r"|\.forgejo/workflows/[^/]+\.ya?ml|\.gitea/workflows/[^/]+\.ya?ml|appveyor\.ya?ml|Jenkinsfile|\.ci/[^/]+"
)
_CI_STEP_KEYS = ("run", "script", "before_script", "after_script", "command", "commands", "install", "bash")

Tasks = dict[str, dict[str, tuple[Script, ...]]]
"""Task runner (`make`, `just`, `task`, `tox`, `nox`) to the folder of its file to its tasks."""


def _make_tasks(path: str, text: str) -> Iterator[Script]:
    """Yield the targets that a person would type: phony ones, and such as are no files by their names."""
    lines = text.split("\n")
    phony = {word for line in lines if (found := _PHONY.match(line)) for word in found[1].split()}
    seen: set[str] = set()
    for number, line in enumerate(lines, 1):
        found = _MAKE_TARGET.match(line[:1000]) if line[:1].strip() else None
        for name in found[1].split() if found else ():
            is_file = "." in name and name not in phony
            if name in seen or is_file or "%" in line.partition(":")[0]:
                continue
            seen.add(name)
            body = "; ".join(_recipe(lines, number))
            about = string(found[3]) if found and found[3] else _comment_above(lines, number)
            yield Script(name=name, body=body, about=about, evidence=Evidence(path=path, line=number))


def _recipe(lines: list[str], start: int) -> Iterator[str]:
    for line in lines[start : start + 50]:
        if line.startswith("\t"):
            yield line.strip().lstrip("@-")
        elif line.strip() and not line.startswith("#"):
            return


def _comment_above(lines: list[str], number: int) -> str:
    above = lines[number - 2].strip() if number >= 2 else ""
    return above.lstrip("# ").strip() if above.startswith("#") and len(above) < 120 else ""


def _just_tasks(path: str, text: str) -> Iterator[Script]:
    lines = text.split("\n")
    for number, line in enumerate(lines, 1):
        found = _JUST_RECIPE.match(line) if line[:1].strip() and len(line) < 500 else None
        if found and found[1] not in ("set", "alias", "export", "import", "mod"):
            body = "; ".join(each.strip().lstrip("@-") for each in _indented(lines, number))
            about = _comment_above(lines, number)
            yield Script(name=found[1], body=body, about=about, evidence=Evidence(path=path, line=number))


def _indented(lines: list[str], start: int) -> Iterator[str]:
    for line in lines[start : start + 50]:
        if line[:1].isspace() and line.strip():
            yield line
        elif line.strip():
            return


def _task_tasks(path: str, text: str) -> Iterator[Script]:
    bodies: dict[str, list[str]] = {}
    first: dict[str, int] = {}
    about: dict[str, str] = {}
    for node in outline(text):
        if node.path[0] == "tasks" and len(node.path) >= 2:
            name = node.path[1]
            first.setdefault(name, node.line)
            if node.path[2:] == ("desc",):
                about[name] = node.value
            elif node.value and ("cmds" in node.path[2:] or len(node.path) == 2 or node.path[2:] == ("cmd",)):
                bodies.setdefault(name, []).append(node.value)
    for name, line in first.items():
        body = "; ".join(bodies.get(name, []))
        yield Script(name=name, body=body, about=about.get(name, ""), evidence=Evidence(path=path, line=line))


def _tox_tasks(path: str, text: str) -> Iterator[Script]:
    config = configparser.ConfigParser(interpolation=None, strict=False)
    try:
        config.read_string(text)
    except configparser.Error:
        return
    lines = Lines(text)
    listed = config.get("tox", "envlist", fallback="") or config.get("tox", "env_list", fallback="")
    names = [name for name in re.split(r"[\s,]+", re.sub(r"\S*\{[^}]*\}\S*", "", listed)) if name]
    names += [name.removeprefix("testenv:") for name in config.sections() if name.startswith("testenv:")]
    default = config.get("testenv", "commands", fallback="")
    for name in dict.fromkeys(names):
        body = config.get(f"testenv:{name}", "commands", fallback=default)
        evidence = Evidence(path=path, line=lines.of(f"testenv:{name}") or lines.of(name))
        yield Script(name=name, body="; ".join(body.split("\n")).strip("; "), evidence=evidence)


def _tox_toml_tasks(path: str, text: str) -> Iterator[Script]:
    try:
        data = parse_toml(text)
    except UnreadableError:
        return
    lines = Lines(text)
    for name in dict.fromkeys([*strings(data.get("env_list")), *table(data, "env")]):
        evidence = Evidence(path=path, line=lines.of(f"env.{name}") or lines.of(name))
        yield Script(name=name, body="", evidence=evidence)


def _nox_tasks(path: str, text: str) -> Iterator[Script]:
    try:
        tree = parse_python(text)
    except UnreadableError:
        return
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            for decorator in node.decorator_list:
                call = decorator.func if isinstance(decorator, ast.Call) else decorator
                if ast.unparse(call) in ("nox.session", "session", "nox_uv.session"):
                    name = _literal_keyword(decorator, "name") or node.name
                    about = string((ast.get_docstring(node) or "").split("\n")[0])
                    yield Script(name=name, body="", about=about, evidence=Evidence(path=path, line=node.lineno))


def _literal_keyword(decorator: ast.expr, name: str) -> str:
    for keyword in decorator.keywords if isinstance(decorator, ast.Call) else ():
        if keyword.arg == name and isinstance(keyword.value, ast.Constant):
            return string(keyword.value.value)
    return ""


_READERS: dict[str, tuple[str, Callable[[str, str], Iterator[Script]]]] = {
    "GNUmakefile": ("make", _make_tasks),
    "makefile": ("make", _make_tasks),
    "Makefile": ("make", _make_tasks),
    "justfile": ("just", _just_tasks),
    "Justfile": ("just", _just_tasks),
    ".justfile": ("just", _just_tasks),
    "Taskfile.yml": ("task", _task_tasks),
    "Taskfile.yaml": ("task", _task_tasks),
    "tox.ini": ("tox", _tox_tasks),
    "tox.toml": ("tox", _tox_toml_tasks),
    "noxfile.py": ("nox", _nox_tasks),
}


def find_tasks(tree: SourceTree) -> Tasks:
    """Return the tasks of every task runner of the project, by runner and by the folder they run in."""
    found: Tasks = {}
    paths = [path for path in tree.named(*_READERS) if belongs_to_project(path)]
    for path in paths[:_MOST_FILES]:
        folder, _, name = path.rpartition("/")
        runner, reader = _READERS[name]
        tasks = tuple(reader(path, tree.text(path) or ""))
        if tasks:
            found.setdefault(runner, {}).setdefault(folder, tasks)
    return found


def ci_files(tree: SourceTree) -> list[str]:
    """Return the files that define continuous integration."""
    return tree.anywhere(_CI_FILE.pattern)[:_MOST_FILES]


def find_ci(tree: SourceTree) -> tuple[Script, ...]:
    """Return the commands that CI runs, as written, each once; `name` is the job where the file names it."""
    found: dict[str, Script] = {}
    for path in ci_files(tree):
        if not path.endswith((".yml", ".yaml")):
            continue
        for node in outline(tree.text(path) or ""):
            keys = [key for key in node.path if not key.isdigit()]
            if node.value and keys[-1] in _CI_STEP_KEYS:
                job = keys[1] if keys[0] == "jobs" and len(keys) > 2 else keys[0]
                evidence = Evidence(path=path, line=node.line)
                found.setdefault(node.value, Script(name=job, body=node.value, evidence=evidence))
    return tuple(found.values())
