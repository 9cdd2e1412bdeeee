"""Stage build-knowledge: a full-text index of sources and documents in one SQLite file (FTS5 with BM25).

A chunk is a range of whole lines of one file, so that it can be checked against the file later. Names are indexed whole
and in parts: "build index" finds both `buildIndex` and `build_index`.
"""

import re
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from activities.project_init.files import KNOWLEDGE_FILE, Omissions, SourceTree, find_role, write_bytes
from activities.project_init.records import Documents, Hit, KnowledgeIndex, ProjectError
from activities.source_files import decode_text, language_of
from baton import estimate_tokens

WINDOW = 80
OVERLAP = 10
"""The most lines of a chunk; of a longer section or definition, neighbours share some."""

_SCHEMA = """
CREATE VIRTUAL TABLE chunks USING fts5(
  heading, words, origin UNINDEXED, path UNINDEXED, title UNINDEXED, start UNINDEXED, end UNINDEXED, text UNINDEXED,
  tokenize='porter unicode61 remove_diacritics 2'
)
"""
_SELECT = """
SELECT origin, path, title, start, end, text FROM chunks WHERE chunks MATCH ?
ORDER BY rowid IN (SELECT rowid FROM chunks WHERE chunks MATCH ?) DESC, bm25(chunks, 6.0, 1.0), rowid LIMIT ?
"""
_COMMON_WORDS = """
a an and are as at be but by can could do does for from had has have how i if in into is it its me my of on or our
should so that the their them then there these they this to was we what when where which who why will with you your
"""
_COMMON = frozenset(_COMMON_WORDS.split())
_CAMEL_CASE = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_MODIFIERS = r"(?:(?:export|default|pub(?:\(\w+\))?|async|abstract) )*"
_OPENING = re.compile(rf"#{{1,6}} +\S|{_MODIFIERS}(?:def|class|func|fn|function|interface|struct) ")
"""What opens a section of Markdown or a top-level definition."""
_MAX_CHUNKS = 100_000
_MAX_OPENINGS = 2_000
_MAX_DATA_BYTES = 64 * 1024
_MAX_LINE_LENGTH = 5_000
_SNIPPET_LINES = 6


@dataclass(frozen=True)
class Chunk:
    """A range of lines of one file, titled by the line that opens it or else by the file's name."""

    path: str
    title: str
    start: int
    end: int
    text: str


def split_into_chunks(path: str, text: str) -> list[Chunk]:
    """Split a text into chunks; every line that is not blank is in at least one."""
    lines = text.split("\n")
    starts = [number for number, line in enumerate(lines, 1) if _OPENING.match(line)][:_MAX_OPENINGS]
    ranges = [(1, (starts or [len(lines) + 1])[0] - 1, path.rpartition("/")[2])]
    for first, following in zip(starts, [*starts[1:], len(lines) + 1], strict=False):
        ranges.append((first, following - 1, lines[first - 1].strip("#: ")[:200]))
    return [
        Chunk(path, title, start, end, "\n".join(lines[start - 1 : end]))
        for first, last, title in ranges
        for start, end in _split_windows(lines, first, last)
    ]


def build_index(tree: SourceTree, documents: Documents, out: Path) -> KnowledgeIndex:
    """Index the chunks of the project's texts and the generated documents in one SQLite file.

    Omitted and counted are binary and generated files, files that are too long or may hold secrets, data over 64 KiB,
    and texts with lines of thousands of characters.
    """
    omissions = Omissions()
    with tempfile.TemporaryDirectory(prefix=".indexing-", dir=out) as folder:
        database = Path(folder) / "index.sqlite3"
        with closing(sqlite3.connect(database)) as connection:
            files, chunks, tokens = _fill_index(connection, _read_texts(tree, documents, out, omissions), omissions)
        written = write_bytes(out, KNOWLEDGE_FILE, database.read_bytes())
    return KnowledgeIndex(
        path=written.path, sha256=written.sha256, chunks=chunks, files=files, tokens=tokens, left_out=omissions.result()
    )


def query(index: Path, text: str, limit: int = 5) -> list[Hit]:
    """Return the best matching chunks, best first.

    Words match by stem; chunks with all words come first. Operators and quotes have no special meaning.
    """
    all_words = [word.lower() for word in re.findall(r"[^\W_]+", _split_names(text[:10_000]))]
    words = list(dict.fromkeys([word for word in all_words if word not in _COMMON] or all_words))[:32]
    with closing(open_index(index)) as connection:
        match_any, match_all = (operator.join(f'"{word}"' for word in words) for operator in (" OR ", " AND "))
        rows = connection.execute(_SELECT, (match_any, match_all, limit)).fetchall() if words else []
    return [
        Hit(origin=origin, path=path, title=title, start=start, end=end, snippet=_make_snippet(body, words))
        for origin, path, title, start, end, body in rows
    ]


def open_index(index: Path) -> sqlite3.Connection:
    """Open an index read-only."""
    if not index.is_file():
        raise ProjectError(f"there is no index at {str(index)!r}; run stage build-knowledge first")
    connection = sqlite3.connect(f"{index.resolve().as_uri()}?mode=ro&immutable=1", uri=True)
    try:
        connection.execute("SELECT 1 FROM chunks LIMIT 1")
    except sqlite3.Error as error:
        connection.close()
        raise ProjectError(f"{str(index)!r} is not an index ({error}); run stage build-knowledge again") from error
    return connection


def _split_windows(lines: list[str], first: int, last: int) -> Iterator[tuple[int, int]]:
    """Yield a range without blank edges, in windows if it is longer than one."""
    while first <= last and not lines[first - 1].strip():
        first += 1
    while last >= first and not lines[last - 1].strip():
        last -= 1
    while last - first >= WINDOW:
        yield first, first + WINDOW - 1
        first += WINDOW - OVERLAP
    if first <= last:
        yield first, last


Text = tuple[str, str, str]
"""Origin, path and text of a file."""


def _read_texts(tree: SourceTree, documents: Documents, out: Path, omissions: Omissions) -> Iterator[Text]:
    for document in documents.files:
        yield "docs", document.path, decode_text((out / document.path).read_bytes())
    for file in tree.listing.files:
        language = language_of(file.path)
        reason = "binary or unread" if file.kind != "text" else ""
        reason = reason or ("generated" if find_role(file.path) == "generated" else "")
        if language is not None and language[1] == "data" and file.size > _MAX_DATA_BYTES:
            reason = "data over 64 KiB"
        text = None if reason else tree.text(file.path)
        if text is not None and any(len(line) > _MAX_LINE_LENGTH for line in text.split("\n")):
            text, reason = None, "lines of thousands of characters"
        if text is None:
            omissions.add(f"not indexed: {reason or 'too long, unreadable, or may hold secrets'}", file.path)
        else:
            yield "source", file.path, text


def _fill_index(connection: sqlite3.Connection, texts: Iterator[Text], omissions: Omissions) -> tuple[int, int, int]:
    connection.execute(_SCHEMA)
    files = chunks = tokens = 0
    for origin, path, text in texts:
        if chunks >= _MAX_CHUNKS:
            omissions.add(f"not indexed: over the limit of {_MAX_CHUNKS} chunks", path)
            continue
        files += 1
        for chunk in split_into_chunks(path, text):
            chunks += 1
            tokens += estimate_tokens(chunk.text)
            searched = _split_names(f"{chunk.title} {path}"), _split_names(chunk.text)
            row = (*searched, origin, path, chunk.title, chunk.start, chunk.end, chunk.text)
            connection.execute("INSERT INTO chunks VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)
    connection.commit()
    return files, chunks, tokens


def _split_names(text: str) -> str:
    """Append the parts of each camelCase name to it."""

    def append_parts(match: re.Match[str]) -> str:
        parts = _CAMEL_CASE.split(match[0])
        return match[0] if len(parts) == 1 else " ".join([match[0], *parts])

    return re.sub(r"\w+", append_parts, text)


def _make_snippet(text: str, words: list[str]) -> str:
    lines = text.split("\n")
    stems = [word[: max(3, len(word) - 2)] for word in words]
    hits = [{stem for stem in stems if stem in line.lower()} for line in lines]
    starts = range(max(1, len(lines) - _SNIPPET_LINES + 1))
    best = max(starts, key=lambda start: (len(set().union(*hits[start : start + _SNIPPET_LINES])), -start))
    return "\n".join(line[:300] for line in lines[best : best + _SNIPPET_LINES]).strip("\n")
