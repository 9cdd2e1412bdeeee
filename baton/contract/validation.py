"""The checks of a contract, by its sender before sending and by its receiver before acting on it."""

import copy
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

from pydantic import ValidationError

from baton.contract.compiler import CompileReport, parse_trace_id
from baton.contract.draft import (
    BUDGET,
    EXCLUDED_TYPES,
    EXPLICIT,
    FAILED,
    TYPE,
    UNSUPPORTED,
    EventOutcome,
    bounded_tokens,
    is_unknown_source,
    make_label,
)
from baton.contract.records import (
    CONTRACT_CURRENT,
    CREATED_AT,
    DEFAULT_EXPIRY_MINUTES,
    MAX_EXPIRY_MINUTES,
    Check,
    Confidence,
    ContractVerdict,
    EventType,
    HandoffContract,
    SessionEvent,
    UnknownSchemaError,
)
from baton.contract.registry import OutputSchemas, tool_key, tool_keys
from baton.core.verdict import CLOCK, EXPIRES_AT, MAX_FINDING_LENGTH, TOLERANCE, Code, Finding, Verdict
from baton.wire.json_values import format_digest, repair_text, sha256
from baton.wire.records import has_text, parse_instant
from baton.wire.schemas import format_pointer, published_document, version_mismatch
from baton.wire.text import estimate_tokens, list_faults, quantity, single_line


def contract_schema() -> dict[str, Any]:
    """Return a copy of the contract's self-contained JSON Schema."""
    return copy.deepcopy(_document())


@cache
def _document() -> dict[str, Any]:
    return published_document(HandoffContract, "contract", CONTRACT_CURRENT)


_EXPIRED_AT = f"/step/contract{CREATED_AT}"


def expiry_findings(contract: Mapping[str, Any] | None, now: datetime) -> list[Finding]:
    """Return a finding if the contract has expired."""
    if not contract:
        return []
    try:
        minutes = int(contract.get("expiresAfterMinutes", DEFAULT_EXPIRY_MINUTES))
        created = datetime.fromisoformat(str(contract["createdAt"]))
        expires_at = created.replace(tzinfo=created.tzinfo or UTC) + timedelta(minutes=minutes)
    except (KeyError, TypeError, ValueError, OverflowError):
        text = "the contract does not say when it expires, so it counts as expired; compile it again"
        return [Finding(code=Code.INCOMPLETE_CONTEXT, text=text, at=_EXPIRED_AT)]
    if now <= expires_at:
        return []
    text = f"the contract expired at {expires_at.isoformat()}; compile it again"
    return [Finding(code=Code.INCOMPLETE_CONTEXT, text=text, at=_EXPIRED_AT)]


def is_expired_contract(verdict: Verdict) -> bool:
    """Return whether a handoff was rejected only for its expired contract, which its sender can compile again."""
    return bool(verdict.findings) and all(map(_is_expired_contract, verdict.findings))


def is_expired(verdict: Verdict) -> bool:
    """Return whether a handoff was rejected only because it, or its contract, had expired."""
    return bool(verdict.findings) and all(
        finding.at == EXPIRES_AT or _is_expired_contract(finding) for finding in verdict.findings
    )


def _is_expired_contract(finding: Finding) -> bool:
    return (finding.code, finding.at) == (Code.INCOMPLETE_CONTEXT, _EXPIRED_AT)


def list_objects(value: Any) -> list[tuple[int, Mapping[str, Any]]]:
    """Return the objects of a list with their indexes; empty if it is not a list."""
    items = value if isinstance(value, list) else []
    return [(index, item) for index, item in enumerate(items) if isinstance(item, Mapping)]


def list_texts(value: Any) -> list[tuple[int, str]]:
    """Return the texts of a list with their indexes; empty if it is not a list."""
    items = value if isinstance(value, list) else []
    return [(index, item) for index, item in enumerate(items) if isinstance(item, str)]


def as_text(value: Any) -> str:
    """Return a text, or an empty text for any other value."""
    return value if isinstance(value, str) else ""


def _finding(check: Check, text: str, at: str = "") -> Finding:
    return Finding(code=Code.SCHEMA_INVALID, text=text, at=at, rule=check.value)


def check_context(
    members: Mapping[str, Any], report: CompileReport | None, events: Sequence[SessionEvent] | None
) -> list[Finding]:
    """Return findings for content that was left out and still crosses, and for wrong labels."""
    findings = [] if report is None else _check_labels(members, report)
    labels = {label for _, label in list_texts(members.get("excludedContext"))}
    withheld = _find_withheld(report, events)
    crossed = None if report is None else report.ids(EventOutcome.FACT)
    events_by_id = {event.id: event for event in events or ()}
    withheld_contents = _index_contents(events_by_id, withheld)
    if report is None:
        missing = {label for label in withheld.values() if label and label not in labels}
        findings += [_missing_label_finding(label) for label in sorted(missing)]
    for number, fact in list_objects(members.get("facts")):
        findings += _check_fact(f"/facts/{number}", fact, withheld, crossed, events_by_id, withheld_contents)
    findings += _check_constraints(members, withheld, crossed, events_by_id)
    task = as_text(members.get("task")).strip()
    if task and (source := withheld_contents.get(task)):
        text = f"'/task' says what the event {source!r} says, which does not cross; put it in other words"
        findings.append(_finding(Check.CONTEXT, text, "/task"))
    return findings


def find_exclusion_label(event: SessionEvent) -> str | None:
    """Return the label of an event that never crosses under any policy, or None if it may cross."""
    if event.exclude_from_handoff:
        return make_label(EXPLICIT, "", event.type)
    if event.type in EXCLUDED_TYPES:
        return make_label(TYPE, "", event.type)
    if event.type is EventType.TOOL_RESULT and event.success is False:
        return make_label(FAILED, event.tool_name or "", event.type)
    if event.type is EventType.DECISION and event.accepted is not True:
        return make_label(UNSUPPORTED, "", event.type)
    return None


def _check_labels(members: Mapping[str, Any], report: CompileReport) -> list[Finding]:
    """Return findings for labels that differ from the compile report."""
    counts = report.label_counts
    labels = list_texts(members.get("excludedContext"))
    present = {label for _, label in labels}
    findings = [_missing_label_finding(label) for label in counts if label not in present]
    for number, label in labels:
        if label not in counts:
            text = f"the label {label!r} stands for nothing that was left out; take it out"
            findings.append(_finding(Check.CONTEXT, text, f"/excludedContext/{number}"))
    if "excludedCounts" in members and members["excludedCounts"] != dict(counts):
        text = "'/excludedCounts' does not count what was left out; copy it from the report"
        findings.append(_finding(Check.CONTEXT, text, "/excludedCounts"))
    return findings


def _missing_label_finding(label: str) -> Finding:
    text = f"the label {label!r} is missing, and something was left out under it; add it"
    return _finding(Check.CONTEXT, text, "/excludedContext")


def _find_withheld(report: CompileReport | None, events: Sequence[SessionEvent] | None) -> dict[str, str | None]:
    """Return the label of each event that must not cross."""
    if report is not None:
        return {entry.event_id: entry.label for entry in report.dispositions if entry.fate is EventOutcome.EXCLUDED}
    return {event.id: label for event in events or () if (label := find_exclusion_label(event))}


def _index_contents(events_by_id: Mapping[str, SessionEvent], withheld: Mapping[str, str | None]) -> dict[str, str]:
    """Return the ids of withheld events by their text and by its digest."""
    contents: dict[str, str] = {}
    for event_id in withheld:
        if event := events_by_id.get(event_id):
            if text := event.content.strip():
                contents.setdefault(text, event_id)
            if event.ref:
                contents.setdefault(event.ref, event_id)
    return contents


def _check_fact(
    at: str,
    fact: Mapping[str, Any],
    withheld: Mapping[str, str | None],
    crossed: frozenset[str] | None,
    events_by_id: Mapping[str, SessionEvent],
    contents: Mapping[str, str],
) -> list[Finding]:
    """Return findings for the event, the text or the confidence of a fact."""
    findings = []
    event_id, claim = as_text(fact.get("eventId")), as_text(fact.get("claim"))
    event = events_by_id.get(event_id)
    claim_keys = (claim.strip(), format_digest(sha256(claim.encode("utf-8", "surrogatepass"))))
    is_own_claim = event is not None and event_id not in withheld and event.content.strip() == claim.strip()
    copied_event = None if is_own_claim else next((contents[key] for key in claim_keys if key in contents), None)
    if event_id in withheld:
        reason = withheld[event_id] or "left out"
        findings.append(f"{at!r} is of the event {event_id!r}, which was left out as {reason!r}; take it out")
    elif copied_event:
        findings.append(f"{at!r} says what the event {copied_event!r} says, which does not cross; take it out")
    is_unknown = bool(events_by_id) and event is None
    if is_unknown or (crossed is not None and event_id not in crossed and event_id not in withheld):
        findings.append(f"{at!r} names the event {event_id!r}, which is not an event that crossed; name its own")
    if event is not None and fact.get("confidence") == Confidence.HIGH.value and not event.is_certain:
        findings.append(f"{at!r} is of high confidence, and its event is not a tool's success; say how sure it is")
    return [_finding(Check.CONTEXT, text, at) for text in findings]


def _check_constraints(
    members: Mapping[str, Any],
    withheld: Mapping[str, str | None],
    crossed: frozenset[str] | None,
    events_by_id: Mapping[str, SessionEvent],
) -> list[Finding]:
    """Return a finding for each constraint that is not a sentence of a user's message that crosses, or had no room."""
    findings = []
    for number, rule in list_objects(members.get("constraints")):
        event_id = as_text(rule.get("eventId"))
        event = events_by_id.get(event_id)
        had_no_room = (withheld.get(event_id) or "").startswith(f"{BUDGET}:")
        may_cross = had_no_room or (event_id not in withheld if crossed is None else event_id in crossed)
        is_said = not events_by_id or (event is not None and rule.get("text") in (event.prohibitions or ()))
        if not (may_cross and is_said):
            at = f"/constraints/{number}"
            text = f"{at!r} is not what a user forbade in a message that crosses; take it out"
            findings.append(_finding(Check.CONTEXT, text, at))
    return findings


MAX_CONTRACT_FINDINGS = 50
"""The maximum number of errors in a verdict; further ones are only counted."""
_MAX_NAME_LENGTH, _MAX_LABELS = 200, 200


def validate_contract(
    contract: HandoffContract | Mapping[str, Any],
    *,
    now: datetime,
    report: CompileReport | None = None,
    events: Iterable[SessionEvent] | None = None,
    max_tokens: int | None = None,
    schemas: OutputSchemas | None = None,
    parent_trace_id: str | None = None,
    tolerance: timedelta = TOLERANCE,
) -> ContractVerdict:
    """Return the verdict on a contract, with all errors and warnings."""
    members = _to_members(contract)
    errors, record = _check_shape(members)
    warnings: list[Finding] = []
    errors += _check_provenance(members, tolerance)
    errors += check_context(members, report, None if events is None else list(events))
    errors += _check_budget(members, record, max_tokens)
    errors += _check_tools(members)
    for found_errors, found_warnings in (_check_schema(members, schemas), _check_time(members, now, tolerance)):
        errors += found_errors
        warnings += found_warnings
    errors += _check_trace(members, parent_trace_id)
    warnings += _check_emptiness(members)
    return _build_verdict(members, errors, warnings)


def _to_members(contract: HandoffContract | Mapping[str, Any]) -> dict[str, Any]:
    """Return a contract as JSON members; one from the compiler may be invalid."""
    if isinstance(contract, HandoffContract):
        return contract.model_dump(mode="json", exclude_unset=True, warnings=False)
    return dict(contract)


def _check_shape(members: Mapping[str, Any]) -> tuple[list[Finding], HandoffContract | None]:
    """Return findings for members and types, and the record if there are none."""
    findings = []
    version = members.get("schemaVersion")
    try:
        reason = version_mismatch(version, CONTRACT_CURRENT) if isinstance(version, str) else None
    except ValueError:
        reason = None
    if reason:
        findings.append(_finding(Check.SHAPE, reason, "/schemaVersion"))
    try:
        return findings, HandoffContract.from_json_object(members)
    except ValidationError as error:
        faults = {format_pointer(fault["loc"]): fault for fault in reversed(list_faults(error))}
    for at, fault in reversed(faults.items()):
        text = f"{at!r} is missing; send it" if fault["type"] == "missing" else f"{at!r}: {fault['msg']}"
        findings.append(_finding(_select_check(at), text, at))
    return findings, None


def _select_check(pointer: str) -> Check:
    """Return the check that a shape fault at this pointer belongs to."""
    if pointer in ("/handoffId", "/receivingAgent", "/task"):
        return Check.REQUIRED
    if pointer == "/traceId":
        return Check.TRACE
    parts = pointer.split("/")
    return Check.PROVENANCE if len(parts) > 3 and parts[1] == "facts" and parts[3] == "source" else Check.SHAPE


def _check_provenance(members: Mapping[str, Any], tolerance: timedelta) -> list[Finding]:
    """Return findings for facts with an unknown source, or retrieved after the contract was made."""
    findings = []
    created = parse_instant(members.get("createdAt"))
    for number, fact in list_objects(members.get("facts")):
        source = fact.get("source")
        if not isinstance(source, Mapping):
            continue  # already reported as a fault of shape
        at = f"/facts/{number}/source"
        name = source.get("source")
        if isinstance(name, str) and is_unknown_source(name):
            text = f"{at + '/source'!r} is not known; a fact without a known source does not cross, leave it out"
            findings.append(_finding(Check.PROVENANCE, text, f"{at}/source"))
        retrieved = parse_instant(source.get("timestamp"))
        if created is not None and retrieved is not None and retrieved - created > tolerance:
            text = f"{at + '/timestamp'!r} is after the contract was made; write when the data was retrieved"
            findings.append(_finding(Check.PROVENANCE, text, f"{at}/timestamp"))
    return findings


def _check_budget(members: Mapping[str, Any], record: HandoffContract | None, max_tokens: int | None) -> list[Finding]:
    """Return a finding if a contract exceeds the token budget; if it is malformed, task and claims count."""
    if max_tokens is None:
        return []
    claims = (as_text(fact.get("claim")) for _, fact in list_objects(members.get("facts")))
    estimates = (estimate_tokens(text) for text in (as_text(members.get("task")), *claims))
    tokens = sum(estimates) if record is None else bounded_tokens(record)
    if tokens <= max_tokens:
        return []
    text = f"it takes {tokens} tokens and the receiver has room for {max_tokens}; leave facts out, or split the work"
    return [_finding(Check.BUDGET, text)]


def _check_tools(members: Mapping[str, Any]) -> list[Finding]:
    """Return findings for tools that are both allowed and forbidden."""
    forbidden = tool_keys(name for _, name in list_texts(members.get("forbiddenTools")))
    return [
        _finding(
            Check.TOOLS,
            f"the tool {name!r} is both allowed and forbidden; take it out of one of the lists",
            f"/allowedTools/{number}",
        )
        for number, name in list_texts(members.get("allowedTools"))
        if tool_key(name) in forbidden
    ]


def _check_schema(members: Mapping[str, Any], schemas: OutputSchemas | None) -> tuple[list[Finding], list[Finding]]:
    """Return an error for an unregistered output schema, or a warning if it was not checked."""
    ref = members.get("outputSchema")
    name, version = (ref.get("schemaName"), ref.get("version")) if isinstance(ref, Mapping) else (None, None)
    if not isinstance(name, str) or not isinstance(version, str):
        return [], []
    if schemas is None:
        text = f"the output schema {name!r} {version} was not looked up; give the registry of output schemas"
        return [], [_finding(Check.SCHEMA, text, "/outputSchema")]
    try:
        schemas.ref(name, version)
    except UnknownSchemaError as error:
        return [_finding(Check.SCHEMA, str(error), "/outputSchema")], []
    return [], []


def _check_trace(members: Mapping[str, Any], parent_trace_id: str | None) -> list[Finding]:
    """Return a finding if neither trace id nor traceparent links to the pipeline's trace."""
    trace_id = as_text(members.get("traceId"))
    if parent_trace_id is None or not has_text(trace_id):
        return []
    if parent_trace_id in (trace_id, parse_trace_id(as_text(members.get("traceparent")))):
        return []
    text = f"'/traceId' is not the trace of the sending pipeline, {parent_trace_id!r}; use that one"
    return [_finding(Check.TRACE, text, "/traceId")]


def _check_time(members: Mapping[str, Any], now: datetime, tolerance: timedelta) -> tuple[list[Finding], list[Finding]]:
    """Return errors for a future time or too long a lifetime, and a warning for an expired contract."""
    errors: list[Finding] = []
    minutes = members.get("expiresAfterMinutes", DEFAULT_EXPIRY_MINUTES)
    if isinstance(minutes, int) and minutes > MAX_EXPIRY_MINUTES:
        text = f"it lasts {minutes} minutes; the most is {MAX_EXPIRY_MINUTES}"
        errors.append(_finding(Check.TIME, text, "/expiresAfterMinutes"))
    created = parse_instant(members.get("createdAt"))
    if created is None:
        return errors, []
    if created - now > tolerance:
        problem = f"it was made {created - now} in the future, and clocks may differ by {tolerance}"
        text = f"{problem}; have a time service set both"
        # As for a message from the future: its sender would write the same again.
        errors.append(Finding(code=Code.SIGNATURE_INVALID, text=text, at=CREATED_AT, rule=CLOCK))
    lifetime = timedelta(minutes=min(max(minutes, 0), 10**9)) if isinstance(minutes, int) else None
    if lifetime is not None and now - created > lifetime:
        text = f"it expired {now - created - lifetime} ago; compile it again"
        return errors, [_finding(Check.TIME, text, "/expiresAfterMinutes")]
    return errors, []


def _check_emptiness(members: Mapping[str, Any]) -> list[Finding]:
    """Return warnings for a contract without facts or without tools."""
    findings = []
    if members.get("facts") == []:
        text = "it has no facts, which is usually a bug; see what was left out, and why"
        findings.append(_finding(Check.PROVENANCE, text, "/facts"))
    if members.get("allowedTools") == [] and members.get("toolsAsDeclared") is not True:
        text = "it allows no tools; grant some, if the task takes any"
        findings.append(_finding(Check.TOOLS, text, "/allowedTools"))
    return findings


def _build_verdict(members: Mapping[str, Any], errors: list[Finding], warnings: list[Finding]) -> ContractVerdict:
    """Return the verdict with a summary of the contract; the size of both is limited."""
    omitted = len(errors) - MAX_CONTRACT_FINDINGS
    if omitted > 0:
        summary = f"and {quantity(omitted, 'error')} more"
        errors = [*errors[:MAX_CONTRACT_FINDINGS], _finding(Check.SHAPE, summary)]
    counts = members.get("excludedCounts")
    known_counts = counts if isinstance(counts, Mapping) else {}
    labels = [label for _, label in list_texts(members.get("excludedContext"))][:_MAX_LABELS]
    excluded = {_shorten_name(label): known_counts.get(label, 1) for label in labels}
    return ContractVerdict(
        errors=[_shorten_finding(finding) for finding in errors],
        warnings=[_shorten_finding(finding) for finding in warnings],
        handoff_id=_shorten_name(members.get("handoffId")),
        receiving_agent=_shorten_name(members.get("receivingAgent")),
        trace_id=_shorten_name(members.get("traceId")),
        facts=len(list_objects(members.get("facts"))),
        tools=len(list_texts(members.get("allowedTools"))),
        excluded={label: count for label, count in excluded.items() if type(count) is int and 0 <= count < 2**53},
    )


def _shorten_name(value: Any) -> str:
    """Return a name on one line, within the length limit."""
    return single_line(repair_text(as_text(value)[:_MAX_NAME_LENGTH]))


def _shorten_finding(finding: Finding) -> Finding:
    """Limit and repair a finding's text, because it may quote names from the sender."""
    return finding.model_copy(
        update={"text": repair_text(finding.text[:MAX_FINDING_LENGTH]), "at": repair_text(finding.at)}
    )
