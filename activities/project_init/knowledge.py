"""Stage build-knowledge: one SQLite file in which sources and documents are found by words (FTS5 with BM25).

A chunk is a run of whole lines of one file, so that everyone can check later that the file still has them. Names are
indexed whole and in their parts: `buildIndex` and `build_index` are both found by "build index".
"""

import ast
import hashlib
import re
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from markdown_it import MarkdownIt

from activities.project_init.detect import parse_python
from activities.project_init.files import Omissions, Progress, SourceTree, role_of, write_bytes
from activities.project_init.pages import KNOWLEDGE_FILE
from activities.project_init.records import Documents, Hit, KnowledgeIndex, ProjectError
from activities.source_files import decode_text, language_of
from baton import estimate_tokens

WINDOW = 60
"""Lines of a chunk of a text without known structure; neighbours share `OVERLAP` lines."""

OVERLAP = 10
MAX_LENGTH = 150
"""Lines from which on a section or definition is itself cut into windows."""

_SCHEMA = """
CREATE TABLE files (
  origin TEXT NOT NULL, path TEXT NOT NULL, sha256 TEXT NOT NULL, PRIMARY KEY (origin, path)
) WITHOUT ROWID;
CREATE TABLE chunks (
  id INTEGER PRIMARY KEY, origin TEXT NOT NULL, path TEXT NOT NULL, title TEXT NOT NULL, start INTEGER NOT NULL,
  end INTEGER NOT NULL, sha256 TEXT NOT NULL, text TEXT NOT NULL
);
CREATE VIRTUAL TABLE words USING fts5(title, path, body, content='', tokenize='porter unicode61 remove_diacritics 2');
"""
_SELECT = """
SELECT -bm25(words, 6.0, 3.0, 1.0) * CASE origin WHEN 'docs' THEN 1.25 ELSE 1 END
  * CASE WHEN chunks.id IN (SELECT rowid FROM words WHERE words MATCH ?) THEN 10 ELSE 1 END AS score,
  origin, chunks.path, chunks.title, start, end, text
FROM words JOIN chunks ON chunks.id = words.rowid WHERE words MATCH ? ORDER BY score DESC, chunks.id LIMIT ?
"""
_COMMON_WORDS = """
a an and are as at be but by can could do does for from had has have how i if in into is it its me my of on or our
should so that the their them then there these they this to was we what when where which who why will with you your
"""
_COMMON = frozenset(_COMMON_WORDS.split())
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_BLOCKS = MarkdownIt().disable("inline")
_MOST_CHUNKS = 100_000
_MOST_HEADINGS = 2_000
_LONGEST_DATA = 64 * 1024
_LONGEST_LINE = 5_000
_SNIPPET_LINES = 6


@dataclass(frozen=True)
class Chunk:
    """A run of lines of one file, under a heading or a definition, or the file's name."""

    path: str
    title: str
    start: int
    end: int
    text: str


def digest(text: str) -> str:
    """Return the SHA-256 of a text as UTF-8, in hexadecimal."""
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()


def cut(path: str, text: str) -> list[Chunk]:
    """Return the chunks of a text, in order; every line that is not blank is in at least one of them."""
    lines = text.split("\n")
    ranges = [(1, len(lines), "")]
    if path.lower().endswith((".md", ".markdown")):
        ranges = _sections(text, len(lines))
    elif path.endswith((".py", ".pyi")):
        ranges = _definitions(text, len(lines))
    return [
        Chunk(path, title or path.rpartition("/")[2], start, end, "\n".join(lines[start - 1 : end]))
        for first, last, title in ranges
        for start, end in _windows(lines, first, last, MAX_LENGTH if title else WINDOW)
    ]


def build_index(tree: SourceTree, documents: Documents, out: Path, progress: Progress | None = None) -> KnowledgeIndex:
    """Cut the project's texts and the generated documents into chunks and index them in one SQLite file.

    Left out, and counted: binary and generated files, files that are too long or may hold secrets, data over 64 KiB,
    and texts with lines of thousands of characters.
    """
    report, omissions = progress or (lambda _: None), Omissions()
    with tempfile.TemporaryDirectory(prefix=".indexing-", dir=out) as folder:
        file = Path(folder) / "index.sqlite3"
        with closing(sqlite3.connect(file)) as connection:
            files, chunks, tokens = _fill(connection, _texts(tree, documents, out, omissions, report), omissions)
        written = write_bytes(out, KNOWLEDGE_FILE, file.read_bytes())
    return KnowledgeIndex(
        path=written.path,
        sha256=written.sha256,
        chunks=chunks,
        files=files,
        tokens=tokens,
        left_out=omissions.result(),
    )


def query(index: Path, text: str, limit: int = 5) -> list[Hit]:
    """Return the chunks that answer a question best, the best first.

    Words match by their stems; a chunk with all of them comes first. Operators and quotes in the question are words.
    """
    if not 1 <= limit <= 100:
        raise ValueError(f"limit is {limit}; it must be from 1 to 100")
    found = [word.lower() for word in re.findall(r"[^\W_]+", _with_parts(text[:10_000]))]
    words = list(dict.fromkeys([word for word in found if word not in _COMMON] or found))[:32]
    with closing(open_index(index)) as connection:
        every, some = (joint.join(f'"{word}"' for word in words) for joint in (" AND ", " OR "))
        rows = connection.execute(_SELECT, (every, some, limit)).fetchall() if words else []
    return [
        Hit(
            score=round(score, 3),
            origin=origin,
            path=path,
            title=title,
            start=start,
            end=end,
            snippet=_snippet(body, words),
        )
        for score, origin, path, title, start, end, body in rows
    ]


def open_index(index: Path) -> sqlite3.Connection:
    """Open an index for reading only."""
    if not index.is_file():
        raise ProjectError(f"there is no index at {str(index)!r}; run stage build-knowledge first")
    connection = sqlite3.connect(f"{index.resolve().as_uri()}?mode=ro&immutable=1", uri=True)
    try:
        connection.execute("SELECT 1 FROM chunks, files, words LIMIT 1")
    except sqlite3.Error as error:
        connection.close()
        raise ProjectError(f"{str(index)!r} is not an index ({error}); run stage build-knowledge again") from error
    return connection


def _windows(lines: list[str], first: int, last: int, longest: int) -> Iterator[tuple[int, int]]:
    """Yield a range without its blank edges, cut into windows if it is longer than ``longest``."""
    while first <= last and not lines[first - 1].strip():
        first += 1
    while last >= first and not lines[last - 1].strip():
        last -= 1
    while last - first >= longest:
        yield first, first + WINDOW - 1
        first, longest = first + WINDOW - OVERLAP, WINDOW
    if first <= last:
        yield first, last


def _sections(text: str, count: int) -> list[tuple[int, int, str]]:
    """Return the lines of each section of a Markdown text, titled by the headings above it."""
    tokens = _BLOCKS.parse(text)  # blocks only: inline parsing takes the square of the number of brackets
    starts = [
        (token.map[0] + 1, int(token.tag[1]), " ".join(tokens[at + 1].content[:300].replace("`", "").split()))
        for at, token in enumerate(tokens)
        if token.type == "heading_open" and token.map and token.level == 0
    ]
    if len(starts) > _MOST_HEADINGS:
        return [(1, count, "")]
    above: list[tuple[int, str]] = []
    ranges = [(1, starts[0][0] - 1 if starts else count, "")]
    for (line, level, title), (after, _, _) in zip(starts, [*starts[1:], (count + 1, 0, "")], strict=False):
        above = [each for each in above if each[0] < level] + [(level, title)]
        ranges.append((line, after - 1, " > ".join(words for _, words in above if words)))
    return ranges


def _definitions(text: str, count: int) -> list[tuple[int, int, str]]:
    """Return the lines of each top-level definition of a Python text, and those between them."""
    try:
        body = parse_python(text).body
    except ValueError:
        return [(1, count, "")]
    ranges, at = [], 1
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            start, end = (
                min([node.lineno, *(one.lineno for one in node.decorator_list)]),
                node.end_lineno or node.lineno,
            )
            if start >= at:
                kind = "class" if isinstance(node, ast.ClassDef) else "def"
                ranges += [(at, start - 1, ""), (start, end, f"{kind} {node.name}")]
                at = end + 1
    return [*ranges, (at, count, "")]


Text = tuple[str, str, str, str]
"""Origin, path, digest of the file, and the text."""


def _texts(tree: SourceTree, documents: Documents, out: Path, omissions: Omissions, report: Progress) -> Iterator[Text]:
    for document in documents.files:
        yield "docs", document.path, document.sha256, decode_text((out / document.path).read_bytes())
    for number, file in enumerate(tree.listing.files):
        if number % 100 == 0:
            report(f"indexing: {number} of {len(tree.listing.files)} files")
        language = language_of(file.path)
        reason = "binary or unread" if file.kind != "text" else ""
        reason = reason or ("generated" if role_of(file.path) == "generated" else "")
        if language is not None and language[1] == "data" and file.size > _LONGEST_DATA:
            reason = "data over 64 KiB"
        text = None if reason else tree.text(file.path)
        if text is not None and any(len(line) > _LONGEST_LINE for line in text.split("\n")):
            text, reason = None, "lines of thousands of characters"
        if text is None or file.sha256 is None:
            omissions.add(f"not indexed: {reason or 'too long, unreadable, or may hold secrets'}", file.path)
        else:
            yield "source", file.path, file.sha256, text


def _fill(connection: sqlite3.Connection, texts: Iterator[Text], omissions: Omissions) -> tuple[int, int, int]:
    """Write everything in one transaction and return the number of files, chunks and tokens."""
    connection.executescript(f"PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF; {_SCHEMA}")
    files = chunks = tokens = 0
    for origin, path, sha256, text in texts:
        if chunks >= _MOST_CHUNKS:
            omissions.add(f"not indexed: over the limit of {_MOST_CHUNKS} chunks", path)
            continue
        connection.execute("INSERT INTO files VALUES (?, ?, ?)", (origin, path, sha256))
        files += 1
        for part in cut(path, text):
            chunks += 1
            tokens += estimate_tokens(part.text)
            row = (chunks, origin, path, part.title, part.start, part.end, digest(part.text), part.text)
            connection.execute("INSERT INTO chunks VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)
            words = (chunks, *map(_with_parts, (part.title, path, part.text)))
            connection.execute("INSERT INTO words(rowid, title, path, body) VALUES (?, ?, ?, ?)", words)
    connection.execute("INSERT INTO words(words) VALUES ('optimize')")
    connection.commit()
    connection.execute("VACUUM")
    return files, chunks, tokens


def _with_parts(text: str) -> str:
    """Return a text with the parts of each camelCase name behind it."""

    def spread(found: re.Match[str]) -> str:
        parts = _CAMEL.split(found[0])
        return found[0] if len(parts) == 1 else " ".join([found[0], *parts])

    return re.sub(r"\w+", spread, text)


def _snippet(text: str, words: list[str]) -> str:
    """Return the lines with the most of the words, the earliest if several are as good."""
    lines = text.split("\n")
    stems = [word[: max(3, len(word) - 2)] for word in words]
    hits = [{stem for stem in stems if stem in line.lower()} for line in lines]
    starts = range(max(1, len(lines) - _SNIPPET_LINES + 1))
    best = max(starts, key=lambda at: (len(set().union(*hits[at : at + _SNIPPET_LINES])), -at))
    return "\n".join(line[:300] for line in lines[best : best + _SNIPPET_LINES]).strip("\n")
