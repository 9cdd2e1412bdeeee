"""JSON documents that a schema accepts, and slightly invalid ones."""

import copy
from typing import Any

from hypothesis import strategies as st

from tests.core.material import json_values, texts

TIMES = (
    "2026-11-21T08:30:00Z",
    "2024-02-29T23:59:59.999999+05:30",
    "0001-01-01T00:00:00-23:59",
    "9999-12-31T23:59:59Z",
)
BAD_TIMES = (
    "2026-02-30T08:30:00Z",
    "2026-11-21 08:30:00Z",
    "2026-11-21T08:30:00",
    "2026-11-21T08:30Z",
    "2016-12-31T23:59:60Z",
    "0000-01-01T00:00:00Z",
    "2026-11-21T08:30:00+24:00",
    "2026-11-21T08:30:00.1234567890Z",
    "2026-11-21t08:30:00z",
    "1700000000",
)
ODD: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 1.0, -0.0, 0.5, -1.0, 1e300, 2**53 - 1, 2**53, 2.0**53, 2**63, 10**30),
    *(
        "",
        " ",
        "\n",
        "\u3000",
        "\u200b",
        "\ufeff\u2060",
        "\x1c",
        "\x85",
        "x",
        "x" * 200,
        "x" * 201,
        "😀" * 200,
        "😀" * 201,
    ),
    *("a" * 64, "A" * 64, "a" * 63, "a" * 64 + "\n", "sha256:" + "a" * 64, "stage", "Stage", "RUNNING", "running"),
    *([], [None], ["x"], [1], [[]], [{}], {}, {"x": None}, {"goal": "x"}, {"micro_usd": 1.0}),
    *(TIMES + BAD_TIMES),
)
"""Values at, beside and beyond the limits of some member."""
TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
_ASCII = st.characters(max_codepoint=127)


def _whole(node: dict[str, Any]) -> bool:
    """Return whether a pattern, other than a bare digest's, speaks of the whole text."""
    pattern: str = node.get("pattern", "")
    whole = ("^00-", "^sha256:", "^[0-9a-f]{16}", "^[0-9a-f]{8}-", "^[ -~]")
    return pattern.startswith(whole) and pattern.endswith("$")


def documents(schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Return a strategy for valid documents, for the part of JSON Schema that our schemas use."""

    def values(node: dict[str, Any]) -> st.SearchStrategy[Any]:
        if "$ref" in node:
            return st.deferred(lambda: values(schema["$defs"][node["$ref"].removeprefix("#/$defs/")]))
        if "anyOf" in node:
            return st.one_of([values(one) for one in node["anyOf"]])
        if "enum" in node:
            return st.sampled_from(node["enum"])
        if "type" not in node:
            return json_values
        return {"object": objects, "array": lists, "string": strings, "integer": integers}.get(node["type"], plain)(
            node
        )

    def plain(node: dict[str, Any]) -> st.SearchStrategy[Any]:
        return {"null": st.none(), "boolean": st.booleans()}[node["type"]]

    def integers(node: dict[str, Any]) -> st.SearchStrategy[Any]:
        whole = st.integers(node.get("minimum", -(2**60)), node.get("maximum", 2**60))
        least = max(0, node.get("minimum", 0))
        return st.one_of(whole, st.integers(least, min(node.get("maximum", 1_000), least + 1_000)).map(float))

    def strings(node: dict[str, Any]) -> st.SearchStrategy[Any]:
        if node.get("format") == "date-time":
            return st.sampled_from(TIMES)
        if node.get("pattern") == "^[0-9a-f]{64}$":
            return st.text("0123456789abcdef", min_size=64, max_size=64)
        if _whole(node):
            return st.from_regex(node["pattern"].replace("$", r"\Z"), fullmatch=True, alphabet=_ASCII)
        if "pattern" in node:
            return texts.map(lambda text: f"{text}x")
        least, most = node.get("minLength", 0), node.get("maxLength", 10_000)
        return texts.filter(lambda text: least <= len(text) <= most)

    def lists(node: dict[str, Any]) -> st.SearchStrategy[Any]:
        return st.lists(values(node["items"]), max_size=3)

    def objects(node: dict[str, Any]) -> st.SearchStrategy[Any]:
        if "properties" not in node:
            rule = node.get("propertyNames", {})
            pattern = rule.get("pattern")
            names = strings(rule) if pattern is None else st.from_regex(pattern.replace("$", r"\Z"), fullmatch=True)
            return st.dictionaries(names, values(node["additionalProperties"]), max_size=3)
        members = {name: values(schema) for name, schema in node["properties"].items()}
        required = {name: members.pop(name) for name in node.get("required", ())}
        return st.fixed_dictionaries(required, optional=members)

    return values(schema)


def fullest(schema: dict[str, Any]) -> Any:
    """Return one document that has every member the schema knows, at every depth."""

    def value(node: dict[str, Any]) -> Any:
        if "$ref" in node:
            return value(schema["$defs"][node["$ref"].removeprefix("#/$defs/")])
        if "anyOf" in node:
            return value(node["anyOf"][0])
        if "enum" in node:
            return node["enum"][0]
        if "properties" in node:
            return {name: value(child) for name, child in node["properties"].items()}
        if isinstance(node.get("additionalProperties"), dict):
            return {"a": value(node["additionalProperties"])}
        example = node.get("examples", [TRACE])[0] if _whole(node) else "a" * 64
        simple: dict[str | None, Any] = {
            "object": {"a": [{"b": None}]},
            "boolean": True,
            "integer": 1,
            "string": TIMES[0] if node.get("format") else example,
        }
        return [value(node["items"])] if node.get("type") == "array" else simple.get(node.get("type"))

    return value(schema)


def one_change(document: Any) -> list[Any]:
    """Return every document with one change: an odd value, a missing or an additional member at any place."""
    changed = []
    for place in places(document):
        changed += [put(document, place, value) for value in ODD]
        if place:
            changed.append(without(document, place))
        inner = document
        for step in place:
            inner = inner[step]
        if isinstance(inner, dict):
            changed.append(put(document, (*place, "extra"), 1))
    return changed


def places(document: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the paths to every value of a document, the document itself first."""
    paths = [path]
    inner = (
        document.items() if isinstance(document, dict) else enumerate(document) if isinstance(document, list) else ()
    )
    for key, value in inner:
        paths += places(value, (*path, key))
    return paths


def put(document: Any, place: tuple[Any, ...], value: Any) -> Any:
    """Return a copy of a document with another value at a place."""
    if not place:
        return copy.deepcopy(value)
    changed = copy.deepcopy(document)
    inner = changed
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    return changed


def without(document: Any, place: tuple[Any, ...]) -> Any:
    """Return a copy of a document without the value at a place."""
    changed = copy.deepcopy(document)
    inner = changed
    for key in place[:-1]:
        inner = inner[key]
    del inner[place[-1]]
    return changed


@st.composite
def almost(draw: st.DrawFn, valid: st.SearchStrategy[Any], members: list[str]) -> Any:
    """Draw a document that was valid before one to three changes: a wrong value, a missing or a further member."""
    document = draw(valid)
    names = [*members, "extra", "Goal"]
    for _ in range(draw(st.integers(1, 3))):
        place = draw(st.sampled_from(places(document)))
        change = draw(st.sampled_from(["replace", "replace", "remove", "add"]))
        if change == "replace":
            document = put(document, place, draw(st.sampled_from(ODD)))
        elif change == "remove" and place:
            document = without(document, place)
        elif change == "add":
            key = draw(st.sampled_from(names))
            inner = document
            for step in place:
                inner = inner[step]
            if isinstance(inner, dict):
                document = put(document, (*place, key), draw(st.sampled_from(ODD)))
    return document
