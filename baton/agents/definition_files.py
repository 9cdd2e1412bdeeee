"""Agent definition files: Markdown whose front matter says who an agent is and how it answers (agent-handoff L203-209).

The front matter is YAML of the simple kind that such files have: names with a text, beside or below them, or a list
of texts. Whatever else YAML can say is refused with its line rather than read as something that its author did not
mean.
"""

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from baton.errors import BatonError

HANDOFF_STYLE = "agent-handoff"
"""The output style of agents that answer with a handoff report."""
MOST_BYTES = 1024 * 1024
"""So large a definition may be; it is somebody's prompt, not a data file."""

FrontMatter = dict[str, str | tuple[str, ...]]

_BREAK = re.compile(r"\r\n|\r|\n")
_KEY = re.compile(r"([A-Za-z_][A-Za-z0-9_-]*):(?:[ ]+(.*))?")
_ITEM = re.compile(r"([ ]*)-(?:[ ]+(.*))?")
_COMMENT = re.compile(r"(?:^|(?<=[ ]))#.*$")
_DOUBLE = re.compile(r'"((?:[^"\\]|\\.)*)"(.*)')
_SINGLE = re.compile(r"'((?:[^']|'')*)'(.*)")
_ESCAPES = {"n": "\n", "t": "\t", '"': '"', "\\": "\\", "/": "/"}
_ESCAPE = re.compile(r"\\(.)")
_BLOCK = re.compile(r"([|>])(-?)")
_FOLD = re.compile(r"\n+")
_ALL = "*"  # in the place of a tool's name: every tool
_JOINERS = "\u200c\u200d"  # of letters and of emojis
_NULLS = ("~", "null", "Null", "NULL")


class AgentFileError(BatonError):
    """An agent definition file cannot be read; the message has the file, the line and what to do."""


@dataclass(frozen=True)
class AgentDefinition:
    """Who an agent is.

    Attributes:
        name: Its name.
        description: What it is for.
        instructions: The text below the front matter, its prompt.
        output_style: How it answers, for example `agent-handoff`; empty for free text.
        model: Which model it runs on; empty for the default.
        tools: What it may use, or None if the file does not say, or says `"*"`: all that it is given.
        used_by: Who uses it, as style files have it.
        further: Members of the front matter that Baton gives no meaning.
    """

    name: str
    description: str = ""
    instructions: str = ""
    output_style: str = ""
    model: str = ""
    tools: tuple[str, ...] | None = None
    used_by: tuple[str, ...] = ()
    further: FrontMatter = field(default_factory=dict)

    @property
    def reports(self) -> bool:
        """Whether it answers with a handoff report (S4-int-a)."""
        return self.output_style == HANDOFF_STYLE


def read_agent_file(path: Path) -> AgentDefinition:
    r"""Return the agent that a file defines.

    Args:
        path: A Markdown file with front matter, UTF-8.

    Raises:
        AgentFileError: The file is missing, too large or not UTF-8, has no front matter or none that can be read,
            or names no agent.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = Path(folder, "explorer.md")
        ...     _ = file.write_text("---\nname: code-explorer\noutput_style: agent-handoff\n---\nExplore.")
        ...     read_agent_file(file).reports
        True
    """
    try:
        if path.stat().st_size > MOST_BYTES:
            raise AgentFileError(f"{path}: is larger than {MOST_BYTES:,} bytes; is this an agent definition?")
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise AgentFileError(f"{path}: is not UTF-8 at byte {error.start}; save it as UTF-8") from None
    except OSError as error:
        raise AgentFileError(f"{path}: cannot be read: {error.strerror}") from error
    return agent_definition(text, str(path))


def read_agent_files(folder: Path) -> list[AgentDefinition]:
    """Return the agents that the `*.md` files of a folder define, by file name.

    Raises:
        AgentFileError: The folder is missing, a file cannot be read, or two files define agents of one name.
    """
    if not folder.is_dir():
        raise AgentFileError(f"{folder}: is no folder; name the one with the agent definitions")
    found: dict[str, AgentDefinition] = {}
    for path in sorted(folder.glob("*.md")):
        agent = read_agent_file(path)
        if agent.name in found:
            raise AgentFileError(f"{path}: another file defines an agent {agent.name!r} already; rename one")
        found[agent.name] = agent
    return list(found.values())


def agent_definition(text: str, source: str = "agent definition") -> AgentDefinition:
    r"""Return the agent that a text defines.

    Args:
        text: Front matter between two lines `---`, and the instructions.
        source: What errors call it.

    Raises:
        AgentFileError: The front matter is missing or cannot be read, or names no agent.

    Example:
        >>> agent_definition("---\nname: tester\ntools: Read, Bash\n---\nTest it.").tools
        ('Read', 'Bash')
    """
    members, instructions = front_matter(text, source)
    known: dict[str, str] = {}
    for name in ("name", "description", "output_style", "model"):
        value = members.pop(name, "")
        if not isinstance(value, str):
            raise AgentFileError(f"{source}: {name!r} is a list; write one text")
        known[name] = value
    if not known["name"].strip():
        raise AgentFileError(f"{source}: the front matter names no agent; add a line 'name: …'")
    tools = _listed(members.pop("tools", _ALL))
    return AgentDefinition(
        **known,
        instructions=instructions,
        tools=None if _ALL in tools else tools,
        used_by=_listed(members.pop("used_by", ())),
        further=members,
    )


def front_matter(text: str, source: str = "text") -> tuple[FrontMatter, str]:
    r"""Return the members of a text's front matter, and the text below it.

    Args:
        text: What begins with a line `---`.
        source: What errors call it.

    Raises:
        AgentFileError: There is no front matter, it does not end, or it is more than names with texts and lists.

    Example:
        >>> front_matter("---\nname: agent-handoff\nused_by:\n  - all-agents\n---\n# Style")
        ({'name': 'agent-handoff', 'used_by': ('all-agents',)}, '# Style')
    """
    lines = _BREAK.split(text)
    if lines[0].rstrip() != "---":
        raise AgentFileError(f"{source}: line 1: has no front matter; begin with a line '---'")
    end = next((number for number, line in enumerate(lines[1:], 1) if line.rstrip() == "---"), None)
    if end is None:
        raise AgentFileError(f"{source}: line 1: the front matter does not end; close it with a line '---'")
    return _Reader(source, lines[:end]).members(), "\n".join(lines[end + 1 :]).strip("\n")


@dataclass(frozen=True)
class _Reader:
    """Reads the lines of a front matter, the first of which is the line that opens it."""

    source: str
    lines: Sequence[str]

    def members(self) -> FrontMatter:
        """Return the members by name."""
        found: FrontMatter = {}
        lists: dict[str, list[str]] = {}
        name, indent = "", None  # the member whose list may go on, and how far its items are indented
        below = 0  # behind the lines of the last text that stands below its name
        for number, line in enumerate(self.lines[1:], 1):
            if not _is_shown(line):
                raise self._error(number, "has a tab or another sign that is not printed; write blanks")
            if number < below or not _uncommented(line.rstrip()):
                continue
            key, item = _KEY.fullmatch(line.rstrip()), _ITEM.fullmatch(line.rstrip())
            if key:
                if key[1] in found:
                    raise self._error(number, f"names {key[1]!r} a second time; name it once")
                if block := _BLOCK.fullmatch(_uncommented(key[2] or "")):
                    below = self._end_of_block(number + 1)
                    found[key[1]] = self._block(number + 1, below, folded=block[1] == ">", broken=not block[2])
                    name, indent = "", None
                    continue
                found[key[1]] = self._value(number, key[2] or "")
                name, indent = "" if _uncommented(key[2] or "") else key[1], None
            elif item and name and indent in (None, len(item[1])):
                indent = len(item[1])
                lists.setdefault(name, []).append(self._text(number, item[2] or ""))
            else:
                raise self._error(number, "is neither 'name: text' nor an item '- text' of a list")
        return found | {name: tuple(items) for name, items in lists.items()}

    def _end_of_block(self, begin: int) -> int:
        """Return the index behind the lines that belong to a text below its name: the indented and the blank ones."""
        lines = enumerate(self.lines[begin:], begin)
        return next((number for number, line in lines if line.strip(" ") and line[0] != " "), len(self.lines))

    def _block(self, begin: int, end: int, *, folded: bool, broken: bool) -> str:
        """Return a text below its name, line by line or folded into paragraphs, with or without a break at its end."""
        if not any(line.strip(" ") for line in self.lines[begin:end]):
            return ""
        first = self.lines[begin]
        indent = len(first) - len(first.lstrip(" "))
        if not first.strip(" "):
            raise self._error(begin, "is blank where a text begins; begin it right below its name")
        while len(self.lines[end - 1]) <= indent and not self.lines[end - 1].strip(" "):
            end -= 1
        found: list[str] = []
        for number, line in enumerate(self.lines[begin:end], begin):
            blank = not line.strip(" ")
            if not blank and line[:indent].strip(" "):
                raise self._error(number, f"is indented by less than the first line of its text, {indent}; indent it")
            if folded and line[indent : indent + 1] == " ":
                raise self._error(number, "is indented further than its text, which is folded; begin the text with '|'")
            found.append(line[indent:])
        text = _FOLD.sub(lambda match: match[0][1:] or " ", "\n".join(found)) if folded else "\n".join(found)
        return text + "\n" * broken

    def _value(self, number: int, text: str) -> str | tuple[str, ...]:
        """Return a text, or a list in brackets."""
        bare = _uncommented(text)
        if not bare.startswith("["):
            return self._text(number, text)
        if not bare.endswith("]"):
            raise self._error(number, "has a list that does not end on its line; close it with ']'")
        inner = bare[1:-1].strip()
        return tuple(self._text(number, one.strip(), inside="[]{},") for one in inner.split(",")) if inner else ()

    def _text(self, number: int, text: str, inside: str = "") -> str:
        """Return a text, plain or quoted, without a comment behind it."""
        quoted = (_DOUBLE if text.startswith('"') else _SINGLE).fullmatch(text)
        if quoted:
            if _uncommented(quoted[2]):
                raise self._error(number, "goes on behind a quoted text; quote the whole text")
            return self._unescaped(number, quoted[1]) if text.startswith('"') else quoted[1].replace("''", "'")
        plain = _uncommented(text)
        if plain[:1] in tuple("\"'&*!|>%@`{}[],") or plain[:2] in ("? ", "- ", ": ") or plain in ("?", "-", ":"):
            raise self._error(number, f"has a value that begins with {plain[:1]!r}; put it in double quotes")
        if plain in _NULLS:
            raise self._error(number, f"has {plain}, which is no value; leave it out, or put it in double quotes")
        if ": " in plain or plain.endswith(":") or any(sign in plain for sign in inside):
            raise self._error(number, "has a value that YAML reads as something else; put it in double quotes")
        return plain

    def _unescaped(self, number: int, text: str) -> str:
        """Return what a text in double quotes says."""
        unknown = [sign for sign in _ESCAPE.findall(text) if sign not in _ESCAPES]
        if unknown:
            raise self._error(number, f"has the escape '\\{unknown[0]}', which is not read here; write the sign itself")
        return _ESCAPE.sub(lambda match: _ESCAPES[match[1]], text)

    def _error(self, number: int, what: str) -> AgentFileError:
        """Return the error for a line, by its index."""
        return AgentFileError(f"{self.source}: line {number + 1}: {what}")


def _is_shown(line: str) -> bool:
    """Return whether every sign of a line is to be seen, wide blanks and joiners among them."""
    return line.isprintable() or all(
        sign.isprintable() or sign in _JOINERS or unicodedata.category(sign) == "Zs" for sign in line
    )


def _uncommented(text: str) -> str:
    """Return a text without the comment behind it; in one pass, however many blanks there are."""
    return _COMMENT.sub("", text).rstrip(" ")


def _listed(value: str | tuple[str, ...]) -> tuple[str, ...]:
    """Return a list, given as one or as a text with commas."""
    parts = value.split(",") if isinstance(value, str) else value
    return tuple(part.strip() for part in parts if part.strip())
