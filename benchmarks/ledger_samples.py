"""What the ledger's measurements are made of: a signing key, messages of about 5.5 KB, and a million honest records."""

import random
import sqlite3
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache, partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import rfc8785
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from baton.core.verdict import HandoffStatus
from baton.keys.claims import Claim, SignatureCheck
from baton.keys.store_keys import PublicKey, PublicKeys
from baton.ledger.chain import head_statement
from baton.ledger.records import AuditCost, AuditEntry, AuditRecord, ChainLink, Kind, next_record
from baton.ledger.store import Ledger, LedgerOptions
from baton.ledger.store_database import SqliteConnection
from baton.ledger.store_schema import StoredRecord, insert

RECORDS_PER_TASK = 4
"""A pipeline of four agents leaves as many."""
RECORDED_AT = datetime(2026, 11, 21, 10, tzinfo=UTC)
"""When everything happened."""
_MESSAGES = 64
_TASKS_PER_BATCH = 5_000
_PROCESSES = 2
_WORDS = (
    "agent analysis approved assumption because before budget checkpoint clause compare constraint contract "
    "customer decision deadline dependency deploy evidence extract finding flag handoff implement liability limit "
    "login migration obligation payment plan policy rejected require review risk rollback schema score session "
    "stage summary supplier task tenant term test the token unlimited until verify version with without work"
)


@dataclass(frozen=True)
class Signer:
    """An Ed25519 key that signs heads, and can be sent to another process."""

    secret: bytes
    key_id: str = "benchmark"

    def sign(self, statement: bytes) -> bytes:
        """Return the signature over ``statement``."""
        return _private_key(self.secret).sign(statement)

    def check(self, claims: Sequence[Claim]) -> list[SignatureCheck]:
        """Return what signatures by this key are worth."""
        public = _private_key(self.secret).public_key().public_bytes_raw()
        return PublicKeys([PublicKey(self.key_id, public, RECORDED_AT)]).check(claims)


@cache
def _private_key(secret: bytes) -> Ed25519PrivateKey:
    return Ed25519PrivateKey.from_private_bytes(secret)


async def fill(path: Path, signer: Signer, records: int) -> list[str]:
    """Make a ledger of so many records, and return its tasks; tasks take turns, so none stands in one piece.

    The records are honest ones: sealed into their chains, signed one by one and compressed by the ledger's own
    code, in two processes, while this one inserts them by the ledger's own statements. What is left out is what
    makes each append durable by itself: here the file is whole once all are in.
    """
    async with Ledger(path, LedgerOptions(signer=signer)):
        pass  # makes the tables
    rng = random.Random(0)
    tasks = [_make_id(rng) for _ in range(records // RECORDS_PER_TASK)]
    batches = [tasks[start : start + _TASKS_PER_BATCH] for start in range(0, len(tasks), _TASKS_PER_BATCH)]
    raw = sqlite3.connect(path, isolation_level=None)
    for pragma in ("journal_mode=off", "synchronous=off", "cache_size=-1000000"):
        raw.execute(f"PRAGMA {pragma}")
    raw.execute("BEGIN")
    with ProcessPoolExecutor(_PROCESSES, get_context("spawn")) as pool:
        for stored in pool.map(partial(_make_rows, signer=signer), batches):
            insert(SqliteConnection(raw), stored)
    raw.execute("COMMIT")
    raw.close()
    return tasks


def _make_rows(tasks: list[str], signer: Signer) -> list[StoredRecord]:
    """Return the rows of some tasks' records; runs in a process of its own."""
    return [StoredRecord.of(record) for record in _make_records(tasks, signer)]


def _make_records(tasks: list[str], signer: Signer) -> Iterator[AuditRecord]:
    """Yield the records of some tasks, which take turns."""
    ledger = LedgerOptions().name
    links = {task: ChainLink.genesis(ledger, task) for task in tasks}
    messages = canonical_messages()
    for number in range(RECORDS_PER_TASK):
        for index, (task, link) in enumerate(links.items()):
            audit_entry = entry(task, number, messages[(index + number) % _MESSAGES])
            record = next_record(audit_entry, link, recorded_at=RECORDED_AT, key_id=signer.key_id)
            statement = head_statement(record.link, signer.key_id)
            record = replace(record, signature=signer.sign(statement))
            links[task] = record.link
            yield record


def entry(task_id: str, number: int, message: dict[str, Any] | bytes) -> AuditEntry:
    """Return the entry of a task's handoff, by its number."""
    return AuditEntry(
        kind=Kind.HANDOFF,
        task_id=task_id,
        event_id=f"{task_id[:-4]}{number:04}",
        status=HandoffStatus.ACCEPTED,
        timestamp=RECORDED_AT,
        from_agent="legal-analysis-agent",
        to_agent="risk-scoring-agent",
        cost=AuditCost(spent_micro_usd=10_000 * (number + 1), remaining_micro_usd=90_000 - 10_000 * number),
        message=message,
    )


@cache
def canonical_messages() -> list[bytes]:
    """Return some messages as the gate hands them to the ledger: in canonical form."""
    return [rfc8785.dumps(_make_message(number)) for number in range(_MESSAGES)]


def _make_message(number: int) -> dict[str, Any]:
    """Return a handoff message, another one for each number."""
    rng, words = random.Random(number), _WORDS.split()

    def text(length: int) -> str:
        return " ".join(rng.choices(words, k=length))

    baton = {"goal": text(12), "current_state": [text(12) for _ in range(6)]}
    baton |= {"decision_log": [text(14) for _ in range(10)], "constraints": [text(8) for _ in range(4)]}
    timestamp = "2026-11-21T10:00:00Z"
    completed = {"description": text(8), "result": {"clauses": [text(8)]}, "completedAt": timestamp}
    call = {"tool": "pdf_extract", "calledAt": timestamp, "inputHash": f"sha256:{rng.getrandbits(256):064x}"}
    return {
        "schemaVersion": "2.0",
        "handoffId": _make_id(rng),
        "taskId": _make_id(rng),
        "parentHandoffId": _make_id(rng),
        "fromAgent": {"agentId": "legal-analysis-agent", "agentVersion": "2.1.0", "executionId": _make_id(rng)},
        "toAgent": {"agentType": "risk-scoring-agent", "agentVersion": ">=1.5.0"},
        "timestamp": timestamp,
        "taskDescription": text(12),
        "completedSubtasks": [{"subtaskId": f"s{step}"} | completed for step in range(4)],
        "remainingSubtasks": [{"subtaskId": f"s{step + 4}", "description": text(8)} for step in range(3)],
        "currentState": {"baton": baton, "riskFlags": [text(6) for _ in range(3)]},
        "relevantContext": [{"source": "Contract", "excerpt": text(24), "relevanceScore": 0.92}],
        "constraints": ["returnJSON:true", "maxResponseTokens:2000", "scoringFramework:iso31000"],
        "costTracking": {
            "costSpentSoFarUSD": 0.08,
            "costBudgetRemainingUSD": 0.32,
            "tokenSpent": {"prompt": 4200, "completion": 1800},
        },
        "conversationHistorySummary": text(60),
        "conversationHistoryVerbatim": [{"role": "assistant", "content": text(9)} for _ in range(5)],
        "toolCallHistory": [call | {"outputTokens": 3200}],
        "traceparent": f"00-{rng.getrandbits(128):032x}-{rng.getrandbits(64):016x}-01",
    }


def _make_id(rng: random.Random) -> str:
    return str(uuid.UUID(int=rng.getrandbits(128), version=4))
