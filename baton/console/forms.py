"""HTML forms from JSON Schemas: the fields to show, and the JSON value of a submitted form.

A field only converts its text to JSON; the model validates the value. Schemas come from pipelines and are untrusted:
nothing in them is executed, and what a field cannot represent is edited as JSON.
"""

import json
import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, NoReturn

from baton.client.faces import MISFIT
from baton.wire.json_values import find_excess
from baton.wire.schemas import format_pointer
from baton.wire.text import quantity

MAX_FIELDS = 100
"""The maximum number of fields; a larger schema is edited as JSON."""
MAX_REASON_LENGTH = 10_000
"""The maximum number of characters of a reason."""

_MAX_DEPTH = 3
_SCALARS = frozenset({"string", "integer", "number", "boolean"})
_INPUT_TYPES = {"date": "date", "time": "time", "email": "email"}
_ABSENT: Any = object()


class FieldKind(StrEnum):
    """The kind of input."""

    TEXT = "text"
    AREA = "area"
    NUMBER = "number"
    CHOICE = "choice"
    LINES = "lines"
    JSON = "json"


@dataclass(frozen=True)
class FormField:
    """One field of a form."""

    name: str  # the path of its value, such as `answer/address/street`
    label: str
    kind: FieldKind
    help: str = ""  # the schema's description
    required: bool = False
    text: str = ""  # the current input
    choices: Sequence[tuple[str, str]] = ()  # the JSON and the label of each choice
    attributes: Mapping[str, str] | None = None  # further attributes of the input, such as `min`
    fault: str = ""  # why the input is invalid
    group: str = ""  # the label of the enclosed object; empty at the top level

    @property
    def id(self) -> str:
        """The element's id."""
        chars = (char if char.isascii() and char.isalnum() else f"-{ord(char):x}-" for char in self.name)
        return f"field-{''.join(chars)}"


@dataclass(frozen=True)
class FormResult:
    """The value of a submitted form."""

    value: Any  # incomplete if there are faults
    faults: Mapping[str, str]  # the error of each invalid field


@dataclass(frozen=True)
class Submission:
    """A submitted form that is shown again, and why."""

    inputs: Mapping[str, str] = field(default_factory=dict)  # the submitted fields
    faults: Mapping[str, str] = field(default_factory=dict)  # the error of each invalid field
    refused: str = ""  # why the run rejected it
    unsent: str = ""  # why it could not be sent

    @property
    def status(self) -> int:
        """503 for a form that can be sent again unchanged, 409 for one that was rejected."""
        return 503 if self.unsent else 409 if self.refused or self.faults else 200


NO_SUBMISSION = Submission()


class SchemaForm:
    """The form of an object's schema.

    Args:
        schema: The JSON Schema.
        name: The prefix of the field names.
        value: The initial value; the schema's defaults if omitted.

    Example:
        >>> form = SchemaForm({"properties": {"amount": {"type": "integer"}}, "required": ["amount"]}, "answer")
        >>> [(field.name, field.kind.value) for field in form.fields()]
        [('answer/amount', 'number')]
        >>> form.parse({"answer/amount": "40"}).value
        {'amount': 40}
    """

    def __init__(self, schema: Mapping[str, Any], name: str, value: Any = _ABSENT) -> None:
        definitions = schema.get("$defs")
        self._definitions: Mapping[str, Any] = definitions if isinstance(definitions, Mapping) else {}
        leaves = [*self._iter_leaves(schema, (name,), value, needed=True)]
        if len(leaves) > MAX_FIELDS or not _properties(schema):
            leaves = [self._json_leaf(schema, (name,), {} if value is _ABSENT else value, needed=True)]
        self._name, self._leaves_by_name = name, {_field_name(leaf.path): leaf for leaf in leaves}

    def fields(
        self, inputs: Mapping[str, str] | None = None, faults: Mapping[str, str] | None = None
    ) -> list[FormField]:
        """Return the fields, with submitted inputs and their errors."""
        return [
            replace(leaf.field, text=(inputs or {}).get(name, leaf.field.text), fault=(faults or {}).get(name, ""))
            for name, leaf in self._leaves_by_name.items()
        ]

    def parse(self, inputs: Mapping[str, str]) -> FormResult:
        """Return the value of a submitted form. Empty fields are omitted, so that the model's defaults apply."""
        root: dict[str, Any] = {}
        faults: dict[str, str] = {}
        for name, leaf in self._leaves_by_name.items():
            try:
                value = leaf.value(inputs.get(name, ""))
            except ValueError as error:
                faults[name] = str(error)
                continue
            if value is not _ABSENT:
                _set_path(root, leaf.path, value)
        return FormResult(root.get(self._name, {}), faults)

    def faults_in(self, refusal: str) -> tuple[dict[str, str], str]:
        """Return the errors that the form's model found, by field, and what of its refusal is about no field."""
        about = refusal.removeprefix(MISFIT)
        if about == refusal:
            return {}, refusal
        places = {".".join(leaf.path[1:]): name for name, leaf in self._leaves_by_name.items()}
        faults: dict[str, str] = {}
        rest: list[str] = []
        latest = ""
        for clause in about.split("; "):
            at, _, words = clause.partition(": ")
            name = next((places[at[:end]] for end in _ends(at) if at[:end] in places), "")
            if name:
                faults[name] = "; ".join(filter(None, [faults.get(name), _PYDANTIC.sub("", words)]))
            elif latest and not words:  # the model's own words have a semicolon
                faults[latest] += f"; {clause}"
            else:
                rest.append(_PYDANTIC.sub("", words) or clause)
            latest = name
        return faults, "; ".join(rest)

    def _iter_leaves(
        self, schema: Mapping[str, Any], path: tuple[str, ...], value: Any, *, needed: bool, group: str = ""
    ) -> Iterator["_Leaf"]:
        """Yield the fields of an object, including those of nested objects."""
        required = schema.get("required")
        omitted = not needed and not isinstance(value, Mapping)  # its defaults would make it half an object
        for key, member in _properties(schema).items():
            resolved, is_nullable = self._resolve(member)
            inner_path, inner = (*path, key), value.get(key, _ABSENT) if isinstance(value, Mapping) else _ABSENT
            if inner is _ABSENT and isinstance(resolved.get("default"), Mapping):
                inner = resolved["default"]
            inner = None if omitted else inner
            required_here = needed and isinstance(required, list) and key in required
            if _properties(resolved) and len(path) < _MAX_DEPTH:
                yield from self._iter_leaves(
                    resolved, inner_path, inner, needed=required_here, group=_label(key, resolved)
                )
            else:
                leaf = self._make_leaf(resolved, inner_path, inner, needed=required_here, is_nullable=is_nullable)
                yield replace(leaf, field=replace(leaf.field, group=group))

    def _resolve(self, schema: Any, depth: int = 0) -> tuple[Mapping[str, Any], bool]:
        """Resolve a schema's reference and its `anyOf` with null; return also whether null is allowed."""
        if not isinstance(schema, Mapping) or depth > _MAX_DEPTH:
            return {}, False
        outer = {name: part for name, part in schema.items() if name not in ("$ref", "anyOf", "allOf")}
        reference = schema.get("$ref")
        if isinstance(reference, str):
            resolved, is_nullable = self._resolve(self._definitions.get(reference.rpartition("/")[2]), depth + 1)
            return {**resolved, **outer}, is_nullable
        forms = schema.get("anyOf")
        if not isinstance(forms, list):
            return schema, False
        non_null = [form for form in forms if not (isinstance(form, Mapping) and form.get("type") == "null")]
        if len(non_null) == 1:
            resolved, _ = self._resolve(non_null[0], depth + 1)
            return {**resolved, **outer}, len(non_null) < len(forms)
        types = {form.get("type") for form in non_null if isinstance(form, Mapping)}
        if types <= {"string", "number", "integer"}:
            return {**outer, "type": "string", "x-number": True}, len(non_null) < len(forms)
        return outer, len(non_null) < len(forms)

    def _make_leaf(
        self, schema: Mapping[str, Any], path: tuple[str, ...], value: Any, *, needed: bool, is_nullable: bool
    ) -> "_Leaf":
        default = schema.get("default", _ABSENT)
        value = default if value is _ABSENT else value
        kind = schema.get("type")
        choices = _choices(schema)
        if choices:
            form_field = _make_field(path, schema, FieldKind.CHOICE, needed, choices=choices)
            text = "" if value is _ABSENT or value is None else json.dumps(value)
        elif kind in ("integer", "number"):
            form_field = _make_field(path, schema, FieldKind.NUMBER, needed, attributes=_bounds(schema))
            text = "" if value is _ABSENT or value is None else json.dumps(value)
        elif kind == "string" and isinstance(value if value not in (_ABSENT, None) else "", str | int | float):
            text = "" if value is _ABSENT or value is None else str(value)
            is_long = "\n" in text or (_positive_int(schema.get("maxLength")) or 0) > 300
            text_kind = FieldKind.AREA if is_long else FieldKind.TEXT
            form_field = _make_field(path, schema, text_kind, needed, attributes=_bounds(schema))
        elif self._is_line_list(schema, value):
            form_field = _make_field(path, schema, FieldKind.LINES, needed)
            text = "\n".join(map(str, value)) if isinstance(value, list) else ""
        else:
            return self._json_leaf(schema, path, value, needed=needed)
        items, _ = self._resolve(schema.get("items"))
        return _Leaf(path, replace(form_field, text=text), schema, items, default, is_nullable)

    def _is_line_list(self, schema: Mapping[str, Any], value: Any) -> bool:
        """Return whether a field is edited as one entry per line."""
        items, _ = self._resolve(schema.get("items"))
        entries = value if isinstance(value, list) else []
        return (
            schema.get("type") == "array"
            and items.get("type") in _SCALARS
            and all(
                isinstance(entry, str | int | float) and str(entry).strip() and "\n" not in str(entry)
                for entry in entries
            )
        )

    def _json_leaf(self, schema: Mapping[str, Any], path: tuple[str, ...], value: Any, *, needed: bool) -> "_Leaf":
        empty = value is _ABSENT or value is None
        text = "" if empty else json.dumps(value, indent=2, ensure_ascii=False)
        form_field = replace(_make_field(path, schema, FieldKind.JSON, needed), text=text)
        return _Leaf(path, form_field, schema, {}, _ABSENT, False)


@dataclass(frozen=True)
class _Leaf:
    """A field, and the conversion of its text to a value."""

    path: tuple[str, ...]
    field: FormField
    schema: Mapping[str, Any]
    items: Mapping[str, Any]
    default: Any
    is_nullable: bool

    def value(self, text: str) -> Any:
        """Return the value, or `_ABSENT` for an empty field.

        Raises:
            ValueError: It is none of the schema's, as far as can be told here; the form's model checks the rest.
        """
        value = self._convert(text)
        entries = value if self.field.kind is FieldKind.LINES and isinstance(value, list) else []
        faults = [_misfit(value, self.schema), *(_misfit(entry, self.items) for entry in entries)]
        if fault := next(filter(None, faults), ""):
            raise ValueError(fault)
        return value

    def _convert(self, text: str) -> Any:
        text = text.replace("\r\n", "\n")
        if not text.strip() and self.field.kind not in (FieldKind.TEXT, FieldKind.AREA):
            if self.field.required and self.field.kind is not FieldKind.LINES:
                raise ValueError("fill this in")
            return self._empty_value([] if self.field.kind is FieldKind.LINES else None)
        match self.field.kind:
            case FieldKind.NUMBER:
                return _number(text, whole=self.schema.get("type") == "integer")
            case FieldKind.CHOICE:
                if text not in {choice for choice, _ in self.field.choices}:
                    raise ValueError("choose an option from the list")
                return json.loads(text)
            case FieldKind.LINES:
                return [_parse_entry(line.strip(), self.items) for line in text.split("\n") if line.strip()]
            case FieldKind.JSON:
                return parse_json(text)
        if not text:
            return "" if self.field.required else self._empty_value("")
        if self.schema.get("x-number") and text.strip().removeprefix("-").isdecimal():
            return int(text)
        return text

    def _empty_value(self, empty: Any) -> Any:
        """Return the value of an empty field: absent, or empty if the user cleared a default."""
        if self.field.required:
            return empty
        if self.default is _ABSENT or self.default is None or self.default == empty:
            return _ABSENT
        return None if self.is_nullable else _ABSENT if empty is None else empty


_PYDANTIC = re.compile(r"^(Value error|Assertion failed), ")


def _ends(path: str) -> Iterator[int]:
    """Yield where the parts of a dotted path end, the longest path first."""
    end = len(path)
    while end > 0:
        yield end
        end = path.rfind(".", 0, end)


def _misfit(value: Any, schema: Mapping[str, Any]) -> str:
    """Return in words which limit of its schema a value exceeds, or an empty string; patterns are left to the model."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        for name, words, fits in _LIMITS:
            limit = schema.get(name)
            if isinstance(limit, int | float) and not isinstance(limit, bool) and not fits(value, limit):
                return f"give {words} {limit:,}"
    size, noun = ("Length", "character") if isinstance(value, str) else ("Items", "item")
    if isinstance(value, str | list):
        least, most = _positive_int(schema.get(f"min{size}")), _positive_int(schema.get(f"max{size}"))
        if least and len(value) < least:
            return f"give at least {quantity(least, noun)}; here {'is' if len(value) == 1 else 'are'} {len(value):,}"
        if most and len(value) > most:
            return f"give at most {quantity(most, noun)}; here are {len(value):,}"
    return ""


_LIMITS: Sequence[tuple[str, str, Callable[[float, float], bool]]] = (
    ("minimum", "at least", operator.ge),
    ("maximum", "at most", operator.le),
    ("exclusiveMinimum", "more than", operator.gt),
    ("exclusiveMaximum", "less than", operator.lt),
)


def check_reason(why: str) -> str:
    """Return what is wrong with a person's reason, or an empty string."""
    if not why.strip():
        return "give a reason; it is recorded"
    too_long = f"the reason has {len(why):,} characters; the maximum is {MAX_REASON_LENGTH:,}"
    return too_long if len(why) > MAX_REASON_LENGTH else ""


def parse_json(text: str) -> Any:
    """Parse strict JSON.

    Raises:
        ValueError: The text is not JSON, or it is nested too deeply.
    """
    try:
        value = json.loads(text, parse_constant=_reject_constant, parse_float=_parse_finite)
    except json.JSONDecodeError as error:
        raise ValueError(f"this is not JSON: {error.msg} in line {error.lineno}, column {error.colno}") from None
    except RecursionError:
        raise ValueError("this is not JSON: it is nested too deeply") from None
    if (excess := find_excess(value)) is not None:
        raise ValueError(str(excess))
    return value


def _reject_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _parse_finite(text: str) -> float:
    number = float(text)
    return number if math.isfinite(number) else _reject_constant(text)


def _number(text: str, *, whole: bool) -> int | float:
    try:
        value = parse_json(text.strip())
    except ValueError:
        value = None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError("give a number")
    if whole and not isinstance(value, int):
        raise ValueError("give a whole number")
    return value


def _parse_entry(text: str, schema: Mapping[str, Any]) -> Any:
    kind = schema.get("type")
    if kind in ("integer", "number"):
        return _number(text, whole=kind == "integer")
    if kind == "boolean":
        return parse_json(text)
    return text


def _set_path(root: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
    for key in path[:-1]:
        root = root.setdefault(key, {})
    root[path[-1]] = value


def _properties(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the schemas of an object's members."""
    members = schema.get("properties")
    return members if isinstance(members, Mapping) else {}


def _make_field(
    path: tuple[str, ...],
    schema: Mapping[str, Any],
    kind: FieldKind,
    needed: bool,
    *,
    choices: Sequence[tuple[str, str]] = (),
    attributes: Mapping[str, str] | None = None,
) -> FormField:
    description = schema.get("description")
    return FormField(
        name=_field_name(path),
        label=_label(path[-1], schema),
        kind=kind,
        help=description if isinstance(description, str) else "",
        required=needed,
        choices=choices if needed or not choices else [("", "not given"), *choices],
        attributes={**(attributes or {}), **({} if kind is not FieldKind.TEXT else _input_type(schema))},
    )


def _field_name(path: Sequence[str]) -> str:
    return format_pointer(path)[1:]


def _label(key: str, schema: Mapping[str, Any]) -> str:
    """Return a field's title, or its name in words."""
    title = schema.get("title")
    return title if isinstance(title, str) and title.strip() else key.replace("_", " ").strip() or key


def _choices(schema: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the JSON and the label of each allowed value."""
    if schema.get("type") == "boolean":
        return [("true", "yes"), ("false", "no")]
    values = [schema["const"]] if "const" in schema else schema.get("enum")
    return [(json.dumps(value), str(value)) for value in values] if isinstance(values, list) else []


def _bounds(schema: Mapping[str, Any]) -> dict[str, str]:
    """Return the limits of a field that a browser can check."""
    if schema.get("type") == "string":
        lengths = {name: _positive_int(schema.get(name)) for name in ("minLength", "maxLength")}
        return {name.lower(): str(length) for name, length in lengths.items() if length}
    limits = {"min": schema.get("minimum"), "max": schema.get("maximum")}
    bounds = {name: json.dumps(limit) for name, limit in limits.items() if isinstance(limit, int | float)}
    return {**bounds, "step": "1" if schema.get("type") == "integer" else "any"}


def _input_type(schema: Mapping[str, Any]) -> dict[str, str]:
    input_type = _INPUT_TYPES.get(str(schema.get("format")))
    return {"type": input_type} if input_type else {}


def _positive_int(value: Any) -> int | None:
    return value if isinstance(value, int) and value > 0 else None
