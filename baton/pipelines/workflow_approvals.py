"""Approvals: a person decides by update or signal, bound to the baton they looked at; silence means no."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from pydantic import ValidationError
from temporalio import workflow
from temporalio.exceptions import ApplicationError

from baton.core.messages import Decided, Decision, Waiting
from baton.handoff.pending import NOTHING_SAID, name_refusal, reason_refusal
from baton.pipelines.workflow_plain import plain
from baton.wire.misfit import misfit
from baton.wire.names import DECIDE


@dataclass
class _Open:
    """An approval that is waited for."""

    waiting: Waiting
    decided: Decided | None = None


class Approvals:
    """The open approvals of a pipeline, and the handlers that people's decisions arrive at.

    Whatever arrives is checked here: a decision for an approval that is not open, on a baton that has
    changed since, or of another shape is refused with a reason. An update gets the reason as its answer; a
    signal has nobody to answer to, so it is noted for the operators. A repeated decision gets the first
    answer again.
    """

    def __init__(self, digest_now: Callable[[], str], note: Callable[[str], None]) -> None:
        self._digest_now = digest_now
        self._note = note
        self._open: dict[str, _Open] = {}
        self._closed: dict[str, Decided] = {}
        self._early: tuple[int, dict[str, Decision]] = (0, {})  # of the running workflow task only
        workflow.set_update_handler(DECIDE, self._on_update, validator=self._validate)
        workflow.set_signal_handler(DECIDE, plain(self._on_signal))

    def titles(self) -> list[str]:
        """Return the titles of the open approvals."""
        return list(self._open)

    def waiting(self) -> list[Waiting]:
        """Return the open approvals, each with the digest of the baton as it is now."""
        if not self._open:
            return []
        digest = self._digest_now()
        return [one.waiting.model_copy(update={"digest": digest}) for one in self._open.values()]

    def open(self, name: str, seq: int, asks: str | None, within: timedelta) -> None:
        """Open an approval; from now on a decision counts.

        Args:
            name: The approval's title.
            seq: The step's number.
            asks: What the person is asked.
            within: How long a decision may take.

        Raises:
            ValueError: An approval with that title is open already.
        """
        if name in self._open:
            raise ValueError(f"an approval {name!r} is open already; give the second one another title")
        since = workflow.now()
        waiting = Waiting(kind="approval", name=name, seq=seq, since=since, until=since + within, asks=asks)
        self._open[name] = _Open(waiting)
        # What arrives together is handed to a replay signals first, to a worker that was queried meanwhile
        # perhaps not; so a decision that came in the same task counts either way.
        task, early = self._early
        if task == _task() and name in early and self._refusal(early[name]) is None:
            self._note(f"took the decision of {early[name].who} after all: {name!r} opened in the same moment")
            self._decide(early[name], "signal")

    async def wait(self, name: str, within: timedelta, default: bool) -> Decided:
        """Wait for the decision about an open approval, or for its deadline.

        Args:
            name: The approval's title.
            within: How long to wait.
            default: What silence means.

        Returns:
            How it ended.
        """
        one = self._open[name]
        try:
            await workflow.wait_condition(
                lambda: one.decided is not None,
                timeout=within,
                timeout_summary=f"step {one.waiting.seq}: deadline of approval {name}"[:200],
            )
        except TimeoutError:
            one.decided = Decided(
                approval=name,
                approved=default,
                who="deadline",
                why=f"no decision within {within}",
                at=workflow.now(),
                digest=self._digest_now(),
                via="deadline",
            )
        finally:
            del self._open[name]
        assert one.decided is not None  # noqa: S101 - the condition above
        self.close(one.decided)
        if one.decided.via == "update":
            await _part(one.waiting.seq, name)
        return one.decided

    def close(self, decided: Decided) -> None:
        """Remember how an approval ended, also one of an earlier run."""
        self._closed[decided.approval] = decided

    def _known(self, name: str) -> bool:
        """Return whether an approval is open or was decided."""
        return name in self._open or name in self._closed

    def _refusal(self, decision: Decision) -> str | None:
        """Return why the decision cannot count, or None."""
        one = self._open.get(decision.approval)
        if one is None or one.decided is not None:
            ended = one.decided if one is not None else self._closed.get(decision.approval)
            if ended is not None and (ended.approved, ended.who) == (decision.approved, decision.who):
                return None
            if ended is not None:
                verb = "approved" if ended.approved else "denied"
                return f"approval {decision.approval!r} was {verb} by {ended.who} at {ended.at:%Y-%m-%d %H:%M:%S}Z"
            titles = ", ".join(repr(name) for name in self._open) or "none"
            return f"no approval {decision.approval!r} is open; open now: {titles}"
        now = self._digest_now()
        if decision.digest is not None and decision.digest != now:
            return (
                f"the decision was made on the baton {decision.digest[:19]}…, but it is {now[:19]}… now; "
                "look at it again (query `baton`) and decide on that"
            )
        return None

    def _decide(self, decision: Decision, via: str) -> Decided:
        """Take a decision that was not refused; a repeated one gets the first answer."""
        one = self._open.get(decision.approval)
        if one is None or one.decided is not None:
            return one.decided if one is not None and one.decided else self._closed[decision.approval]
        one.decided = Decided(
            approval=decision.approval,
            approved=decision.approved,
            who=decision.who,
            why=decision.why,
            at=workflow.now(),
            digest=self._digest_now(),
            via=via,
        )
        return one.decided

    def _validate(self, decision: Decision | None) -> None:
        """Refuse an update before it enters the history; the caller gets the reason."""
        if decision is None:
            refusal: str | None = NOTHING_SAID
        else:
            refusal = self._refusal(decision) or name_refusal(decision.who) or reason_refusal(decision.why)
        if refusal:
            raise ApplicationError(refusal, type="DecisionRefused", non_retryable=True)

    async def _on_update(self, decision: Decision) -> Decided:
        """Decide about an open approval: {approval, approved, who, why, digest}."""
        if not self._known(decision.approval):  # it was, when this was accepted: see `open`
            await workflow.wait_condition(lambda: self._known(decision.approval))
        return self._decide(decision, "update")

    def _on_signal(self, *given: Any) -> None:
        """Decide about an open approval: {approval, approved, who, why, digest}; a refusal becomes a note.

        Whatever was sent is taken, in any number: a typed signal that does not convert would be dropped unseen,
        and one argument too many or too few would be an error of the pipeline.
        """
        try:
            decision = Decision.model_validate(given[0] if len(given) == 1 else given)
        except ValidationError as error:
            self._note(f"refused a signal {DECIDE!r} that is no decision: {misfit(error, 'argument')}")
            return
        unnamed = name_refusal(decision.who)
        if unnamed:
            self._note(f"refused a decision: {unnamed}")
            return
        refusal = reason_refusal(decision.why) or self._refusal(decision)
        if refusal:
            if not self._known(decision.approval):
                task, early = self._early
                self._early = _task(), {**(early if task == _task() else {}), decision.approval: decision}
            self._note(f"refused a decision of {decision.who}: {refusal}")
        else:
            self._decide(decision, "signal")


def _task() -> int:
    """Return what tells the running workflow task from others."""
    return workflow.info().get_current_history_length()


async def _part(seq: int, approval: str) -> None:
    """Wait for the next workflow task: an update and what follows it in one could only be rolled back together."""
    await workflow.sleep(timedelta(milliseconds=1), summary=f"step {seq}: {approval} decided"[:200])
