"""A pipeline's run in the lab: people's answers come from the record, and it ends after the last step or its budget."""

from collections.abc import Iterable
from typing import NoReturn

from baton.core.history import Outcome
from baton.core.lab import USED_UP, LabPath, LabTerms
from baton.core.questions import Question, Settled
from baton.errors import LabEndedError
from baton.runtime.questions import restored_fault


class LabVisit:
    """What a pipeline's run is told in the lab. Code that has taken its last step may return, as it did when recorded.

    Attributes:
        path: How it runs.
    """

    def __init__(self, path: LabPath, kept: int) -> None:
        self.path = path
        self._kept = kept  # outcomes from before the first step
        self._unused = [*path.settled]
        self._ended = ""

    def check(self, outcomes: Iterable[Outcome]) -> None:
        """Raise `LabEndedError` if nothing more is to run."""
        own = [*outcomes][self._kept :]
        if not self._ended and self.path.last and any(outcome.name == self.path.last for outcome in own):
            self._ended = f"step {self.path.last!r} is done"
        if self._ended:
            raise LabEndedError(self._ended)

    def terms(self, billed_micro_usd: int) -> LabTerms:
        """Return how the next stage runs: it may cost what is left after what the run was billed."""
        left = self._left(billed_micro_usd)
        return self.path.terms if left is None else self.path.terms.model_copy(update={"case_micro_usd": max(1, left)})

    def check_budget(self, billed_micro_usd: int) -> None:
        """Raise `LabEndedError` if the run was billed more than its case may cost."""
        left = self._left(billed_micro_usd)
        if not self._ended and left is not None and left < 0:
            self._ended = USED_UP
        if self._ended:
            raise LabEndedError(self._ended)

    def _left(self, billed_micro_usd: int) -> int | None:
        most = self.path.terms.case_micro_usd
        return None if most is None else most + self.path.before_micro_usd - billed_micro_usd

    def answer(self, question: Question, default: str, baton: str) -> Settled:
        """Return how people answered a question.

        Args:
            question: The question.
            default: What counts at its deadline.
            baton: The digest of the baton.

        Raises:
            LabEndedError: They were not asked it, or saw something else then: they would be asked again.
        """
        settled = next((settled for settled in self._unused if settled.title == question.title), None)
        if settled is None:
            self._end(question, "the recorded run did not ask it")
        self._unused.remove(settled)
        fault = restored_fault(settled, question, default, same_texts=True)
        if fault is None and question.model_copy(update={"id": settled.question}).digest_with(baton) != settled.digest:
            fault = "the baton that is shown has changed"
        if fault is not None:
            self._end(question, fault)
        return settled

    def _end(self, question: Question, why: str) -> NoReturn:
        self._ended = f"would have asked again: {question.title!r}, because {why}"
        raise LabEndedError(self._ended)
