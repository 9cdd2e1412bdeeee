"""Messages of A2A callers: what a first one starts, and how a later one answers what a run asks."""

import re
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from google.protobuf.json_format import MessageToDict
from pydantic import ValidationError

from baton.artifacts.store import ArtifactStore
from baton.core.artifacts import ArtifactRef
from baton.core.messages import PipelineInput
from baton.core.questions import Choice, Question
from baton.doors.client_a2a_tasks import JSON
from baton.doors.client_runs import Offer, read_input
from baton.errors import MalformedMessageError
from baton.lazy import needs_extra
from baton.wire.json_values import loads_strict, narrow_integers
from baton.wire.names import A2A_EXTENSION
from baton.wire.text import describe_faults

with needs_extra("a2a", __name__):
    from a2a.types.a2a_pb2 import Message
    from a2a.utils.errors import ContentTypeNotSupportedError, InvalidParamsError, UnsupportedOperationError

ORDER_TYPE = "application/vnd.baton.order+json"
"""The media type of a relay file."""
MAX_ID_LENGTH = 200
"""The most characters of a message's id and of a context."""
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_]+")
_MEMBERS = ("question", "choice", "data", "why")


@dataclass(frozen=True)
class Content:
    """The content of a message: its texts, the members of its JSON parts, and its files by name."""

    text: str
    members: dict[str, Any]
    files: Mapping[str, tuple[bytes, str]]
    skill: str | None

    @classmethod
    def of(cls, message: Message) -> "Content":
        """Read a message.

        Raises:
            A2AError: A part is not JSON, or a reference elsewhere.
        """
        texts: list[str] = []
        members: dict[str, Any] = {}
        files: dict[str, tuple[bytes, str]] = {}
        for name, most in (("message_id", message.message_id), ("context_id", message.context_id)):
            if len(most) > MAX_ID_LENGTH:
                raise InvalidParamsError(f"{name} has {len(most):,} characters; at most {MAX_ID_LENGTH} are allowed")
        for number, part in enumerate(message.parts, 1):
            match part.WhichOneof("content"):
                case "text" if part.media_type == JSON:
                    members |= _as_object(_parse(part.text), number)
                case "text":
                    texts.append(part.text)
                case "data":
                    members |= _as_object(narrow_integers(MessageToDict(part.data)), number)
                case "raw":
                    files[_input_name(part.filename, number, files)] = part.raw, part.media_type
                case _:
                    raise ContentTypeNotSupportedError(f"part {number}: send the bytes themselves; no URL is fetched")
        extra = narrow_integers(MessageToDict(message.metadata))
        own = extra.get(A2A_EXTENSION)
        skill = extra.get("skill") or (own.get("skill") if isinstance(own, dict) else None)
        return cls("\n\n".join(filter(None, texts)), members, files, skill if isinstance(skill, str) else None)


def read_order(message: Message) -> bytes | None:
    """Return the relay file that a message is, or None.

    Raises:
        A2AError: It has other parts, is for a task that there is, or came as data, whose numbers are floats.
    """
    if all(part.media_type != ORDER_TYPE for part in message.parts):
        return None
    if len(message.parts) != 1 or message.task_id:
        raise InvalidParamsError("an order is the only part of a message that starts a task of its own")
    match message.parts[0].WhichOneof("content"):
        case "raw":
            return message.parts[0].raw
        case "text":
            return message.parts[0].text.encode()
        case _:
            raise InvalidParamsError("send the order as bytes or text: as data its signature breaks")


def _parse(text: str) -> Any:
    try:
        return loads_strict(text)
    except MalformedMessageError as error:
        raise InvalidParamsError(f"a part of type {JSON} is not JSON: {error}") from None


def _as_object(value: Any, number: int) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InvalidParamsError(f"part {number}: expected a JSON object")
    return value


def _input_name(filename: str, number: int, taken: Container[str]) -> str:
    """Return a file's name as an input's; with the part's number if another file has it."""
    name = _NOT_IN_NAMES.sub("_", filename).strip("_") or f"file_{number}"
    while name in taken:
        name = f"{name}_{number}"
    return name


def choose_offer(offers: Mapping[str, Offer], skill: str | None) -> Offer:
    """Return the pipeline that a message is for: the skill in its metadata, or the only one."""
    if skill is None and len(offers) == 1:
        return next(iter(offers.values()))
    if skill is not None and skill in offers:
        return offers[skill]
    found = "no skill" if skill is None else repr(skill[:80])
    names = ", ".join(sorted(offers))
    raise InvalidParamsError(f"name the skill as metadata.skill; found {found}, and there are: {names}")


async def read_start(content: Content, offer: Offer, store: ArtifactStore | None) -> PipelineInput:
    """Return the input of the pipeline that a message starts; its files become artifacts.

    Raises:
        A2AError: There is nowhere to keep its files, or one has the name of another input.
        PipelineError: It does not fit the pipeline's input schema.
    """
    members = {"goal": content.text, **content.members} if content.text else dict(content.members)
    given = read_input(offer, members)
    if not content.files:
        return given
    if store is None:
        raise ContentTypeNotSupportedError("this service keeps no files; send text or JSON")
    if taken := given.inputs.keys() & content.files.keys():
        raise InvalidParamsError(f"two inputs are named {', '.join(sorted(taken))}; name the files otherwise")
    refs = {name: await _keep(store, name, *file) for name, file in content.files.items()}
    try:
        return PipelineInput(**{**members, "inputs": {**members.get("inputs", {}), **refs}})
    except ValidationError as error:
        raise InvalidParamsError(describe_faults(error)) from None


async def _keep(store: ArtifactStore, name: str, data: bytes, media_type: str) -> ArtifactRef:
    return ArtifactRef(id=name, type=media_type or "file", hash=await store.put(data), size=len(data))


@dataclass(frozen=True)
class Reply:
    """An answer to a question of a run."""

    question: str
    choice: str
    data: dict[str, Any] | None
    why: str


def read_reply(content: Content, questions: Sequence[Question]) -> Reply:
    """Return the answer that a message is.

    Members name it: `choice`, and where needed `question`, `data` and `why`. Other members are what the form of the
    only choice that has one asks for. A text is the name of a choice, fills in a form with one text, or has these
    members as JSON, as clients send it that know texts only.

    Raises:
        A2AError: Nothing is asked, or the message answers none of it.
    """
    members = content.members
    wanted = members.get("question")
    matching = [question for question in questions if wanted in (None, question.id)]
    if not matching:
        raise UnsupportedOperationError("the task does not ask this; get the task, and look at what it asks")
    question = matching[0]
    forms = [choice for choice in question.choices if choice.form is not None]
    choice = members.get("choice")
    if isinstance(choice, str) and question.choice(choice) is not None:
        data = members.get("data")
        if unknown := members.keys() - set(_MEMBERS):
            raise InvalidParamsError(f"unknown {', '.join(sorted(unknown))}; expected {', '.join(_MEMBERS)}")
        why = members.get("why", content.text)
        return Reply(question.id, choice, data if isinstance(data, dict) else None, str(why))
    if members and choice is None and len(forms) == 1:
        data = {name: value for name, value in members.items() if name != "question"}
        return Reply(question.id, forms[0].name, data, content.text)
    spoken = content.text.strip()
    named = question.choice(spoken.lower())
    if named is not None and (named.form is None or not _only_text(named)):
        return Reply(question.id, named.name, None, "")
    written = None if members else _find_object(spoken)
    if len(forms) == 1 and spoken and (name := _only_text(forms[0])):
        if written and "choice" in written:  # a denial must not count as the text of an approval
            raise InvalidParamsError(
                f"the text is JSON with a choice, and the form takes any text as {name!r}: send a JSON part"
            )
        return Reply(question.id, forms[0].name, {name: content.text}, "")
    if written:
        return read_reply(Content("", written, {}, None), questions)
    names = ", ".join(repr(each.name) for each in question.choices)
    raise InvalidParamsError(
        f"answer {question.title!r} with a JSON part: choice, one of {names}, and data for its form"
    )


def _find_object(text: str) -> dict[str, Any] | None:
    """Return the JSON object that a text is; None for any other text."""
    try:
        value = loads_strict(text)
    except MalformedMessageError:
        return None
    return value if isinstance(value, dict) else None


def _only_text(choice: Choice) -> str | None:
    """Return the name of the text of a form that has no other member; None for any other form."""
    properties = (choice.form or {}).get("properties")
    if not isinstance(properties, dict) or len(properties) != 1:
        return None
    name, schema = next(iter(properties.items()))
    return name if isinstance(schema, dict) and schema.get("type") == "string" else None
