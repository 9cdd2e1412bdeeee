"""What an agent is asked to answer, and how its answer is read: a patch as JSON, or a report as markdown.

A model that may answer `null` for what it did not change would clear the field, so the schema that a
model is given has no null: a field that stays as it is, is left out, and a list is emptied by `[]`.
"""

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TypeVar

from pydantic_core import to_jsonable_python

from baton.agents.schema_embedding import spelled_out
from baton.core.baton import Baton, BatonPatch
from baton.core.history import Spend
from baton.core.patching import shorten_findings
from baton.errors import MalformedMessageError, PatchError
from baton.handoff.store_gate import SchemaGate
from baton.report.rendering import FORMAT
from baton.wire.json_values import Json, json_kind, loads_strict

GivenT = TypeVar("GivenT")
MadeT = TypeVar("MadeT")
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
_FENCED = re.compile(r"```[\w-]*[ \t]*\n(.*)```", re.DOTALL)


class AnswerForm(StrEnum):
    """In which form an agent answers.

    Attributes:
        PATCH: A JSON object: `{"baton_patch": {…}}`, with `output` where the stage has an output.
        REPORT: A handoff report in markdown.
        TEXT: A text, which is the stage's output, such as an article; the baton stays as it is.
    """

    PATCH = "patch"
    REPORT = "report"
    TEXT = "text"


@dataclass(frozen=True)
class AgentAnswer:
    """What an agent answers to its work.

    Attributes:
        patch: The change to the baton.
        output: What the pipeline's code is to have, as JSON.
        report: A handoff report in markdown, instead of a patch.
        spend: What the run cost beyond what it has charged already (`AgentWork.charge`).
        said: What its model said beside the answer, for the session; empty if that is recorded already.
        turns: What the next stages are to read of the conversation, word for word; usually nothing.
        claimed: Whether the output is a claim of the model, to be recorded as such; not, where it is a mere means.

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


def answer_schema(
    baton_type: type[Baton] = Baton,
    writes: Iterable[str] | None = None,
    output: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the JSON Schema of an answer: a `baton_patch`, and the `output` where the stage has one."""
    fields = baton_type.model_fields
    may = (fields.keys() - {"goal"} if writes is None else frozenset(writes)) - {"artifacts"}
    of_type = baton_type.model_json_schema() if may - _MEMBERS.keys() else {}
    members = {name: deepcopy(_MEMBERS.get(name) or of_type["properties"][name]) for name in fields if name in may}
    patch = {
        "type": "object",
        "description": "Only the fields that changed; leave out what stays as it is.",
        "properties": members,
        "additionalProperties": False,
    }
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {"baton_patch": patch},
        "required": ["baton_patch"],
        "additionalProperties": False,
    }
    if output is not None:
        schema["properties"]["output"] = spelled_out(output)
        schema["required"].append("output")
    if definitions := of_type.get("$defs"):
        return spelled_out({**schema, "$defs": definitions})
    return schema


def how_to_answer(form: AnswerForm, schema: Mapping[str, Any] | None = None) -> str:
    """Return the sentence that tells an agent how to answer; our own words, so it stands outside the fence."""
    if form is AnswerForm.REPORT:
        return f"Do your part of the task. Then answer with a handoff report of this form and nothing else:\n{FORMAT}"
    if form is AnswerForm.TEXT:
        return "Do your part of the task. Then answer with the text that it asks for, whole, and nothing else."
    text = (
        "Do your part of the task. Then answer with one JSON object and nothing else. Its member `baton_patch` has "
        "only the fields you changed; `decision_log` has only your new decisions, each with its reason."
    )
    if schema is not None:
        text += f" The object fits this JSON Schema:\n```json\n{json.dumps(schema, ensure_ascii=False)}\n```"
    return text


def read_answer(raw: str | Mapping[str, Any], schema: Mapping[str, Any] | None = None) -> AgentAnswer:
    """Return the answer in what an agent returned as `{"baton_patch": …, "output": …}`."""
    expected = 'answer with {"baton_patch": {…}} and nothing else'
    value: Any = _loaded(raw) if isinstance(raw, str) else json_form(raw, "the answer")
    if not isinstance(value, Mapping):
        raise PatchError([f"the answer is not a JSON object, but {json_kind(value)}; {expected}"])
    findings = [f"the answer has a member {name!r}; {expected}" for name in value.keys() - {"baton_patch", "output"}]
    patch = value.get("baton_patch")
    if not isinstance(patch, Mapping):
        found = "no member 'baton_patch'" if "baton_patch" not in value else f"{json_kind(patch)} in 'baton_patch'"
        findings.append(f"the answer has {found}; {expected}")
        raise PatchError(sorted(findings))
    if not findings and schema is not None:
        findings = [f"the answer does not fit its schema: {one.text}" for one in _gate(schema)(dict(value))]
    if findings:
        raise PatchError(shorten_findings(sorted(findings)))
    return AgentAnswer(patch=dict(patch), output=value.get("output"))


MOST_REMEMBERED = 64
"""The most objects that a function remembers; then it starts over."""


def cached_by_identity(make: Callable[[GivenT], MadeT]) -> Callable[[GivenT], MadeT]:
    """Return a function that makes something of each object once; an object must not be changed afterwards."""
    made: dict[int, tuple[GivenT, MadeT]] = {}  # with the object, so that no other one gets its place in memory

    def remembered(given: GivenT) -> MadeT:
        known = made.get(id(given))
        if known is None:
            if len(made) >= MOST_REMEMBERED:
                made.clear()
            known = made[id(given)] = given, make(given)
        return known[1]

    return remembered


_gate = cached_by_identity(SchemaGate)
"""Returns the compiled gate of a schema."""


def _loaded(text: str) -> Any:
    """Return the value of a JSON text, which may stand in a code fence."""
    if not text.lstrip().startswith("{"):
        text = text.rpartition("</think>")[2]  # a thought that the model's server left in its text
    fenced = _FENCED.fullmatch(text.strip())
    text = fenced[1] if fenced else text
    try:
        return loads_strict(text)
    except MalformedMessageError as error:
        why = f"the answer is not a JSON object: {_fault(text, str(error))}"
        raise PatchError([f'{why}; answer with {{"baton_patch": {{…}}}} and nothing else']) from None


def _fault(text: str, error: str) -> str:
    """Return what is wrong with a JSON text, in a sentence that its author can act on."""
    found = re.match(r"not JSON at character (\d+): ", error)
    if found is None:
        return error  # of JSON that two readers would read differently; it says what to do
    rest, begin = text[int(found[1]) :], text.lstrip()
    if not begin:
        return "it is empty"
    if "```" in begin and begin[0] not in "{[":
        return "its code fence is not closed, or has text around it; send the object alone"
    if begin[0] not in "{[":
        return "text stands before the object; begin with {"
    if "Extra data" in error:
        return f"text stands behind the object, from character {found[1]}; end with its last brace"
    if not rest.strip() or "Unterminated" in error:
        return "it breaks off in the middle; write all of it"
    faults = {
        "'": "quotes are single; use double quotes",
        "}": "a comma stands before a closing brace; leave it out",
        "]": "a comma stands before a closing bracket; leave it out",
        "/": "it has a comment; leave it out",
    }
    if (fault := faults.get(rest[0])) is None:
        if rest.startswith(("True", "False", "None")):
            fault = "it has Python's True, False or None; write true, false or null"
        elif "control character" in error:
            fault = "a line break or a tab stands in a text; write \\n or \\t"
        elif "escape" in error:
            fault = "a backslash stands alone in a text; write two"
        elif "property name" in error:
            fault = "the name of a member has no quotes; use double quotes"
        elif "delimiter" in error:
            fault = "a comma or a colon is missing"
        else:
            fault = "a value is missing"
    return f"at character {found[1]} {fault}"


def json_form(value: Any, name: str) -> Any:
    """Return a value as JSON has it: records as objects, times as texts."""
    try:
        made = to_jsonable_python(value)
    except UnicodeEncodeError:  # half a character in a name: a finding, as one in a text
        made = value
    except ValueError as error:
        raise PatchError(
            [f"{name} cannot be written as JSON ({error}); use texts, numbers, lists and objects"]
        ) from None
    if endless := list(_not_finite(made, name)):
        raise PatchError(shorten_findings(endless))
    return made


def _not_finite(value: Any, at: str) -> Iterator[str]:
    if isinstance(value, float) and not math.isfinite(value):
        yield f"{at} is {value}, which JSON does not have; leave it out or send a number"
    members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in members:
        yield from _not_finite(inner, f"{at}.{key}")
