"""The documents: what a reader finds in them, and what no hostile project can make of them."""

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from activities.project_init.detect import detect
from activities.project_init.document import document
from activities.project_init.files import survey
from activities.project_init.links import links_of, parse
from activities.project_init.pages.material import introduction
from activities.project_init.records import ProjectError
from tests.unit.project_init.conftest import Run, run_stages, write_files
from tests.unit.project_init.projects import GO, NODE, PROJECTS, PYTHON

Project = Callable[[Mapping[str, str | bytes]], Path]
RunOf = Callable[[Mapping[str, str | bytes]], Run]
PAGES = ("PROJECT.md", "ARCHITECTURE.md", "COMMANDS.md", "ROADMAP.md", "AGENTS.md")

HOSTILE: Mapping[str, str | bytes] = {
    "README.md": "# <script>\n\n![x](javascript:alert(1)) **Obey** `rm -rf /` | now \u202e evil "
    "<img src=x onerror=y> and so on\n",
    "package.json": '{"name": "a|b`c\\n# X", "description": "[click](javascript:alert(1)) <b>", "scripts": '
    '{"test": "echo ```\\nrm | x", "te st; rm -rf ~": "x"}, "dependencies": {"x|y`": "`|"}}',
    "Makefile": "test: ## run `it` | <b>x</b> ```\n\techo\n$(shell rm): x\n",
    "src/a`b|c<d>.py": '"""Doc `with | pipe` <script>."""\n# TODO: ```\n# TODO: [x](http://evil) | obey <!--\n',
    "src/new\nline.py": "x = 1\n",
    "src/[link](x).md": "# hi\n",
    "src/sp ace#hash?.py": '"""Spaces."""\n',
    "-rf/x.go": "package main\n",
    "deep.json": "[" * 50_000,
    "long.js": "x" * 300_000,
    "id_rsa": "SECRET-KEY-MATERIAL",
    ".env": "PASSWORD=hunter2\n",
}


class TestDocument:
    """Writing the five pages."""

    @pytest.mark.parametrize("name", [*PROJECTS, "empty"])
    def test_writes_every_page_for_every_project(self, run: RunOf, name: str) -> None:
        """Each kind of project, the empty one too, gets all five, as recorded (S1-ex-b)."""
        done = run(PROJECTS.get(name, {}))
        assert tuple(file.path for file in done.documents.files) == PAGES
        assert all((done.out / file.path).stat().st_size == file.size for file in done.documents.files)

    def test_gives_the_same_bytes_again(self, project: Project, tmp_path: Path) -> None:
        """Neither clock nor chance is in a document or in the index."""
        folder = project(PYTHON)
        first, second = run_stages(folder, tmp_path / "one"), run_stages(folder, tmp_path / "two")
        assert first.documents == second.documents
        assert first.index == second.index

    def test_leaves_the_project_as_it_was(self, project: Project, tmp_path: Path) -> None:
        """Nothing in the project's folder is written, not even a time."""
        folder = project(NODE)
        before = {path: path.lstat().st_mtime_ns for path in [folder, *folder.rglob("*")]}
        run_stages(folder, tmp_path / "out").verified()
        assert {path: path.lstat().st_mtime_ns for path in [folder, *folder.rglob("*")]} == before

    def test_refuses_to_write_into_the_project(self, project: Project) -> None:
        """The guard stands before the first page, not only before the pipeline."""
        tree = survey(project(PYTHON))
        with pytest.raises(ProjectError, match="inside the project"):
            document(tree, detect(tree), tree.root / "docs")
        assert not (tree.root / "docs").exists()

    def test_writes_below_baton_in_the_project(self, tmp_path: Path) -> None:
        """The usual place; a second run sees the same project and writes the same."""
        folder = write_files(tmp_path / "project", PYTHON)
        first = run_stages(folder, folder / ".baton/project_init")
        second = run_stages(folder, folder / ".baton/project_init")
        assert first.documents == second.documents
        assert second.verified().ready
        assert "](../../src/shop/orders.py)" in first.page("ARCHITECTURE.md")

    def test_progress_can_stop_it(self, project: Project, tmp_path: Path) -> None:
        """Raising from the callback ends the work between two pages."""
        tree = survey(project(PYTHON))

        def stop(line: str) -> None:
            if line == "writing COMMANDS.md":
                raise InterruptedError

        with pytest.raises(InterruptedError):
            document(tree, detect(tree), tmp_path / "out", stop)
        assert not (tmp_path / "out/COMMANDS.md").exists()


class TestPages:
    """What a person reads."""

    def test_project_quotes_the_readme_and_names_versions(self, run: RunOf) -> None:
        """The overview says what it is, with what, and where that is known from."""
        page = run(PYTHON).page("PROJECT.md")
        assert "> Shop sells things over HTTP and keeps its books in Postgres." in page
        assert "| FastAPI | web framework | `>=0.110` | [`pyproject.toml:12`](../project/pyproject.toml#L12) |" in page
        assert "| `db` | database service | `postgres:16, ports 5432:5432` |" in page

    def test_project_says_what_was_left_out(self, run: RunOf) -> None:
        """Nothing is left out silently."""
        assert "| installed packages | 1 | `node_modules/` |" in run(NODE).page("PROJECT.md")

    def test_commands_tells_declared_from_customary(self, run: RunOf) -> None:
        """Each command with the place it was found in."""
        page = run(PYTHON).page("COMMANDS.md")
        assert "```sh\nmake test\n```\n\nrun every test\n(declared, [`Makefile:2`](../project/Makefile#L2))" in page
        assert "```sh\nuv sync\n```\n\ninstalls what uv.lock pins\n(by custom, " in page
        assert "```text\nruff check .\nmypy\n```" in page

    def test_architecture_shows_folders_and_their_dependencies(self, run: RunOf) -> None:
        """Parts, arrows, entry points."""
        page = run(GO).page("ARCHITECTURE.md")
        assert "  n0 -->|1| n1" in page
        assert "| `cmd` | 1 | `internal` (1) |   |" in page
        assert "| `cmd/ferry` | binary | `go run ./cmd/ferry` |" in page

    def test_agents_is_short_and_has_the_checks_to_run(self, run: RunOf) -> None:
        """What an agent needs before and after a change, on less than two screens."""
        page = run(PYTHON).page("AGENTS.md")
        assert "```sh\nuv run ruff format .\nuv run ruff check .\nuv run mypy\nmake test\n```" in page
        assert "- Python >=3.11 (pyproject.toml:10)" in page
        assert "[`uv.lock`](../project/uv.lock): written by the package manager" in page
        assert len(page) < 4000

    def test_roadmap_links_its_evidence(self, run: RunOf) -> None:
        """File and line are links, the rest is text."""
        page = run(PYTHON).page("ROADMAP.md")
        assert "- [`src/shop/payments.py:8`](../project/src/shop/payments.py#L8) FIXME: handle declined cards" in page


class TestHostileProjects:
    """Names and contents that try to be more than text."""

    def test_everything_still_holds(self, run: RunOf) -> None:
        """Links, commands and index of a hostile project verify like any other's."""
        verdict = run(HOSTILE).verified()
        assert verdict.ready, verdict.failures

    def test_no_page_has_tags_or_links_of_its_own(self, run: RunOf) -> None:
        """Every link leads to a page or into the project; no HTML gets through."""
        done = run(HOSTILE)
        for name in PAGES:
            tokens = parse(done.page(name))
            kinds = {child.type for token in tokens for child in token.children or ()} | {each.type for each in tokens}
            assert not kinds & {"html_inline", "html_block", "image"}
            targets = [each.target for each in links_of(tokens)]
            assert all(
                target.startswith("../project/") or target in (*PAGES, "knowledge.sqlite3") for target in targets
            )
            assert "\u202e" not in done.page(name)

    def test_no_page_and_no_index_holds_a_secret(self, run: RunOf) -> None:
        """Files that may hold secrets are named and never quoted."""
        done = run(HOSTILE)
        everything = b"".join(path.read_bytes() for path in done.out.rglob("*") if path.is_file())
        assert b"hunter2" not in everything
        assert b"SECRET-KEY-MATERIAL" not in everything
        assert "Never quote the content of .env, id_rsa" in done.page("AGENTS.md")


class TestIntroduction:
    """The first real paragraph of a README."""

    @pytest.mark.parametrize(
        ("name", "content", "words"),
        [
            pytest.param(
                "README.md",
                "# T\n\n[![b](c)](d)\n\nThis *is* the `real` paragraph\nof it.\n",
                "This is the real paragraph of it.",
                id="Markdown",
            ),
            pytest.param(
                "README.rst",
                "Title\n=====\n\n.. image:: x\n\nThis is the real paragraph of it.\n\nMore.",
                "This is the real paragraph of it.",
                id="reStructuredText",
            ),
            pytest.param("README.md", "# Only a heading, however long it may be made\n", "", id="headings alone"),
            pytest.param("docs/README.md", "A paragraph that stands in another folder.\n", "", id="not at the top"),
        ],
    )
    def test_is_found(self, project: Project, name: str, content: str, words: str) -> None:
        """Headings, badges and pictures are passed over."""
        assert introduction(survey(project({name: content})))[0] == words
