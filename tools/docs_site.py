"""Hooks of MkDocs, named in mkdocs.yml, for the parts of the site that are not in docs/.

- README, CHANGELOG and CONTRIBUTING are pages, and files of the checkout that a page links to are copied.
- The reference is generated from docstrings, the commands' help, and the benchmarks' list of figures.
- Each page is also published as Markdown, and `llms.txt` lists them for language models.
"""

import inspect
import json
import os
import re
import sys
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import griffe
import yaml
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.nav import Navigation
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # for `benchmarks`, which is not installed

DOORS = {
    **{"baton": "baton", "agents": "baton.agents", "client": "baton.client"},
    **{"lab": "baton.lab", "protocol": "baton.protocol", "testing": "baton.testing"},
}
PAGES = {"README.md": "index.md", "CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md"}
SOURCES = {page: name for name, page in PAGES.items()}
FENCE = re.compile(r"(^ *```.*?^ *```$)", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(\]\()(?!\w+:)([^)#\s]+)")


class Examples(griffe.Extension):
    """Renders the "Example:" section of a docstring as code, like griffe's "Examples:"."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rename the section."""
        if obj.docstring:
            obj.docstring.value = re.sub(r"(?m)^Example:$", "Examples:", obj.docstring.value)


markdown: dict[str, str] = {}  # of each page, by its path in the site
titles: dict[str, str] = {}
order: list[tuple[str, list[str]]] = []  # the navigation: a section and its pages


def source_path(uri: str) -> Path:
    """Return the path of a page's source in the checkout."""
    return ROOT / SOURCES[uri] if uri in SOURCES else ROOT / "docs" / uri


def site_uri(path: Path) -> str:
    """Return the URI of a checkout's file in the site."""
    if path.is_relative_to(ROOT / "docs"):
        return path.relative_to(ROOT / "docs").as_posix()
    name = path.relative_to(ROOT).as_posix()
    return PAGES.get(name) or f"source/{name}"


def linked_files(text: str, source: Path) -> Iterator[Path]:
    """Yield the files of the checkout that a page links to."""
    for part in FENCE.split(text)[::2]:
        for match in LINK.finditer(part):
            path = Path(os.path.normpath(source.parent / match[2]))
            if path.is_file() and path.is_relative_to(ROOT):
                yield path


def rewrite_links(text: str, source: Path, uri: str) -> str:
    """Rewrite the links of a page to their URIs in the site."""

    def rewrite(match: re.Match[str]) -> str:
        path = Path(os.path.normpath(source.parent / match[2]))
        if not path.is_file():
            return match[0]
        return match[1] + os.path.relpath(site_uri(path), os.path.dirname(uri) or ".")

    parts = FENCE.split(text)
    parts[::2] = [LINK.sub(rewrite, part) for part in parts[::2]]
    return "".join(parts)


def list_exports(door: str) -> dict[str, Any]:
    """Return the exports of a public module by name."""
    module = import_module(door)
    return {name: getattr(module, name) for name in sorted(module.__all__, key=str.lower)}


def api_head(door: str) -> str:
    """Return the title and the docstring of a public module."""
    return f"# {door}\n\n{(import_module(door).__doc__ or '').split('Example:')[0].strip()}\n"


def api_page(door: str) -> str:
    """Return the page of a public module, for mkdocstrings to fill in."""
    names = list_exports(door)
    text = [api_head(door)]
    groups: dict[str, list[str]] = {"Functions": [], "Classes": [], "Errors": [], "Values": []}
    for name, member in names.items():
        is_named = hasattr(member, "__qualname__")  # a value has the module of its type
        if is_named and not member.__module__.startswith("baton"):
            text.append(f"\n`{name}` is `{member.__module__}.{member.__qualname__}`.\n")
            continue
        is_class = inspect.isclass(member)
        kind = "Errors" if is_class and issubclass(member, Exception) else "Classes" if is_class else "Functions"
        groups[kind if is_named else "Values"].append(name)
    for title, members in groups.items():
        if members:
            text.append(f"\n## {title}\n\n" + "\n".join(f"::: {door}.{name}" for name in members) + "\n")
    return "".join(text)


def api_markdown(door: str) -> str:
    """Return the same page as Markdown: names, signatures and docstrings."""
    text = [api_head(door)]
    for name, member in list_exports(door).items():
        try:
            signature = f"{name}{inspect.signature(member)}"
        except (TypeError, ValueError):
            signature = name
        text.append(f"\n## {name}\n\n```text\n{signature}\n```\n\n{inspect.getdoc(member) or ''}\n")
    return "".join(text)


@cache
def cli_page() -> str:
    """Return the page of the `baton` command, from its help."""
    from typer._click.core import Context  # noqa: PLC0415 - only where the site is built
    from typer.cli import get_docs_for_click  # noqa: PLC0415
    from typer.main import get_command  # noqa: PLC0415

    from baton.cli.app import make_app  # noqa: PLC0415

    command = get_command(make_app())
    text = get_docs_for_click(obj=command, ctx=Context(command, info_name="baton"), name="baton")
    return re.sub(r"(?m)^# `baton`$", "# The baton command", text).replace("```console\n$ ", "```text\n")


@cache
def settings_page() -> str:
    """Return the page of a worker's settings, from the docstring of `baton.worker.Settings`."""
    from baton.worker import Settings  # noqa: PLC0415 - only where the site is built

    docs = "\n".join(inspect.cleandoc(kind.__doc__ or "") for kind in (*Settings.__bases__, Settings))
    texts = dict(re.findall(r"(?m)^    (\w+): (.*(?:\n {8}.*)*)", docs))
    rows = []
    for name, member in Settings.model_fields.items():
        value = member.default
        default = "" if value is None else f"`{str(value).lower() if isinstance(value, bool) else value}`"
        rows.append(f"| `BATON_{name.upper()}` | {default} | {' '.join(texts[name].split())} |")
    head = "# Settings of a worker\n\nA worker reads these variables; the connection comes from `TEMPORAL_…`, as "
    head += "[deployment](../deployment.md#tls-and-api-keys) says.\n\n| variable | default | meaning |\n|---|---|---|\n"
    return head + "\n".join(rows) + "\n"


@cache
def figures_page() -> str:
    """Return the page of the benchmarks' figures: what each is, its goal, and the committed value."""
    from benchmarks.report import GOALS  # noqa: PLC0415

    values = json.loads((ROOT / "benchmarks" / "results.json").read_text(encoding="utf-8"))
    rows = [f"| `{name}` | {goal.what} | {goal or 'none'} | {values.get(name, ''):g} |" for name, goal in GOALS.items()]
    head = "# Figures\n\nWhat `make bench` measures; [benchmarks](../benchmarks.md) says how. The values are those of "
    head += "`benchmarks/results.json`.\n\n| name | what it is | goal | value |\n|---|---|---|---|\n"
    return head + "\n".join(rows) + "\n"


@cache
def metrics_page() -> str:
    """Return the page of the metrics, from their definitions, and of the alerts, from their file."""
    from baton.telemetry import metrics  # noqa: PLC0415 - only where the site is built

    text = ["# Metrics and alerts\n\nWhat a worker serves beside Temporal's own metrics; [operations]"]
    text.append("(../operations.md#telemetry) says how.\n\n| metric | labels | tells |\n|---|---|---|\n")
    for metric in vars(metrics).values():
        if isinstance(metric, metrics.Metric):
            labels = ", ".join(f"`{label}`" for label in metric.labels)
            text.append(f"| `{metric.name}` ({metric.kind}) | {labels} | {metric.help} |\n")
    text.append("\n`deploy/prometheus/alerts.yml` has the alerts. An ellipsis stands for the value.\n\n")
    text.append("| alert | severity | says | what to do |\n|---|---|---|---|\n")
    rules = yaml.safe_load((ROOT / "deploy" / "prometheus" / "alerts.yml").read_text(encoding="utf-8"))
    for rule in (rule for group in rules["groups"] for rule in group["rules"] if "alert" in rule):
        annotations = [rule["annotations"].get(name, "") for name in ("summary", "description")]
        texts = [re.sub(r"{{ \$labels\.(\w+) }}", r"*\1*", part) for part in annotations]
        cells = [re.sub(r"{{[^}]*}}", "…", part).replace("|", "\\|") for part in texts]
        text.append(f"| `{rule['alert']}` | {rule['labels']['severity']} | {cells[0]} | {cells[1]} |\n")
    return "".join(text)


def errors() -> Iterator[type[Exception]]:
    """Yield each error of the library, those of `baton.errors` first."""
    for path in sorted((ROOT / "baton").rglob("*.py"), key=lambda path: (path.name != "errors.py", path)):
        names = re.findall(r"(?m)^class (\w+Error)\(", path.read_text(encoding="utf-8"))
        module = import_module(".".join(path.relative_to(ROOT).with_suffix("").parts)) if names else None
        for name in names:
            if issubclass(getattr(module, name), import_module("baton.errors").BatonError):
                yield getattr(module, name)


def meaning_and_remedy(doc: str) -> list[str]:
    """Return the first sentence of a docstring, what it means, and the rest before any section, what to do."""
    prose = " ".join(re.split(r"\n\n[A-Z]\w+:\n", inspect.cleandoc(doc))[0].split())
    return re.split(r"(?<=\.) ", prose, maxsplit=1)


@cache
def errors_page() -> str:
    """Return the page of errors, codes and exit codes, from their docstrings."""
    from baton.cli.options import ExitCode  # noqa: PLC0415 - only where the site is built
    from baton.core import verdict  # noqa: PLC0415

    head = "|\n|---|---|---|\n"
    text = ["# Errors and codes\n\nWhat Baton's errors mean and what to do; [troubleshooting](../troubleshooting.md) "]
    text.append("begins with symptoms. In a run's failure the class is named before the message.\n\n## Errors\n\n")
    text.append(f"| error (a kind of) | meaning | what to do {head}")
    for error in errors():
        meaning, remedy = meaning_and_remedy(error.__doc__ or "")
        text.append(f"| `{error.__name__}` ({error.__bases__[0].__name__}) | {meaning} | {remedy} |\n")
    text.append("\n## Reason codes\n\nWhy a receiver rejects a handoff, the gravest first; [what the gate checks](")
    text.append(f"../handoffs.md#what-the-gate-checks).\n\n| code | meaning | what to do {head}")
    docs = attribute_docs(verdict.Code)
    text += [f"| `{code}` | {' | '.join(meaning_and_remedy(docs[code]))} |\n" for code in verdict.Code]
    text.append("\n## Exit codes\n\n| code | of `baton` |\n|---|---|\n")
    docs = attribute_docs(ExitCode)
    text += [f"| {code.value} | {docs[code.name]} |\n" for code in ExitCode]
    return "".join(text)


def attribute_docs(enumeration: type) -> dict[str, str]:
    """Return the docstrings below the members of an enumeration."""
    return dict(re.findall(r'(?m)^    (\w+) = .+\n    """(.+)"""$', inspect.getsource(enumeration)))


GENERATED = {
    "reference/errors.md": errors_page,
    "reference/metrics.md": metrics_page,
    "reference/cli.md": cli_page,
    "reference/settings.md": settings_page,
    "reference/figures.md": figures_page,
    **{f"reference/{name}.md": lambda door=door: api_page(door) for name, door in DOORS.items()},
}


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Add the pages that mkdocs.yml does not list to those for doing something, by name."""
    sections = config.nav or []
    placed = set(re.findall(r"[\w/-]+\.md", str(sections)))
    [doing] = [section["Do"] for section in sections if "Do" in section]
    doing += [path.name for path in sorted((ROOT / "docs").glob("*.md")) if path.name not in placed]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages, and the linked files outside docs/."""
    for uri, make in GENERATED.items():
        files.append(File.generated(config, uri, content=make()))
    for name, uri in PAGES.items():
        files.append(File.generated(config, uri, content=(ROOT / name).read_text(encoding="utf-8")))
    for page in list(files.documentation_pages()):
        if page.src_uri in GENERATED:
            continue
        source = source_path(page.src_uri)
        for path in linked_files(source.read_text(encoding="utf-8"), source):
            uri = site_uri(path)
            if files.get_file_from_path(uri) is None:
                files.append(File.generated(config, uri, abs_src_path=str(path)))
    return files


def on_nav(nav: Navigation, config: MkDocsConfig, files: Files) -> Navigation:
    """Remember the order of the pages."""
    order.clear()
    for item in nav.items:
        children = [item] if isinstance(item, Page) else item.children or []
        pages = [child for child in children if isinstance(child, Page)]
        order.append((item.title or "", [page.file.src_uri for page in pages]))
    return nav


def on_page_markdown(text: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Rewrite the links of a page."""
    uri = page.file.src_uri
    if uri not in GENERATED:
        text = rewrite_links(text, source_path(uri), uri)
    name = uri.removeprefix("reference/").removesuffix(".md")
    markdown[uri] = api_markdown(DOORS[name]) if uri.startswith("reference/") and name in DOORS else text
    return text


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Label the search for screen readers."""
    return output.replace('role="dialog"', 'role="dialog" aria-label="Search"')


def first_sentence(text: str) -> str:
    """Return the first sentence of a page's prose."""
    for paragraph in FENCE.sub("", text).split("\n\n"):
        if paragraph.strip() and not paragraph.lstrip().startswith(("#", "|", "-", "!", "<", ":")):
            plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", " ".join(paragraph.split()))
            return re.split(r"(?<=[.:]) ", plain)[0].rstrip(":")
    return ""


def on_post_build(config: MkDocsConfig) -> None:
    """Write each page as Markdown, and `llms.txt`."""
    site = Path(config.site_dir)
    (site / "404.html").unlink(missing_ok=True)  # its links are those of a site at the root of a host
    for uri, text in markdown.items():
        (site / uri).parent.mkdir(parents=True, exist_ok=True)
        (site / uri).write_text(text, encoding="utf-8")
    lines = [f"# {config.site_name}", "", f"> {config.site_description}"]
    for section, uris in order:
        lines += ["", f"## {section}", ""]
        for uri in uris:
            title = re.search(r"(?m)^# (.+)$", FENCE.sub("", markdown[uri]))
            lines.append(f"- [{title[1] if title else uri}]({uri}): {first_sentence(markdown[uri])}")
    (site / "llms.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
