"""A task's trace: everything that happened to it, read from its verified records alone.

It answers what a regulator asks (EAAPL-MAG006 §12.1): what data each agent received, what each concluded, in
which order they worked, what it cost in all, and what came out.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from baton.core.verdict import HandoffStatus
from baton.ledger.chain import ChainReport
from baton.ledger.cost import TaskCost, task_cost
from baton.ledger.records import FAILED, AuditHeader, AuditRecord, Kind


@dataclass(frozen=True)
class Trace:
    """A task's records in order, with the report on their verification; look at that first.

    Attributes:
        task_id: The task.
        records: The whole chain, flawed records included.
        report: Whether the chain is whole.
    """

    task_id: str
    records: tuple[AuditRecord, ...]
    report: ChainReport

    @property
    def linked(self) -> Sequence[AuditRecord]:
        """The records that hang together from the first: those before the first bad one."""
        return self.records[: self.report.records]

    @cached_property
    def headers(self) -> tuple[AuditHeader, ...]:
        """What the headers of the `linked` records say."""
        return tuple(record.fields for record in self.linked)

    @property
    def handoffs(self) -> list[AuditRecord]:
        """The handoffs that were accepted: one for each boundary that the task crossed (C-50)."""
        return [record for record, header in self._with_headers() if _is_accepted(header)]

    @cached_property
    def cost(self) -> TaskCost:
        """What the task cost, and which agent spent it."""
        return task_cost(self.headers)

    @property
    def output(self) -> Any:
        """The final output: what was returned last; None while nothing is, and where the last agent failed."""
        ends = [(record, header) for record, header in self._with_headers() if header.kind == Kind.COMPLETION]
        return ends[-1][0].body if ends and not ends[-1][1].status.startswith(FAILED) else None

    def to_json_object(self) -> dict[str, Any]:
        """Return the trace as JSON: the report, the cost, and each record's header and message in order."""
        return {
            "taskId": self.task_id,
            "report": self.report.model_dump(mode="json", exclude_none=True),
            "cost": self.cost.model_dump(mode="json"),
            "records": [record.members | {"message": record.body} for record in self.linked],
        }

    def _with_headers(self) -> list[tuple[AuditRecord, AuditHeader]]:
        return list(zip(self.linked, self.headers, strict=True))


def _is_accepted(header: AuditHeader) -> bool:
    return header.kind == Kind.HANDOFF and header.status == HandoffStatus.ACCEPTED
