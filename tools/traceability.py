"""Write docs/traceability.md: each requirement of the source documents, what it asks, and the tests that prove it.

A test names the requirements that it proves in its docstring (`S3-6.1-k`, `C-12`). The sentence before the ids, without
them, is what the requirement asks in our words; where they stand alone it is the first one, or the test's name.

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
    """Yield the id of a requirement, the sentence that names it, what else tells of the test, and where that is."""
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        place = path.relative_to(ROOT / "tests").as_posix()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            text = " ".join((ast.get_docstring(node) or "").split())
            title = "" if isinstance(node, ast.Module) else node.name
            name = f"{place}::{title}" if title else place
            beside = sentence(text, 0) or title.removeprefix("test_").replace("_", " ")
            for found in ID.finditer(text):
                yield found[1], sentence(text, found.start()), beside, name


def sentence(text: str, at: int) -> str:
    """Return the sentence of a text in which a position lies, without requirement ids and the brackets around them."""
    start = max(text.rfind(end, 0, at) for end in (". ", "? ", "! ")) + 2 if ". " in text[:at] else 0
    rest = re.search(r"[.?!](?: |$)", text[at:])
    part = text[start : at + rest.end() if rest else len(text)]
    part = re.sub(r"\s*\([^()]*\)", lambda match: "" if ID.search(match[0]) else match[0], part)
    part = re.sub(r"^Proves [\s,and]*:\s*", "", ID.sub("", part))
    return part.strip(" .,;:").replace("|", "\\|")


def order(name: str) -> list[tuple[int, str]]:
    """Return a sort key that puts S3-6.2 before S3-10.1."""
    return [(int(part), "") if part.isdigit() else (0, part) for part in re.split(r"[-.]|(?<=\d)(?=b$)", name)]


def page() -> str:
    """Return the page as it should be."""
    rows: dict[str, tuple[list[str], str, list[str]]] = {}
    for name, text, beside, place in proofs():
        texts, _, places = rows.setdefault(name, ([], beside, []))
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
            texts, beside, places = rows[name]
            shown = ", ".join(f"`{place}`" for place in places[:3])
            more = f" and {len(places) - 3} more" if len(places) > 3 else ""
            parts.append(f"| {name} | {texts[0] if texts else beside} | {shown}{more} |\n")
    return "".join(parts)


def main() -> int:
    """Write the page, or say whether it is current."""
    wanted = page()
    if "--check" not in sys.argv:
        PAGE.write_text(wanted, encoding="utf-8")
        return 0
    current = PAGE.is_file() and PAGE.read_text(encoding="utf-8") == wanted
    if not current:
        print("docs/traceability.md is not current: run python tools/traceability.py", file=sys.stderr)
    return 0 if current else 1


if __name__ == "__main__":
    sys.exit(main())
