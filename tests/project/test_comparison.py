"""docs/comparison.md: the lines of each program are those that its file has."""

import ast
import io
import re
import tokenize
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAMS = (
    "examples/article.py",
    "benchmarks/peers/article_langgraph_functional.py",
    "benchmarks/peers/article_langgraph.py",
    "benchmarks/peers/article_dbos.py",
    "benchmarks/peers/article_temporal.py",
)


def code_lines(text: str) -> int:
    """Return how many lines of a program have code: no blank ones, comments and docstrings."""
    scopes = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    docstrings: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, scopes) and ast.get_docstring(node) is not None:
            docstrings |= set(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    silent = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in silent:
            lines |= set(range(token.start[0], token.end[0] + 1))
    return len(lines - docstrings)


def test_lines_of_code_are_counted() -> None:
    """A string over two lines counts twice, a docstring never."""
    assert code_lines('"""Doc."""\n\n# why\nx = """a\nb"""\n\n\ndef f():\n    """Doc."""\n    return x\n') == 4


@pytest.mark.parametrize("program", PROGRAMS)
def test_the_table_has_the_lines_of_each_program(program: str) -> None:
    """Counted alike."""
    page = (ROOT / "docs" / "comparison.md").read_text(encoding="utf-8")
    [row] = [line for line in page.splitlines() if line.startswith("|") and program in line]
    [found] = re.findall(r"\| (\d+) \|", row)

    assert int(found) == code_lines((ROOT / program).read_text(encoding="utf-8"))
