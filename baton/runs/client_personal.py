"""Opens the personal data of a run, and records who opens it, and why, in the ledger first."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from uuid import uuid4

from pydantic import JsonValue

from baton.ledger.entries import run_name
from baton.ledger.records import AuditEntry, Kind
from baton.ledger.store import Ledger
from baton.personal.records import PersonalData, SealedSubject, read_payload
from baton.personal.store import Vault
from baton.runs.client_record import RunRecord

OPENED = "PERSONAL_DATA_OPENED"
"""The status of the record of an opening."""


async def open_personal_data(vault: Vault, ledger: Ledger, run: RunRecord, *, by: str, why: str) -> PersonalData:
    """Return the personal data of a run, by pseudonym, once the task's chain has a record of who opens it and why.

    Args:
        vault: The deployment's vault.
        ledger: The deployment's ledger, with the keys that sign it.
        run: The run.
        by: Who opens it.
        why: Why.

    Raises:
        LedgerError: The opening could not be recorded, so nothing was opened.
        VaultError: The data cannot be opened.
        ValueError: ``by`` or ``why`` is empty.
    """
    await vault.reapply_erasures(ledger)
    payload = await vault.without_erased(run.personal_data)
    await record_opening(ledger, run, sealed_fields(payload), by=by, why=why)
    return await vault.open(payload, run.task_id or "")


def sealed_fields(payload: Mapping[str, JsonValue]) -> dict[str, list[str]]:
    """Return by pseudonym what of people is sealed in a payload."""
    subjects = read_payload(payload).items()
    return {pseudonym: sorted(entry.fields) for pseudonym, entry in subjects if isinstance(entry, SealedSubject)}


async def record_opening(
    ledger: Ledger, run: RunRecord, fields: Mapping[str, Sequence[str]], *, by: str, why: str
) -> None:
    """Record who opens which fields of whom, and why, in the task's chain; no fields leave no record.

    Raises:
        LedgerError: It could not be recorded.
        ValueError: ``by`` or ``why`` is empty.
    """
    if not by.strip() or not why.strip():
        raise ValueError("the opening is recorded: say who opens the data, and why")
    if not fields or run.task_id is None:
        return
    entry = AuditEntry(
        kind=Kind.DECISION,
        task_id=run.task_id,
        event_id=f"opening-{uuid4()}",
        status=OPENED,
        timestamp=datetime.now(UTC),
        details=why,
        actor=by,
        run_id=run_name(run.workflow_id, run.run_id),
        message={"opened": {pseudonym: [*names] for pseudonym, names in fields.items()}},
    )
    await ledger.append(entry)
