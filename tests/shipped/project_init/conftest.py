"""Small projects, written for each test, and the four steps of `project_init` over one of them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from activities.project_init.detect import Structure, detect, read_structure
from activities.project_init.files import SourceTree, check_output, survey
from activities.project_init.knowledge import build_index, verify
from activities.project_init.pages import plan_roadmap, write_documents
from activities.project_init.records import Documents, KnowledgeIndex, RoadmapItem, TechStack, Verification

Files = Mapping[str, str | bytes]


@dataclass(frozen=True)
class Run:
    """The results of a run before verification."""

    tree: SourceTree
    stack: TechStack
    structure: Structure
    documents: Documents
    index: KnowledgeIndex
    out: Path

    @property
    def roadmap(self) -> dict[str, RoadmapItem]:
        return {item.title: item for item in self.documents.roadmap}

    def page(self, name: str) -> str:
        return (self.out / name).read_text("utf-8")

    def verified(self) -> Verification:
        """Verify everything against the current files."""
        return verify(self.tree, self.stack, self.documents, self.index, self.out)


def write_files(folder: Path, files: Files) -> Path:
    """Write files below a new folder and return it."""
    folder.mkdir(parents=True, exist_ok=True)
    for path, content in files.items():
        place = folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content.encode() if isinstance(content, str) else content)
    return folder


def run_stages(source: Path, out: Path) -> Run:
    """Do the work of all stages but the last."""
    check_output(source, out)
    tree = survey(source)
    stack, structure = detect(tree), read_structure(tree)
    documents = write_documents(tree, stack, structure, plan_roadmap(tree, stack, structure), out)
    return Run(tree, stack, structure, documents, build_index(tree, documents, out), out)


@pytest.fixture
def project(tmp_path: Path) -> Callable[[Files], Path]:
    """Return a function that writes a project into a new folder and returns it."""

    def write(files: Files) -> Path:
        return write_files(tmp_path / f"{len(list(tmp_path.iterdir()))}/project", files)

    return write


@pytest.fixture
def run(project: Callable[[Files], Path]) -> Callable[[Files], Run]:
    """Return a function that writes a project, runs the stages over it and returns what they made."""

    def done(files: Files) -> Run:
        folder = project(files)
        return run_stages(folder, folder.parent / "out")

    return done


@pytest.fixture
def stack_of(project: Callable[[Files], Path]) -> Callable[[Files], TechStack]:
    """Return a function that writes a project and returns what is detected in it."""
    return lambda files: detect(survey(project(files)))
