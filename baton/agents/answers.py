"""How an agent is asked to answer, and how its answer is read: a patch or a typed output as JSON, a report, a text.

A model that may answer `null` for an unchanged field would clear the field, so the schema for models has no
`null`: unchanged fields are left out, and `[]` empties a list.
"""

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError
from pydantic.errors import PydanticUserError
from pydantic_core import to_json, to_jsonable_python

from baton.agents.notes import INSTRUCTIONS, MEMBER_INSTRUCTIONS, PATCH_INSTRUCTIONS
from baton.core.baton import Baton, BatonPatch
from baton.core.history import Spend
from baton.core.notes import NOTE_MEMBERS, Notes, notes_in, split_notes
from baton.core.patching import shorten_findings
from baton.core.store_schemas import SchemaGate
from baton.errors import MalformedMessageError, PatchError
from baton.report.rendering import FORMAT
from baton.wire.json_values import Json, loads_strict
from baton.wire.schema_embedding import inline_refs
from baton.wire.text import describe_faults, json_kind

KeyT = TypeVar("KeyT")
ValueT = TypeVar("ValueT")
_TEXTS = {"type": "array", "items": {"type": "string"}}
_MEMBERS: Mapping[str, dict[str, Any]] = {
    "goal": {"type": "string", "description": "The objective in one sentence; only if it has to change."},
    "current_state": {**_TEXTS, "description": "What is true now, 3 to 8 short bullets; replaces the list."},
    "decision_log": {**_TEXTS, "description": "The decisions you made, each with its reason; they are appended."},
    "constraints": {**_TEXTS, "description": "All hard rules, those that were there included; replaces the list."},
    "work_scope": {**_TEXTS, "description": "Files and modules touched or planned; replaces the list."},
    "open_questions": {**_TEXTS, "description": "What later stages must resolve; replaces the list."},
    "acceptance": {**_TEXTS, "description": "Tests and checks that must pass; replaces the list."},
}
_THINKING = re.compile(r"\s*<think>(?P<thought>.*?)(?:</think>\s*|\Z)", re.DOTALL)
_END_OF_THINKING = re.compile(r"(?<=\n)</think>[ \t]*(?:\n\s*|\Z)")
_CODE_FENCE = re.compile(r"```[\w-]*[ \t]*\n(.*)```", re.DOTALL)


class AnswerForm(StrEnum):
    """The form of an agent's answer.

    Attributes:
        PATCH: A JSON object: `{"baton_patch": {…}}`, with `output` where the stage has an output.
        REPORT: A handoff report in markdown.
        TEXT: A text, such as an article, and a closing block of notes (`Notes`). The text is the stage's output, and
            the notes change the baton.
        TYPED: A value of a type, which is the stage's output: `{"output": …}`, with notes as further members. Name it
            by its type: `answers=Facts`, or the `output_type` of the agent itself.
    """

    PATCH = "patch"
    REPORT = "report"
    TEXT = "text"
    TYPED = "typed"


@dataclass(frozen=True)
class AgentAnswer:
    """An agent's answer.

    Attributes:
        patch: The change to the baton.
        output: The output for the pipeline's code, as JSON.
        report: A handoff report in Markdown, instead of a patch.
        spend: The cost of the run that is not charged yet (`AgentWork.charge`).
        said: Texts of the model beside the answer, for the session; empty if they are recorded already.
        turns: Turns of the conversation that the next stages read verbatim; usually none.
        claimed: Whether the output is the agent's own words; False for technical outputs.
        notes: What the agent noted beside its answer; None if it left no reasons.

    Example:
        >>> AgentAnswer(patch={"current_state": ["Tests pass"]}, output={"passed": 12}).output
        {'passed': 12}
    """

    patch: BatonPatch | Mapping[str, Json] | None = None
    output: Json = None
    report: str | None = None
    spend: Spend = field(default_factory=Spend)
    said: tuple[str, ...] = ()
    turns: tuple[dict[str, Json], ...] = ()
    claimed: bool = True
    notes: Notes | None = None


def answer_schema(
    baton_type: type[Baton] = Baton,
    writes: Iterable[str] | None = None,
    output: Mapping[str, Any] | None = None,
    *,
    notes: bool = False,
) -> dict[str, Any]:
    """Return the JSON Schema of an answer: a `baton_patch`, an `output` if the stage has one, and what it rejected."""
    fields = baton_type.model_fields
    writable = (fields.keys() - {"goal"} if writes is None else frozenset(writes)) - {"artifacts"}
    baton_schema = baton_type.model_json_schema() if writable - _MEMBERS.keys() else {}
    properties = {
        name: deepcopy(_MEMBERS.get(name) or baton_schema["properties"][name]) for name in fields if name in writable
    }
    patch = {
        "type": "object",
        "description": "Only the fields that changed; leave out what stays as it is.",
        "properties": properties,
        "additionalProperties": False,
    }
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {"baton_patch": patch},
        "required": ["baton_patch"],
        "additionalProperties": False,
    }
    if output is not None:
        schema["properties"]["output"] = inline_refs(output)
        schema["required"].append("output")
    if notes:
        schema["properties"] |= {key: NOTE_MEMBERS[key] for key in ("rejected", "thought")}
    if definitions := baton_schema.get("$defs"):
        return inline_refs({**schema, "$defs": definitions})
    return schema


def type_adapter(kind: Any) -> TypeAdapter[Any]:
    """Return the adapter of a type of outputs.

    Raises:
        TypeError: Pydantic cannot validate or describe it.
    """
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(kind)
        adapter.json_schema()
    except (PydanticUserError, NameError) as error:
        raise TypeError(f"answers={kind!r}: expected an AnswerForm, or a type such as a pydantic model") from error
    return adapter


def typed_schema(kind: TypeAdapter[Any], *, notes: bool) -> dict[str, Any]:
    """Return the JSON Schema of an answer with an `output` of a type, and notes beside it."""
    return {
        "type": "object",
        "properties": {"output": inline_refs(kind.json_schema()), **(NOTE_MEMBERS if notes else {})},
        "required": ["output"],
        "additionalProperties": False,
    }


def typed_output(kind: TypeAdapter[Any], value: Json) -> Json:
    """Return an output as its type writes it.

    Raises:
        PatchError: It does not fit the type.
    """
    try:
        output = kind.validate_json(to_json(value))
    except ValidationError as error:
        raise PatchError([f"the output does not fit its type: {describe_faults(error, 'output')}"]) from None
    written: Json = kind.dump_python(output, mode="json", by_alias=True, round_trip=True)
    return written


def answer_instructions(form: AnswerForm, schema: Mapping[str, Any] | None = None, *, notes: bool = False) -> str:
    """Return the instructions for the answer. They are Baton's own words, so they stand outside the fence."""
    if form is AnswerForm.REPORT:
        return f"Do your part of the task. Then answer with a handoff report of this form and nothing else:\n{FORMAT}"
    if form is AnswerForm.TEXT:
        text = "Do your part of the task. Then answer with the text that it asks for, whole, and nothing else."
        return f"{text}\n{INSTRUCTIONS}" if notes else text
    if form is AnswerForm.TYPED:
        text = "Do your part of the task. Then answer with one JSON object and nothing else; its member `output` is the"
        fits = "." if schema is None else f", which fits this JSON Schema:\n{_fenced(schema['properties']['output'])}"
        return f"{text} result{fits}\n{MEMBER_INSTRUCTIONS}" if notes else f"{text} result{fits}"
    text = (
        "Do your part of the task. Then answer with one JSON object and nothing else. Its member `baton_patch` has "
        "only the fields you changed; `decision_log` has only your new decisions, each with its reason."
    )
    if notes:
        text += f" {PATCH_INSTRUCTIONS}"
    if schema is not None:
        text += f" The object fits this JSON Schema:\n{_fenced(schema)}"
    return text


def _fenced(schema: Mapping[str, Any]) -> str:
    return f"```json\n{json.dumps(schema, ensure_ascii=False)}\n```"


def read_form(
    answer: Any,
    form: AnswerForm,
    schema: Mapping[str, Any] | None = None,
    kind: TypeAdapter[Any] | None = None,
    *,
    notes: bool = False,
) -> AgentAnswer:
    """Parse the last text of an agent, or the object that it returned, in the form that it was asked for.

    Args:
        answer: The text or object.
        form: The form.
        schema: The schema of a patch, which is checked.
        kind: The type of a typed output; None if the agent's framework has checked it.
        notes: Whether notes are taken from a text.

    Raises:
        PatchError: The answer does not have this form.
    """
    if isinstance(answer, str) and (form is not AnswerForm.TYPED or kind is not None):
        _, answer = split_thinking(answer)
    if form is AnswerForm.REPORT and isinstance(answer, str):
        return AgentAnswer(report=answer)
    if form is AnswerForm.TEXT:
        text, noted = split_notes(answer) if notes and isinstance(answer, str) else (answer, None)
        if not isinstance(text, str) or not text.strip():
            raise PatchError(["the answer is not a text; answer with the text that was asked for"])
        return AgentAnswer(output=text.lstrip("\r\n"), notes=noted)  # frameworks leave the blank line of a thought
    if form is AnswerForm.TYPED:
        return AgentAnswer(output=answer) if kind is None else _read_typed(answer, kind)
    return read_answer(answer, schema)


def _read_typed(answer: str | Mapping[str, Any], kind: TypeAdapter[Any]) -> AgentAnswer:
    """Parse an answer of the form `{"output": …, "decided": […], …}`; unusable notes are left out."""
    expected = 'answer with {"output": …}, and notes beside it'
    value: Any = _load_answer(answer, expected) if isinstance(answer, str) else to_json_value(answer, "the answer")
    if not isinstance(value, Mapping) or "output" not in value:
        problem = "has no member 'output'" if isinstance(value, Mapping) else f"is {json_kind(value)}"
        raise PatchError([f"the answer {problem}; {expected}"])
    typed_output(kind, value["output"])
    return AgentAnswer(output=value["output"], notes=notes_in(value))


def read_answer(answer: str | Mapping[str, Any], schema: Mapping[str, Any] | None = None) -> AgentAnswer:
    """Parse an answer of the form `{"baton_patch": …, "output": …}`; unusable notes beside it are left out."""
    expected = 'answer with {"baton_patch": {…}} and nothing else'
    value: Any = _load_answer(answer, expected) if isinstance(answer, str) else to_json_value(answer, "the answer")
    if not isinstance(value, Mapping):
        raise PatchError([f"the answer is not a JSON object, but {json_kind(value)}; {expected}"])
    noted, value = notes_in(value), {key: member for key, member in value.items() if key not in NOTE_MEMBERS}
    findings = [f"the answer has a member {name!r}; {expected}" for name in value.keys() - {"baton_patch", "output"}]
    patch = value.get("baton_patch")
    if not isinstance(patch, Mapping):
        problem = "no member 'baton_patch'" if "baton_patch" not in value else f"{json_kind(patch)} in 'baton_patch'"
        findings.append(f"the answer has {problem}; {expected}")
        raise PatchError(sorted(findings))
    if not findings and schema is not None:
        findings = [f"the answer does not fit its schema: {error.text}" for error in _gate(schema)(value)]
    if findings:
        raise PatchError(shorten_findings(sorted(findings)))
    return AgentAnswer(patch=dict(patch), output=value.get("output"), notes=noted)


def split_thinking(text: str) -> tuple[str, str]:
    r"""Return a model's thinking, which some servers leave in its text, and the rest.

    Example:
        >>> split_thinking("<think>Hm.</think>\n\nIt is so.")
        ('Hm.', 'It is so.')
    """
    thoughts: list[str] = []
    while match := _THINKING.match(text):
        thoughts.append(match["thought"].strip())
        text = text[match.end() :]
    if not thoughts and not text.lstrip().startswith("{") and (end := _END_OF_THINKING.search(text)):
        thoughts, text = [text[: end.start()].strip()], text[end.end() :]  # the template opened it
    return "\n".join(thoughts), text


MAX_CACHED = 64
"""The size of the cache of `cached_by_identity`; a full cache is cleared."""


def cached_by_identity(make: Callable[[KeyT], ValueT]) -> Callable[[KeyT], ValueT]:
    """Cache a function by the identity of its argument, which must not change afterwards."""
    cache: dict[int, tuple[KeyT, ValueT]] = {}  # holds the key, so that its id is not reused

    def cached(key: KeyT) -> ValueT:
        entry = cache.get(id(key))
        if entry is None:
            if len(cache) >= MAX_CACHED:
                cache.clear()
            entry = cache[id(key)] = key, make(key)
        return entry[1]

    return cached


_gate = cached_by_identity(SchemaGate)


def _load_answer(text: str, expected: str) -> Any:
    """Parse a JSON text, which may be inside a code fence."""
    if not text.lstrip().startswith("{"):
        text = text.rpartition("</think>")[2]  # of a template that begins in mid-thought
    match = _CODE_FENCE.fullmatch(text.strip())
    text = match[1] if match else text
    try:
        return loads_strict(text)
    except MalformedMessageError as error:
        problem = f"the answer is not a JSON object: {_explain_error(text, str(error))}"
        raise PatchError([f"{problem}; {expected}"]) from None


def _explain_error(text: str, error: str) -> str:
    """Return what is wrong with a JSON text, in words that a model can act on."""
    match = re.match(r"not JSON at character (\d+): ", error)
    if match is None:
        return error  # valid but ambiguous JSON: the message says what to do
    rest, start = text[int(match[1]) :], text.lstrip()
    if not start:
        return "it is empty"
    if "```" in start and start[0] not in "{[":
        return "its code fence is not closed, or has text around it; send the object alone"
    if start[0] not in "{[":
        return "there is text before the object; begin with {"
    if "Extra data" in error:
        return f"there is text after the object, from character {match[1]}; end with its last brace"
    if not rest.strip() or "Unterminated" in error:
        return "it breaks off in the middle; write all of it"
    faults = {
        "'": "quotes are single; use double quotes",
        "}": "there is a comma before a closing brace; leave it out",
        "]": "there is a comma before a closing bracket; leave it out",
        "/": "it has a comment; leave it out",
    }
    if (fault := faults.get(rest[0])) is None:
        if rest.startswith(("True", "False", "None")):
            fault = "it has Python's True, False or None; write true, false or null"
        elif "control character" in error:
            fault = "a text contains a line break or a tab; write \
             or \\t"
        elif "escape" in error:
            fault = "a text contains a single backslash; write two"
        elif "property name" in error:
            fault = "the name of a member has no quotes; use double quotes"
        elif "delimiter" in error:
            fault = "a comma or a colon is missing"
        else:
            fault = "a value is missing"
    return f"at character {match[1]} {fault}"


def to_json_value(value: Any, name: str) -> Any:
    """Convert a value to JSON: records to objects, times to texts."""
    try:
        converted = to_jsonable_python(value)
    except UnicodeEncodeError:  # a lone surrogate in a name: a finding of its own, later
        converted = value
    except ValueError as error:
        raise PatchError(
            [f"{name} cannot be written as JSON ({error}); use texts, numbers, lists and objects"]
        ) from None
    if findings := list(_find_not_finite(converted, name)):
        raise PatchError(shorten_findings(findings))
    return converted


def _find_not_finite(value: Any, path: str) -> Iterator[str]:
    if isinstance(value, float) and not math.isfinite(value):
        yield f"{path} is {value}, which JSON does not have; leave it out or send a number"
    members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, member in members:
        yield from _find_not_finite(member, f"{path}.{key}")
