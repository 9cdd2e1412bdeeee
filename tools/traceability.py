"""Write docs/traceability.md: each requirement of the source documents, its text, and the tests that prove it.

A test names the requirements that it proves in its docstring (`S3-6.1-k`, `C-12`). The sentence with the ids, without
them, is the requirement in our words; if there are only ids, it is the first sentence, or the test's name.

    python tools/traceability.py          # write the page
    python tools/traceability.py --check  # exit 1 if the page is not current
"""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "traceability.md"
ID = re.compile(r"(?<![\w-])(S[1-5]-[A-Za-z0-9.]+-(?:[a-z]{1,2}|\d)|[CXG]\d?-\d+b?)(?![\w-])")
DOCUMENTS = {
    "S1": "The baton pattern (long text)",
    "S2": "The baton pattern (page)",
    "S3": "EAAPL-MAG006, the handoff protocol",
    "S4": "The agent-handoff report",
    "S5": "Handoff contracts",
    "C": "Contradictions and gaps that were resolved",
    "X": "Ideas from elsewhere",
    "G": "Golden vectors",
}
INTRO = """# Traceability

Each requirement of the source documents, what it asks, and the tests that prove it. `tools/traceability.py` writes this
page from the docstrings of the tests; a test keeps it current.
"""


def proofs() -> Iterator[tuple[str, str, str, str]]:
    """Yield the id of a requirement, the sentence that names it, a fallback text, and the test."""
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        path_in_tests = path.relative_to(ROOT / "tests").as_posix()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            text = " ".join((ast.get_docstring(node) or "").split())
            title = "" if isinstance(node, ast.Module) else node.name
            name = f"{path_in_tests}::{title}" if title else path_in_tests
            fallback = sentence(text, 0) or title.removeprefix("test_").replace("_", " ")
            for match in ID.finditer(text):
                yield match[1], sentence(text, match.start()), fallback, name


def sentence(text: str, position: int) -> str:
    """Return the sentence at a position of a text, without requirement ids and their brackets."""
    start = max(text.rfind(end, 0, position) for end in (". ", "? ", "! ")) + 2 if ". " in text[:position] else 0
    sentence_end = re.search(r"[.?!](?: |$)", text[position:])
    part = text[start : position + sentence_end.end() if sentence_end else len(text)]
    part = re.sub(r"\s*\([^()]*\)", lambda match: "" if ID.search(match[0]) else match[0], part)
    part = re.sub(r"^Proves [\s,and]*:\s*", "", ID.sub("", part))
    return part.strip(" .,;:").replace("|", "\\|")


def order(name: str) -> list[tuple[int, str]]:
    """Return a sort key that puts S3-6.2 before S3-10.1."""
    return [(int(part), "") if part.isdigit() else (0, part) for part in re.split(r"[-.]|(?<=\d)(?=b$)", name)]


def page() -> str:
    """Return the expected page."""
    rows: dict[str, tuple[list[str], str, list[str]]] = {}
    for name, text, fallback, place in proofs():
        texts, _, places = rows.setdefault(name, ([], fallback, []))
        if text:
            texts.append(text)
        if place not in places:
            places.append(place)
    parts = [INTRO]
    for prefix, title in DOCUMENTS.items():
        names = sorted((name for name in rows if name.startswith(prefix)), key=order)
        if not names:
            continue
        parts.append(f"\n## {title}\n\n| id | asks | proved by |\n|---|---|---|\n")
        for name in names:
            texts, fallback, places = rows[name]
            proofs_listed = ", ".join(f"`{place}`" for place in places[:3])
            omitted = f" and {len(places) - 3} more" if len(places) > 3 else ""
            parts.append(f"| {name} | {texts[0] if texts else fallback} | {proofs_listed}{omitted} |\n")
    return "".join(parts)


def main() -> int:
    """Write the page, or say whether it is current."""
    expected = page()
    if "--check" not in sys.argv:
        PAGE.write_text(expected, encoding="utf-8")
        return 0
    current = PAGE.is_file() and PAGE.read_text(encoding="utf-8") == expected
    if not current:
        print("docs/traceability.md is not current: run python tools/traceability.py", file=sys.stderr)
    return 0 if current else 1


if __name__ == "__main__":
    sys.exit(main())
