"""PROJECT.md: what the project is, what it is made of, and what nobody has said yet."""

from collections.abc import Iterator

from activities.project_init.markdown import bullets, code, page, prose, some, table, text
from activities.project_init.pages.material import DATA_NOTE, Material, introduction, percent
from activities.project_init.records import Dependency, DependencyGroup, TechStack
from activities.workbench.words import counted

_GROUP_TITLES: dict[DependencyGroup, str] = {
    "runtime": "At run time",
    "peer": "Provided by the user",
    "optional": "Optional",
    "development": "For development",
    "build": "For building",
}
_MOST_DEPENDENCIES = 40


def write_project(material: Material) -> str:
    """Return the overview: summary, technology, dependencies, services, licence, and the open questions."""
    stack, tree = material.stack, material.tree
    words, readme = introduction(tree)
    quoted = f"> {text(words, 500)}\n>\n> — {material.source(readme)}" if words else ""
    return page(
        f"# {text(stack.name)}",
        text(stack.description, 300),
        quoted,
        "## In short",
        bullets(prose(each, 300) for each in stack.summary),
        _see_also(),
        _languages(material),
        _technologies(material),
        _services(material),
        _dependencies(material),
        _licenses(material),
        "## What was decided",
        bullets(prose(each, 300) for each in stack.decisions),
        "## What is not known",
        bullets(prose(each, 300) for each in stack.open_questions) or "The files answered every question.",
        _left_out(material),
        DATA_NOTE.replace("below", "on this page"),
    )


def _see_also() -> str:
    return "\n\n".join(
        [
            "## Where to read on",
            bullets(
                [
                    "[COMMANDS.md](COMMANDS.md): how to install, run, test and build it",
                    "[ARCHITECTURE.md](ARCHITECTURE.md): what is where, and what depends on what",
                    "[ROADMAP.md](ROADMAP.md): what should be done next, and why",
                    "[AGENTS.md](AGENTS.md): the short rules for whoever changes it",
                ]
            ),
        ]
    )


def _languages(material: Material) -> str:
    languages = material.stack.languages
    if not languages:
        return ""
    whole = sum(each.lines for each in languages)
    rows = [
        (text(each.name), each.kind, str(each.files), f"{each.lines:,}", percent(each.lines, whole))
        for each in languages
    ]
    headings = ("Language", "Kind", "Files", "Lines", "Share of all lines")
    return "## Languages\n\n" + table(headings, rows)


def _technologies(material: Material) -> str:
    found = [each for each in material.stack.technologies if not each.category.endswith("service")]
    if not found:
        return ""
    rows = [
        (
            text(each.name),
            each.category,
            code(each.version) if each.version else "",
            material.evidence(each.evidence),
        )
        for each in found
    ]
    return "## Technology\n\n" + table(("What", "For", "Version asked for", "Known from"), rows)


def _services(material: Material) -> str:
    found = [each for each in material.stack.technologies if each.category.endswith("service")]
    if not found:
        return ""
    rows = [(code(each.name), each.category, code(each.version), material.evidence(each.evidence)) for each in found]
    return "## Services it runs with\n\n" + table(("Service", "Kind", "Image", "Known from"), rows)


def _dependencies(material: Material) -> str:
    parts = list(_dependency_groups(material.stack, material))
    return "\n\n".join(["## Dependencies", *parts]) if parts else ""


def _dependency_groups(stack: TechStack, material: Material) -> Iterator[str]:
    for group, title in _GROUP_TITLES.items():
        found = {
            (manifest.ecosystem, each.name.lower()): each
            for manifest in stack.manifests
            for each in reversed(manifest.dependencies)
            if each.group == group
        }
        if found:
            ordered = [found[key] for key in sorted(found)]
            rows = [
                (
                    code(each.name),
                    _version(each),
                    material.evidence(each.evidence),
                )
                for each in ordered[:_MOST_DEPENDENCIES]
            ]
            more = len(ordered) - _MOST_DEPENDENCIES
            rest = f"\n\n… and {more} more in the same manifests." if more > 0 else ""
            yield f"### {title}\n\n" + table(("Package", "Version", "Asked for in"), rows) + rest
    indirect = sum(1 for each in stack.manifests for wanted in each.dependencies if wanted.group == "indirect")
    if indirect:
        yield f"What these need in turn is pinned by {counted(indirect, 'more entry', 'more entries')}."


def _version(dependency: Dependency) -> str:
    return code(dependency.requirement) if dependency.requirement else "any"


def _licenses(material: Material) -> str:
    words = {"text": "licence text", "manifest": "declared", "header": "file headers"}
    rows = [
        (text(each.spdx), words[each.source], str(each.files), material.evidence(each.evidence))
        for each in material.stack.licenses
    ]
    if not rows:
        return "## Licence\n\nNone is stated."
    return "## Licence\n\n" + table(("Licence", "Known from", "Files", "First"), rows)


def _left_out(material: Material) -> str:
    left_out = material.tree.listing.left_out
    how = (
        "what git counts as the project's"
        if material.tree.listing.method == "git"
        else "every file found in the folder"
    )
    opening = f"Looked at {counted(len(material.tree.listing.files), 'file')}: {how}."
    if not left_out:
        return f"## What was looked at\n\n{opening} Nothing was left out."
    rows = [
        (text(each.reason), str(each.count), ", ".join(some([code(path) for path in each.examples], 5, "")))
        for each in left_out
    ]
    headings = ("Left out because", "Entries", "For example")
    return f"## What was looked at\n\n{opening} Left out were:\n\n" + table(headings, rows)
