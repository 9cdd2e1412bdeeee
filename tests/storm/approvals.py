"""A storm of approvals: people decide late, twice, in conflict and about other questions.

Meanwhile workers are killed and stopped, runs continue as new and are rolled back. No question may be answered by a
decision that was not made on it.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

from temporalio.client import WorkflowFailureError, WorkflowUpdateFailedError
from temporalio.exceptions import TemporalError, TerminatedError

from baton import Settled, StepKind
from baton.client import Answer, Question, RunRecord, Vote, read_run, roll_back
from baton.devserver import DevServer
from baton.errors import BatonError
from baton.wire.names import ANSWER, QUERY_QUESTIONS
from tests.storm.pipelines import QUESTIONS, Questions
from tests.storm.storm import Handle, Kind, Options, Storm
from tests.storm.worker import DECIDERS

CREW = ("ann", "bob", "carol")
_SOON = timedelta(seconds=6)
_MOST_ROLL_BACKS = 2
_FORGED = "forged"
_AT_ONCE = 4

DecisionRecord = tuple[str, str | None, str | None, str, str]
"""What a decision was made on and says: the run, question, digest, who, what."""


class ApprovalStorm(Storm):
    """All runs ask; each decision has a unique reason, so the record shows which one counted."""

    kinds: Mapping[str, Any] = {"questions": Questions}

    def __init__(self, server: DevServer, folder: Path, options: Options) -> None:
        super().__init__(server, folder, options)
        (folder / DECIDERS).write_text(f"groups = {{ crew = {[*CREW]} }}\n", encoding="utf-8")
        self._decisions: dict[str, DecisionRecord] = {}
        self._sent: list[tuple[str, Answer]] = []
        self._answers: dict[str, set[str]] = {}
        self._rolling = Counter[str]()
        """By run, how often a roll-back began or ended: odd while one is under way."""
        self._asking: set[str] = set()

    def _helpers(self, name: str) -> list[Any]:
        """Return the helpers that decide, interfere and roll back."""
        return [self._decide, *[self._interfere] * 3, self._roll_back]

    async def _wait_for_end(self, handle: Handle) -> None:
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

    async def _decide(self, id: str) -> None:
        """Decide open questions with yes or no, once or twice, on what was shown."""
        handle = self._client.get_workflow_handle(id)
        while True:
            with suppress(TemporalError, BatonError):
                for question in await self._open_questions(handle):
                    deciding = []
                    for who in random.sample(CREW, random.choice((1, 1, 2, 3))):
                        yes, no = ("requeue", "abandon") if question.handoff else ("approve", "deny")
                        choice = yes if random.random() < 0.8 else no
                        decision = question.answer(choice, who=who, why=f"made {len(self._decisions)}")
                        record = (id, decision.question, decision.digest, who, choice)
                        self._decisions[decision.why] = record
                        self._sent.append((id, decision))
                        deciding += [self._send(handle, decision) for _ in range(random.choice((1, 1, 2)))]
                    await asyncio.gather(*deciding)
            await asyncio.sleep(random.uniform(0.1, 0.8))

    async def _interfere(self, id: str) -> None:
        """Send decisions that must not count, many at once: old ones, and ones with members of others."""
        handle = self._client.get_workflow_handle(id)
        while True:
            await asyncio.sleep(random.uniform(0, 0.1))
            old = [decision for run, decision in self._sent if run == id]
            sending = random.sample(old, min(len(old), random.choice((0, 0, 1, 2))))
            self._report.counts["old decisions sent again"] += len(sending)
            with suppress(TemporalError, BatonError):
                for question in await self._open_questions(handle):
                    forged = [forgery for _ in range(_AT_ONCE) if (forgery := self._forge(id, question)) is not None]
                    self._report.counts["forged decisions"] += len(forged)
                    sending += forged
            await asyncio.gather(*(self._send(handle, decision) for decision in sending), return_exceptions=True)

    def _forge(self, id: str, asked: Question) -> Answer | None:
        """Return a forged decision on a question; None if it would be valid."""
        if not self._sent:
            return None
        run, decision = random.choice(self._sent)
        current, earlier = (asked.id, asked.digest), (decision.question, decision.digest)
        question, digest = random.choice(
            (
                (earlier[0], current[1]),
                (current[0], earlier[1]),
                earlier,
                (None, current[1]),
                (current[0], None),
                current,
            )
        )
        who = "mallory" if (question, digest) == current else decision.who
        if ((question, digest) == current and not asked.who) or (run == id and (question, digest) == earlier):
            return None
        members = {"why": _FORGED, "question": question, "digest": digest, "who": who}
        return decision.model_copy(update=members)

    async def _roll_back(self, id: str) -> None:
        """Roll the run back sometimes."""
        for _ in range(random.randint(0, _MOST_ROLL_BACKS)):
            await asyncio.sleep(random.uniform(1, 6))
            with suppress(TemporalError, BatonError):
                run = await read_run(self._client, id)
                seq = random.randint(2, max(2, len(run.steps)))
                self._rolling[id] += 1
                try:
                    await roll_back(self._client, id, str(seq), by="dave", why="again")
                finally:
                    self._rolling[id] += 1
                self._report.counts["roll-backs"] += 1

    async def _open_questions(self, handle: Handle) -> list[Question]:
        """Return a run's open questions."""
        questions: list[Question] = await handle.query(QUERY_QUESTIONS, result_type=list[Question], rpc_timeout=_SOON)
        (self._asking.add if questions else self._asking.discard)(handle.id)
        return questions

    def _count_fault(self, fault: str) -> None:
        """Count a worker fault, separately also those while a question was open."""
        super()._count_fault(fault)
        if self._asking:
            super()._count_fault(f"{fault} while a question was open")

    async def _send(self, handle: Handle, decision: Answer) -> None:
        """Send a decision by signal or update, and keep an update's answer.

        A question that a roll-back leaves open is open again, so a decision on it may count anew, with another answer.
        """
        self._report.counts["decisions sent"] += 1
        if random.random() < 0.4:
            await handle.signal(ANSWER, decision)
            return
        rolling = self._rolling[handle.id]
        try:
            answer: Settled = await handle.execute_update(ANSWER, decision, result_type=Settled, rpc_timeout=_SOON)
        except WorkflowUpdateFailedError:
            self._report.counts["decisions refused"] += 1
            return
        self._report.counts["decisions counted"] += 1
        if rolling % 2 == 0 and rolling == self._rolling[handle.id]:
            told = self._answers.setdefault(f"{handle.id} {rolling} {decision.model_dump_json()}", set())
            told.add(answer.model_dump_json())

    def _check_run(self, kind: Kind, read: RunRecord) -> None:
        """Note each answer that does not rest on valid decisions on its question."""
        for outcome in read.state.outcomes:
            if outcome.kind is StepKind.APPROVAL and outcome.failure is None and not outcome.canceled:
                decided = Settled.model_validate(outcome.value, strict=False)
                self._report.counts[f"answers by {decided.via}"] += 1
                run = f"{read.workflow_id} {read.run_id}"
                kind.violations += [f"{run}: {fault}" for fault in self._faults(read, decided)]

    def _faults(self, read: RunRecord, decided: Settled) -> list[str]:
        """Return the faults of an answer."""
        if decided.via == "deadline":
            early = decided.title != "deadline"
            return [f"{decided} was answered by a deadline"] if early else []
        votes: list[Vote | Settled] = [*decided.votes] or [decided]
        faults = []
        for vote in votes:
            expected = (read.workflow_id, decided.question, decided.digest, vote.who, vote.choice)
            if self._decisions.get(vote.why) != expected:
                faults.append(f"{decided} rests on {vote}, which was made on {self._decisions.get(vote.why)}")
        people = [vote.who for vote in votes if isinstance(vote, Settled) or not vote.replaced]
        if len({*people}) < len(people):
            faults.append(f"{decided} counts somebody twice")
        if decided.choice in ("approve", "requeue") and len(people) != QUESTIONS[decided.title]:
            faults.append(f"{decided} rests on {len(people)} people")
        return faults

    async def _check_runs(self) -> None:
        """Look at every run, and at what those who decided were told."""
        await super()._check_runs()
        for decision, answers in self._answers.items():
            if len(answers) > 1 or _FORGED in "".join(answers):
                self._report.kinds["questions"].violations.append(f"{decision} was answered {sorted(answers)}")
