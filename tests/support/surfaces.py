"""Everything that a run left behind, as named pieces of text, and a search of it for a marker in every spelling."""

import base64
import html
import json
import logging
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

from google.protobuf.message import Message
from temporalio.api.common.v1 import Payload
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client
from temporalio.common import RawValue

from baton import render
from baton.client import read_run
from baton.client.faces import ArtifactStore, describe
from baton.errors import HistoryError
from baton.ledger.store import Ledger

_HASH = re.compile(rb"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])")


class LogCapture(logging.Handler):
    """Keeps everything that is logged inside the `with` block, from DEBUG on, with its traceback."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.setFormatter(logging.Formatter("%(name)s %(levelname)s %(message)s"))
        self.lines: list[str] = []
        self._level_before = logging.NOTSET

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a record, and what it carries beside its message."""
        extra = {name: value for name, value in vars(record).items() if name not in _PLAIN and name != "message"}
        self.lines.append(self.format(record) + (f" {extra!r}" if extra else ""))

    def __enter__(self) -> Self:
        """Listen to every logger."""
        root = logging.getLogger()
        self._level_before = root.level
        root.setLevel(logging.DEBUG)
        root.addHandler(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop listening."""
        root = logging.getLogger()
        root.removeHandler(self)
        root.setLevel(self._level_before)


_PLAIN = frozenset(vars(logging.LogRecord("", 0, "", 0, "", (), None))) | {"asctime", "taskName"}


@dataclass
class Surfaces:
    """Named pieces of what a run left behind."""

    pieces: dict[str, bytes] = field(default_factory=dict)

    def add(self, name: str, content: object) -> None:
        """Add a piece: bytes and texts as they are, anything else as JSON."""
        if isinstance(content, str):
            content = content.encode()
        elif not isinstance(content, bytes):
            content = json.dumps(content, ensure_ascii=False, default=str).encode()
        self.pieces[name] = content

    def add_prompts(self, agent: str, prompts: Iterable[str]) -> None:
        """Add what an agent was shown, as `Script.prompts` has it."""
        for number, prompt in enumerate(prompts, 1):
            self.add(f"prompt/{agent}/{number}", prompt)

    def add_logs(self, logs: LogCapture) -> None:
        """Add what was logged."""
        for number, line in enumerate(logs.lines, 1):
            self.add(f"log/{number}", line)

    def add_files(self, folder: Path) -> None:
        """Add the bytes of every file below a folder."""
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                self.add(f"file/{path.relative_to(folder).as_posix()}", path.read_bytes())

    def only(self, *patterns: str) -> "Surfaces":
        """Return the pieces whose name matches one of these patterns (`prompt/review/*`)."""
        for pattern in patterns:
            if not any(fnmatchcase(name, pattern) for name in self.pieces):
                kinds = ", ".join(sorted({name.partition("/")[0] for name in self.pieces})) or "none"
                raise ValueError(f"no surface matches {pattern!r}; there are surfaces of these kinds: {kinds}")
        return self._where(lambda name: any(fnmatchcase(name, pattern) for pattern in patterns))

    def without(self, *patterns: str) -> "Surfaces":
        """Return the pieces whose names match none of the patterns."""
        return self._where(lambda name: not any(fnmatchcase(name, pattern) for pattern in patterns))

    def _where(self, wanted: Any) -> "Surfaces":
        return Surfaces({name: content for name, content in self.pieces.items() if wanted(name)})


async def surfaces_of(
    client: Client,
    workflow_id: str,
    *,
    prompts: Mapping[str, Sequence[str]] | None = None,
    logs: LogCapture | None = None,
    ledger: Ledger | None = None,
    artifacts: ArtifactStore | None = None,
    folders: Sequence[Path] = (),
) -> Surfaces:
    """Collect what a run left behind, earlier runs that continued as new and all its children included."""
    surfaces = Surfaces()
    tasks = await _add_histories(surfaces, client, workflow_id)
    for agent, prompt in (prompts or {}).items():
        surfaces.add_prompts(agent, prompt)
    if logs is not None:
        surfaces.add_logs(logs)
    for folder in folders:
        surfaces.add_files(folder)
    if ledger is not None:
        for task in sorted(tasks):
            for record in (await ledger.trace(task)).records:
                surfaces.add(f"ledger/{task}/{record.position}", record.header + b"\n" + record.message)
    if artifacts is not None:
        await _add_artifacts(surfaces, artifacts)
    return surfaces


async def _add_histories(found: Surfaces, client: Client, workflow_id: str) -> set[str]:
    """Add the histories of a run and of all that belong to it; return the ids of their tasks."""
    tasks: set[str] = set()
    newest = (await describe(client, workflow_id)).run_id
    waiting, seen = [(workflow_id, newest)], set[tuple[str, str]]()
    while waiting:
        one = waiting.pop()
        if one in seen:
            continue
        seen.add(one)
        place = f"{one[0]}/{one[1]}"
        async for event in client.get_workflow_handle(one[0], run_id=one[1]).fetch_history_events(page_size=1000):
            name = f"history/{place}/{event.event_id}-{EventType.Name(event.event_type)[len('EVENT_TYPE_') :]}"
            found.add(f"{name}/raw", event.SerializeToString())
            for number, payload in enumerate(payloads(event), 1):
                found.add(f"{name}/{number}", await _decoded(client, payload, name))
            if event.HasField("child_workflow_execution_started_event_attributes"):
                child = event.child_workflow_execution_started_event_attributes.workflow_execution
                waiting.append((child.workflow_id, child.run_id))
            if previous_run_id := event.workflow_execution_started_event_attributes.continued_execution_run_id:
                waiting.append((one[0], previous_run_id))
        try:
            run = await read_run(client, *one)
        except HistoryError:
            continue  # no pipeline
        if run.task_id:
            tasks.add(run.task_id)
        found.add(f"record/{place}", run.to_json_object())
        for step in run.steps:
            found.add(f"page/{place}/{step.seq}-{step.name}", render(run.baton_after(step)))
    return tasks


async def _decoded(client: Client, payload: Payload, place: str) -> bytes:
    try:
        [value] = await client.data_converter.decode([payload], [RawValue])
    except Exception as error:
        if "SIGNALED" in place:  # anybody can send anything, and its raw bytes are searched
            return payload.data
        raise HistoryError(
            f"a payload of {place!r} cannot be decoded, so it cannot be searched: {error}; give a client with the "
            "keys and the artifact store of the workers"
        ) from error
    data: bytes = value.payload.data
    return data


def payloads(message: Message) -> Iterator[Payload]:
    """Yield every payload in a message, however deep."""
    if isinstance(message, Payload):
        yield message
        return
    for descriptor, value in message.ListFields():
        if descriptor.message_type is None:
            continue
        if isinstance(value, Message):
            yield from payloads(value)
        elif descriptor.message_type.GetOptions().map_entry:
            yield from (payload for item in value.values() if isinstance(item, Message) for payload in payloads(item))
        else:
            yield from (payload for item in value for payload in payloads(item))


async def _add_artifacts(found: Surfaces, store: ArtifactStore) -> None:
    """Add the artifacts that are named anywhere, and those that these name."""
    searched: set[str] = set()
    while new := [name for name in found.pieces if name not in searched]:
        searched.update(new)
        for sha256 in {match.decode() for name in new for match in _HASH.findall(found.pieces[name])}:
            if await store.has(sha256):
                found.pieces.setdefault(f"artifact/{sha256}", await store.get(sha256))


SHORTEST = 8
"""How many characters a marker must have at least; a shorter one is found by chance."""

Searched = Surfaces | str | bytes


def assert_not_seen(marker: str, *where: Searched) -> None:
    """Assert that no surface has the marker in any spelling."""
    pieces = _pieces(where)
    if not any(pieces.values()):
        raise AssertionError(f"there is nothing to search for {marker!r}, which proves nothing")
    seen = sightings(marker, *where)
    if seen:
        listed = "\n".join(f"- {name}, {spelling}" for name, spelling in seen)
        raise AssertionError(f"the marker {marker!r} was seen in {len(seen)} of {len(pieces)} places:\n{listed}")


def assert_seen(marker: str, *where: Searched) -> None:
    """Assert that a marker is there: the control that shows that a search would have found it."""
    if not sightings(marker, *where):
        raise AssertionError(f"the marker {marker!r} was not seen in any of {len(_pieces(where))} places")


def sightings(marker: str, *where: Searched) -> list[tuple[str, str]]:
    """Return where a marker is: the name of each piece, and in which spelling, the first that was found."""
    if len(marker) < SHORTEST:
        raise ValueError(f"the marker {marker!r} has {len(marker)} characters; it needs {SHORTEST} or more")
    spellings = _spellings(marker)
    matches = []
    for name, content in _pieces(where).items():
        lowered = content.lower()
        for spelling, (any_case, exact) in spellings.items():
            if any(text in lowered for text in any_case) or any(text in content for text in exact):
                matches.append((name, spelling))
                break
    return matches


def _pieces(where: tuple[Searched, ...]) -> Mapping[str, bytes]:
    pieces: dict[str, bytes] = {}
    for number, surface in enumerate(where, 1):
        if isinstance(surface, Surfaces):
            pieces |= surface.pieces
        else:
            pieces[f"text {number}"] = surface.encode() if isinstance(surface, str) else surface
    return pieces


def _spellings(marker: str) -> dict[str, tuple[set[bytes], set[bytes]]]:
    """Return the spellings of a marker: those to be found in text in lower case, and those to be found as they are."""
    raw = marker.encode()
    cases = (marker, marker.lower(), marker.upper())  # bytes know the case of ASCII only
    escapes = (json.dumps, lambda text: json.dumps(text, ensure_ascii=False), html.escape, lambda text: quote(text, ""))
    escaped = {escape(case).strip('"') for escape in escapes for case in cases}
    encoded = {raw, *(marker.encode(name) for name in ("utf-16-le", "utf-16-be"))}
    return {
        "as it is": ({case.encode().lower() for case in cases}, set()),
        "escaped": ({text.encode().lower() for text in escaped}, set()),
        "in UTF-16": (set(), encoded - {raw}),
        "in hexadecimal": ({raw.hex().encode()}, set()),
        "in base64": (set(), {form for text in encoded for form in _in_base64(text)}),
    }


def _in_base64(text: bytes) -> set[bytes]:
    """Return what a text is in base64, beginning at any byte of three: the characters that it alone decides on."""
    matches = set()
    for padding in range(3):
        encoded = base64.b64encode(bytes(padding) + text)
        first = (padding * 8 + 5) // 6
        last = (padding + len(text)) * 8 // 6
        standard = encoded[first:last]
        matches |= {standard, standard.translate(bytes.maketrans(b"+/", b"-_"))}
    return matches
