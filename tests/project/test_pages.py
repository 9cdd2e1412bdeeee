"""README and docs: links, commands, variables and names are such as there are."""

import ast
import inspect
import re
import shlex
from importlib import import_module
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest
from typer._click.exceptions import MissingParameter, NoArgsIsHelpError, UsageError
from typer.core import TyperGroup
from typer.main import get_command

from baton.cli.app import make_app
from baton.worker import Settings

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]

LINK = re.compile(r"\[[^\]]*\]\((?!\w+:)([^)#\s]*)#?([^)\s]*)\)")
BLOCK = re.compile(r"^ *```(\w*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`([^`]+)`")
COMMAND = re.compile(r"^(?:\$ )?(?:docker compose exec \w+ |\.venv/bin/)?baton (\w.*)$")
DOTTED = re.compile(r"(baton(?:\.\w+)+)(?:\(.*\))?")
VARIABLE = re.compile(r"(?<![A-Z_])BATON_[A-Z_]*[A-Z]\b")

# What looks like names in the library and is none: entry points, and attributes of spans.
OTHER_NAMES = {"baton.agents", "baton.output_schemas", "baton.cost_usd", "baton.handoff.id", "baton.verdict"}
SHELL = {"sh", "bash", "console"}
TOLD_BY_HELP = {"BATON_AGENT", "BATON_HOLDER"}

each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


def read(page: Path) -> str:
    """Return a page's text."""
    return page.read_text(encoding="utf-8")


def inline(page: Path) -> list[str]:
    """Return the inline code of a page, each on one line."""
    return [" ".join(match.split()) for match in INLINE.findall(BLOCK.sub("", read(page)))]


def anchors(page: Path) -> set[str]:
    """Return the anchors that a code host makes of a page's headings."""
    headings = re.findall(r"(?m)^#+ (.+)$", BLOCK.sub("", read(page)))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def commands(page: Path) -> list[str]:
    """Return the `baton` commands of a page, from its blocks for the shell and from its sentences."""
    blocks = [body.replace("\\\n", " ") for kind, body in BLOCK.findall(read(page)) if kind in SHELL]
    lines = [line.strip() for block in blocks for line in block.splitlines()] + inline(page)
    return [match[1] for line in lines if (match := COMMAND.match(line))]


def variables(*patterns: str) -> set[str]:
    """Return the environment variables that files of the checkout name."""
    paths = [path for pattern in patterns for path in ROOT.glob(pattern)]
    return {name for path in paths for name in VARIABLE.findall(read(path))}


def parse(words: list[str]) -> None:
    """Parse a command as `baton` does, and do nothing.

    Raises:
        UsageError: There is no such command, or it has no such option, or takes another number of arguments.
    """
    command: Any = get_command(make_app())
    name, above = "baton", None
    while True:
        context = command.make_context(name, words, parent=above)
        words = [*context._protected_args, *context.args]
        if not isinstance(command, TyperGroup) or not words:
            return
        resolved, command, words = command.resolve_command(context, words)
        name, above = str(resolved), context


@pytest.mark.parametrize(
    "page", [*PAGES, *(ROOT / "tests" / "data").rglob("README.md")], ids=lambda page: page.parent.name + "/" + page.name
)
def test_every_link_leads_to_a_file_and_a_heading(page: Path) -> None:
    """A reader who follows a link arrives where it says."""
    dead = []
    for target, anchor in LINK.findall(read(page)):
        there = (page.parent / target) if target else page
        if not there.exists() or (anchor and anchor not in anchors(there)):
            dead.append(f"{target}#{anchor}")

    assert dead == []


@each_page
def test_every_command_is_one_that_baton_takes(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names, options and the number of arguments are right; where a command is only named, what it needs may lack."""
    names = ("fix.json", "public.json", "heads.jsonl", "auditors.json", "evidence.zst", "notes.py", "FILE")
    for needed in (*names, "acme.jwks", "order.baton.json", "receipt.json"):
        (tmp_path / needed).write_text("{}")
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    wrong = []
    for command in commands(page):
        words = [*takewhile(lambda word: word not in ("|", ">", ">>", "<"), shlex.split(command, comments=True))]
        try:
            parse(words)
        except UsageError as error:
            only_named = not any(word.startswith("-") for word in words)
            if not (only_named and isinstance(error, MissingParameter | NoArgsIsHelpError)):
                wrong.append(f"baton {command}: {error.format_message()}")

    assert wrong == []


@each_page
def test_every_name_of_the_library_is_there(page: Path) -> None:
    """`baton.contract.registry.load_registries` and the like can be imported."""
    missing = []
    for name in {match[1] for text in inline(page) if (match := DOTTED.fullmatch(text))} - OTHER_NAMES:
        module, _, member = name.rpartition(".")
        try:
            import_module(name)
        except ModuleNotFoundError:
            try:
                getattr(import_module(module), member)
            except (ModuleNotFoundError, AttributeError):
                missing.append(name)

    assert missing == []


def public_callables() -> dict[str, Any]:
    """Return the functions and classes of the public modules, and the public methods of the classes, by name."""
    found: dict[str, Any] = {}
    for door in map(import_module, ("baton.testing", "baton.protocol", "baton.client", "baton.agents", "baton")):
        for name in door.__all__:
            value = getattr(door, name)
            found |= {name: value} if callable(value) else {}
            methods = vars(value).items() if isinstance(value, type) else ()
            found |= {f"{name}.{key}": method for key, method in methods if callable(method) and key[:1] != "_"}
    return found


def parameters(value: Any) -> set[str]:
    """Return the names of a callable's parameters; with one more, `**`, if it takes any."""
    try:
        signature = inspect.signature(value)
    except (ValueError, TypeError):
        return set()
    kinds = {parameter.kind for parameter in signature.parameters.values()}
    return {*signature.parameters} | ({"**"} if inspect.Parameter.VAR_KEYWORD in kinds else set())


def keywords(text: str) -> list[tuple[str, str]]:
    """Return the callable and the name of each keyword argument in a piece of inline code; "" for one by itself."""
    if alone := re.fullmatch(r"([a-z_]+)=(?![=/])[^\s&]*", text):
        return [("", alone[1])]
    code = re.sub(r"^(@|await |\.)", "", text.replace("…", "..."))
    try:
        tree = ast.parse(code)
    except SyntaxError:
        return []
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return [(ast.unparse(call.func), keyword.arg) for call in calls for keyword in call.keywords if keyword.arg]


ELSEWHERE = {
    *("timedelta", "Worker", "InstrumentationSettings", "AsyncOpenAI", "ChatOpenAI", "httpx.AsyncClient", "ToolAnswer"),
    "TemporalDurability",
    *(
        "no_remote_activities",
        "exclude",
        "forbids",
        "failure_error_function",
        "activities",
        "defer_model_check",
        "steer",
    ),
}
"""Callables and parameters that are not in a public module."""


@each_page
def test_every_keyword_argument_is_one_of_a_signature(page: Path) -> None:
    """`corrects=answer`, `agent_stage(…, window=128_000)`: of that callable, or else of any public one."""
    public = public_callables()
    known = {name for value in public.values() for name in parameters(value)}
    wrong = []
    for text in inline(page):
        for function, keyword in keywords(text):
            own = parameters(public.get(function))
            elsewhere = {function, keyword} & ELSEWHERE
            if not elsewhere and keyword not in (own if own and "**" not in own else known):
                wrong.append(f"{text}: {keyword}")

    assert wrong == []


@each_page
def test_every_import_is_from_a_front_door(page: Path) -> None:
    """Pages import from the five public modules only."""
    doors = {"baton", "baton.agents", "baton.client", "baton.lab", "baton.protocol", "baton.testing"}
    matches = set(re.findall(r"(?m)^(?:from|import) (baton[\w.]*)", read(page)))

    assert matches - doors == set()


def test_pages_and_code_know_the_same_variables() -> None:
    """Every variable on a page is read somewhere, and every variable that is read is documented."""
    settings = {f"BATON_{name.upper()}" for name in Settings.model_fields}  # the site has a page of them
    named = settings | {
        name for page in [*PAGES, ROOT / "deploy" / ".env.example"] for name in VARIABLE.findall(read(page))
    }
    shipped = variables("baton/**/*.py", "activities/**/*.py", "deploy/*.py", "docker-compose.yml")
    shipped |= settings

    assert named - shipped - variables("benchmarks/*.py", "tests/console/browser/*.py") == set()
    assert shipped - named - TOLD_BY_HELP == set()
