"""Names that writer and reader must agree on: search attributes, queries, updates, signals, memo keys."""

from collections.abc import Mapping
from datetime import UTC, datetime
from types import MappingProxyType

HANDOFF = "handoff"
"""Signal: a sealed handoff, the only argument."""
HANDOFF_ANSWER = "handoff_answer"
"""Signal: a sealed acknowledgement, the only argument."""


ATTRIBUTE_PIPELINE = "BatonPipeline"
"""Search attribute: the pipeline, which is the workflow type."""
ATTRIBUTE_STAGE = "BatonStage"
"""Search attribute: the current stage; written when the status changes, otherwise at most once a second."""
ATTRIBUTE_STATUS = "BatonStatus"
"""Search attribute: `WAITING`, `PENDING_HANDOFF`, `SUSPENDED` or `FAILED`; otherwise absent: see Temporal's status."""
ATTRIBUTE_TASK = "BatonTaskId"
"""Search attribute: the task's id, shared by forks and continued runs."""
ATTRIBUTE_UNTIL = "BatonUntil"
"""Search attribute: the nearest deadline of what the run asks people, in whole seconds; else `NOT_WAITING`."""
NOT_WAITING = datetime(1970, 1, 1, tzinfo=UTC)
"""The deadline of a run that asks nothing. It is set from the start on: so a run knows that its server has the
attribute, without which each workflow task that set it would fail."""
SEARCH_ATTRIBUTES: Mapping[str, str] = MappingProxyType(
    {
        ATTRIBUTE_PIPELINE: "Keyword",
        ATTRIBUTE_STAGE: "Keyword",
        ATTRIBUTE_STATUS: "Keyword",
        ATTRIBUTE_TASK: "Keyword",
        ATTRIBUTE_UNTIL: "Datetime",
    }
)
"""All of Baton's search attributes, and their types."""

ANSWER = "answer"
"""Update and signal: a person answers an open question, an approval or one about a handoff."""
STEER = "steer"
"""Update: a person sends a note to an agent at work."""
CHECK_NOTE = "baton.check_note"
"""Activity: returns why such a note must not reach the agent, or an empty text."""
WAIT_FOR_WORKER = "baton.wait_for_worker"
"""Activity: succeeds on a worker that has what another lacked; its retries wait without adding history events."""
ROLLED_BACK = "baton.rolled_back"
"""Activity: reads from the history who rolled the run back and what the abandoned part spent."""
HANDOFF_CHUNK = "handoff_chunk"
"""Signal: a sealed chunk of a streamed handoff."""
QUERY_BATON = "baton"
"""Query: the baton as JSON."""
QUERY_HISTORY = "history"
"""Query: the history entries."""
QUERY_STATUS = "status"
"""Query: an `Overview`."""
QUERY_QUESTIONS = "questions"
"""Query: the open questions, each with its digest and votes."""
QUERY_EXPLAIN = "explain"
"""Query: the `Explanation` of a stage, by name; only in a pipeline with contracts."""
QUERY_DETAILS = "baton_details"
"""Query: the run's details as Markdown."""
QUERY_SHOWN = "shown"
"""Query: the full text of an exhibit of a question; the arguments are the question's id and a position from 1."""
QUERY_WAITING = "waiting"
"""Query: what the run waits for."""

MEMO_OUTCOME = "baton_outcome"
"""Memo: the outcome of the last step that no activity recorded; each upsert stays in the history."""
MEMO_QUESTIONS = "baton_questions"
"""Memo: the `OpenQuestions` of the run, as they were when the last one opened."""
MEMO_NOTES = "baton_notes"
"""Memo: the `OpenNotes` of people for the agents that work now."""
MEMO_TERMS = "baton_terms"
"""Memo: the `PublishedTerms` of a pipeline's baton, for readers that do not have its code."""
MEMO_UNDONE = "baton_undone"
"""Memo: a `CompensationRecord` of how a pipeline undoes external effects; each upsert stays in the history."""

FIRST_SEED = "baton_first_seed"
"""Extern function: returns the random seed that the run started with; a reset gives the run a new seed."""
FIT = "baton_fit"
"""Extern function: returns the `Fit` of the run, whether its code fits what it has recorded."""
SEALS = "baton_seals"
"""Extern function: tells workflow code that the worker signs handoffs."""

HANDOFF_REFUSED = "HandoffRefused"
"""Failure type: a stage's activity did not accept its handoff."""
ARTIFACT_LOST = "ArtifactLost"
"""Failure type: a stage needs an artifact that its worker's store has lost."""

HAND_OFF, STREAM_TO, RECEIVE_AS = "hand off to ", "stream to ", "receive as "
"""How the names of steps begin that wait for another pipeline."""
OUTSIDE = " outside"
"""How the name of a step ends that hands off to an agent outside."""

DEFAULT_STORE = ".baton/artifacts"
"""The location of a deployment's artifacts, unless `BATON_ARTIFACTS` names another folder or a bucket."""

A2A_EXTENSION = "urn:baton:a2a:1"
"""The URI of Baton's extension of A2A: schemas of skills, costs, cursors, signed handoffs (`docs/a2a.md`)."""
