"""The checks of a contract, by its sender before it is sent and by its receiver before anybody acts on it."""

import copy
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

from pydantic import ValidationError

from baton.contract.compiler import CompileReport, trace_id_of
from baton.contract.draft import (
    EXCLUDED_TYPES,
    EXPLICIT,
    FAILED,
    TYPE,
    UNSUPPORTED,
    EventOutcome,
    contract_tokens,
    is_unknown_source,
    label_of,
)
from baton.contract.records import (
    CONTRACT_CURRENT,
    DEFAULT_EXPIRY_MINUTES,
    MOST_EXPIRY_MINUTES,
    Check,
    Confidence,
    ContractFinding,
    ContractVerdict,
    EventType,
    HandoffContract,
    SessionEvent,
    UnknownSchemaError,
    instant,
)
from baton.contract.registry import OutputSchemas, tool_key, tool_keys
from baton.core.verdict import MAX_FINDING_LENGTH, Code, Finding, Verdict
from baton.handoff.validation import TOLERANCE
from baton.wire.json_values import format_digest, repair_text, sha256
from baton.wire.records import has_text
from baton.wire.schemas import format_pointer, published_document, version_mismatch
from baton.wire.text import estimate_tokens, list_faults, quantity, single_line


def contract_schema() -> dict[str, Any]:
    """Return the JSON Schema of the contract, a new object that refers to nothing outside itself."""
    return copy.deepcopy(_document())


@cache
def _document() -> dict[str, Any]:
    return published_document(HandoffContract, "contract", CONTRACT_CURRENT)


EXPIRED_AT = "/step/contract/createdAt"
"""Where the finding of an expired contract points; it tells the sender that compiling again is all it takes."""


def expiry_findings(contract: Mapping[str, Any] | None, now: datetime) -> list[Finding]:
    """Return a finding if a contract has expired."""
    if not contract:
        return []
    try:
        minutes = int(contract.get("expiresAfterMinutes", DEFAULT_EXPIRY_MINUTES))
        created = datetime.fromisoformat(str(contract["createdAt"]))
        until = created.replace(tzinfo=created.tzinfo or UTC) + timedelta(minutes=minutes)
    except (KeyError, TypeError, ValueError, OverflowError):
        text = "the contract does not say when it expires, so it counts as expired; compile it again"
        return [Finding(code=Code.INCOMPLETE_CONTEXT, text=text, at=EXPIRED_AT)]
    if now <= until:
        return []
    text = f"the contract expired at {until.isoformat()}; compile it again"
    return [Finding(code=Code.INCOMPLETE_CONTEXT, text=text, at=EXPIRED_AT)]


def is_expired_contract(verdict: Verdict) -> bool:
    """Return whether a handoff was not accepted for its expired contract, and for nothing else."""
    return bool(verdict.findings) and all(finding.at == EXPIRED_AT for finding in verdict.findings)


def objects(value: Any) -> list[tuple[int, Mapping[str, Any]]]:
    """Return the objects in a list with their positions, or nothing if it is not a list."""
    return [(at, one) for at, one in enumerate(value) if isinstance(one, Mapping)] if isinstance(value, list) else []


def texts(value: Any) -> list[tuple[int, str]]:
    """Return the texts in a list with their positions, or nothing if it is not a list."""
    return [(at, one) for at, one in enumerate(value) if isinstance(one, str)] if isinstance(value, list) else []


def text_of(value: Any) -> str:
    """Return a text, or the empty one for anything else."""
    return value if isinstance(value, str) else ""


def context_findings(
    members: Mapping[str, Any], report: CompileReport | None, events: Sequence[SessionEvent] | None
) -> list[ContractFinding]:
    """Return what crosses although it was left out, and labels that do not tell what was."""
    findings = [] if report is None else _label_findings(members, report)
    labels = {label for _, label in texts(members.get("excludedContext"))}
    kept_back = _kept_back(report, events)
    crossed = None if report is None else report.ids(EventOutcome.FACT)
    known = {event.id: event for event in events or ()}
    said = _said(known, kept_back)
    if report is None:
        missing = {label for label in kept_back.values() if label and label not in labels}
        findings += [_missing_label(label) for label in sorted(missing)]
    for number, fact in objects(members.get("facts")):
        findings += _fact_findings(f"/facts/{number}", fact, kept_back, crossed, known, said)
    task = text_of(members.get("task")).strip()
    if task and (source := said.get(task)):
        text = f"'/task' says what the event {source!r} says, which does not cross; put it in other words"
        findings.append(ContractFinding(check=Check.CONTEXT, text=text, at="/task"))
    return findings


def never_crosses(event: SessionEvent) -> str | None:
    """Return the label under which an event is left out whatever the policy is, or None if it may cross."""
    if event.exclude_from_handoff:
        return label_of(EXPLICIT, "", event.type)
    if event.type in EXCLUDED_TYPES:
        return label_of(TYPE, "", event.type)
    if event.type is EventType.TOOL_RESULT and event.success is False:
        return label_of(FAILED, event.tool_name or "", event.type)
    if event.type is EventType.DECISION and event.accepted is not True:
        return label_of(UNSUPPORTED, "", event.type)
    return None


def _label_findings(members: Mapping[str, Any], report: CompileReport) -> list[ContractFinding]:
    """Return where a contract's labels are not those of what was left out."""
    counts = report.label_counts
    labels = texts(members.get("excludedContext"))
    there = {label for _, label in labels}
    findings = [_missing_label(label) for label in counts if label not in there]
    for number, label in labels:
        if label not in counts:
            text = f"the label {label!r} stands for nothing that was left out; take it out"
            findings.append(ContractFinding(check=Check.CONTEXT, text=text, at=f"/excludedContext/{number}"))
    if "excludedCounts" in members and members["excludedCounts"] != dict(counts):
        text = "'/excludedCounts' does not count what was left out; copy it from the report"
        findings.append(ContractFinding(check=Check.CONTEXT, text=text, at="/excludedCounts"))
    return findings


def _missing_label(label: str) -> ContractFinding:
    text = f"the label {label!r} is missing, and something was left out under it; add it"
    return ContractFinding(check=Check.CONTEXT, text=text, at="/excludedContext")


def _kept_back(report: CompileReport | None, events: Sequence[SessionEvent] | None) -> dict[str, str | None]:
    """Return the events that must not cross, each with its label."""
    if report is not None:
        return {one.event_id: one.label for one in report.dispositions if one.fate is EventOutcome.EXCLUDED}
    return {event.id: label for event in events or () if (label := never_crosses(event))}


def _said(known: Mapping[str, SessionEvent], kept_back: Mapping[str, str | None]) -> dict[str, str]:
    """Return what the events that were kept back say, as text or as its digest, each with the event."""
    said: dict[str, str] = {}
    for event_id in kept_back:
        if event := known.get(event_id):
            if text := event.content.strip():
                said.setdefault(text, event_id)
            if event.ref:
                said.setdefault(event.ref, event_id)
    return said


def _fact_findings(
    at: str,
    fact: Mapping[str, Any],
    kept_back: Mapping[str, str | None],
    crossed: frozenset[str] | None,
    known: Mapping[str, SessionEvent],
    said: Mapping[str, str],
) -> list[ContractFinding]:
    """Return what is wrong with a fact: its event, its text, or its confidence."""
    findings = []
    event_id, claim = text_of(fact.get("eventId")), text_of(fact.get("claim"))
    own = known.get(event_id)
    texts_of_claim = (claim.strip(), format_digest(sha256(claim.encode("utf-8", "surrogatepass"))))
    its_own = own is not None and event_id not in kept_back and own.content.strip() == claim.strip()
    copied = None if its_own else next((said[text] for text in texts_of_claim if text in said), None)
    if event_id in kept_back:
        reason = kept_back[event_id] or "left out"
        findings.append(f"{at!r} is of the event {event_id!r}, which was left out as {reason!r}; take it out")
    elif copied:
        findings.append(f"{at!r} says what the event {copied!r} says, which does not cross; take it out")
    if (known and own is None) or (crossed is not None and event_id not in crossed and event_id not in kept_back):
        findings.append(f"{at!r} names the event {event_id!r}, which is not an event that crossed; name its own")
    succeeded = own is not None and own.type is EventType.TOOL_RESULT and own.success is True
    if own is not None and fact.get("confidence") == Confidence.HIGH.value and not succeeded:
        findings.append(f"{at!r} is of high confidence, and its event is not a tool's success; say how sure it is")
    return [ContractFinding(check=Check.CONTEXT, text=text, at=at) for text in findings]


MOST_CONTRACT_FINDINGS = 50
"""How many errors a verdict names; of the rest it says how many there are."""
_LONGEST_NAME, _MOST_LABELS = 200, 200


def validate_contract(
    contract: HandoffContract | Mapping[str, Any],
    *,
    now: datetime,
    report: CompileReport | None = None,
    events: Iterable[SessionEvent] | None = None,
    max_tokens: int | None = None,
    schemas: OutputSchemas | None = None,
    parent_trace_id: str | None = None,
) -> ContractVerdict:
    """Return everything that is wrong with a contract: errors, which prevent the handoff, and warnings."""
    members = _members(contract)
    errors, record = _shape_findings(members)
    warnings: list[ContractFinding] = []
    errors += _provenance_findings(members)
    errors += context_findings(members, report, None if events is None else list(events))
    errors += _budget_findings(members, record, max_tokens)
    errors += _tool_findings(members)
    for wrong, odd in (_schema_findings(members, schemas), _time_findings(members, now)):
        errors += wrong
        warnings += odd
    errors += _trace_findings(members, parent_trace_id)
    warnings += _emptiness(members)
    return _verdict(members, errors, warnings)


def _members(contract: HandoffContract | Mapping[str, Any]) -> dict[str, Any]:
    """Return a contract as JSON; one that the compiler made may hold what no contract may."""
    if isinstance(contract, HandoffContract):
        return contract.model_dump(mode="json", exclude_unset=True, warnings=False)
    return dict(contract)


def _shape_findings(members: Mapping[str, Any]) -> tuple[list[ContractFinding], HandoffContract | None]:
    """Return what is wrong with members and kinds of values, and the record if nothing is."""
    findings = []
    version = members.get("schemaVersion")
    try:
        reason = version_mismatch(version, CONTRACT_CURRENT) if isinstance(version, str) else None
    except ValueError:
        reason = None
    if reason:
        findings.append(ContractFinding(check=Check.SHAPE, text=reason, at="/schemaVersion"))
    try:
        return findings, HandoffContract.from_json_object(members)
    except ValidationError as error:
        places = {format_pointer(one["loc"]): one for one in reversed(list_faults(error))}
    for at, fault in reversed(places.items()):
        text = f"{at!r} is missing; send it" if fault["type"] == "missing" else f"{at!r}: {fault['msg']}"
        findings.append(ContractFinding(check=_check_of(at), text=text, at=at))
    return findings, None


def _check_of(place: str) -> Check:
    """Return which of the document's checks a fault of shape at a place belongs to."""
    if place in ("/handoffId", "/receivingAgent", "/task"):
        return Check.REQUIRED
    if place == "/traceId":
        return Check.TRACE
    parts = place.split("/")
    return Check.PROVENANCE if len(parts) > 3 and parts[1] == "facts" and parts[3] == "source" else Check.SHAPE


def _provenance_findings(members: Mapping[str, Any]) -> list[ContractFinding]:
    """Return the facts whose source is unknown, or that were retrieved after the contract was made."""
    findings = []
    made = instant(members.get("createdAt"))
    for number, fact in objects(members.get("facts")):
        source = fact.get("source")
        if not isinstance(source, Mapping):
            continue  # a fault of shape, and reported as one
        at = f"/facts/{number}/source"
        name = source.get("source")
        if isinstance(name, str) and is_unknown_source(name):
            text = f"{at + '/source'!r} is not known; a fact without a known source does not cross, leave it out"
            findings.append(ContractFinding(check=Check.PROVENANCE, text=text, at=f"{at}/source"))
        retrieved = instant(source.get("timestamp"))
        if made is not None and retrieved is not None and retrieved - made > TOLERANCE:
            text = f"{at + '/timestamp'!r} is after the contract was made; write when the data was retrieved"
            findings.append(ContractFinding(check=Check.PROVENANCE, text=text, at=f"{at}/timestamp"))
    return findings


def _budget_findings(
    members: Mapping[str, Any], record: HandoffContract | None, most: int | None
) -> list[ContractFinding]:
    """Return why a contract is too long for its receiver; of one without shape task and claims count."""
    if most is None:
        return []
    claims = (text_of(fact.get("claim")) for _, fact in objects(members.get("facts")))
    rough = (estimate_tokens(text) for text in (text_of(members.get("task")), *claims))
    took = sum(rough) if record is None else contract_tokens(record)
    if took <= most:
        return []
    text = f"it takes {took} tokens and the receiver has room for {most}; leave facts out, or split the work"
    return [ContractFinding(check=Check.BUDGET, text=text)]


def _tool_findings(members: Mapping[str, Any]) -> list[ContractFinding]:
    """Return the tools that are both allowed and forbidden."""
    forbidden = tool_keys(name for _, name in texts(members.get("forbiddenTools")))
    return [
        ContractFinding(
            check=Check.TOOLS,
            text=f"the tool {name!r} is both allowed and forbidden; take it out of one of the lists",
            at=f"/allowedTools/{number}",
        )
        for number, name in texts(members.get("allowedTools"))
        if tool_key(name) in forbidden
    ]


def _schema_findings(
    members: Mapping[str, Any], schemas: OutputSchemas | None
) -> tuple[list[ContractFinding], list[ContractFinding]]:
    """Return an error for an output schema that is not registered, or a warning where it was not checked."""
    found = members.get("outputSchema")
    name, version = (found.get("schemaName"), found.get("version")) if isinstance(found, Mapping) else (None, None)
    if not isinstance(name, str) or not isinstance(version, str):
        return [], []
    if schemas is None:
        text = f"the output schema {name!r} {version} was not looked up; give the registry of output schemas"
        return [], [ContractFinding(check=Check.SCHEMA, text=text, at="/outputSchema")]
    try:
        schemas.ref(name, version)
    except UnknownSchemaError as error:
        return [ContractFinding(check=Check.SCHEMA, text=str(error), at="/outputSchema")], []
    return [], []


def _trace_findings(members: Mapping[str, Any], parent: str | None) -> list[ContractFinding]:
    """Return why the trace does not link to the pipeline's; a traceparent may do it instead."""
    trace_id = text_of(members.get("traceId"))
    if parent is None or not has_text(trace_id):
        return []
    if parent in (trace_id, trace_id_of(text_of(members.get("traceparent")))):
        return []
    text = f"'/traceId' is not the trace of the pipeline that hands on, {parent!r}; carry that one on"
    return [ContractFinding(check=Check.TRACE, text=text, at="/traceId")]


def _time_findings(members: Mapping[str, Any], now: datetime) -> tuple[list[ContractFinding], list[ContractFinding]]:
    """Return errors for what was made in the future or lasts too long, and a warning for what has expired."""
    errors: list[ContractFinding] = []
    minutes = members.get("expiresAfterMinutes", DEFAULT_EXPIRY_MINUTES)
    if isinstance(minutes, int) and minutes > MOST_EXPIRY_MINUTES:
        text = f"it lasts {minutes} minutes; the most is {MOST_EXPIRY_MINUTES}"
        errors.append(ContractFinding(check=Check.TIME, text=text, at="/expiresAfterMinutes"))
    made = instant(members.get("createdAt"))
    if made is None:
        return errors, []
    if made - now > TOLERANCE:
        ahead = f"it was made {made - now} in the future, and clocks may differ by {TOLERANCE}"
        text = f"{ahead}; have a time service set both"
        errors.append(ContractFinding(check=Check.TIME, text=text, at="/createdAt"))
    lasts = timedelta(minutes=min(max(minutes, 0), 10**9)) if isinstance(minutes, int) else None
    if lasts is not None and now - made > lasts:
        text = f"it expired {now - made - lasts} ago; compile it again"
        return errors, [ContractFinding(check=Check.TIME, text=text, at="/expiresAfterMinutes")]
    return errors, []


def _emptiness(members: Mapping[str, Any]) -> list[ContractFinding]:
    """Return warnings for a contract without facts, which is usually a bug, or without tools."""
    findings = []
    if members.get("facts") == []:
        text = "it has no facts, which is usually a bug; see what was left out, and why"
        findings.append(ContractFinding(check=Check.PROVENANCE, text=text, at="/facts"))
    if members.get("allowedTools") == []:
        text = "it allows no tools; grant some, if the task takes any"
        findings.append(ContractFinding(check=Check.TOOLS, text=text, at="/allowedTools"))
    return findings


def _verdict(
    members: Mapping[str, Any], errors: list[ContractFinding], warnings: list[ContractFinding]
) -> ContractVerdict:
    """Return the verdict, with what a log line needs of the contract; both stay short whatever a sender wrote."""
    more = len(errors) - MOST_CONTRACT_FINDINGS
    if more > 0:
        told = f"and {quantity(more, 'error')} more"
        errors = [*errors[:MOST_CONTRACT_FINDINGS], ContractFinding(check=Check.SHAPE, text=told)]
    counts = members.get("excludedCounts")
    known = counts if isinstance(counts, Mapping) else {}
    labels = [label for _, label in texts(members.get("excludedContext"))][:_MOST_LABELS]
    excluded = {_named(label): known.get(label, 1) for label in labels}
    return ContractVerdict(
        errors=[_short(one) for one in errors],
        warnings=[_short(one) for one in warnings],
        handoff_id=_named(members.get("handoffId")),
        receiving_agent=_named(members.get("receivingAgent")),
        trace_id=_named(members.get("traceId")),
        facts=len(objects(members.get("facts"))),
        tools=len(texts(members.get("allowedTools"))),
        excluded={label: count for label, count in excluded.items() if type(count) is int and 0 <= count < 2**53},
    )


def _named(value: Any) -> str:
    """Return a name as a log line shows it."""
    return single_line(repair_text(text_of(value)[:_LONGEST_NAME]))


def _short(finding: ContractFinding) -> ContractFinding:
    """Return a finding whose sentence is cut and can be written, for it may quote a name that a sender wrote."""
    return finding.model_copy(
        update={"text": repair_text(finding.text[:MAX_FINDING_LENGTH]), "at": repair_text(finding.at)}
    )
