"""Stage generate-docs: writes the five documents of a project (S1 L71-74)."""

from pathlib import Path

from activities.project_init.files import SourceTree
from activities.project_init.listing import Progress
from activities.project_init.pages.agents import write_agents
from activities.project_init.pages.architecture import write_architecture
from activities.project_init.pages.commands import write_commands
from activities.project_init.pages.material import Material, way_to_source
from activities.project_init.pages.project import write_project
from activities.project_init.pages.roadmap import write_roadmap
from activities.project_init.records import Documents, TechStack
from activities.project_init.roadmap import derive_roadmap
from activities.project_init.store import prepare_output, write_bytes
from activities.project_init.structure import read_structure

_WRITERS = {
    "PROJECT.md": write_project,
    "ARCHITECTURE.md": write_architecture,
    "COMMANDS.md": write_commands,
    "ROADMAP.md": write_roadmap,
    "AGENTS.md": write_agents,
}


def document(tree: SourceTree, stack: TechStack, out: Path, progress: Progress | None = None) -> Documents:
    """Write what a newcomer needs to know into ``out``; the project itself is left alone.

    Args:
        tree: The surveyed project.
        stack: What stage detect-tech-stack found in it.
        out: The output folder. Links in the documents lead from there to the project.
        progress: Called regularly; raising from it stops the work.

    Returns:
        The files written, with their digests, and the roadmap. The same project and the same two places
        give the same bytes.

    Raises:
        ProjectError: ``out`` is no place to write to (see `prepare_output`).
    """
    report = progress or (lambda _: None)
    place = prepare_output(tree.root, out)
    structure = read_structure(tree, stack, report)
    roadmap = derive_roadmap(tree, stack, structure)
    material = Material(tree, stack, structure, roadmap, way_to_source(tree.root, place))
    written = []
    for name, writer in _WRITERS.items():
        report(f"writing {name}")
        written.append(write_bytes(place, name, writer(material).encode("utf-8")))
    return Documents(files=tuple(written), roadmap=roadmap)
