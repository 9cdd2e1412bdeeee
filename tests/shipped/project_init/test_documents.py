"""The documents, the index and the proof: what a reader finds, and what no hostile project can make of them."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from activities.pages import code, table, text
from activities.project_init.__main__ import main
from activities.project_init.files import MARK
from activities.project_init.knowledge import WINDOW, _check_evidence, query, split_into_chunks
from activities.project_init.pages import fence, parse, prose
from activities.project_init.records import Evidence, ProjectError, Verification
from tests.shipped.project_init.conftest import Files, Run, run_stages, write_files
from tests.shipped.project_init.projects import HOSTILE, PROJECTS, PYTHON

RunOf = Callable[[Files], Run]
PAGES = ("PROJECT.md", "ARCHITECTURE.md", "COMMANDS.md", "ROADMAP.md", "AGENTS.md")


@pytest.fixture
def shop(run: RunOf) -> Run:
    return run(PYTHON)


class TestPages:
    """The five documents (S1-ex-b)."""

    def test_every_project_gets_all_and_they_hold(self, run: RunOf) -> None:
        """Each kind of project, the empty and the hostile one too; what was written is true (S1-ex-b, S1-ex-d)."""
        for name, files in {**PROJECTS, "hostile": HOSTILE}.items():
            result = run(files)
            assert tuple(file.path for file in result.documents.files) == PAGES, name
            verified = result.verified()
            assert verified.failures == (), name
            assert Verification.model_validate_json(verified.model_dump_json()) == verified
            assert len(verified.checks) >= 14

    def test_the_same_project_gives_the_same_bytes_and_stays_as_it_is(self, tmp_path: Path) -> None:
        """Documents and index contain no time or randomness; the project's files keep their times."""
        folder = write_files(tmp_path / "project", PYTHON)
        times_before = {path: path.lstat().st_mtime_ns for path in [folder, *folder.rglob("*")]}
        first, second = run_stages(folder, tmp_path / "one"), run_stages(folder, tmp_path / "two")
        assert (first.documents, first.index) == (second.documents, second.index)
        assert {path: path.lstat().st_mtime_ns for path in [folder, *folder.rglob("*")]} == times_before
        inside = run_stages(folder, folder / ".baton/init")
        assert inside.tree.listing == first.tree.listing
        assert inside.verified().failures == ()

    def test_they_say_what_a_newcomer_needs(self, shop: Run) -> None:
        """Overview, commands, architecture and next steps, with links to the files."""
        project, commands, agents = (shop.page(name) for name in ("PROJECT.md", "COMMANDS.md", "AGENTS.md"))
        assert "| `fastapi` | `>=0.110` | runtime | [`pyproject.toml:12`](../project/pyproject.toml#L12) |" in project
        assert "```sh\nmake test\n```" in commands
        assert "| `make test` | run every test | declared, [`Makefile:2`](../project/Makefile#L2) |" in commands
        assert "```sh\nmake test\n```" in agents
        assert len(agents) < 4000
        architecture = shop.page("ARCHITECTURE.md")
        assert "| [`src/shop/orders.py`](../project/src/shop/orders.py) | 18 |" in architecture
        assert "- [`src/shop/payments.py:8`](../project/src/shop/payments.py#L8) FIXME: handle declined cards" in (
            shop.page("ROADMAP.md")
        )

    def test_nothing_hostile_gets_out_of_its_place(self, run: RunOf) -> None:
        """Every link leads to a page or into the project, no HTML gets through, and no secret is quoted."""
        result = run(HOSTILE)
        for name in PAGES:
            tokens = parse(result.page(name).removeprefix(MARK))
            kinds = {child.type for token in tokens for child in token.children or ()} | {
                token.type for token in tokens
            }
            assert not kinds & {"html_inline", "html_block", "image"}
            targets = [str(child.attrGet("href") or "") for token in tokens for child in token.children or ()]
            documents = (*PAGES, "knowledge.sqlite3")
            assert all(target.startswith("../project/") or target in documents for target in filter(None, targets))
            assert "\u202e" not in result.page(name)
        everything = b"".join(path.read_bytes() for path in result.out.rglob("*") if path.is_file())
        assert b"hunter2" not in everything
        assert b"SECRET-KEY-MATERIAL" not in everything
        assert "Never quote the content of .env, id_rsa" in result.page("AGENTS.md").replace("\\_", "_")


class TestMarkdown:
    @given(st.lists(st.text(max_size=60), min_size=1, max_size=4))
    def test_any_text_stays_in_its_cell_or_block(self, values: list[str]) -> None:
        """A table has the rows that it was given, and a block of code the lines."""
        rows = [(code(value), text(value), prose(value)) for value in values]
        tokens = parse(table(("A", "B", "C"), rows))
        assert sum(token.type == "tr_open" for token in tokens) == len(values) + 1
        assert not {child.type for token in tokens for child in token.children or ()} & {"link_open", "html_inline"}
        [block] = parse(fence(values, "sh"))
        assert (block.type, block.content.count("\n")) == ("fence", len(values))


class TestRoadmap:
    """Items with reason and evidence (S1-ex-b)."""

    def test_each_weakness_becomes_an_item(self, run: RunOf) -> None:
        """The evidence names the file; what is not wrong is not on the list."""
        result = run(
            {
                "a.py": "import b\n\n# TODO: later\n",
                "b.py": "import a\n",
                "c.py": "def (\n",
                "package.json": '{"dependencies": {"x": "*"}}',
                "id_rsa": "key",
                "tests/test_a.py": "import a\n\ndef test_a(): ...\n",
                "LICENSE": "MIT License\n",
            }
        )
        matches = {title: item.evidence for title, item in result.roadmap.items()}
        assert matches["Settle the notes in the code"] == ("a.py:3 TODO: later",)
        assert matches["Look at files that may hold secrets, by their names"] == ("id_rsa",)
        assert "No README was found at the top: what is the project for?" in matches["Answer the open questions"]

    def test_an_empty_project_starts_with_a_goal(self, run: RunOf) -> None:
        """There is work, though there are no files."""
        assert "What is to be built, and for whom?" in run({}).roadmap["Answer the open questions"].evidence


class TestKnowledge:
    """The full-text index (S1-ex-c)."""

    @given(st.lists(st.sampled_from(["", "x", "# A", "## B", "def f():", "    pass", "class C:"]), max_size=400))
    def test_chunks_cover_every_line(self, lines: list[str]) -> None:
        """Each chunk is exactly the lines it names, and together they leave nothing out."""
        for name in ("a.md", "a.py", "a.txt"):
            chunks = split_into_chunks(name, "\n".join(lines))
            covered = {number for chunk in chunks for number in range(chunk.start, chunk.end + 1)}
            assert {number for number, line in enumerate(lines, 1) if line.strip()} <= covered
            assert all(chunk.text == "\n".join(lines[chunk.start - 1 : chunk.end]) for chunk in chunks)
            assert all(chunk.end - chunk.start < WINDOW for chunk in chunks)

    def test_questions_find_the_lines_that_answer(self, shop: Run) -> None:
        """By words, their stems, and the parts of names; documents and sources together (S1-ex-c)."""
        for question, path, title in (
            ("how do I run the tests", "COMMANDS.md", "Test"),
            ("order book", "src/shop/orders.py", "class OrderBook"),
            ("placing an order", "src/shop/orders.py", "def place"),
            ("which licence", "PROJECT.md", "Licence"),
            ("declined cards", "src/shop/payments.py", "def charge"),
        ):
            hits = query(shop.out / shop.index.path, question)
            assert any(hit.path == path and title in hit.title for hit in hits[:3]), (question, hits)
        index = shop.out / shop.index.path
        for strange in ("", "???", '" OR NEAR(', "\0", "zzzzqqq"):
            assert query(index, strange) == []
        with pytest.raises(ProjectError, match="run stage build-knowledge first"):
            query(shop.out / "gone", "x")

    def test_what_is_left_out_is_counted(self, run: RunOf) -> None:
        """Binary, generated, secret and endless things."""
        result = run(
            {
                "a.bin": b"\0",
                "uv.lock": "x",
                ".env": "KEY=1",
                "b.js": "y" * 10_000,
                "c.csv": "1,2\n" * 20_000,
                "d.py": "x = 1\n",
            }
        )
        assert {omission.reason: omission.examples for omission in result.index.left_out} == {
            "not indexed: binary or unread": ("a.bin",),
            "not indexed: generated": ("uv.lock",),
            "not indexed: too long, unreadable, or may hold secrets": (".env",),
            "not indexed: lines of thousands of characters": ("b.js",),
            "not indexed: data over 64 KiB": ("c.csv",),
        }

    def test_the_command_line_asks_it(self, shop: Run, capsys: pytest.CaptureFixture[str]) -> None:
        """0 for an answer, 1 for none, 2 for a question that cannot be asked."""
        assert main(["query", str(shop.out), "order book"]) == 0
        assert "src/shop/orders.py:" in capsys.readouterr().out
        assert main(["query", str(shop.out), "zzzzqqq"]) == 1
        assert main(["query", str(shop.out / "gone"), "x"]) == 2


class TestVerify:
    """The proof (S1-ex-d)."""

    def test_each_lie_is_caught(self, run: RunOf) -> None:
        """One change is one failed check that says what was found (S1-ex-d)."""

        def edit(place: Path, old: str, new: str) -> None:
            content = place.read_text("utf-8")
            assert old in content
            place.write_text(content.replace(old, new), "utf-8")

        lies: list[tuple[Callable[[Run], object], str]] = [
            (lambda result: (result.tree.root / "src/shop/cli.py").write_text("x\n"), "source is unchanged"),
            (lambda result: (result.tree.root / "new.py").write_text("x\n"), "source is unchanged"),
            (lambda result: (result.tree.root / "uv.lock").unlink(), "source is unchanged"),
            (lambda result: (result.tree.root / "pyproject.toml").write_text("\n"), "evidence proves"),
            (lambda result: edit(result.out / "PROJECT.md", "shop", "shed"), "PROJECT.md is as written"),
            (lambda result: (result.out / "AGENTS.md").unlink(), "AGENTS.md is as written"),
            (
                lambda result: edit(result.out / "PROJECT.md", "](ROADMAP.md)", "](PLAN.md)"),
                "links of PROJECT.md resolve",
            ),
            (
                lambda result: edit(result.out / "COMMANDS.md", "Makefile#L2)", "Makefile#L200)"),
                "links of COMMANDS.md resolve",
            ),
            (lambda result: (result.out / "knowledge.sqlite3").unlink(), "index is as built"),
            (lambda result: (result.out / "knowledge.sqlite3").write_bytes(b"x"), "index opens"),
        ]
        for number, (lie, check) in enumerate(lies):
            result = run(PYTHON)
            lie(result)
            assert check in {failure.name for failure in result.verified().failures}, number

    def test_changes_within_the_index_are_caught(self, run: RunOf) -> None:
        """Whatever is changed inside shows, beside the digest of the file."""
        for statement, check in (
            ("UPDATE chunks SET text = 'x' WHERE path = 'src/shop/cli.py'", "index matches the files"),
            ("UPDATE chunks SET start = start + 1 WHERE rowid = 1", "index matches the files"),
            ("DELETE FROM chunks WHERE rowid = 3", "index matches the files"),
            ("UPDATE chunks SET heading = '', words = ''", "index answers"),
        ):
            result = run(PYTHON)
            with closing(sqlite3.connect(result.out / result.index.path)) as connection:
                connection.execute(statement)
                connection.commit()
            assert {check, "index is as built"} <= {failure.name for failure in result.verified().failures}

    def test_what_nothing_examined_is_named(self, run: RunOf) -> None:
        """That the documents hold says neither that commands work nor what is in other languages."""
        verified = run({"package.json": '{"scripts": {"test": "jest"}}', "a.ts": "x\n", "b.py": "x = 1\n"}).verified()
        assert verified.not_examined == (
            "whether the 2 commands work: none was run",
            "syntax and imports of Python, TypeScript",
        )

    def test_a_line_has_to_have_what_it_is_cited_for(self, run: RunOf) -> None:
        """A line that exists is not enough."""
        result = run({"package.json": '{"scripts": {\n"lint": "eslint",\n"test": "jest"}}'})
        command = next(item for item in result.stack.commands if item.purpose == "test" and item.evidence.line)
        wrong = command.model_copy(update={"evidence": Evidence(path="package.json", line=2)})
        check = _check_evidence(result.stack.model_copy(update={"commands": (wrong,)}), result.tree)
        assert (check.ok, check.message) == (False, "package.json:2 does not have 'test'")

    def test_of_many_faults_a_message_names_a_few(self, run: RunOf) -> None:
        """The rest is counted; a folder that is gone is an error."""
        result = run({f"f{number}.py": "x\n" for number in range(9)})
        for path in result.tree.by_path:
            (result.tree.root / path).unlink()
        assert result.verified().failures[0].message.endswith("; and 4 more")
        result.tree.root.rmdir()
        with pytest.raises(ProjectError, match="does not exist"):
            result.verified()
