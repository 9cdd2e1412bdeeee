"""Small projects, written anew for each test, and the whole run of `project_init` over one of them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from activities.project_init.detect import detect
from activities.project_init.document import document
from activities.project_init.files import SourceTree, survey
from activities.project_init.knowledge import build_index
from activities.project_init.records import Documents, KnowledgeIndex, TechStack, Verification
from activities.project_init.store import prepare_output
from activities.project_init.verify import verify


@dataclass(frozen=True)
class Run:
    """Everything that one run of the four stages made."""

    tree: SourceTree
    stack: TechStack
    documents: Documents
    index: KnowledgeIndex
    out: Path

    def page(self, name: str) -> str:
        """Return a generated document."""
        return (self.out / name).read_text("utf-8")

    def verified(self) -> Verification:
        """Verify everything against the files as they are now."""
        return verify(self.tree, self.stack, self.documents, self.index, self.out)


def write_files(folder: Path, files: Mapping[str, str | bytes]) -> Path:
    """Write files below a folder, which is made, and return it."""
    folder.mkdir(parents=True, exist_ok=True)
    for path, content in files.items():
        place = folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content.encode("utf-8") if isinstance(content, str) else content)
    return folder


def run_stages(source: Path, out: Path) -> Run:
    """Run all stages but the last."""
    place = prepare_output(source, out)
    tree = survey(source)
    stack = detect(tree)
    documents = document(tree, stack, place)
    return Run(tree, stack, documents, build_index(tree, documents, place), place)


@pytest.fixture
def project(tmp_path: Path) -> Callable[[Mapping[str, str | bytes]], Path]:
    """Return a function that writes a project and returns its folder."""
    return lambda files: write_files(tmp_path / "project", files)


@pytest.fixture
def run(tmp_path: Path) -> Callable[[Mapping[str, str | bytes]], Run]:
    """Return a function that writes a project, runs the stages over it and returns what they made."""
    return lambda files: run_stages(write_files(tmp_path / "project", files), tmp_path / "out")


@pytest.fixture
def stack_of(project: Callable[[Mapping[str, str | bytes]], Path]) -> Callable[[Mapping[str, str | bytes]], TechStack]:
    """Return a function that writes a project and returns what is detected in it."""
    return lambda files: detect(survey(project(files)))
