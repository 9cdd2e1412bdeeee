"""A storm of approvals: people decide late, twice, against each other and about other questions.

Meanwhile workers are killed and stopped, runs continue as new and are rolled back. No question may be answered by a
decision that was not made on it.
"""

import asyncio
import random
from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

from temporalio.client import WorkflowFailureError, WorkflowUpdateFailedError
from temporalio.exceptions import TemporalError, TerminatedError

from baton import Decision
from baton.client import RunRecord, read_run, roll_back
from baton.core.history import StepKind
from baton.core.messages import Decided, Vote
from baton.devserver import DevServer
from baton.errors import BatonError
from baton.wire.names import DECIDE, QUERY_WAITING
from tests.storm.pipelines import QUESTIONS, Questions
from tests.storm.storm import Handle, Kind, Options, Storm
from tests.storm.worker import DECIDERS

CREW = ("ann", "bob", "carol")
_SOON = timedelta(seconds=6)
_MOST_ROLL_BACKS = 2
_FORGED = "forged"
_AT_ONCE = 4

Made = tuple[str, str | None, str | None, str, str, bool]
"""What a decision was made on and says: the run, question, digest, title, who, yes or no."""


class ApprovalStorm(Storm):
    """All runs ask; each decision has a reason of its own, by which the record tells which one counted."""

    kinds: Mapping[str, Any] = {"questions": Questions}

    def __init__(self, server: DevServer, folder: Path, options: Options) -> None:
        super().__init__(server, folder, options)
        (folder / DECIDERS).write_text(f"groups = {{ crew = {[*CREW]} }}\n", encoding="utf-8")
        self._made: dict[str, Made] = {}
        self._sent: list[tuple[str, Decision]] = []
        self._told: dict[str, set[str]] = {}
        self._asking: set[str] = set()

    def _helpers(self, name: str) -> list[Any]:
        """Return those who decide, who forge, and who rolls back."""
        return [self._people, *[self._meddler] * 3, self._operator]

    async def _end(self, handle: Handle) -> None:
        """Return when a run has ended and was not rolled back."""
        while True:
            try:
                await self._client.get_workflow_handle(handle.id).result()
            except WorkflowFailureError as error:
                if not isinstance(error.cause, TerminatedError):  # by which a roll-back ends the run that it leaves
                    raise
            else:
                self._asking.discard(handle.id)
                return

    async def _people(self, id: str) -> None:
        """Decide about what is asked: yes or no, at once or twice, each on what they were shown."""
        handle = self._client.get_workflow_handle(id)
        while True:
            with suppress(TemporalError, BatonError):
                for one in await self._open(handle):
                    deciding = []
                    for who in random.sample(CREW, random.choice((1, 1, 2, 3))):
                        decision = Decision(
                            approval=one["name"],
                            approved=random.random() < 0.8,
                            who=who,
                            why=f"made {len(self._made)}",
                            question=one["question"],
                            digest=one["digest"],
                        )
                        made = (id, decision.question, decision.digest, decision.approval, who, decision.approved)
                        self._made[decision.why] = made
                        self._sent.append((id, decision))
                        deciding += [self._send(handle, decision) for _ in range(random.choice((1, 1, 2)))]
                    await asyncio.gather(*deciding)
            await asyncio.sleep(random.uniform(0.1, 0.8))

    async def _meddler(self, id: str) -> None:
        """Send what counts for nothing, many at once: old decisions again, and ones with a member of another."""
        handle = self._client.get_workflow_handle(id)
        while True:
            await asyncio.sleep(random.uniform(0, 0.1))
            old = [decision for run, decision in self._sent if run == id]
            sending = random.sample(old, min(len(old), random.choice((0, 0, 1, 2))))
            self._report.counts["old decisions sent again"] += len(sending)
            with suppress(TemporalError, BatonError):
                for one in await self._open(handle):
                    forged = [made for _ in range(_AT_ONCE) if (made := self._forged(id, one)) is not None]
                    self._report.counts["forged decisions"] += len(forged)
                    sending += forged
            await asyncio.gather(*(self._send(handle, each) for each in sending), return_exceptions=True)

    def _forged(self, id: str, one: dict[str, Any]) -> Decision | None:
        """Return a decision that was not made on a question of a run; None if it would be one on it."""
        if not self._sent:
            return None
        run, decision = random.choice(self._sent)
        asked, given = (one["question"], one["digest"]), (decision.question, decision.digest)
        question, digest = random.choice(
            ((given[0], asked[1]), (asked[0], given[1]), given, (None, asked[1]), (asked[0], None), asked)
        )
        who = "mallory" if (question, digest) == asked else decision.who
        if ((question, digest) == asked and not one["who"]) or (run == id and (question, digest) == given):
            return None
        members = {"approval": one["name"], "why": _FORGED, "question": question, "digest": digest, "who": who}
        return decision.model_copy(update=members)

    async def _operator(self, id: str) -> None:
        """Roll the run back now and then."""
        for _ in range(random.randint(0, _MOST_ROLL_BACKS)):
            await asyncio.sleep(random.uniform(1, 6))
            with suppress(TemporalError, BatonError):
                run = await read_run(self._client, id)
                seq = random.randint(2, max(2, len(run.steps)))
                await roll_back(self._client, id, str(seq), by="dave", why="again")
                self._report.counts["roll-backs"] += 1

    async def _open(self, handle: Handle) -> list[dict[str, Any]]:
        """Return the questions that a run asks now."""
        found = await handle.query(QUERY_WAITING, rpc_timeout=_SOON)
        questions = [one for one in found if one["kind"] == "approval"]
        (self._asking.add if questions else self._asking.discard)(handle.id)
        return questions

    def _harmed(self, how: str) -> None:
        """Count what was done to a worker, apart what was done while a question was open."""
        super()._harmed(how)
        if self._asking:
            super()._harmed(f"{how} while a question was open")

    async def _send(self, handle: Handle, decision: Decision) -> None:
        """Send a decision by signal or update; what an update is answered is kept."""
        self._report.counts["decisions sent"] += 1
        if random.random() < 0.4:
            await handle.signal(DECIDE, decision)
            return
        try:
            told: Decided = await handle.execute_update(DECIDE, decision, result_type=Decided, rpc_timeout=_SOON)
        except WorkflowUpdateFailedError:
            self._report.counts["decisions refused"] += 1
            return
        self._report.counts["decisions counted"] += 1
        self._told.setdefault(f"{handle.id} {decision.model_dump_json()}", set()).add(told.model_dump_json())

    def _judge(self, kind: Kind, read: RunRecord) -> None:
        """Note each answer that rests on anything but decisions made on its question, by people who may decide."""
        for outcome in read.state.outcomes:
            if outcome.kind is StepKind.APPROVAL and outcome.failure is None and not outcome.canceled:
                decided = Decided.model_validate(outcome.value, strict=False)
                self._report.counts[f"answers by {decided.via}"] += 1
                kind.wrong += [f"{read.workflow_id} {read.run_id}: {fault}" for fault in self._faults(read, decided)]

    def _faults(self, read: RunRecord, decided: Decided) -> list[str]:
        """Return what is wrong with an answer."""
        if decided.via == "deadline":
            early = decided.approval != "deadline"
            return [f"{decided} was answered by a deadline"] if early else []
        votes: list[Vote | Decided] = [*decided.votes] or [decided]
        faults = []
        for vote in votes:
            expected = (read.workflow_id, decided.question, decided.digest, decided.approval, vote.who, vote.approved)
            if self._made.get(vote.why) != expected:
                faults.append(f"{decided} rests on {vote}, which was made on {self._made.get(vote.why)}")
        if len({vote.who for vote in votes}) < len(votes):
            faults.append(f"{decided} counts somebody twice")
        if decided.approved and len(votes) != QUESTIONS[decided.approval]:
            faults.append(f"{decided} rests on {len(votes)} people")
        return faults

    async def _look(self) -> None:
        """Look at every run, and at what those who decided were told."""
        await super()._look()
        for decision, told in self._told.items():
            if len(told) > 1 or _FORGED in "".join(told):
                self._report.kinds["questions"].wrong.append(f"{decision} was answered {sorted(told)}")
