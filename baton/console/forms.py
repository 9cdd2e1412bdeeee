"""A form of a JSON Schema: the fields that a page shows, and the value that a submitted form sends.

The rules of a model stay with the model: a field only knows how its text becomes JSON. Schemas and texts come from
pipelines, so both are data: nothing of them is executed, and what a field cannot show is edited as JSON.
"""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, NoReturn

from baton.wire.json_values import find_excess
from baton.wire.schemas import format_pointer

MOST_FIELDS = 100
"""How many fields a form shows; a schema with more is edited as JSON."""
MOST_REASON = 10_000
"""How many characters a reason may have."""

_DEEPEST = 3
_SCALARS = frozenset({"string", "integer", "number", "boolean"})
_INPUT_TYPES = {"date": "date", "time": "time", "email": "email"}
_ABSENT: Any = object()


class FieldKind(StrEnum):
    """How a field is filled in."""

    TEXT = "text"
    AREA = "area"
    NUMBER = "number"
    CHOICE = "choice"
    LINES = "lines"
    JSON = "json"


@dataclass(frozen=True)
class FormField:
    """One field of a form."""

    name: str  # its name in the form: the place of its value, such as `answer/address/street`
    label: str  # what it is
    kind: FieldKind  # how it is filled in
    help: str = ""  # what the schema says of it
    required: bool = False  # whether it has to be filled in
    text: str = ""  # what it holds
    choices: Sequence[tuple[str, str]] = ()  # what may be chosen: the JSON of each value, and its label
    attributes: Mapping[str, str] | None = None  # further attributes of the input, such as `min`
    fault: str = ""  # why what it holds cannot be taken
    group: str = ""  # the label of the object that it belongs to; empty at the top

    @property
    def id(self) -> str:
        """Its id in the page."""
        signs = (one if one.isascii() and one.isalnum() else f"-{ord(one):x}-" for one in self.name)
        return f"field-{''.join(signs)}"


@dataclass(frozen=True)
class Filled:
    """What a submitted form holds."""

    value: Any  # the value; incomplete where there are faults
    faults: Mapping[str, str]  # what cannot be taken, by the name of the field


@dataclass(frozen=True)
class Sent:
    """A form that somebody sent: what they typed, and why it did not count or could not be passed on."""

    given: Mapping[str, str] = field(default_factory=dict)
    faults: Mapping[str, str] = field(default_factory=dict)
    refused: str = ""
    unsent: str = ""

    @property
    def status(self) -> int:
        """503 for a form that can be sent again as it is, 409 for one that did not count."""
        return 503 if self.unsent else 409 if self.refused or self.faults else 200


NOTHING_SENT = Sent()


class SchemaForm:
    """The form of a schema of an object.

    Args:
        schema: The JSON Schema.
        name: What the names of its fields begin with.
        value: What the fields hold at first; else the schema's defaults.

    Example:
        >>> form = SchemaForm({"properties": {"amount": {"type": "integer"}}, "required": ["amount"]}, "answer")
        >>> [(field.name, field.kind.value) for field in form.fields()]
        [('answer/amount', 'number')]
        >>> form.filled({"answer/amount": "40"}).value
        {'amount': 40}
    """

    def __init__(self, schema: Mapping[str, Any], name: str, value: Any = _ABSENT) -> None:
        definitions = schema.get("$defs")
        self._definitions: Mapping[str, Any] = definitions if isinstance(definitions, Mapping) else {}
        leaves = [*self._leaves(schema, (name,), value, needed=True)]
        if len(leaves) > MOST_FIELDS or not _members(schema):
            leaves = [self._as_json(schema, (name,), {} if value is _ABSENT else value, needed=True)]
        self._name, self._leaves_by_name = name, {_written(leaf.path): leaf for leaf in leaves}

    def fields(
        self, given: Mapping[str, str] | None = None, faults: Mapping[str, str] | None = None
    ) -> list[FormField]:
        """Return the fields, with what a person has typed so far and what is wrong with it."""
        return [
            replace(leaf.field, text=(given or {}).get(name, leaf.field.text), fault=(faults or {}).get(name, ""))
            for name, leaf in self._leaves_by_name.items()
        ]

    def filled(self, given: Mapping[str, str]) -> Filled:
        """Return what a submitted form holds: fields left empty are left out, so that the model's defaults hold."""
        root: dict[str, Any] = {}
        faults: dict[str, str] = {}
        for name, leaf in self._leaves_by_name.items():
            try:
                value = leaf.value(given.get(name, ""))
            except ValueError as error:
                faults[name] = str(error)
                continue
            if value is not _ABSENT:
                _put(root, leaf.path, value)
        return Filled(root.get(self._name, {}), faults)

    def _leaves(
        self, schema: Mapping[str, Any], path: tuple[str, ...], value: Any, *, needed: bool, group: str = ""
    ) -> Iterator["_Leaf"]:
        """Yield the fields of an object, those of objects in it among them."""
        required = schema.get("required")
        is_left_out = not needed and not isinstance(value, Mapping)  # else its defaults would make it half an object
        for key, member in _members(schema).items():
            one, is_nullable = self._resolved(member)
            here, inner = (*path, key), value.get(key, _ABSENT) if isinstance(value, Mapping) else _ABSENT
            inner = None if is_left_out else inner
            must = needed and isinstance(required, list) and key in required
            if _members(one) and len(path) < _DEEPEST:
                yield from self._leaves(one, here, inner, needed=must, group=_label(key, one))
            else:
                leaf = self._leaf(one, here, inner, needed=must, is_nullable=is_nullable)
                yield replace(leaf, field=replace(leaf.field, group=group))

    def _resolved(self, schema: Any, depth: int = 0) -> tuple[Mapping[str, Any], bool]:
        """Return a schema without its reference and without null, and whether null was one of its forms."""
        if not isinstance(schema, Mapping) or depth > _DEEPEST:
            return {}, False
        outer = {name: part for name, part in schema.items() if name not in ("$ref", "anyOf", "allOf")}
        reference = schema.get("$ref")
        if isinstance(reference, str):
            found, is_nullable = self._resolved(self._definitions.get(reference.rpartition("/")[2]), depth + 1)
            return {**found, **outer}, is_nullable
        forms = schema.get("anyOf")
        if not isinstance(forms, list):
            return schema, False
        others = [one for one in forms if not (isinstance(one, Mapping) and one.get("type") == "null")]
        if len(others) == 1:
            found, _ = self._resolved(others[0], depth + 1)
            return {**found, **outer}, len(others) < len(forms)
        types = {one.get("type") for one in others if isinstance(one, Mapping)}
        if types <= {"string", "number", "integer"}:
            return {**outer, "type": "string", "x-number": True}, len(others) < len(forms)
        return outer, len(others) < len(forms)

    def _leaf(
        self, schema: Mapping[str, Any], path: tuple[str, ...], value: Any, *, needed: bool, is_nullable: bool
    ) -> "_Leaf":
        """Return one field."""
        default = schema.get("default", _ABSENT)
        value = default if value is _ABSENT else value
        kind = schema.get("type")
        choices = _choices(schema)
        if choices:
            made = _field(path, schema, FieldKind.CHOICE, needed, choices=choices)
            text = "" if value is _ABSENT or value is None else json.dumps(value)
        elif kind in ("integer", "number"):
            made = _field(path, schema, FieldKind.NUMBER, needed, attributes=_bounds(schema))
            text = "" if value is _ABSENT or value is None else json.dumps(value)
        elif kind == "string" and isinstance(value if value not in (_ABSENT, None) else "", str | int | float):
            text = "" if value is _ABSENT or value is None else str(value)
            is_long = "\n" in text or (_whole(schema.get("maxLength")) or 0) > 300
            which = FieldKind.AREA if is_long else FieldKind.TEXT
            made = _field(path, schema, which, needed, attributes=_bounds(schema))
        elif self._is_of_lines(schema, value):
            made = _field(path, schema, FieldKind.LINES, needed)
            text = "\n".join(map(str, value)) if isinstance(value, list) else ""
        else:
            return self._as_json(schema, path, value, needed=needed)
        items, _ = self._resolved(schema.get("items"))
        return _Leaf(path, replace(made, text=text), schema, items, default, is_nullable)

    def _is_of_lines(self, schema: Mapping[str, Any], value: Any) -> bool:
        """Return whether a field is a list with an entry in each line."""
        items, _ = self._resolved(schema.get("items"))
        entries = value if isinstance(value, list) else []
        return (
            schema.get("type") == "array"
            and items.get("type") in _SCALARS
            and all(isinstance(one, str | int | float) and str(one).strip() and "\n" not in str(one) for one in entries)
        )

    def _as_json(self, schema: Mapping[str, Any], path: tuple[str, ...], value: Any, *, needed: bool) -> "_Leaf":
        """Return a field that is edited as JSON."""
        empty = value is _ABSENT or value is None
        text = "" if empty else json.dumps(value, indent=2, ensure_ascii=False)
        return _Leaf(path, replace(_field(path, schema, FieldKind.JSON, needed), text=text), schema, {}, _ABSENT, False)


@dataclass(frozen=True)
class _Leaf:
    """A field, and how its text becomes a value."""

    path: tuple[str, ...]
    field: FormField
    schema: Mapping[str, Any]
    items: Mapping[str, Any]
    default: Any
    is_nullable: bool

    def value(self, text: str) -> Any:
        """Return the value, or `_ABSENT` if the field is left empty."""
        text = text.replace("\r\n", "\n")
        if not text.strip() and self.field.kind not in (FieldKind.TEXT, FieldKind.AREA):
            if self.field.required and self.field.kind is not FieldKind.LINES:
                raise ValueError("fill this in")
            return self._left_empty([] if self.field.kind is FieldKind.LINES else None)
        match self.field.kind:
            case FieldKind.NUMBER:
                return _number(text, whole=self.schema.get("type") == "integer")
            case FieldKind.CHOICE:
                if text not in {one for one, _ in self.field.choices}:
                    raise ValueError("choose one of the list")
                return json.loads(text)
            case FieldKind.LINES:
                return [_entry(line.strip(), self.items) for line in text.split("\n") if line.strip()]
            case FieldKind.JSON:
                return parsed_json(text)
        if not text:
            return "" if self.field.required else self._left_empty("")
        if self.schema.get("x-number") and text.strip().removeprefix("-").isdecimal():
            return int(text)
        return text

    def _left_empty(self, empty: Any) -> Any:
        """Return what an empty field means: its default, or that a default was taken out."""
        if self.field.required:
            return empty
        if self.default is _ABSENT or self.default is None or self.default == empty:
            return _ABSENT
        return None if self.is_nullable else _ABSENT if empty is None else empty


def fault_of_reason(why: str) -> str:
    """Return what is wrong with the reason that a person gave for what they do; empty if nothing is."""
    if not why.strip():
        return "say why; the reason is recorded"
    return "" if len(why) <= MOST_REASON else f"the reason has {len(why):,} characters, and {MOST_REASON:,} is the most"


def parsed_json(text: str) -> Any:
    """Return a JSON value."""
    try:
        value = json.loads(text, parse_constant=_no_constant, parse_float=_finite)
    except json.JSONDecodeError as error:
        raise ValueError(f"this is not JSON: {error.msg} in line {error.lineno}, column {error.colno}") from None
    except RecursionError:
        raise ValueError("this is not JSON: it is nested too deep") from None
    if (found := find_excess(value)) is not None:
        raise ValueError(str(found))
    return value


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    number = float(text)
    return number if math.isfinite(number) else _no_constant(text)


def _number(text: str, *, whole: bool) -> int | float:
    try:
        value = parsed_json(text.strip())
    except ValueError:
        value = None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError("give a number")
    if whole and not isinstance(value, int):
        raise ValueError("give a whole number")
    return value


def _entry(text: str, schema: Mapping[str, Any]) -> Any:
    kind = schema.get("type")
    if kind in ("integer", "number"):
        return _number(text, whole=kind == "integer")
    if kind == "boolean":
        return parsed_json(text)
    return text


def _put(root: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
    """Put a value at its place in an object."""
    for key in path[:-1]:
        root = root.setdefault(key, {})
    root[path[-1]] = value


def _members(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the members of an object that a schema names."""
    members = schema.get("properties")
    return members if isinstance(members, Mapping) else {}


def _field(
    path: tuple[str, ...],
    schema: Mapping[str, Any],
    kind: FieldKind,
    needed: bool,
    *,
    choices: Sequence[tuple[str, str]] = (),
    attributes: Mapping[str, str] | None = None,
) -> FormField:
    said = schema.get("description")
    return FormField(
        name=_written(path),
        label=_label(path[-1], schema),
        kind=kind,
        help=said if isinstance(said, str) else "",
        required=needed,
        choices=choices if needed or not choices else [("", "not given"), *choices],
        attributes={**(attributes or {}), **({} if kind is not FieldKind.TEXT else _input_type(schema))},
    )


def _written(path: Sequence[str]) -> str:
    """Return a path as the name of a field."""
    return format_pointer(path)[1:]


def _label(key: str, schema: Mapping[str, Any]) -> str:
    """Return what a field is called: its title where the model gives one, else its name in words."""
    title = schema.get("title")
    return title if isinstance(title, str) and title.strip() else key.replace("_", " ").strip() or key


def _choices(schema: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the values that may be chosen, as JSON, each with its label."""
    if schema.get("type") == "boolean":
        return [("true", "yes"), ("false", "no")]
    values = [schema["const"]] if "const" in schema else schema.get("enum")
    return [(json.dumps(one), str(one)) for one in values] if isinstance(values, list) else []


def _bounds(schema: Mapping[str, Any]) -> dict[str, str]:
    """Return the limits of a field that a browser can check as well."""
    if schema.get("type") == "string":
        found = {"minlength": _whole(schema.get("minLength")), "maxlength": _whole(schema.get("maxLength"))}
        return {name: str(limit) for name, limit in found.items() if limit}
    limits = {"min": schema.get("minimum"), "max": schema.get("maximum")}
    told = {name: json.dumps(limit) for name, limit in limits.items() if isinstance(limit, int | float)}
    return {**told, "step": "1" if schema.get("type") == "integer" else "any"}


def _input_type(schema: Mapping[str, Any]) -> dict[str, str]:
    wanted = _INPUT_TYPES.get(str(schema.get("format")))
    return {"type": wanted} if wanted else {}


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and value > 0 else None
