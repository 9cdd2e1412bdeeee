"""Questions to people as MCP elicitations, whose forms are flat: no objects within objects.

A field of a choice's form is `<choice>.<field>`; one that MCP cannot express is a text with JSON.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from baton.core.questions import MISFIT, Choice, Question
from baton.errors import BatonError, PipelineError
from baton.lazy import needs_extra
from baton.wire.json_values import Json, loads_strict
from baton.wire.schema_embedding import inline_refs

with needs_extra("mcp", __name__):
    from mcp.types import ElicitRequest, ElicitRequestFormParams

CHOICE, WHY = "choice", "why"
_MAX_MESSAGE = 20_000
_FIELDS = {
    "string": ("minLength", "maxLength", "default"),
    "integer": ("minimum", "maximum", "default"),
    "number": ("minimum", "maximum", "default"),
    "boolean": ("default",),
}
"""The types that a form may have, and what each may say besides title and description."""
_FORMATS = ("email", "uri", "date", "date-time")


class _Field(NamedTuple):
    """A field of a form: its key there, its name in the choice's data (None for all of it), and its schemas."""

    key: str
    name: str | None
    schema: dict[str, Any]
    flat: dict[str, Any] | None


def elicitation(question: Question, fault: str = "") -> ElicitRequest:
    """Return the request that shows a question to the person at the client, and lets them answer."""
    shown = [f"## {exhibit.title}\n{exhibit.text}" for exhibit in question.shows]
    message = "\n\n".join(part for part in (fault, question.title, question.text, *shown) if part)
    if len(message) > _MAX_MESSAGE:
        message = f"{message[:_MAX_MESSAGE]}\n\n(cut; the console and `baton show` have all of it)"
    names = [choice.name for choice in question.choices]
    fields = {field.key: _labelled(field, choice) for choice in question.choices for field in _fields(choice)}
    properties = {
        CHOICE: {"type": "string", "title": "Decision", "enum": names},
        WHY: {"type": "string", "title": "Why"},
        **fields,
    }
    schema = {"type": "object", "properties": properties, "required": [CHOICE]}
    return ElicitRequest(params=ElicitRequestFormParams(message=message, requested_schema=schema))


def read_form(question: Question, content: Mapping[str, Any]) -> tuple[str, str, Json]:
    """Return choice, reason and data of a form that a person filled in; the run itself checks the data.

    Raises:
        PipelineError: The choice is unknown, or a text is not JSON.
    """
    choice = question.choice(str(content.get(CHOICE)))
    if choice is None:
        names = ", ".join(choice.name for choice in question.choices)
        raise PipelineError(f"{MISFIT}{CHOICE}: expected one of {names}")
    why, data = str(content.get(WHY) or ""), {}
    for field in _fields(choice):
        value = content.get(field.key)
        if value is None or (field.flat is None and not str(value).strip()):
            continue
        if field.flat is None:
            try:
                value = loads_strict(str(value))
            except BatonError as error:
                raise PipelineError(f"{MISFIT}{field.key}: {error}") from None
        if field.name is None:
            return choice.name, why, value
        data[field.name] = value
    return choice.name, why, data if choice.form else None


def _fields(choice: Choice) -> Iterator[_Field]:
    if choice.filled_form is None:
        return
    form = inline_refs(choice.filled_form)
    properties = form.get("properties")
    if not isinstance(properties, Mapping):  # the data is not an object
        yield _Field(choice.name, None, {**form, "title": choice.name}, None)
        return
    for name, schema in properties.items():
        resolved = _without_null(schema if isinstance(schema, Mapping) else {})
        yield _Field(f"{choice.name}.{name}", name, resolved, _flat(resolved))


def _labelled(field: _Field, choice: Choice) -> dict[str, Any]:
    """Return a field as a person sees it: for which choice it is, and whether that needs it."""
    required = (choice.form or {}).get("required")
    is_needed = isinstance(required, list) and field.name in required and "default" not in field.schema
    needed = " (needed)" if is_needed else ""
    is_json = "" if field.flat is not None else ", as JSON"
    description = ": ".join(
        part for part in (f"To {choice.name}{is_json}{needed}", str(field.schema.get("description", ""))) if part
    )
    title = str(field.schema.get("title") or field.name or choice.name)
    if field.flat is not None:
        return {**field.flat, "title": title, "description": description}
    default = {"default": json.dumps(field.schema["default"])} if "default" in field.schema else {}
    return {"type": "string", "title": title, "description": description, **default}


def _without_null(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a field's schema without null as an alternative."""
    others = [form for form in schema.get("anyOf", []) if not isinstance(form, Mapping) or form.get("type") != "null"]
    if len(others) != 1 or not isinstance(others[0], Mapping):
        return dict(schema)
    own = {name: value for name, value in schema.items() if name != "anyOf" and (name, value) != ("default", None)}
    return {**_without_null(others[0]), **own}


def _flat(schema: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return a field's schema with what MCP allows, or None if it cannot express it."""
    kind, items = schema.get("type"), schema.get("items")
    if kind == "array" and isinstance(items, Mapping) and (options := _texts(items.get("enum"))):
        limits = {name: schema[name] for name in ("minItems", "maxItems", "default") if name in schema}
        return {"type": "array", "items": {"type": "string", "enum": options}, **limits}
    if "enum" in schema or "const" in schema:
        options = _texts(schema.get("enum", [schema.get("const")]))
        default = {"default": schema["default"]} if schema.get("default") in options else {}
        return {"type": "string", "enum": options, **default} if options else None
    if not isinstance(kind, str) or kind not in _FIELDS:  # it may be a list of types
        return None
    flat = {"type": kind, **{name: schema[name] for name in _FIELDS[kind] if name in schema}}
    return {**flat, "format": schema["format"]} if schema.get("format") in _FORMATS else flat


def _texts(values: Any) -> list[str]:
    """Return a list of texts, or none if anything else is among them."""
    return values if isinstance(values, list) and all(isinstance(value, str) for value in values) else []
