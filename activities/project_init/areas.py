"""The parts of a project, as folders: cut as coarse as still shows how the code hangs together."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from activities.project_init.structure import Module, Structure

_MOST = 16
_LARGE_SHARE = 0.4
_DEEPEST = 5


@dataclass(frozen=True)
class Areas:
    """Folders that together hold every source module, and how often one imports from another.

    Attributes:
        files: Folder ("" for the top) to the number of modules that belong to it.
        edges: (from, to) to the number of imports that cross.
    """

    files: Mapping[str, int]
    edges: Mapping[tuple[str, str], int]


def find_areas(structure: Structure) -> Areas:
    """Cut the source modules into areas: top-level folders, the large ones cut again while that shows more.

    An area never holds the modules of another: a file belongs to the deepest area above it.
    """
    modules = [module for module in structure.modules.values() if module.role == "source"]
    chosen = {_folder_at(module.path, 1) for module in modules}
    for _ in range(_DEEPEST):
        counts = Counter(_area_of(module.path, chosen) for module in modules)
        large = [area for area, count in counts.items() if count > max(4, _LARGE_SHARE * len(modules))]
        deeper = {
            _folder_at(module.path, area.count("/") + 2 if area else 1)
            for area in large
            for module in modules
            if _area_of(module.path, chosen) == area
        }
        if deeper <= chosen or len(chosen | deeper) > _MOST:
            break
        chosen |= deeper
    return _measure(modules, chosen)


def _measure(modules: list[Module], chosen: set[str]) -> Areas:
    files: Counter[str] = Counter()
    edges: Counter[tuple[str, str]] = Counter()
    for module in modules:
        area = _area_of(module.path, chosen)
        files[area] += 1
        for target in module.imports.inside:
            other = _area_of(target if "." in target.rpartition("/")[2] else target + "/x", chosen)
            if other != area and (other or "/" not in target):
                edges[area, other] += 1
    known = {(a, b): count for (a, b), count in edges.items() if b in files}
    return Areas(dict(sorted(files.items())), dict(sorted(known.items())))


def _folder_at(path: str, depth: int) -> str:
    """Return the folder of ``path`` cut to ``depth`` names."""
    return "/".join(path.split("/")[:-1][:depth])


def _area_of(path: str, chosen: set[str]) -> str:
    folder = path.rpartition("/")[0]
    while folder and folder not in chosen:
        folder = folder.rpartition("/")[0]
    return folder
