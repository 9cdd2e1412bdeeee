"""ROADMAP.md: what should be done next, why, and from which findings that follows."""

from activities.project_init.markdown import bullets, page, text
from activities.project_init.pages.material import DATA_NOTE, Material
from activities.project_init.records import Priority, RoadmapItem
from activities.workbench.words import counted

_TITLES: dict[Priority, str] = {
    "P1": "P1: now, it is a risk or blocks others",
    "P2": "P2: soon, it costs something every week",
    "P3": "P3: when one passes by",
}


def write_roadmap(material: Material) -> str:
    """Return the roadmap: items by priority, each with its reason and its evidence."""
    items = material.roadmap
    counts = ", ".join(f"{sum(1 for each in items if each.priority == priority)} {priority}" for priority in _TITLES)
    opening = (
        f"{counted(len(items), 'item')} ({counts}), all derived from what was found in the files; nothing here was "
        "guessed. Correctness, performance and security of the code were not judged."
    )
    parts: list[str] = []
    number = 0
    for priority, title in _TITLES.items():
        chosen = [each for each in items if each.priority == priority]
        if chosen:
            parts.append(f"## {title}")
        for item in chosen:
            number += 1
            parts.append(_item(material, number, item))
    return page(
        f"# Roadmap of {text(material.stack.name)}",
        opening if items else "Nothing was found that calls for work.",
        _caution(material),
        *parts,
        DATA_NOTE.replace("below", "on this page"),
    )


def _caution(material: Material) -> str:
    """Return a warning where a limit kept files from being read: what an item misses may lie in those."""
    unread = material.structure.unread + sum(
        each.count for each in material.tree.listing.left_out if "limit" in each.reason
    )
    if not unread:
        return ""
    return f"Not read because of a limit: {counted(unread, 'file')}. What an item misses may be there."


def _item(material: Material, number: int, item: RoadmapItem) -> str:
    found = [material.quoted(each) for each in item.evidence]
    more = item.found - len(item.evidence)
    if more > 0:
        found.append(f"… and {more} more")
    return f"### {number}. {text(item.title)}\n\n{text(item.why, 400)}\n\n{bullets(found)}"
