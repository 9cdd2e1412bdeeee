"""Operations: what a person does to runs and stored data. Each is shown first, and done only as it was shown."""

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, Self, TypeVar

from pydantic import JsonValue

from baton.core.people import name_refusal, reason_refusal
from baton.errors import HistoryError, OutdatedError, PipelineError
from baton.wire.json_values import JsonFields, as_json


@dataclass(frozen=True)
class Fact(JsonFields):
    """One consequence of an operation.

    Attributes:
        text: One line.
        is_loss: Whether something is undone, stopped or destroyed.
        run: The workflow id of another run that it is about.
    """

    text: str
    is_loss: bool = False
    run: str | None = None


@dataclass(frozen=True)
class Preview:
    """What an operation would do now.

    Attributes:
        title: The operation and its target, on one line.
        facts: What would follow.
        basis: What the consequences depend on, by name.
    """

    title: str
    facts: list[Fact]
    basis: Mapping[str, JsonValue] = field(default_factory=dict)

    @property
    def mark(self) -> str:
        """The basis as text: `commit` does nothing if it has changed."""
        return json.dumps(dict(self.basis), sort_keys=True, separators=(",", ":"))

    def to_json_object(self) -> dict[str, Any]:
        """Return it as JSON, for `--json` and other programs."""
        return {"title": self.title, "facts": as_json(self.facts), "mark": self.mark}


PreviewT = TypeVar("PreviewT", bound=Preview)
ResultT = TypeVar("ResultT")


class Operation(ABC, Generic[PreviewT, ResultT]):
    """Something that a person does: `preview` shows what would follow, `commit` does what was shown."""

    nothing_done: str = "nothing was done"
    """How a refusal says that."""

    @abstractmethod
    async def preview(self) -> PreviewT:
        """Return what would follow now, and change nothing."""

    async def commit(self, mark: str | None = None, *, by: str, why: str = "") -> ResultT:
        """Do what was shown.

        Args:
            mark: The mark of the preview that the person saw; without one, what would follow now is done.
            by: Who does it.
            why: The reason, for the history.

        Raises:
            PipelineError: The name or the reason cannot be recorded.
            OutdatedError: The preview is another by now, and nothing was done; the error has the new one, if there is
                one. The server has no such condition, so a change in the milliseconds of the call itself is not seen.
        """
        if refusal := name_refusal(by) or reason_refusal(why):
            raise PipelineError(refusal)
        try:
            preview = await self.preview()
        except HistoryError as error:
            if mark is None:
                raise
            raise self._outdated(str(error)) from None
        if mark is not None and mark != preview.mark:
            shown = _parse_mark(mark, preview.basis)
            changes = ["what was shown is unknown"] if shown is None else self._changes(shown, preview)
            raise self._outdated("; ".join(changes), preview)
        return await self._perform(preview, by, why)

    def pinned_to(self, preview: PreviewT) -> Self:
        """Return the operation on exactly what was shown, for one that finds its target by itself."""
        return self

    def _outdated(self, change: str, preview: PreviewT | None = None) -> OutdatedError:
        return OutdatedError(
            f"this has changed since it was shown, so {self.nothing_done}: {change}. Look at it again", preview
        )

    @abstractmethod
    async def _perform(self, preview: PreviewT, by: str, why: str) -> ResultT:
        """Do what the preview says."""

    @abstractmethod
    def _changes(self, shown: Mapping[str, Any], preview: PreviewT) -> list[str]:
        """Return what differs from the basis that was shown, a clause each."""


def _parse_mark(mark: str, basis: Mapping[str, JsonValue]) -> dict[str, Any] | None:
    """Return the basis in a mark; None if it is not one of this operation."""
    try:
        shown = json.loads(mark)
    except (ValueError, RecursionError):
        return None
    fits = isinstance(shown, dict) and {name: type(value) for name, value in shown.items()} == {
        name: type(value) for name, value in basis.items()
    }
    return shown if fits else None
