"""The batons and patches that travel in the measurements: realistic prose, the same for every side.

What a stage answers depends only on the number of its step and on how many bullets the state has, so a
pipeline of Baton's and one written by hand carry exactly the same texts.
"""

import hashlib
import json
from collections.abc import Sequence
from typing import Any

from baton.core.stages import DEFAULT_DECISIONS
from benchmarks.prose import (
    ACCEPTANCE,
    ARTIFACTS,
    CONSTRAINTS,
    DECISIONS,
    GOAL,
    MODULES,
    OPEN_QUESTIONS,
    STATES,
    WORK_SCOPE,
)

STAGES = 4
"""Stages of the pipelines whose speed is measured."""

THOUSAND_BULLETS = 3
"""Bullets of state in the baton of 1,000 tokens, and in each of its patches: as in the published example."""

_LOG = 20  # decisions of the longest log that a baton begins with; those of patches are others


def small() -> dict[str, Any]:
    """Return a baton of about 1 KB of JSON.

    Example:
        >>> 950 < len(to_json(small())) < 1_050
        True
    """
    return _baton(states=2, decisions=2, others=1)


def large() -> dict[str, Any]:
    """Return a baton of about 4 KB of JSON.

    After four stages its log is as long as what stages are handed, so nothing of it is left out.

    Example:
        >>> 3_900 < len(to_json(large())) < 4_200
        True
    """
    return _baton(states=8, decisions=DEFAULT_DECISIONS - STAGES, others=10)


def huge() -> dict[str, Any]:
    """Return a baton of about 16 KB of JSON, most of it state.

    Example:
        >>> 15_500 < len(to_json(huge())) < 16_500
        True
    """
    return _baton(states=166, decisions=DEFAULT_DECISIONS - STAGES, others=10)


def thousand_tokens() -> dict[str, Any]:
    """Return a baton whose JSON has about 1,000 tokens: three bullets of state, twenty decisions, the rest.

    A stage is handed the newest decisions only, which leaves about 750 tokens of it; so does every later stage,
    however long the log has grown. `thousand_handed` is the baton of which nothing is left out.

    Example:
        >>> baton = thousand_tokens()
        >>> len(baton["decision_log"]), len(baton["current_state"]), all(baton.values())
        (20, 3, True)
    """
    return _baton(states=THOUSAND_BULLETS, decisions=_LOG, others=6)


def thousand_handed() -> dict[str, Any]:
    """Return a baton of which stages are handed 1,000 tokens: its log is no longer than what they are handed.

    Example:
        >>> len(thousand_handed()["decision_log"]) == DEFAULT_DECISIONS
        True
    """
    return _baton(states=7, decisions=DEFAULT_DECISIONS, others=10)


def patch(seq: int, bullets: int) -> dict[str, list[str]]:
    """Return what the stage of step ``seq`` answers: a new state of ``bullets`` sentences, and one decision.

    Example:
        >>> first, second = patch(1, 5), patch(2, 5)
        >>> len(first["current_state"]), set(first["current_state"]) & set(second["current_state"])
        (5, set())
    """
    decision = _sentence(DECISIONS, _LOG + seq)
    return {"current_state": _states(seq, bullets), "decision_log": [decision]}


def to_json(value: Any) -> str:
    """Return ``value`` as the compact JSON that goes over the wire."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _baton(states: int, decisions: int, others: int) -> dict[str, Any]:
    """Return a baton with so many sentences of each kind, or as many as there are."""
    return {
        "goal": GOAL,
        "current_state": _states(0, states),
        "decision_log": [_sentence(DECISIONS, number) for number in range(decisions)],
        "constraints": [*CONSTRAINTS[:others]],
        "work_scope": [*WORK_SCOPE[:others]],
        "artifacts": [_artifact(*artifact) for artifact in ARTIFACTS[: (others + 1) // 2]],
        "open_questions": [*OPEN_QUESTIONS[:others]],
        "acceptance": [*ACCEPTANCE[:others]],
    }


def _states(seq: int, bullets: int) -> list[str]:
    """Return the sentences of the state after step ``seq``."""
    return [_sentence(STATES, seq * bullets + number) for number in range(bullets)]


def _sentence(sentences: Sequence[str], number: int) -> str:
    """Return the ``number``-th sentence; after all were used they come again, about other modules."""
    cycle, index = divmod(number, len(sentences))
    module = MODULES[(7 * index + cycle) % len(MODULES)]
    return sentences[index].format(m=module, n=3 + (17 * index + 31 * cycle) % 83)


def _artifact(kind: str, path: str, summary: str) -> dict[str, Any]:
    """Return a reference as an artifact store makes it."""
    digest = hashlib.sha256(summary.encode()).hexdigest()
    return {"id": f"{kind}-1", "type": kind, "hash": digest, "size": 97 * len(path), "path": path, "summary": summary}
