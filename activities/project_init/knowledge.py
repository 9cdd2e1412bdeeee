"""Stages build-knowledge and verify-ready: a full-text index of whole lines, and checks of all earlier results."""

import hashlib
import re
import shlex
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from activities.citations import Citation, find_unproved
from activities.project_init.files import KNOWLEDGE_FILE, PAGES, Omissions, SourceTree, find_role, survey, write_bytes
from activities.project_init.pages import broken_links
from activities.project_init.records import (
    Check,
    Documents,
    Evidence,
    Hit,
    KnowledgeIndex,
    ProjectError,
    TechStack,
    Verification,
)
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
    """Index the texts of the project and the generated documents in one SQLite file."""
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
    """Return the best matching chunks: by stems, those with all words first. Operators mean nothing."""
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


_MAX_NAMED = 5
"""The maximum number of faults in a message."""


def verify(tree: SourceTree, stack: TechStack, documents: Documents, index: KnowledgeIndex, out: Path) -> Verification:
    """Check the findings and files of the earlier stages."""
    current = survey(tree.root, tree.limits)
    checks = [_check_source(tree, current), _check_evidence(stack, current), *_check_documents(documents, out)]
    checks += _check_index(current, documents, index, out)
    return Verification(checks=tuple(checks), not_examined=tuple(_list_not_examined(stack)))


def _list_not_examined(stack: TechStack) -> Iterator[str]:
    """Yield what the documents say nothing about, because no stage looks at it."""
    if stack.commands:
        yield f"whether the {len(stack.commands)} commands work: none was run"
    names = [language.name for language in stack.languages if language.kind == "programming"]
    if names:
        yield f"syntax and imports of {', '.join(names[:_MAX_NAMED])}{', …' if len(names) > _MAX_NAMED else ''}"


def _make_check(name: str, faults: list[str], success: str) -> Check:
    omitted = f"; and {len(faults) - _MAX_NAMED} more" if len(faults) > _MAX_NAMED else ""
    return Check(name=name, ok=not faults, message="; ".join(faults[:_MAX_NAMED]) + omitted if faults else success)


def _check_source(detected: SourceTree, current: SourceTree) -> Check:
    faults = [f"{path!r} is gone" for path in detected.by_path if path not in current.by_path]
    faults += [f"{path!r} is new" for path in current.by_path if path not in detected.by_path]
    both = detected.by_path.keys() & current.by_path.keys()
    faults += [f"{path!r} has changed" for path in sorted(both) if detected.by_path[path] != current.by_path[path]]
    return _make_check("source is unchanged", faults, f"{len(both)} files have the hashes they had at detection")


def _check_evidence(stack: TechStack, current: SourceTree) -> Check:
    cited = [(command.evidence, shlex.split(command.line)[-1]) for command in stack.commands]
    dependencies = [dependency for manifest in stack.manifests for dependency in manifest.dependencies]
    cited += [(dependency.evidence, dependency.name) for dependency in dependencies]
    cited += [(Evidence(path=manifest.path), "") for manifest in stack.manifests]
    lines = {path: (current.text(path) or "").split("\n") for path in {evidence.path for evidence, _ in cited}}
    citations = [
        Citation(str(evidence), lines[evidence.path], evidence.line, word) for evidence, word in cited if evidence.line
    ]
    faults = [f"{str(evidence)!r} does not exist" for evidence, _ in cited if evidence.path not in current.by_path]
    faults += find_unproved(citations)
    return _make_check("evidence proves", faults, f"{len(citations)} lines have what they are cited for")


def _check_documents(documents: Documents, out: Path) -> Iterator[Check]:
    for file in documents.files:
        path = out / file.path
        try:
            digest_now = hashlib.sha256(path.read_bytes()).hexdigest()
        except OSError as error:
            yield _make_check(f"{file.path} is as written", [f"it cannot be read ({error.strerror})"], "")
            continue
        yield _check_digest(f"{file.path} is as written", digest_now, file.sha256)
        yield _make_check(f"links of {file.path} resolve", broken_links(path), "every relative link resolves")


def _check_digest(name: str, now: str, then: str) -> Check:
    faults = [f"its SHA-256 is {now[:12]}…, written was {then[:12]}…"] if now != then else []
    return _make_check(name, faults, f"SHA-256 {now[:12]}…")


def _check_index(current: SourceTree, documents: Documents, index: KnowledgeIndex, out: Path) -> Iterator[Check]:
    path = out / index.path
    try:
        yield _check_digest("index is as built", hashlib.sha256(path.read_bytes()).hexdigest(), index.sha256)
        with closing(open_index(path)) as connection:
            yield _check_chunks(connection, current, index, out)
        questions = [file.path.partition(".")[0] for file in documents.files]
        unanswered = [f"nothing answers {question!r}" for question in questions if not query(path, question, 1)]
        yield _make_check("index answers", unanswered, f"{len(questions)} questions were answered")
    except OSError as error:
        yield _make_check("index is as built", [f"it cannot be read ({error.strerror})"], "")
    except (ProjectError, sqlite3.Error) as error:
        yield _make_check("index opens", [str(error)], "")


def _check_chunks(connection: sqlite3.Connection, current: SourceTree, index: KnowledgeIndex, out: Path) -> Check:
    texts = {file: decode_text((out / file).read_bytes()).split("\n") for file in PAGES if (out / file).is_file()}
    faults: list[str] = []
    count, last, lines = 0, ("", ""), list[str]()
    rows = connection.execute("SELECT origin, path, start, end, text FROM chunks ORDER BY rowid")
    for count, (origin, path, start, end, content) in enumerate(rows, 1):  # noqa: B007 - the count is used
        if (origin, path) != last:
            last = origin, path
            lines = texts.get(path, []) if origin == "docs" else (current.text(path) or "").split("\n")
        if "\n".join(lines[start - 1 : end]) != content:
            faults.append(f"lines {start}-{end} of {path!r} differ from the index")
    if count != index.chunks:
        faults.append(f"it holds {count} chunks, built were {index.chunks}")
    return _make_check("index matches the files", faults, f"{count} chunks are in the files, word for word")
