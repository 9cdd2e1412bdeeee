"""Careful readers of files that may be broken or hostile: each returns a result or raises `UnreadableError`.

JSON, TOML and Python go through the standard library, whose parsers raise a handful of exceptions of their
own; XML goes through expat with document types refused, so that no entity is ever defined or expanded.
"""

import ast
import json
import re
import tomllib
import warnings
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, cast
from xml.parsers import expat

_WORD = re.compile(r"[@\w./+-]+")
_QUOTED = re.compile(r"\"[^\"]*\"|'[^']*'")


class UnreadableError(ValueError):
    """A file is not what its name says; the message names the fault, never the content."""


def parse_json(text: str) -> Any:
    """Return the value of a JSON text; comments and trailing commas are accepted where plain JSON fails.

    Raises:
        UnreadableError: The text is not JSON.
    """
    try:
        return json.loads(text)
    except RecursionError:
        raise UnreadableError("nested too deeply") from None
    except ValueError as error:
        try:
            return json.loads(_without_comments(text))
        except (ValueError, RecursionError):
            raise UnreadableError(f"not JSON: {error}") from None


# Each part may end with the text, so that an unclosed one is passed over once and not tried again.
_JSON_PARTS = re.compile(r'"(?:[^"\\]|\\.|\\\Z)*+(?:"|\Z)|//[^\n]*|/\*.*?(?:\*/|\Z)', re.DOTALL)


def _without_comments(text: str) -> str:
    bare = _JSON_PARTS.sub(lambda part: part[0] if part[0].startswith('"') else " ", text)
    return re.sub(r",(\s*+[}\]])", r"\1", bare)


def parse_toml(text: str) -> dict[str, Any]:
    """Return the tables of a TOML text.

    Raises:
        UnreadableError: The text is not TOML.
    """
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise UnreadableError("nested too deeply") from None
    except ValueError as error:
        raise UnreadableError(f"not TOML: {error}") from None


def parse_python(text: str) -> ast.Module:
    """Return the syntax tree of a Python file; nothing of it is executed.

    Raises:
        UnreadableError: The text is not Python of this interpreter's version.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a file's doubtful escapes are not our concern
            return ast.parse(text)
    except SyntaxError as error:
        raise UnreadableError(f"not Python: {error.msg} (line {error.lineno})") from None
    except (ValueError, RecursionError, MemoryError):
        raise UnreadableError("not Python: nested too deeply, or not text") from None


@dataclass
class Element:
    """An XML element without namespaces; `line` is where it starts."""

    tag: str
    line: int
    attributes: dict[str, str] = field(default_factory=dict)
    children: list["Element"] = field(default_factory=list)
    text: str = ""

    def find(self, *path: str) -> "Element | None":
        """Return the first element below this one at ``path``, or None."""
        here: Element | None = self
        for tag in path:
            here = next((child for child in here.children if child.tag == tag), None) if here else None
        return here

    def value(self, *path: str) -> str:
        """Return the text of the element at ``path``, or "" where there is none."""
        found = self.find(*path)
        return found.text.strip() if found else ""

    def all(self, tag: str) -> Iterator["Element"]:
        """Yield every element named ``tag`` at any depth, in document order."""
        waiting = [self]
        while waiting:
            here = waiting.pop()
            if here.tag == tag:
                yield here
            waiting.extend(reversed(here.children))


def parse_xml(text: str) -> Element:
    """Return the root element of an XML text.

    Raises:
        UnreadableError: The text is not well-formed, or it declares a document type.
    """
    parser = expat.ParserCreate()
    parser.buffer_text = True
    stack: list[Element] = [Element("", 1)]

    def start(tag: str, attributes: dict[str, str]) -> None:
        element = Element(tag.rpartition(":")[2], parser.CurrentLineNumber, attributes)
        stack[-1].children.append(element)
        stack.append(element)

    def data(content: str) -> None:
        stack[-1].text += content

    def refuse(*_: object) -> None:
        raise UnreadableError("XML with a document type is refused")

    parser.StartElementHandler = start
    parser.EndElementHandler = lambda _: stack.pop()
    parser.CharacterDataHandler = data
    parser.StartDoctypeDeclHandler = refuse
    try:
        parser.Parse(text.encode("utf-8"), True)
    except expat.ExpatError as error:
        raise UnreadableError(f"not XML: {error}") from None
    return stack[0].children[0]


def table(value: Any, *path: str) -> dict[str, Any]:
    """Return the table at ``path`` in parsed JSON or TOML; an empty one where there is none.

    Example:
        >>> table({"tool": {"ruff": {"line-length": 100}}}, "tool", "ruff"), table({"tool": 3}, "tool", "ruff")
        ({'line-length': 100}, {})
    """
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return cast(dict[str, Any], value) if isinstance(value, dict) else {}


def strings(value: Any) -> list[str]:
    """Return the strings in a list of parsed JSON or TOML; an empty list where it is none.

    Example:
        >>> strings(["a", 1, "b"]), strings("a")
        (['a', 'b'], [])
    """
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []


def string(value: Any) -> str:
    """Return ``value`` on one line if it is a string, else ""."""
    return " ".join(value.split()) if isinstance(value, str) else ""


def line_of(found: re.Match[str] | None) -> int | None:
    """Return the line, from 1, on which a match of a whole text starts; None for no match.

    Example:
        >>> line_of(re.search("b", chr(10).join("abc")))
        2
    """
    return None if found is None else found.string.count("\n", 0, found.start()) + 1


class Lines:
    """Finds the line on which a key, a word or a quoted string stands, for evidence.

    Parsers of JSON and TOML give no positions, so it is looked up: its first occurrence at or after
    the given heading wins, else its first anywhere. Where it does not occur the answer is None, and the
    evidence names the file alone.

    Example:
        >>> lines = Lines(chr(10).join(["[project]", "name = 'app'", "[tool.app]", "name = 'other'"]))
        >>> lines.of("name"), lines.of("name", after="tool.app"), lines.of("version")
        (2, 4, None)
    """

    def __init__(self, text: str) -> None:
        self._words: dict[str, list[int]] = {}
        self._quoted: dict[str, list[int]] = {}
        for number, line in enumerate(text.split("\n"), 1):
            for word in set(_WORD.findall(line)):
                self._words.setdefault(word, []).append(number)
            for quoted in set(_QUOTED.findall(line)):
                self._quoted.setdefault(quoted[1:-1], []).append(number)

    def of(self, word: str, after: str | None = None) -> int | None:
        """Return the line, from 1, of ``word``; with ``after``, the first one from that word's line on."""
        return self._first(self._words.get(word), after)

    def of_quoted(self, text: str, after: str | None = None) -> int | None:
        """Return the line of a string that stands in quotes, as a whole, on one line."""
        return self._first(self._quoted.get(text), after)

    def _first(self, numbers: list[int] | None, after: str | None) -> int | None:
        if not numbers:
            return None
        start = self.of(after) or 0 if after is not None else 0
        at = bisect_left(numbers, start)
        return numbers[at] if at < len(numbers) else numbers[0]
