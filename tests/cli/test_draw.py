"""`baton draw`: a picture of a pipeline from its code."""

import ast
import json
import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from textwrap import dedent
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner, Result

from baton.cli.app import make_app

ROOT = Path(__file__).parents[2]
SHIPPED = sorted(path for path in (ROOT / "workflows").glob("*.py") if path.name != "__init__.py")
HEAD = """
from datetime import timedelta
import asyncio
from baton import Compensations, Exchange, Outside, Pipeline, pipeline, stage
from stages import a, b, c, d
"""
MANY = "<br/>for each of pages, 3 at once"


def draw(*words: str) -> Result:
    return CliRunner().invoke(make_app(), ["draw", *words], env={"COLUMNS": "200"})


def edges(chart: str) -> set[tuple[str, str, str]]:
    """Return the edges of a Mermaid chart: the texts of both ends, and the label between them."""
    nodes = dict(re.findall(r'(?m)^  (\w+)[^\w\s"]+"(.*)"', chart))
    found = re.findall(r'(?m)^  (\w+) -\.?->(?:\|"(.*?)"\|)? (\w+)$', chart)
    return {(nodes[start], label, nodes[end]) for start, label, end in found}


def path(*texts: str) -> set[tuple[str, str, str]]:
    """Return the edges from each node to the next."""
    return {(start, "", end) for start, end in pairwise(texts)}


def drawn(tmp_path: Path, body: str, more: str = "") -> tuple[set[tuple[str, str, str]], str]:
    """Return the edges of a pipeline with this body, and what stderr says; both pictures are well-formed."""
    file = tmp_path / "flow.py"
    function = "@pipeline\nasync def flow(p: Pipeline) -> None:\n"
    body = "".join(f"    {line}\n" for line in dedent(body).strip().splitlines())
    file.write_text(f"{HEAD}{dedent(more)}\n{function}{body}", encoding="utf-8")
    result, as_svg = draw(str(file)), draw(str(file), "--svg")
    assert (result.exit_code, as_svg.exit_code) == (0, 0), result.output
    ElementTree.fromstring(as_svg.stdout)
    return edges(result.stdout), result.stderr


class TestCode:
    @pytest.mark.parametrize(
        ("body", "expected"),
        [
            pytest.param(
                'await p.stage(a)\nawait p.stage(b, name="digest page 7")',
                path("flow", "a", "digest page 7<br/>stage b", "result"),
                id="steps in order",
            ),
            pytest.param(
                "x = (await p.stage(a)).output\nif x:\n    await p.stage(b)\nawait p.stage(c)",
                {("flow", "", "a"), ("a", "", "x?"), ("x?", "yes", "b"), ("x?", "no", "c"), ("b", "", "c")}
                | {("c", "", "result")},
                id="a branch",
            ),
            pytest.param(
                "while True:\n    if (await p.stage(a)).output:\n        break\n    await p.stage(b)\nawait p.stage(c)",
                {("flow", "", "while True"), ("while True", "each", "a"), ("a", "", "(await p.stage(a)).output?")}
                | {("(await p.stage(a)).output?", "yes", "c"), ("(await p.stage(a)).output?", "no", "b")}
                | {("b", "again", "while True"), ("c", "", "result")},
                id="a loop",
            ),
            pytest.param(
                "await asyncio.gather(p.stage(a), p.stage(b))\nawait p.fan_out(c, d)",
                {("flow", "", "at once"), ("at once", "", "a"), ("at once", "", "b"), ("a", "", "fan out")}
                | {("b", "", "fan out"), ("fan out", "", "c"), ("fan out", "", "d"), ("c", "", "result")}
                | {("d", "", "result")},
                id="at once",
            ),
            pytest.param(
                'await p.map(a, pages, at_most=3, name="digest page")\nawait p.child(b, "Find it")\n'
                "await p.sleep(timedelta(hours=1))",
                path("flow", f"digest page{MANY}", "child: b", "sleep<br/>timedelta(hours=1)", "result"),
                id="a map, a child and a sleep",
            ),
            pytest.param(
                "try:\n    await p.stage(a)\nexcept StageFailedError:\n    return\nawait p.stage(b)",
                {("flow", "", "try"), ("try", "", "a"), ("try", "on StageFailedError", "result"), ("a", "", "b")}
                | {("b", "", "result")},
                id="a failure that is handled",
            ),
            pytest.param(
                "for each in (a, b):\n    await p.stage(each)",
                path("flow", "a", "b", "result"),
                id="a loop over stages",
            ),
            pytest.param(
                'await Outside(Exchange(p, agent="me")).hand_off("reviewer", "Review it")',
                path("flow", "hand off<br/>reviewer", "result"),
                id="a handoff to somebody outside",
            ),
            pytest.param(
                "async with Compensations(p) as undo:\n    undo.later(b)\n    await p.stage(a)",
                path("flow", "undo: b<br/>if later work fails", "a", "result"),
                id="a compensation",
            ),
        ],
    )
    def test_each_way_of_the_code_is_in_the_picture(
        self, tmp_path: Path, body: str, expected: set[tuple[str, str, str]]
    ) -> None:
        """And no other."""
        assert drawn(tmp_path, body)[0] == expected

    def test_functions_of_the_file_are_read_with_their_arguments(self, tmp_path: Path) -> None:
        """A return in one goes back to its caller."""
        more = """
            async def work(p: Pipeline, which) -> None:
                if await p.stage(which):
                    return
                await p.stage(b)
        """

        assert drawn(tmp_path, "await work(p, a)\nawait p.stage(c)", more)[0] == {
            *{("flow", "", "a"), ("a", "", "await p.stage(which)?"), ("await p.stage(which)?", "yes", "c")},
            *{("await p.stage(which)?", "no", "b"), ("b", "", "c"), ("c", "", "result")},
        }

    @pytest.mark.parametrize(
        ("body", "said"),
        [
            pytest.param("for s in p.params:\n    await p.stage(s)", "which stage 's' is", id="a stage"),
            pytest.param("await elsewhere(p)", "the steps of elsewhere() are in another file", id="another file"),
            pytest.param("await p.fan_out(*many)", "which stage 'many' is", id="branches"),
            pytest.param("await asyncio.gather(*calls)", "what *calls runs at once", id="calls"),
            pytest.param("if x:\n    await p.stage(a)", "which of several ways a run takes", id="a condition"),
            pytest.param("run = p.stage\nawait run(a)", "which steps p.stage leads to", id="a method by another name"),
            pytest.param(
                "await getattr(p, way)(a)", "which steps getattr(p, way)(a) leads to", id="a method by its name"
            ),
            pytest.param("await use({'of': p})", "which steps p leads to", id="the pipeline inside something"),
            pytest.param("await use(of=lambda: p.stage(a))", "which steps lambda: p.stage(a) leads to", id="a lambda"),
            pytest.param(
                "async def go():\n    await p.stage(a)\nawait use(go)", "which steps go leads to", id="a function"
            ),
            pytest.param("return", "no step of the pipeline can be seen", id="no step"),
        ],
    )
    def test_what_it_cannot_know_is_told(self, tmp_path: Path, body: str, said: str) -> None:
        """On stderr and in both pictures."""
        _, told = drawn(tmp_path, body)

        assert said in told
        assert said in draw(str(tmp_path / "flow.py"), "--svg").stdout
        assert said.replace("#", "#35;") in draw(str(tmp_path / "flow.py")).stdout

    def test_a_function_that_calls_itself_ends(self, tmp_path: Path) -> None:
        """And that is told."""
        more = "async def again(p: Pipeline) -> None:\n    await p.stage(a)\n    await again(p)\n"

        assert "again() calls itself" in drawn(tmp_path, "await again(p)", more)[1]

    def test_no_text_of_the_code_breaks_the_picture(self, tmp_path: Path) -> None:
        """Quotes, tags, brackets and control characters are data."""
        title = "Release]<script>\\u0007#quot;|x|`"
        found, _ = drawn(tmp_path, f"await p.approve('{title}\"; click', within=timedelta(days=2))")

        assert len(found) == 2
        assert not any("<script" in text for edge in found for text in edge)


class TestCommand:
    @pytest.mark.parametrize("file", SHIPPED, ids=lambda path: path.stem)
    def test_the_shipped_pipelines_are_drawn(self, file: Path) -> None:
        """With every stage that they import."""
        result, as_svg = draw(str(file)), draw(str(file), "--svg")
        imports = [node for node in ast.walk(ast.parse(file.read_bytes())) if isinstance(node, ast.ImportFrom)]
        names = [alias.name for node in imports for alias in node.names if (node.module or "").startswith("activities")]

        assert result.exit_code == as_svg.exit_code == 0
        stages = {name for name in names if name.islower()}
        assert stages
        assert stages <= set(re.findall(r'[": ]([a-z_]+)(?:"|<br)', result.stdout))
        ElementTree.fromstring(as_svg.stdout)

    @pytest.mark.parametrize("page", ["README.md", "docs/tutorial.md"])
    def test_the_pipelines_of_the_pages_are_drawn(self, tmp_path: Path, page: str) -> None:
        """Write, edit: the steps of the article."""
        text = (ROOT / page).read_text(encoding="utf-8")
        blocks = [block for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if "@pipeline" in block]
        for number, block in enumerate(blocks):
            file = tmp_path / f"page{number}.py"
            file.write_text(block, encoding="utf-8")
            result = draw(str(file))
            assert result.exit_code == 0, result.output
            expected = {name for name in ("write", "edit") if f"p.stage({name}" in block}
            assert expected <= set(re.findall(r'"(\w+)"', result.stdout))
        assert blocks

    def test_it_writes_a_file_in_the_form_of_its_name(self, tmp_path: Path) -> None:
        """And none over another."""
        code, picture = str(ROOT / "examples" / "article.py"), tmp_path / "article.svg"

        assert draw(code, "-o", str(picture)).exit_code == 0
        assert ElementTree.fromstring(picture.read_text(encoding="utf-8")).tag.endswith("svg")
        assert draw(code, "-o", str(picture)).exit_code == 2
        assert draw(code, "-o", str(picture), "--force").exit_code == 0
        told = json.loads(draw(code, "--json").stdout)
        assert (told["pipeline"], told["remarks"]) == ("article", [])

    def test_one_of_several_is_named(self) -> None:
        """By its type or by the name in the code."""
        code = str(ROOT / "examples" / "handoff.py")

        assert draw(f"{code}:risk").exit_code == 0
        assert "order" in draw(code).stderr
        assert draw(code).exit_code == 1
        assert draw(f"{ROOT / 'workflows' / 'delivery.py'}:Delivery").exit_code == 0

    @pytest.mark.parametrize(
        ("text", "why"), [("x = 1", "has no pipeline"), ("def (", "cannot be read as Python code")]
    )
    def test_what_has_no_pipeline_is_refused(self, tmp_path: Path, text: str, why: str) -> None:
        """As is a file that does not exist."""
        file = tmp_path / "flow.py"
        file.write_text(text, encoding="utf-8")

        assert why in draw(str(file)).stderr
        assert draw(str(tmp_path / "none.py")).exit_code == 1

    def test_it_runs_none_of_the_code(self, tmp_path: Path) -> None:
        """A file that would end the program is drawn."""
        file = tmp_path / "flow.py"
        file.write_text("raise SystemExit(7)\n@pipeline\nasync def f(p):\n    await p.stage(a)\n", encoding="utf-8")
        command = [sys.executable, "-m", "baton", "draw", str(file)]

        assert "flowchart TD" in subprocess.run(command, capture_output=True, text=True, check=True).stdout
