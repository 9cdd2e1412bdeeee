"""A JSON Schema read by its members: where each stands, what it must be, and how to say so to a sender.

Whatever judged a message, the record or a compiled validator, it names the place and the sentence is made here, so
that every agent is told the same, and never a word of the message itself.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from baton.core.verdict import Code, Finding
from baton.wire.json_values import KINDS, json_kind

Path = Sequence[str | int]
"""Where a value stands: names of members and positions in lists, from the outside in."""


@dataclass(frozen=True)
class Member:
    """A named member of a schema, or the items of a list.

    Attributes:
        path: Its place, for example `toolCallHistory/*/tool`; `*` stands for the items of a list.
        node: Its own schema, with what a `$ref` refers to.
        required: Whether it must be there, if what it stands in is there.
    """

    path: str
    node: Mapping[str, Any]
    required: bool


def members(schema: Mapping[str, Any]) -> Iterator[Member]:
    """Yield every member that a schema names, from the outside in.

    Args:
        schema: A JSON Schema whose references all lead into its own `$defs`.

    Yields:
        Each member; one that refers to itself is not followed a second time.

    Example:
        >>> schema = {"properties": {"names": {"items": {"type": "string"}}}, "required": ["names"]}
        >>> [member.path for member in members(schema)]
        ['names', 'names/*']
    """
    definitions = schema.get("$defs", {})

    def walk(node: Mapping[str, Any], path: str, above: frozenset[str]) -> Iterator[Member]:
        inner = [(name, one, name in node.get("required", ())) for name, one in node.get("properties", {}).items()]
        if isinstance(items := node.get("items"), Mapping):
            inner.append(("*", items, False))
        for name, one, required in inner:
            reference = one.get("$ref", "").removeprefix("#/$defs/")
            whole = {**definitions.get(reference, {}), **one}
            yield Member(f"{path}{name}", whole, required)
            if reference not in above:
                yield from walk(whole, f"{path}{name}/", above | {reference} - {""})

    yield from walk(schema, "", frozenset())


class SchemaReader:
    """Puts a fault in a message into a sentence, out of what the schema says of the place.

    Args:
        schema: The JSON Schema that the message was judged by.

    Example:
        >>> reader = SchemaReader({"properties": {"count": {"type": "integer", "minimum": 0}}})
        >>> reader.finding({"count": "4200"}, ["count"]).text
        "'/count' must be a whole number, at least 0; found a text"
        >>> reader.finding({}, ["count"]).text
        "'/count' is missing; send it"
    """

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._members = {member.path: member.node for member in members(schema)}

    def finding(self, message: Any, path: Path) -> Finding:
        """Return the finding for a fault at a place; what is not there is missing.

        Args:
            message: The message that was judged.
            path: Where the fault is.

        Returns:
            A finding with the code SCHEMA_INVALID.
        """
        at = pointer(path)
        place = f"{at!r}" if path else "the message"
        value = message
        for step in path:
            there = step in value if isinstance(value, Mapping) else isinstance(value, list) and isinstance(step, int)
            if not there:
                return Finding(code=Code.SCHEMA_INVALID, at=at, text=f"{place} is missing; send it")
            value = value[step]
        schema_path = "/".join("*" if isinstance(step, int) else step for step in path)
        wanted = expectation(self._members.get(schema_path, {"type": "object"} if not path else {}))
        kind = json_kind(value)
        found = "what was found is not" if wanted.startswith(kind) else f"found {kind}"
        return Finding(code=Code.SCHEMA_INVALID, at=at, text=f"{place} must be {wanted}; {found}")


def expectation(node: Mapping[str, Any]) -> str:
    """Return what a member must be, in words.

    Args:
        node: The member's own schema.

    Returns:
        A phrase that completes "it must be …".

    Example:
        >>> expectation({"type": "number", "minimum": 0, "maximum": 1})
        'a number, at least 0, at most 1'
        >>> expectation({"anyOf": [{"type": "string", "examples": ["2.1.0"]}, {"type": "null"}]})
        "a text like '2.1.0' or null"
    """
    if "anyOf" in node:
        return " or ".join(expectation(choice) for choice in node["anyOf"])
    words = KINDS.get(node.get("type", ""), "as the schema says")
    if examples := node.get("examples"):
        words += f" like {examples[0]!r}"
    elif "pattern" in node:
        words += " that says something"
    limits = {
        "minimum": "at least {}",
        "maximum": "at most {}",
        "minLength": "of at least {} characters",
        "maxLength": "of at most {} characters",
        "minItems": "of at least {} items",
    }
    parts = [words, *(text.format(node[key]) for key, text in limits.items() if key in node and "examples" not in node)]
    if node.get("uniqueItems"):
        parts.append("each one once")
    return ", ".join(parts)


def pointer(path: Path) -> str:
    """Return a place as a JSON pointer (RFC 6901).

    Example:
        >>> pointer(["constraints", 0]), pointer(["a/b"])
        ('/constraints/0', '/a~1b')
    """
    return "".join(f"/{str(step).replace('~', '~0').replace('/', '~1')}" for step in path)
