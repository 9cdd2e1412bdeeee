"""Opens the personal data of a run, and records who opens it, and why, in the ledger first."""

from datetime import UTC, datetime
from uuid import uuid4

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
    if not by.strip() or not why.strip():
        raise ValueError("the opening is recorded: say who opens the data, and why")
    await vault.reapply_erasures(ledger)
    payload = await vault.without_erased(run.personal_data)
    subjects = read_payload(payload).items()
    fields = {pseudonym: sorted(entry.fields) for pseudonym, entry in subjects if isinstance(entry, SealedSubject)}
    if fields and run.task_id is not None:
        entry = AuditEntry(
            kind=Kind.DECISION,
            task_id=run.task_id,
            event_id=f"opening-{uuid4()}",
            status=OPENED,
            timestamp=datetime.now(UTC),
            details=why,
            actor=by,
            run_id=run_name(run.workflow_id, run.run_id),
            message={"opened": fields},
        )
        await ledger.append(entry)
    return await vault.open(payload, run.task_id or "")
