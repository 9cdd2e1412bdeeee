"""ARCHITECTURE.md: what is where, where programs start, what depends on what, and what is large."""

from collections import Counter

from activities.project_init.areas import Areas, find_areas
from activities.project_init.languages import language_of
from activities.project_init.markdown import bullets, code, fence, page, prose, some, table, text, visible
from activities.project_init.pages.material import DATA_NOTE, Material, about_folder
from activities.project_init.structure import IMPORTS_READ, Module, cycles
from activities.workbench.words import counted

_MOST_ROWS = 15
_MOST_ENTRY_POINTS = 25
_MOST_EDGES = 40


def write_architecture(material: Material) -> str:
    """Return the architecture: folders, entry points, dependencies between parts, largest and most used modules."""
    structure = material.structure
    source = [each for each in structure.modules.values() if each.role == "source"]
    opening = _opening(source) if source else "There is no code to draw a structure from."
    unread = f"{structure.unread} files of code were not read: they are over a limit." if structure.unread else ""
    return page(
        f"# Architecture of {text(material.stack.name)}",
        opening,
        unread,
        _folders(material),
        _entry_points(material),
        _dependencies(find_areas(structure)) if source else "",
        _most_imported(material),
        _largest(material),
        _circles(material),
        _outside(material),
        DATA_NOTE.replace("below", "on this page"),
    )


def _opening(source: list[Module]) -> str:
    """Return how much code there is and how it hangs together, as far as its languages' imports are read."""
    size = f"{counted(len(source), 'source module')} with {counted(sum(each.lines for each in source), 'line')}"
    unread = list(dict.fromkeys(each.language for each in source if each.language not in IMPORTS_READ))
    crossing = sum(len(each.imports.inside) for each in source)
    if not any(each.language in IMPORTS_READ for each in source):
        return f"{size}. What depends on what is not read in {' and '.join(some(sorted(unread), 4, 'languages'))}."
    return f"{size}; {counted(crossing, 'import')} from one to another."


def _folders(material: Material) -> str:
    tops: dict[str, list[str]] = {}
    for path in material.tree.by_path:
        if "/" in path:
            tops.setdefault(path.partition("/")[0], []).append(path)
    if not tops:
        return ""
    rows = []
    for folder in sorted(tops):
        files = [material.tree.by_path[path] for path in tops[folder]]
        languages = Counter[str]()
        for file in files:
            name = language_of(file.path)
            if name and file.kind == "text":
                languages[name] += file.lines
        mostly = max(sorted(languages), key=lambda name: languages[name]) if languages else ""
        lines = f"{sum(file.lines for file in files):,}"
        link = material.source(folder, label=folder + "/")
        rows.append((link, about_folder(material, folder), str(len(files)), lines, mostly))
    return "## Folders\n\n" + table(("Folder", "What it is", "Files", "Lines", "Mostly"), rows)


def _entry_points(material: Material) -> str:
    found = material.stack.entry_points
    if not found:
        return ""
    rows = [
        (code(each.name), each.kind, code(each.target), material.evidence(each.evidence))
        for each in found[:_MOST_ENTRY_POINTS]
    ]
    more = len(found) - _MOST_ENTRY_POINTS
    rest = f"\n\n… and {more} more." if more > 0 else ""
    return "## Where it starts\n\n" + table(("Name", "Kind", "Starts", "Known from"), rows) + rest


def _dependencies(areas: Areas) -> str:
    if not areas.edges:
        return ""
    edges = sorted(areas.edges.items(), key=lambda each: (-each[1], each[0]))
    shown = sorted(edges[:_MOST_EDGES])
    names = sorted({name for pair, _ in shown for name in pair})
    drawing = ["flowchart LR"]
    drawing += [f'  n{number}["{_label(name)}"]' for number, name in enumerate(names)]
    drawing += [f"  n{names.index(start)} -->|{count}| n{names.index(end)}" for (start, end), count in shown]
    rows = [
        (
            code(name or "(top)"),
            str(areas.files[name]),
            ", ".join(_counted(end, count) for (start, end), count in areas.edges.items() if start == name),
            ", ".join(_counted(start, count) for (start, end), count in areas.edges.items() if end == name),
        )
        for name in areas.files
    ]
    rest = f"\n\nThe drawing leaves out the {len(edges) - len(shown)} weakest." if len(edges) > len(shown) else ""
    return "\n\n".join(
        [
            "## What depends on what",
            "An arrow says that files of one part import files of the other; the number counts these imports.",
            fence(drawing, "mermaid") + rest,
            table(("Part", "Modules", "Imports from", "Imported by"), rows),
        ]
    )


def _counted(name: str, count: int) -> str:
    return f"{code(name or '(top)')} ({count})"


def _label(name: str) -> str:
    """Return a name as Mermaid takes it in quotes: anything that could end or mark up the label is dropped."""
    return "".join(each for each in visible(name or "(top)", 60) if each.isalnum() or each in "/._- ()")


def _most_imported(material: Material) -> str:
    found = [each for each in material.structure.modules.values() if each.importers and each.role == "source"]
    if not found:
        return ""
    found.sort(key=lambda each: (-len(each.importers), each.path))
    rows = [(material.source(each.path), str(len(each.importers)), prose(each.about)) for each in found[:_MOST_ROWS]]
    return "## Most imported modules\n\nA change here is felt in many places.\n\n" + table(
        ("Module", "Imported by", "What it says of itself"), rows
    )


def _largest(material: Material) -> str:
    found = [each for each in material.structure.modules.values() if each.role == "source" and each.lines > 0]
    if not found:
        return ""
    found.sort(key=lambda each: (-each.lines, each.path))
    rows = [
        (material.source(each.path), f"{each.lines:,}", each.language, prose(each.about)) for each in found[:_MOST_ROWS]
    ]
    return "## Largest modules\n\n" + table(("Module", "Lines", "Language", "What it says of itself"), rows)


def _circles(material: Material) -> str:
    found = cycles(material.structure)
    if not found:
        return ""
    lines = [", ".join(some([material.source(path) for path in group], 8, "files")) for group in found]
    opening = "These files import each other as soon as one of them is imported:"
    return f"## Import circles\n\n{opening}\n\n{bullets(some(lines, 10, 'circles'))}"


def _outside(material: Material) -> str:
    counts = Counter(
        name for each in material.structure.modules.values() if each.role == "source" for name in each.imports.outside
    )
    if not counts:
        return ""
    ordered = sorted(counts.items(), key=lambda each: (-each[1], each[0]))
    rows = [(code(name), str(count)) for name, count in ordered[:_MOST_ROWS]]
    more = len(ordered) - _MOST_ROWS
    rest = f"\n\n… and {more} more." if more > 0 else ""
    return "## Packages from outside\n\n" + table(("Imported name", "In modules"), rows) + rest
