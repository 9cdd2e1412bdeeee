"""What a stage or a child that failed leaves behind: its bill."""

from baton.core.history import Spend
from baton.errors import StageFailedError


class StageRaisedError(StageFailedError):
    """A stage raised for good, or a child failed.

    Attributes:
        spend: What it had charged by then, in all its runs, as far as it told.
        is_outage: Whether it did not even begin, because the ledger could not be written.
        topped_up_micro_usd: What people had added to the budget of a child.
    """

    def __init__(self, message: str, spend: Spend, *, is_outage: bool = False, topped_up_micro_usd: int = 0) -> None:
        super().__init__(message)
        self.spend = spend
        self.is_outage = is_outage
        self.topped_up_micro_usd = topped_up_micro_usd
