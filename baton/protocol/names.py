"""Names on the wire, each once, so that where it is written and where it is read cannot diverge."""

ATTRIBUTE_PIPELINE = "BatonPipeline"
"""Search attribute: the pipeline, that is the workflow's type."""
ATTRIBUTE_STAGE = "BatonStage"
"""Search attribute: the stage the pipeline is at; written when its status changes, else once a second at most."""
ATTRIBUTE_STATUS = "BatonStatus"
"""Search attribute: `WAITING`, `PENDING_HANDOFF` or `FAILED`; absent while Temporal's own status says it all."""
ATTRIBUTE_TASK = "BatonTaskId"
"""Search attribute: the task's id, the same across forks and continued runs."""
SEARCH_ATTRIBUTES = (ATTRIBUTE_PIPELINE, ATTRIBUTE_STAGE, ATTRIBUTE_STATUS, ATTRIBUTE_TASK)
"""All search attributes of Baton; each is a Keyword."""

DECIDE = "decide"
"""Update and signal: a person decides about an open approval."""
RESOLVE_HANDOFF = "resolve_handoff"
"""Update: a person decides about a handoff that waits."""
ROLLED_BACK = "rolled_back"
"""Signal: the run is told that it was rolled back, by whom and why."""
QUERY_BATON = "baton"
"""Query: the baton as JSON."""
QUERY_HISTORY = "history"
"""Query: the history entries."""
QUERY_STATUS = "status"
"""Query: an `Overview`."""
QUERY_INBOX = "inbox"
"""Query: the handoffs that wait for a person."""
QUERY_EXPLAIN = "explain"
"""Query: an `Explanation` of a stage, by its name; in a pipeline with contracts."""
QUERY_WAITING = "waiting"
"""Query: what the run waits for."""

MEMO_OUTCOME = "baton_outcome"
"""Memo: the outcome of the last step that no activity recorded; each upsert of it stays in the history."""
MEMO_FIELDS = "baton_fields"
"""Memo: the first values of the fields that a derived baton has beyond the eight; a reader does not know its type."""

ASKS_WHETHER_IT_SEALS = "baton: is what leaves this worker sealed?"
"""A value that a pipeline has converted, to learn whether its worker seals: then the payload's metadata has `SEALS`.

The SDK gives workflow code its payload converter wrapped up, so an attribute of ours could not be seen.
"""
SEALS = "baton-seals"
"""The metadata member that answers it."""
