"""Approvals: a person answers one question, on the baton that was shown; silence until the deadline means no."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from pydantic import ValidationError
from temporalio import workflow
from temporalio.exceptions import ApplicationError

from baton.core.messages import Decided, Decision, Waiting
from baton.handoff.pending import NOTHING_SAID, name_refusal, reason_refusal
from baton.pipelines.workflow_visibility import untyped_handler
from baton.wire.names import DECIDE
from baton.wire.text import mismatch


@dataclass
class _Open:
    """An approval that is waited for."""

    waiting: Waiting
    decided: Decided | None = None


class Approvals:
    """The open questions of a pipeline, and the handlers for people's decisions."""

    def __init__(self, digest_now: Callable[[], str], note: Callable[[str], None]) -> None:
        self._digest_now = digest_now
        self._note = note
        self._open: dict[str, _Open] = {}
        self._closed: dict[str, Decided] = {}
        workflow.set_update_handler(DECIDE, self._on_update, validator=self._validate)
        workflow.set_signal_handler(DECIDE, untyped_handler(self._on_signal))

    def titles(self) -> list[str]:
        """Return the titles of the open approvals."""
        return [one.waiting.name for one in self._open.values()]

    def waiting(self) -> list[Waiting]:
        """Return the open approvals, each with the digest of the baton as it is now."""
        if not self._open:
            return []
        digest = self._digest_now()
        return [one.waiting.model_copy(update={"digest": digest}) for one in self._open.values()]

    def open(self, title: str, seq: int, asks: str | None, within: timedelta) -> str:
        """Ask a question, and return its id."""
        if title in self.titles():
            raise ValueError(f"an approval {title!r} is open already; give the second one another title")
        question, since = f"{seq}:{workflow.uuid4().hex[:16]}", workflow.now()
        self._open[question] = _Open(
            Waiting(
                kind="approval", name=title, seq=seq, since=since, until=since + within, asks=asks, question=question
            )
        )
        return question

    async def wait(self, question: str, within: timedelta, default: bool) -> Decided:
        """Wait for the answer to an open question, or for its deadline, when `default` counts."""
        one = self._open[question]
        title, seq = one.waiting.name, one.waiting.seq
        try:
            await workflow.wait_condition(
                lambda: one.decided is not None,
                timeout=within,
                timeout_summary=f"step {seq}: deadline of approval {title}"[:200],
            )
        except TimeoutError:
            silence = Decision(approval=title, approved=default, who="deadline", why=f"no decision within {within}")
            one.decided = self._decided(question, silence, "deadline")
        finally:
            del self._open[question]
        assert one.decided is not None  # noqa: S101 - the condition above
        self.close(one.decided)
        if one.decided.via == "update":
            # The next steps begin in a workflow task of their own: one task could only be rolled back as a whole.
            await workflow.sleep(timedelta(milliseconds=1), summary=f"step {seq}: {title} decided"[:200])
        return one.decided

    def close(self, decided: Decided) -> None:
        """Remember how a question was answered, also one of an earlier run."""
        self._closed[decided.question] = decided

    def _answer(self, question: str | None) -> Decided | None:
        """Return how a question was answered, if it was."""
        one = self._open.get(question or "")
        return one.decided if one is not None else self._closed.get(question or "")

    def _refusal(self, decision: Decision) -> str | None:
        """Return why the decision does not count, or None."""
        answer = self._answer(decision.question)
        if answer is not None:
            if (answer.approval, answer.approved, answer.who) == (decision.approval, decision.approved, decision.who):
                return None
            return f"question {answer.question} was answered: {_shown(answer)}"
        one = self._open.get(decision.question or "")
        if one is None or one.waiting.name != decision.approval:
            return self._not_open(decision)
        now = self._digest_now()
        if decision.digest == now:
            return None
        shown = "no baton" if decision.digest is None else f"the baton {decision.digest[:19]}…"
        return f"the decision was made on {shown}, but it is {now[:19]}… now; look at it again and decide on that"

    def _not_open(self, decision: Decision) -> str:
        """Return that a question is not open, and what is."""
        titled = [one for one in self._closed.values() if one.approval == decision.approval]
        known = f"; the last one was answered: {_shown(titled[-1])}" if titled else ""
        if decision.question is None and decision.approval in self.titles():
            what = "the decision names no question"
        elif decision.question is None:
            what = f"no approval {decision.approval!r} is open{known}"
        else:
            what = f"question {decision.question} of approval {decision.approval!r} is not open{known}"
        opened = ", ".join(f"{one.waiting.name!r} (question {id})" for id, one in self._open.items())
        return f"{what}; open now: {opened or 'none'}"

    def _decided(self, question: str, decision: Decision, via: str) -> Decided:
        return Decided(
            approval=decision.approval,
            question=question,
            approved=decision.approved,
            who=decision.who,
            why=decision.why,
            at=workflow.now(),
            digest=self._digest_now(),
            via=via,
        )

    def _decide(self, decision: Decision, via: str) -> Decided:
        """Take a decision that was not refused; a repeated one gets the first answer."""
        question = decision.question or ""
        answer = self._answer(question)
        if answer is None:
            answer = self._open[question].decided = self._decided(question, decision, via)
        return answer

    def _validate(self, decision: Decision | None) -> None:
        """Refuse an update before it enters the history; the caller gets the reason."""
        if decision is None:
            refusal: str | None = NOTHING_SAID
        else:
            refusal = self._refusal(decision) or name_refusal(decision.who) or reason_refusal(decision.why)
        if refusal:
            raise ApplicationError(refusal, type="DecisionRefused", non_retryable=True)

    def _on_update(self, decision: Decision) -> Decided:
        """Decide about an open approval: {approval, question, digest, approved, who, why}."""
        return self._decide(decision, "update")

    def _on_signal(self, *given: Any) -> None:
        """Decide about an open approval: {approval, question, digest, approved, who, why}; a refusal becomes a note."""
        try:
            decision = Decision.model_validate(given[0] if len(given) == 1 else given)
        except ValidationError as error:
            self._note(f"refused a signal {DECIDE!r} that is not a decision: {mismatch(error, 'argument')}")
            return
        unnamed = name_refusal(decision.who)
        if unnamed:
            self._note(f"refused a decision: {unnamed}")
            return
        refusal = reason_refusal(decision.why) or self._refusal(decision)
        if refusal:
            self._note(f"refused a decision of {decision.who}: {refusal}")
        else:
            self._decide(decision, "signal")


def _shown(answer: Decided) -> str:
    verb = "approved" if answer.approved else "denied"
    return f"{answer.approval!r} was {verb} by {answer.who} at {answer.at:%Y-%m-%d %H:%M:%S}Z"
