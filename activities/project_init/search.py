"""Asking the index: words in, the lines that answer best out. Any text is a valid question."""

import re
import sqlite3
from contextlib import closing
from pathlib import Path

from activities.project_init.knowledge import FORMAT, in_words
from activities.project_init.records import Hit, ProjectError

_COMMON_WORDS = """
a an and are as at be but by can could do does did for from had has have how i if in into is it its me my of on or our
should so some that the their them then there these they this to us was we what when where which who why will with
would you your
"""
_COMMON = frozenset(_COMMON_WORDS.split())
_MOST_WORDS = 32
_SNIPPET_LINES = 6
_SELECT = """
SELECT -bm25(words, ?, ?, ?) * CASE origin WHEN 'docs' THEN 1.25 ELSE 1 END
  * CASE WHEN chunks.id IN (SELECT rowid FROM words WHERE words MATCH ?) THEN 10 ELSE 1 END AS score,
  origin, chunks.path, chunks.title, start, end, text
FROM words JOIN chunks ON chunks.id = words.rowid WHERE words MATCH ? ORDER BY score DESC, chunks.id LIMIT ?
"""
_WEIGHTS = (6.0, 3.0, 1.0)  # a word in the title tells more than one in the path, and that more than one in the text


def query(index: Path, text: str, limit: int = 5) -> list[Hit]:
    """Return the chunks that match a question best, the best first.

    Words match by their stems ("tests" finds "testing"); more and rarer words in common are better (BM25), all of
    them best of all, however common one is in the project. Of equals a generated document is better than the source
    it was made from.
    Operators and quotes in the question are words like any other, or nothing.

    Args:
        index: The SQLite file that `build_index` wrote; it is opened for reading alone.
        text: The question.
        limit: Most hits to return, from 1 to 100.

    Returns:
        The hits; none where no word of the question occurs, or where it has no words.

    Raises:
        ProjectError: ``index`` is missing, or is no index of this version.
        ValueError: ``limit`` is out of range.
    """
    if not 1 <= limit <= 100:
        raise ValueError(f"limit is {limit}; it must be from 1 to 100")
    words = _words(text)
    with closing(open_index(index)) as connection:
        if not words:
            return []
        every, some = (joint.join(f'"{word}"' for word in words) for joint in (" AND ", " OR "))
        rows = connection.execute(_SELECT, (*_WEIGHTS, every, some, limit)).fetchall()
    return [_hit(row, words) for row in rows]


def open_index(index: Path) -> sqlite3.Connection:
    """Open an index for reading alone.

    Raises:
        ProjectError: It is missing, damaged, or of another version.
    """
    if not index.is_file():
        raise ProjectError(f"there is no index at {str(index)!r}; run stage build-knowledge first")
    try:
        connection = sqlite3.connect(f"{index.resolve().as_uri()}?mode=ro&immutable=1", uri=True)
        try:
            found = connection.execute("SELECT value FROM meta WHERE key = 'format'").fetchone()
        except sqlite3.Error:
            connection.close()
            raise
    except sqlite3.Error as error:
        raise ProjectError(f"{str(index)!r} is no index ({error}); run stage build-knowledge again") from error
    if found != (FORMAT,):
        connection.close()
        raise ProjectError(f"{str(index)!r} is an index of another version; run stage build-knowledge again")
    return connection


def _words(text: str) -> list[str]:
    """Return the words to look for: common ones are left out unless there are no others."""
    found = [word.lower() for word in re.findall(r"[^\W_]+", in_words(text[:10_000]))]
    telling = [word for word in found if word not in _COMMON]
    return list(dict.fromkeys(telling or found))[:_MOST_WORDS]


def _hit(row: tuple[float, str, str, str, int, int, str], words: list[str]) -> Hit:
    score, origin, path, title, start, end, text = row
    return Hit.model_validate(
        {
            "score": round(score, 3),
            "origin": origin,
            "path": path,
            "title": title,
            "start": start,
            "end": end,
            "snippet": _snippet(text, words),
        }
    )


def _snippet(text: str, words: list[str]) -> str:
    """Return the run of lines with most of the words in it, the earliest of equals."""
    lines = text.split("\n")
    stems = [word[: max(3, len(word) - 2)] for word in words]
    hits = [{stem for stem in stems if stem in line.lower()} for line in lines]
    best, start = -1, 0
    for at in range(max(1, len(lines) - _SNIPPET_LINES + 1)):
        found = len(set().union(*hits[at : at + _SNIPPET_LINES]))
        if found > best:
            best, start = found, at
    return "\n".join(line[:300] for line in lines[start : start + _SNIPPET_LINES]).strip("\n")
