"""Answers a stage's tool calls in the lab from the record, and holds back all others."""

import functools
import inspect
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from baton.contract.records import ToolDeniedError
from baton.contract.registry import tool_key
from baton.core.lab import CallFate, LabCall, LabTerms, RecordedCall, Unrecorded

_WHY = {
    CallFate.REFUSED: "the lab has no recorded answer to this call, so it did not run",
    CallFate.ASKED: "the lab has no recorded answer to this call and asks for one",
}


class LabAnswers:
    """The recorded calls of one run of a stage in the lab.

    Equal calls get the recorded answers in turn, and then the last one again.

    Attributes:
        calls: The calls so far, and what became of each.
    """

    def __init__(self, terms: LabTerms, recorded: Iterable[RecordedCall]) -> None:
        self._terms = terms
        self._left: dict[tuple[str, str | None], deque[RecordedCall]] = {}
        for call in recorded:
            self._left.setdefault((tool_key(call.tool), call.arguments), deque()).append(call)
        self.calls: list[LabCall] = []

    @property
    def tools(self) -> list[str] | None:
        """The only tools that the candidate has; None for those of the stage."""
        return self._terms.overrides.tools

    def answering(
        self, tool: str, function: Callable[..., Any], describe: Callable[..., tuple[str, str]], *, repeatable: bool
    ) -> Callable[..., Any]:
        """Return a function that answers from the record in place of a tool.

        Args:
            tool: The tool.
            function: The tool's function, called only where the terms let it run.
            describe: Returns the digest of a call's arguments, and the arguments as JSON.
            repeatable: Whether the tool is declared to have no effect.
        """
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def answer(*args: Any, **kwargs: Any) -> Any:
                recorded = self._find(tool, *describe(args, kwargs), repeatable=repeatable)
                return await function(*args, **kwargs) if recorded is None else _replay(recorded)

            return answer

        @functools.wraps(function)
        def answer_sync(*args: Any, **kwargs: Any) -> Any:
            recorded = self._find(tool, *describe(args, kwargs), repeatable=repeatable)
            return function(*args, **kwargs) if recorded is None else _replay(recorded)

        return answer_sync

    def _find(self, tool: str, digest: str, shown: str, *, repeatable: bool) -> RecordedCall | None:
        """Return the recorded call; None if the tool may run.

        Raises:
            ToolDeniedError: It is not recorded, and may not run.
        """
        answers = self._left.get((tool_key(tool), digest))
        if answers:
            self._note(tool, CallFate.RECORDED, digest, shown)
            return answers.popleft() if len(answers) > 1 else answers[0]
        if self._terms.unrecorded is Unrecorded.RUN and repeatable:
            self._note(tool, CallFate.RAN, digest, shown)
            return None
        how = CallFate.ASKED if self._terms.unrecorded is Unrecorded.ASK else CallFate.REFUSED
        self._note(tool, how, digest, shown)
        raise ToolDeniedError(tool, "lab", allowed=(), why=_WHY[how])

    def _note(self, tool: str, how: CallFate, digest: str, shown: str) -> None:
        self.calls.append(LabCall(tool=tool, how=how, arguments=digest, shown=shown))


def _replay(recorded: RecordedCall) -> Any:
    if not recorded.success:
        raise RuntimeError(str(recorded.result))
    return recorded.result
