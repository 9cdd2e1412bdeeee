"""Stage build-knowledge: one SQLite file in which sources and documents can be found by words (S1 L75-77).

The index is full-text search with BM25 and word stems (FTS5, porter), no model: an answer can always be
traced to the lines it stands on. Names are indexed whole and in their parts, so that `buildIndex` and
`build_index` are both found by "build index".
"""

import hashlib
import json
import re
import sqlite3
import tempfile
from collections.abc import Iterator
from pathlib import Path

from activities.project_init.chunks import Chunk, cut, is_notebook
from activities.project_init.files import SourceTree, as_text
from activities.project_init.languages import kind_of, language_of_file
from activities.project_init.listing import Omissions, Progress
from activities.project_init.pages.agents import KNOWLEDGE_FILE
from activities.project_init.records import Documents, KnowledgeIndex, SourceFile
from activities.project_init.roles import role_of
from activities.project_init.store import prepare_output, write_bytes

FORMAT = "1"
"""Version of the tables below; a reader refuses an index of another one."""

_SCHEMA = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE files (
  origin TEXT NOT NULL, path TEXT NOT NULL, sha256 TEXT NOT NULL, PRIMARY KEY (origin, path)
) WITHOUT ROWID;
CREATE TABLE chunks (
  id INTEGER PRIMARY KEY, origin TEXT NOT NULL, path TEXT NOT NULL, title TEXT NOT NULL, start INTEGER NOT NULL,
  end INTEGER NOT NULL, sha256 TEXT NOT NULL, tokens INTEGER NOT NULL, text TEXT NOT NULL
);
CREATE VIRTUAL TABLE words USING fts5(title, path, body, content='', tokenize='porter unicode61 remove_diacritics 2');
"""
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_MOST_CHUNKS = 100_000
_MOST_CHARACTERS = 128 * 1024 * 1024
_LONGEST_DATA = 64 * 1024
_LONGEST_LINE = 5000


def build_index(tree: SourceTree, documents: Documents, out: Path, progress: Progress | None = None) -> KnowledgeIndex:
    """Cut the project's texts and the generated documents into chunks and index them in one SQLite file.

    Left out, and counted in the result: binary files and texts too long to analyse, files that may hold
    secrets, generated files, data files over 64 KiB, and texts with lines of thousands of characters. Of notebooks
    outputs and pictures are left out alone.

    Args:
        tree: The surveyed project.
        documents: What stage generate-docs wrote into ``out``.
        out: The output folder.
        progress: Called every hundred files; raising from it stops the work and leaves no half index.

    Returns:
        Where the index is, its digest and its size. The same files give the same bytes.

    Raises:
        ProjectError: ``out`` is no place to write to.
        OSError: A document cannot be read, or the disk refuses.
    """
    report = progress or (lambda _: None)
    place = prepare_output(tree.root, out)
    omissions = Omissions()
    with tempfile.TemporaryDirectory(prefix=".indexing-", dir=place) as workshop:
        file = Path(workshop) / "index.sqlite3"
        connection = sqlite3.connect(file)
        try:
            counts = _fill(connection, _texts(tree, documents, place, omissions, report), tree.listing.name, omissions)
        finally:
            connection.close()
        written = write_bytes(place, KNOWLEDGE_FILE, file.read_bytes())
    files, chunks, tokens = counts
    return KnowledgeIndex(
        path=written.path,
        sha256=written.sha256,
        chunks=chunks,
        files=files,
        tokens=tokens,
        left_out=omissions.result(),
    )


Text = tuple[str, str, str, str]
"""Origin, path, digest of the file's bytes, and the text."""


def _texts(tree: SourceTree, documents: Documents, out: Path, omissions: Omissions, report: Progress) -> Iterator[Text]:
    for document in documents.files:
        content = (out / document.path).read_bytes()
        yield "docs", document.path, hashlib.sha256(content).hexdigest(), as_text(content)
    for number, file in enumerate(tree.listing.files):
        if number % 100 == 0:
            report(f"indexing: {number} of {len(tree.listing.files)} files")
        reason = _reason_to_leave_out(tree, file)
        text = tree.text(file.path) if reason is None else None
        if text is not None and _has_long_lines(file.path, text):
            reason, text = "not indexed: lines of thousands of characters", None
        if text is not None and file.sha256 is not None:
            yield "source", file.path, file.sha256, text
        elif file.size > 0:
            omissions.add(reason or "not indexed: too long, unreadable, or may hold secrets", file.path)


def _has_long_lines(path: str, text: str) -> bool:
    """Return whether what would be indexed has lines that nobody wrote; a notebook's pictures are not indexed."""
    pieces = (part.text for part in cut(path, text)) if is_notebook(path) else [text]
    return any(len(line) > _LONGEST_LINE for piece in pieces for line in piece.split("\n"))


def _reason_to_leave_out(tree: SourceTree, file: SourceFile) -> str | None:
    if file.kind != "text":
        return f"not indexed: {file.kind}"
    if role_of(file.path) == "generated":
        return "not indexed: generated"
    language = language_of_file(tree, file)
    is_data = language is not None and kind_of(language) == "data"
    return "not indexed: data over 64 KiB" if is_data and file.size > _LONGEST_DATA else None


def _fill(
    connection: sqlite3.Connection, texts: Iterator[Text], name: str, omissions: Omissions
) -> tuple[int, int, int]:
    """Write everything in one transaction and return the number of files, chunks and tokens."""
    connection.executescript(f"PRAGMA page_size=4096; PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF; {_SCHEMA}")
    files = chunks = tokens = characters = 0
    for origin, path, sha256, text in texts:
        if chunks >= _MOST_CHUNKS or characters >= _MOST_CHARACTERS:
            omissions.add(f"not indexed: over the limit of {_MOST_CHUNKS} chunks or 128 million characters", path)
            continue
        characters += len(text)
        parts = cut(path, text)
        connection.execute("INSERT INTO files VALUES (?, ?, ?)", (origin, path, sha256))
        files += 1
        for part in parts:
            chunks += 1
            tokens += part.tokens
            _insert(connection, chunks, origin, part)
    left_out = json.dumps({each.reason: each.count for each in omissions.result()})
    meta = {"format": FORMAT, "project": name, "files": str(files), "chunks": str(chunks), "left_out": left_out}
    connection.executemany("INSERT INTO meta VALUES (?, ?)", sorted(meta.items()))
    connection.execute("INSERT INTO words(words) VALUES ('optimize')")
    connection.commit()
    connection.execute("VACUUM")
    return files, chunks, tokens


def _insert(connection: sqlite3.Connection, number: int, origin: str, part: Chunk) -> None:
    connection.execute(
        "INSERT INTO chunks VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (number, origin, part.path, part.title, part.start, part.end, part.sha256, part.tokens, part.text),
    )
    connection.execute(
        "INSERT INTO words(rowid, title, path, body) VALUES (?, ?, ?, ?)",
        (number, in_words(part.title), in_words(part.path), in_words(part.text)),
    )


def in_words(text: str) -> str:
    """Return a text with the parts of each camelCase name added behind it.

    Example:
        >>> in_words("call buildIndex()")
        'call buildIndex build Index()'
    """
    return re.sub(r"\w+", _with_parts, text)


def _with_parts(found: re.Match[str]) -> str:
    word = found[0]
    parts = _CAMEL.split(word)
    return word if len(parts) == 1 else " ".join([word, *parts])
