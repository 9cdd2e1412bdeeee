"""Material of the handoff tests: the document's example, its required members, and generators."""

import copy
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

from hypothesis import strategies as st

from baton import ReceiverRequirements
from tests.core.material import json_objects, json_values, texts

HANDOFF_ID = "7c9e6679-7425-40de-944b-e07fc1f90ae7"
TASK_ID = "550e8400-e29b-41d4-a716-446655440000"
PARENT_ID = "1b9d6bcd-bbfd-4b2d-9b5d-ab8dfbbd4bed"
EXECUTION_ID = "16fd2706-8baf-433b-82eb-8c7fada847da"
TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
AT = datetime(2026, 6, 12, 9, 30, tzinfo=UTC)

EXAMPLE: dict[str, Any] = {
    "schemaVersion": "2.0",
    "handoffId": HANDOFF_ID,
    "taskId": TASK_ID,
    "parentHandoffId": PARENT_ID,
    "fromAgent": {"agentId": "legal-analysis-agent", "agentVersion": "2.1.0", "executionId": EXECUTION_ID},
    "toAgent": {"agentType": "risk-scoring-agent", "agentVersion": ">=1.5.0"},
    "timestamp": "2026-06-12T09:30:00Z",
    "taskDescription": "Score the liability risk of the extracted clauses",
    "completedSubtasks": [
        {
            "subtaskId": "s1",
            "description": "Extract limitation-of-liability clauses",
            "result": {"clauses": []},
            "completedAt": "2026-06-12T09:29:58Z",
        }
    ],
    "remainingSubtasks": [
        {"subtaskId": "s2", "description": "Score each clause for liability risk"},
        {"subtaskId": "s3", "description": "Produce executive risk summary"},
    ],
    "currentState": {"extractedClauses": ["4.2"], "riskFlags": [], "pendingDecisions": []},
    "relevantContext": [{"source": "Contract PDF 2026-06-11", "excerpt": "...", "relevanceScore": 0.92}],
    "constraints": ["returnJSON:true", "maxResponseTokens:2000", "scoringFramework:iso31000"],
    "costTracking": {
        "costSpentSoFarUSD": 0.08,
        "costBudgetRemainingUSD": 0.32,
        "tokenSpent": {"prompt": 4200, "completion": 1800},
    },
    "conversationHistorySummary": (
        "Agent extracted 12 clauses from the contract. Clause 4.2 flagged as potentially unlimited liability. "
        "Clause 7.1 noted as industry-standard. [Full history compressed — last 3 turns verbatim below]"
    ),
    "conversationHistoryVerbatim": [],
    "toolCallHistory": [
        {
            "tool": "pdf_extract",
            "calledAt": "2026-06-12T09:29:41Z",
            "inputHash": "sha256:" + "0" * 64,
            "outputTokens": 3200,
        }
    ],
    "traceparent": TRACEPARENT,
}
"""The message of S3 §5.2, its placeholders (`uuid-v4`, `ISO-8601`, `sha256:...`) filled in and nothing else changed."""

FULL: dict[str, Any] = {**EXAMPLE, "conversationHistoryVerbatim": [{"content": "Which clause limits liability?"}]}
"""The example with a turn, so that every required member of the document stands in it somewhere."""

OPTIONAL: dict[str, Any] = {
    "signature": "hmac-sha256:" + "0f" * 32,
    "receiverList": ["risk-scoring-agent", "summary-agent"],
    "personalDataPayload": {"subject-1": "AAEC"},
    "keyId": "k1",
    "audience": "contract_review/score",
    "audienceRun": "01a224c1-f1d5-70ca-a432-1b2515988176",
    "namespace": "default",
    "expiresAt": "2026-06-12T10:30:00Z",
    "initial": False,
    "trail": {"hops": 1, "recent": [{"sender": "a", "receiver": "b", "state": "sha256:" + "0" * 64}]},
    "step": {"seq": 2, "params": {"depth": 1}},
}
"""A good value for every optional member that this release knows."""

TOP_LEVEL = (
    "schemaVersion",
    "handoffId",
    "taskId",
    "parentHandoffId",
    "fromAgent",
    "toAgent",
    "timestamp",
    "taskDescription",
    "completedSubtasks",
    "remainingSubtasks",
    "currentState",
    "relevantContext",
    "constraints",
    "costTracking",
    "conversationHistorySummary",
    "conversationHistoryVerbatim",
    "toolCallHistory",
    "traceparent",
)
"""The eighteen members of the document, in its order."""

NESTED = (
    "fromAgent/agentId",
    "fromAgent/agentVersion",
    "fromAgent/executionId",
    "toAgent/agentType",
    "toAgent/agentVersion",
    "completedSubtasks/0/subtaskId",
    "completedSubtasks/0/description",
    "completedSubtasks/0/result",
    "completedSubtasks/0/completedAt",
    "remainingSubtasks/0/subtaskId",
    "remainingSubtasks/0/description",
    "relevantContext/0/source",
    "relevantContext/0/excerpt",
    "relevantContext/0/relevanceScore",
    "costTracking/costSpentSoFarUSD",
    "costTracking/costBudgetRemainingUSD",
    "costTracking/tokenSpent",
    "costTracking/tokenSpent/prompt",
    "costTracking/tokenSpent/completion",
    "conversationHistoryVerbatim/0/content",
    "toolCallHistory/0/tool",
    "toolCallHistory/0/calledAt",
    "toolCallHistory/0/inputHash",
    "toolCallHistory/0/outputTokens",
)
"""Every member that the document shows inside those."""

REQUIRED = TOP_LEVEL + NESTED

_NO_UUID4, _NO_TIME, _NO_SUM = "7c9e6679-7425-10de-944b-e07fc1f90ae7", "2026-06-12T09:30:00", "sha256:0f"
WRONG_FORMS: dict[str, list[Any]] = {
    "schemaVersion": ["2", "1.0"],
    "handoffId": [_NO_UUID4, "risk-review-2026-001"],
    "taskId": [_NO_UUID4],
    "parentHandoffId": [_NO_UUID4, ""],
    "fromAgent/agentId": [""],
    "fromAgent/agentVersion": ["2.1", "latest"],
    "fromAgent/executionId": [_NO_UUID4],
    "toAgent/agentType": [""],
    "toAgent/agentVersion": ["at least 1.5.0"],
    "timestamp": [_NO_TIME, "12 June 2026"],
    "taskDescription": ["", " "],
    "completedSubtasks/0/subtaskId": [""],
    "completedSubtasks/0/description": [""],
    "completedSubtasks/0/completedAt": [_NO_TIME],
    "remainingSubtasks/0/subtaskId": [""],
    "remainingSubtasks/0/description": [""],
    "relevantContext/0/source": [""],
    "relevantContext/0/relevanceScore": [-0.01, 1.01, 92],
    "constraints/0": ["returnJSON"],
    "costTracking/costSpentSoFarUSD": [-0.01],
    "costTracking/tokenSpent/prompt": [-1, 0.5],
    "costTracking/tokenSpent/completion": [-1, 0.5],
    "toolCallHistory/0/tool": [""],
    "toolCallHistory/0/calledAt": [_NO_TIME],
    "toolCallHistory/0/inputHash": [_NO_SUM, "0f" * 32],
    "toolCallHistory/0/outputTokens": [-1, 0.5],
    "traceparent": ["", TRACEPARENT.upper()],
}
"""Values of the right type that are none of the member's, for every member that has a form of its own."""

RECEIVER = ReceiverRequirements("risk-scoring-agent", "1.6.0", frozenset({"extractedClauses"}))
"""The agent that the example is meant for."""


def changed(path: str, value: Any, message: dict[str, Any] = FULL) -> dict[str, Any]:
    """Return a copy of a message in which one member has another value."""
    return _edit(message, path, lambda owner, name: owner.__setitem__(name, value))


def without(path: str, message: dict[str, Any] = FULL) -> dict[str, Any]:
    """Return a copy of a message that lacks one member."""
    return _edit(message, path, lambda owner, name: owner.__delitem__(name))


def _edit(message: dict[str, Any], path: str, edit: Callable[[Any, Any], None]) -> dict[str, Any]:
    copied = copy.deepcopy(message)
    *above, last = [int(step) if step.isdigit() else step for step in path.split("/")]
    owner: Any = copied
    for step in above:
        owner = owner[step]
    edit(owner, last)
    return copied


def wrong_values(path: str) -> list[Any]:
    """Return values of other JSON types than the full example's value at a path."""
    owner: Any = FULL
    for step in path.split("/"):
        owner = owner[int(step) if step.isdigit() else step]
    good = "number" if type(owner) in (int, float) else type(owner).__name__
    candidates = {"str": "4200", "number": 7, "list": ["x"], "dict": {"x": 1}, "bool": True}
    wrong = [value for kind, value in candidates.items() if kind != good]
    return wrong if path == "parentHandoffId" else [*wrong, None]


uuids = st.uuids(version=4).map(str)
instants = st.builds(
    lambda seconds, micro, offset: (
        (AT + timedelta(seconds=seconds, microseconds=micro))
        .astimezone(timezone(timedelta(minutes=offset)))
        .isoformat()
        .replace("+00:00", "Z")
    ),
    st.integers(-63_800_000_000, 251_500_000_000),
    st.integers(0, 999_999),
    st.just(0) | st.integers(-1439, 1439),
)
"""Times from the year 5 to the year 9995, with every offset that there is."""
names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
statements = texts.map(lambda text: f"Say {text}")
counts = st.integers(0, 2**53 - 1)
versions = st.sampled_from(["0.0.1", "1.2.3", "2.0.0-rc.1", "10.20.30+build.7"])
ranges = st.sampled_from([">=1.5.0", "^1.4", "~2.1.0", "1.x", "*", ">=1.2, <3", "1.0 - 1.9", "1 || 2"])
amounts = st.integers(-(10**15), 10**15).map(lambda micro: micro / 10**6)
digests = st.binary(min_size=32, max_size=32).map(lambda raw: "sha256:" + raw.hex())
unknown = st.dictionaries(st.sampled_from(["x-note", "handoff_id", "agent_id", "später"]), json_values, max_size=2)


def _part(**members: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Return objects with these members, and sometimes unknown ones."""
    return st.builds(lambda known, more: {**more, **known}, st.fixed_dictionaries(members), unknown)


_hops = _part(sender=names, receiver=names, state=digests)
_optional: dict[str, st.SearchStrategy[Any]] = {
    "signature": st.binary(min_size=1, max_size=8).map(lambda raw: "ed25519:" + raw.hex()),
    "receiverList": st.lists(names, min_size=1, max_size=3, unique=True),
    "personalDataPayload": json_objects,
    "keyId": names,
    "audience": names,
    "expiresAt": instants,
    "initial": st.booleans(),
    "trail": _part(hops=counts, recent=st.lists(_hops, max_size=2)),
}
_required = _part(
    schemaVersion=st.sampled_from(["2.0", "2.1"]),
    handoffId=uuids,
    taskId=uuids,
    parentHandoffId=uuids | st.none(),
    fromAgent=_part(agentId=names, agentVersion=versions, executionId=uuids),
    toAgent=_part(agentType=names, agentVersion=ranges),
    timestamp=instants,
    taskDescription=statements | st.just("INITIAL"),
    completedSubtasks=st.lists(
        _part(subtaskId=names, description=statements, result=json_objects, completedAt=instants), max_size=2
    ),
    remainingSubtasks=st.lists(_part(subtaskId=names, description=statements), max_size=2),
    currentState=json_objects,
    relevantContext=st.lists(
        _part(source=statements, excerpt=texts, relevanceScore=st.floats(0, 1) | st.integers(0, 1)), max_size=2
    ),
    constraints=st.lists(texts.map(lambda text: f"note:x{text}"), max_size=2),
    costTracking=_part(
        costSpentSoFarUSD=amounts.map(abs),
        costBudgetRemainingUSD=amounts,
        tokenSpent=_part(prompt=counts, completion=counts),
    ),
    conversationHistorySummary=texts,
    conversationHistoryVerbatim=st.lists(_part(content=texts), max_size=2),
    toolCallHistory=st.lists(_part(tool=names, calledAt=instants, inputHash=digests, outputTokens=counts), max_size=2),
    traceparent=st.just(TRACEPARENT),
)
messages: st.SearchStrategy[dict[str, Any]] = st.builds(
    lambda required, optional: {**required, **optional}, _required, st.fixed_dictionaries({}, optional=_optional)
)
"""Valid messages of every kind, hostile texts and unknown members among them."""


def places(value: Any, path: str = "") -> list[str]:
    """Return the path of every member and item in a JSON value."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    paths: list[str] = []
    for name, member in inner:
        if "/" not in str(name) and not (isinstance(name, str) and name.isdigit()):
            paths += [f"{path}{name}", *places(member, f"{path}{name}/")]
    return paths


@st.composite
def damaged(draw: st.DrawFn) -> dict[str, Any]:
    """Return a message with one change, which may make it invalid."""
    message = draw(messages)
    path = draw(st.sampled_from(places(message)))
    if draw(st.booleans()):
        return without(path, message)
    return changed(path, draw(_odd_values), message)


_odd_values: st.SearchStrategy[Any] = st.one_of(
    json_values,
    uuids,
    instants,
    versions,
    ranges,
    st.sampled_from(
        ["", " ", "\u200b", "x:", "x:y", "x: y", "9", "2.0", "3.0", "2026-02-30T00:00:00Z", "2026-06-12 09:30:00Z"]
    ),
    st.sampled_from([0, -1, 1, 1.0, 1.5, -0.5, 2**53, -(2**53), 1e9, 1e9 + 1, 1e300]),
    st.just("n" * 201),
)
