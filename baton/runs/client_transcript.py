"""Reads what agents were asked and answered from the artifact store, and records who opens what is sealed."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta

from pydantic import ValidationError

from baton.artifacts.store import ArtifactStore
from baton.core.transcript import KeptTranscript, Transcript
from baton.errors import ArtifactError
from baton.ledger.store import Ledger
from baton.personal.records import Erased
from baton.personal.store import Vault
from baton.personal.store_texts import open_text
from baton.runs.client_personal import record_opening, sealed_fields
from baton.runs.client_record import RunRecord
from baton.wire.json_values import JsonFields, as_json
from baton.wire.money import format_cost
from baton.wire.store_clock import now_utc
from baton.wire.text import format_duration


@dataclass(frozen=True)
class ReadTranscript(JsonFields):
    """The transcript of an attempt of a stage, or why there is none to read.

    Attributes:
        stage: The stage; empty if the artifact cannot be read.
        transcript: The transcript; None if it is sealed, has expired, was erased, or is not in the store.
        missing: Why there is none; empty if there is.
        is_sealed: Whether it is sealed: `open_transcripts` opens it.
    """

    stage: str
    transcript: Transcript | None = None
    missing: str = ""
    is_sealed: bool = False


async def read_transcripts(store: ArtifactStore, hashes: Sequence[str]) -> list[ReadTranscript]:
    """Return what the agents of a stage were asked and answered, as far as it is kept and not sealed.

    Args:
        store: The workers' artifact store.
        hashes: The artifacts, as in `Explanation.transcripts`.
    """
    return [_shown(await _load(store, hash)) for hash in hashes]


async def open_transcripts(
    store: ArtifactStore, hashes: Sequence[str], vault: Vault, ledger: Ledger, run: RunRecord, *, by: str, why: str
) -> list[ReadTranscript]:
    """Return the same with what is sealed, once the task's chain has a record of who opens it and why.

    Args:
        store: The workers' artifact store.
        hashes: The artifacts, as in `Explanation.transcripts`.
        vault: The deployment's vault.
        ledger: The deployment's ledger, with the keys that sign it.
        run: The run.
        by: Who opens them.
        why: Why.

    Raises:
        LedgerError: The opening could not be recorded, so nothing was opened.
        VaultError: A transcript cannot be opened.
        ValueError: ``by`` or ``why`` is empty.
    """
    loaded = [await _load(store, hash) for hash in hashes]
    await vault.reapply_erasures(ledger)
    fields: dict[str, list[str]] = {}
    for kept in loaded:
        if isinstance(kept, KeptTranscript) and kept.sealed is not None and not kept.has_expired(now_utc()):
            payload = await vault.without_erased(kept.sealed.payload)
            fields |= sealed_fields(payload)
    await record_opening(ledger, run, fields, by=by, why=why)
    return [await _opened(kept, vault, run.task_id or "") for kept in loaded]


@dataclass(frozen=True)
class Moment(JsonFields):
    """One thing that an agent did: it asked a model, called a tool, thought, said or decided something.

    Attributes:
        title: What, such as `request 1` or `tool crm.lookup`.
        at: When.
        remarks: By whom, the model, the time, the tokens and the cost.
        texts: What was asked and answered, each with a label.
    """

    title: str
    at: str
    remarks: list[str]
    texts: list[tuple[str, str]]


def moments(transcript: Transcript) -> list[Moment]:
    """Return what the agents of a stage did, in order; each message to a model once, where it was sent first.

    Args:
        transcript: The transcript.
    """
    results = {event.call_id: event for event in transcript.events if event.type == "tool_result"}
    calls = {event.id for event in transcript.events if event.type == "tool_call"}
    found = [*_requests(transcript)]
    for event in transcript.events:
        if event.type == "tool_result" and event.call_id in calls:
            continue
        result = results.get(event.id) if event.type == "tool_call" else None
        success = event.success if result is None else result.success
        remarks = [*filter(None, [event.agent]), *(["failed"] if success is False else [])]
        texts = [("arguments" if event.type == "tool_call" else "", event.text)]
        texts += [] if result is None else [("result", result.text)]
        texts = [(label, text) for label, text in texts if text]
        if texts or event.tool:
            title = f"tool {event.tool}" if event.tool else _TITLES.get(event.type, "said")
            found.append(Moment(title, event.at, remarks, texts))
    found.sort(key=lambda moment: moment.at)  # stable: what has the same time stays in order
    if transcript.answer and not transcript.requests:
        found.append(Moment("answer", "", [], [("", transcript.answer)]))
    return found


_TITLES = {
    "internal_note": "thought",
    "brainstorm": "loose idea",
    "rejected_assumption": "rejected",
    "decision": "decided",
    "user_message": "a person said",
}


def _requests(transcript: Transcript) -> Iterator[Moment]:
    """Yield the requests to models; of agents whose requests are not seen what they were given."""
    if not transcript.requests and transcript.messages:
        yield Moment("asked", "", [], [(message.role, message.text) for message in transcript.messages])
    told: set[int] = set()
    for number, request in enumerate(transcript.requests, 1):
        new = [index for index in request.asked if index not in told and index < len(transcript.messages)]
        told.update(new)
        messages = [transcript.messages[index] for index in new]
        spend = request.spend
        took = None if request.milliseconds is None else timedelta(milliseconds=request.milliseconds)
        remarks = [request.agent, request.model, "no answer" if took is None else format_duration(took)]
        if spend:
            tokens = f"{spend.prompt_tokens:,} tokens read, {spend.completion_tokens:,} written"
            remarks += [tokens, format_cost(spend.micro_usd, spend.tokens)]
        texts = [(message.role, message.text) for message in messages]
        texts += [("answered", request.said)] if request.said else []
        yield Moment(f"request {number}", as_json(request.at), [*filter(None, remarks)], texts)


async def _load(store: ArtifactStore, hash: str) -> KeptTranscript | str:
    """Return a transcript as it is kept, or why it cannot be read."""
    try:
        return KeptTranscript.model_validate_json(await store.get(hash))
    except ArtifactError as error:
        return f"it is not in this artifact store: {error}"
    except ValidationError:
        return "the artifact is not a transcript"


def _shown(kept: KeptTranscript | str) -> ReadTranscript:
    if isinstance(kept, str):
        return ReadTranscript("", missing=kept)
    if kept.has_expired(now_utc()):
        return ReadTranscript(kept.stage, missing=f"it was kept until {kept.until:%Y-%m-%d}")
    if kept.sealed is not None:
        return ReadTranscript(kept.stage, missing="it is sealed", is_sealed=True)
    return ReadTranscript(kept.stage, kept.transcript)


async def _opened(kept: KeptTranscript | str, vault: Vault, task_id: str) -> ReadTranscript:
    shown = _shown(kept)
    if isinstance(kept, str) or not shown.is_sealed or kept.sealed is None:
        return shown
    text = await open_text(vault, task_id, kept.sealed)
    if isinstance(text, Erased):
        return ReadTranscript(kept.stage, missing=f"{text.subject} was erased by request {text.erasure_id}")
    return ReadTranscript(kept.stage, Transcript.model_validate_json(text), is_sealed=True)
