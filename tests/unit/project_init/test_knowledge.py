"""The index: how texts are cut, what is found, and that any question is a valid one."""

import json
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue

from activities.project_init.chunks import LONGEST, OVERLAP, WINDOW, cut, digest
from activities.project_init.knowledge import build_index, in_words
from activities.project_init.records import ProjectError
from activities.project_init.search import query
from activities.project_init.stages import build_knowledge, detect_tech_stack, generate_docs
from baton import Baton, BatonPatch, StageContext
from tests.unit.project_init.conftest import Run, run_stages, write_files
from tests.unit.project_init.projects import PYTHON

RunOf = Callable[[Mapping[str, str | bytes]], Run]


def notebook_cell(source: str, picture: str = "") -> dict[str, Any]:
    """Return a cell as Jupyter writes it."""
    outputs = [{"data": {"image/png": picture}, "output_type": "display_data"}] if picture else []
    return {"cell_type": "code", "outputs": outputs, "source": source.splitlines(keepends=True)}


def notebook(*cells: dict[str, Any]) -> str:
    """Return a notebook as Jupyter writes it."""
    return json.dumps({"cells": cells, "metadata": {}, "nbformat": 4}, indent=1)


class TestCut:
    """Chunks."""

    def test_cuts_markdown_at_headings(self) -> None:
        """A heading's chunk knows the headings above it; a hash in code is no heading."""
        text = "intro\n\n# A\n\n```\n# no\n```\n## B `c`\nx\n\nSetext\n------\ny\n# D\n"
        assert [(each.title, each.start, each.end) for each in cut("x/a.md", text)] == [
            ("a.md", 1, 1),
            ("A", 3, 7),
            ("A > B c", 8, 9),
            ("A > Setext", 11, 13),
            ("D", 14, 14),
        ]

    def test_cuts_python_at_definitions(self) -> None:
        """Functions and classes with their decorators, and what lies between."""
        text = "import a\n\n@x\ndef f():\n    pass\n\nY = 1\n\nclass C:\n    def m(self): ...\n"
        assert [(each.title, each.start, each.end) for each in cut("a.py", text)] == [
            ("a.py", 1, 1),
            ("def f", 3, 5),
            ("a.py", 7, 7),
            ("class C", 9, 10),
        ]

    def test_cuts_a_long_class_at_its_methods(self) -> None:
        """A method's title names its class."""
        method = "    def m{}(self):\n" + "        x = 1\n" * 60
        text = "class C:\n    '''Doc.'''\n\n" + "".join(method.format(number) for number in range(3))
        titles = [each.title for each in cut("a.py", text)]
        assert titles == ["class C", "def C.m0", "def C.m1", "def C.m2"]

    def test_cuts_the_rest_into_windows_that_overlap(self) -> None:
        """A text without known structure, and a definition that is too long."""
        text = "\n".join(f"line {number}" for number in range(1, 151))
        assert [(each.start, each.end) for each in cut("a.sql", text)] == [(1, 60), (51, 110), (101, 150)]
        long = "def f():\n" + "    x = 1\n" * LONGEST
        assert len(cut("a.py", long)) > 1

    def test_broken_python_is_cut_like_any_text(self) -> None:
        """A syntax error hides nothing from a search."""
        assert [(each.title, each.start) for each in cut("a.py", "def (\nx")] == [("a.py", 1)]

    def test_cuts_notebooks_at_their_cells(self) -> None:
        """A cell's source, whether it is written as lines or as one text; what it printed and drew is left out."""
        cells = [
            notebook_cell("# Prices"),
            notebook_cell("import pandas as pd\nprices = pd.read_csv('p.csv')", "QUJD" * 99),
        ]
        text = notebook(*cells, notebook_cell(""), cells[0] | {"source": "in one line"})
        chunks = cut("a.ipynb", text)
        assert [each.title for each in chunks] == ["cell 1", "cell 2", "cell 4"]
        assert [json.loads(f"[{each.text}]") for each in chunks[:2]] == [cells[0]["source"], cells[1]["source"]]
        assert "in one line" in chunks[2].text
        assert cut("a.ipynb", '{"cells": []}')[0].text == '{"cells": []}'

    @given(
        st.lists(st.sampled_from(["", "x", "# H", "def f():", "    y", "class C:", "```", "---"]), max_size=200),
        st.sampled_from(["a.md", "a.py", "a.txt"]),
    )
    def test_covers_every_line_that_is_not_blank(self, lines: list[str], name: str) -> None:
        """Each chunk is exactly the lines it names, and together they leave nothing out."""
        text = "\n".join(lines)
        chunks = cut(name, text)
        covered = {number for each in chunks for number in range(each.start, each.end + 1)}
        assert {number for number, line in enumerate(lines, 1) if line.strip()} <= covered
        assert all(each.text == "\n".join(lines[each.start - 1 : each.end]) for each in chunks)
        assert all(each.sha256 == digest(each.text) and each.tokens > 0 for each in chunks)
        assert all(each.end - each.start < max(WINDOW, LONGEST) for each in chunks)
        assert OVERLAP < WINDOW


class TestBuildIndex:
    """One file that holds everything that may be found (S1-ex-c)."""

    def test_counts_what_it_holds(self, run: RunOf) -> None:
        """Chunks, files and tokens are those in the file, and its meta data say so."""
        done = run(PYTHON)
        with closing(sqlite3.connect(done.out / done.index.path)) as connection:
            counted = connection.execute("SELECT count(*), sum(tokens) FROM chunks").fetchone()
            files = connection.execute("SELECT count(*) FROM files").fetchone()
            meta = dict(connection.execute("SELECT key, value FROM meta").fetchall())
            hashes = dict(connection.execute("SELECT path, sha256 FROM files WHERE origin = 'source'").fetchall())
        assert counted == (done.index.chunks, done.index.tokens)
        assert files == (done.index.files,)
        assert (meta["project"], meta["chunks"]) == ("project", str(done.index.chunks))
        assert hashes["src/shop/orders.py"] == done.tree.by_path["src/shop/orders.py"].sha256

    def test_names_what_it_leaves_out(self, run: RunOf) -> None:
        """Binary, generated, secret and endless things are counted, not indexed."""
        files: dict[str, str | bytes] = {
            "a.bin": b"\0",
            "uv.lock": "x",
            ".env": "KEY=1",
            "b.js": "y" * 10_000,
            "c.csv": "1,2\n" * 20_000,
            "d.py": "",
        }
        done = run(files)
        assert {each.reason: each.examples for each in done.index.left_out} == {
            "not indexed: binary": ("a.bin",),
            "not indexed: generated": ("uv.lock",),
            "not indexed: too long, unreadable, or may hold secrets": (".env",),
            "not indexed: lines of thousands of characters": ("b.js",),
            "not indexed: data over 64 KiB": ("c.csv",),
        }

    def test_a_notebook_is_found_by_what_its_author_wrote(self, run: RunOf) -> None:
        """Pictures in it are lines of thousands of characters, and keep nothing else out."""
        done = run({"prices.ipynb": notebook(notebook_cell("# Seasonal adjustment", "QUJD" * 50_000))})
        found = query(done.out / done.index.path, "seasonal adjustment")
        assert [(each.path, each.title) for each in found if each.origin == "source"] == [("prices.ipynb", "cell 1")]
        assert not done.index.left_out

    @pytest.mark.parametrize(
        ("files", "told"),
        [
            pytest.param(
                {"logo.png": b"\x89PNG\0", "mark.png": b"\x89PNG\0", "one.js": f"x = '{'a' * 9000}'\n"},
                "Left out of it: 3 files, for binary (2), lines of thousands of characters (1)",
                id="pictures and a long line",
            ),
            pytest.param({"a.py": "x = 1\n"}, "No file was left out", id="nothing"),
        ],
    )
    async def test_the_stage_tells_why_files_are_left_out(
        self, tmp_path: Path, files: Mapping[str, str | bytes], told: str
    ) -> None:
        """With the number for each reason; what is no text is not called so."""
        source = write_files(tmp_path / "project", files)
        params: dict[str, JsonValue] = {"source": str(source), "output": str(tmp_path / "out")}
        for each in (detect_tech_stack, generate_docs, build_knowledge):
            result = await each(StageContext.for_test(Baton(goal="Understand it"), params=params))
        assert isinstance(result.baton_patch, BatonPatch)
        assert result.baton_patch.current_state is not None
        assert result.baton_patch.current_state[-1] == told

    def test_stopping_leaves_no_half_index(self, run: RunOf) -> None:
        """After a stop the folder holds the old index and no scraps."""
        done = run(PYTHON)
        before = (done.out / done.index.path).read_bytes()

        def stop(_: str) -> None:
            raise InterruptedError

        with pytest.raises(InterruptedError):
            build_index(done.tree, done.documents, done.out, stop)
        assert (done.out / done.index.path).read_bytes() == before
        assert not [path for path in done.out.iterdir() if path.name.startswith(".indexing")]


class TestInWords:
    """Names in their parts."""

    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ("buildIndex", "buildIndex build Index"),
            ("HTTPServer2", "HTTPServer2 HTTP Server2"),
            ("build_index", "build_index"),
            ("plain", "plain"),
        ],
    )
    def test_camel_case_is_taken_apart(self, text: str, words: str) -> None:
        """The whole name stays, its parts are added; underscores are parted by the index itself."""
        assert in_words(text) == words


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Return the run over the Python project, made once."""
    folder = tmp_path_factory.mktemp("shop")
    return run_stages(write_files(folder / "project", PYTHON), folder / "out")


class TestQuery:
    """Asking."""

    @pytest.mark.parametrize(
        ("question", "path", "title"),
        [
            pytest.param("how do I run the tests", "COMMANDS.md", "Test", id="a question in words"),
            pytest.param("order book", "src/shop/orders.py", "class OrderBook", id="the parts of a camelCase name"),
            pytest.param("placing an order", "src/shop/orders.py", "def place", id="other forms of the words"),
            pytest.param("which licence", "PROJECT.md", "Licence", id="what a document says"),
            pytest.param("declined cards", "src/shop/payments.py", "def charge", id="a comment"),
        ],
    )
    def test_finds_the_lines_that_answer(self, shop: Run, question: str, path: str, title: str) -> None:
        """The first hits hold the place where one would have looked."""
        hits = query(shop.out / shop.index.path, question)
        assert any(hit.path == path and title in hit.title for hit in hits[:3]), hits

    def test_a_word_that_is_everywhere_counts_beside_a_rare_one(self, run: RunOf) -> None:
        """In a project with many tests "how do I run the tests" is not answered by what merely runs."""
        cases = "".join(f"def test_case_{number}():\n    test = {number}\n    assert test\n\n\n" for number in range(9))
        files = {f"tests/test_{number}.py": cases for number in range(30)}
        found = run({"pyproject.toml": "[project]\nname = 'a'\n[project.scripts]\na = 'a:main'\n", **files})
        best = query(found.out / found.index.path, "how do I run the tests")[0]
        assert (best.path, best.title) in {("PROJECT.md", "a > In short"), ("COMMANDS.md", "Commands of a > Test")}

    def test_a_hit_names_its_lines_and_shows_them(self, shop: Run) -> None:
        """Score, place and snippet; better hits first."""
        hits = query(shop.out / shop.index.path, "charge a card")
        assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
        best = hits[0]
        assert (best.origin, best.path, best.start, best.end) == ("source", "src/shop/payments.py", 6, 20)
        assert "def charge(name: str) -> int:" in best.snippet

    @pytest.mark.parametrize(
        "question",
        [
            "",
            "   ",
            '"',
            "'; DROP TABLE chunks; --",
            'a" OR "b',
            "NEAR(a b)",
            "title: x",
            "-a ^b *",
            "a AND NOT",
            "(((",
            "\0",
            "\ud800",
            "日本語",
            "x" * 100_000,
            "the of and",
        ],
    )
    def test_any_text_is_a_question(self, shop: Run, question: str) -> None:
        """Operators, quotes and nonsense find little, and break nothing."""
        assert isinstance(query(shop.out / shop.index.path, question), list)

    @given(st.text(max_size=60))
    def test_no_text_breaks_it(self, shop: Run, question: str) -> None:
        """Whatever is typed, there is an answer or none."""
        assert len(query(shop.out / shop.index.path, question, 3)) <= 3

    def test_words_that_do_not_occur_find_nothing(self, shop: Run) -> None:
        """No answer is better than a wrong one."""
        assert query(shop.out / shop.index.path, "xylophone") == []

    def test_asking_changes_nothing(self, shop: Run) -> None:
        """The index is opened for reading, and nothing appears beside it."""
        before = sorted((path.name, path.stat().st_mtime_ns) for path in shop.out.iterdir())
        query(shop.out / shop.index.path, "test")
        assert sorted((path.name, path.stat().st_mtime_ns) for path in shop.out.iterdir()) == before

    @pytest.mark.parametrize("limit", [0, -1, 101])
    def test_refuses_a_limit_out_of_range(self, shop: Run, limit: int) -> None:
        """A mistake of the caller is said at once."""
        with pytest.raises(ValueError, match="from 1 to 100"):
            query(shop.out / shop.index.path, "x", limit)

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            pytest.param(None, "there is no index", id="missing"),
            pytest.param(b"", "is no index", id="empty"),
            pytest.param(b"SQLite format 3\0garbage", "is no index", id="damaged"),
        ],
    )
    def test_refuses_what_is_no_index(self, tmp_path: Path, content: bytes | None, message: str) -> None:
        """The error names the stage to run."""
        place = tmp_path / "knowledge.sqlite3"
        if content is not None:
            place.write_bytes(content)
        with pytest.raises(ProjectError, match=message):
            query(place, "x")

    def test_refuses_an_index_of_another_version(self, shop: Run, tmp_path: Path) -> None:
        """Old tables are not read by new code."""
        place = tmp_path / "old.sqlite3"
        place.write_bytes((shop.out / shop.index.path).read_bytes())
        with closing(sqlite3.connect(place)) as connection:
            connection.execute("UPDATE meta SET value = '0' WHERE key = 'format'")
            connection.commit()
        with pytest.raises(ProjectError, match="another version"):
            query(place, "x")
