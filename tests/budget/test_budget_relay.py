"""The budget along a chain of agents: the records add up to the bills, to the millionth."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from decimal import Decimal
from typing import TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from baton import Budget, Spend
from baton.client import TaskCost
from baton.client.faces import AuditCost
from baton.compression.rules import Compressed
from baton.core.costs import CostTracking
from baton.core.verdict import Code, HandoffStatus
from baton.handoff.records import Handoff, Sender, Target
from baton.handoff.relay import AgentState, build_handoff
from baton.handoff.store_gate import handoff_gate
from baton.handoff.validation import check_handoff
from baton.ledger.entries import handoff_entry, task_cost
from baton.ledger.records import AuditEntry
from baton.wire.money import to_usd
from tests.handoff.material import AT, EXAMPLE, EXECUTION_ID, HANDOFF_ID, RECEIVER, TASK_ID, TRACEPARENT
from tests.ledger.material import chain, completion_entry

AGENTS = ("extract", "analyse", "score", "check", "summarise")
PLENTY = 10**9
UNTOUCHED = Budget(initial_micro_usd=10**15)
RecordT = TypeVar("RecordT", Budget, Compressed)


class OutOfMoneyError(Exception):
    """There is a shortage and nobody to ask."""


@dataclass(frozen=True)
class Job:
    """Something that an agent does and that costs.

    Attributes:
        kind: What it is: how an attempt went, or a fan-out, a child pipeline, a compression.
        costs: What its parts cost, one after the other.
    """

    kind: str
    costs: tuple[int, ...]


JOBS = ("good", "refused", "lost", "twice", "fan-out", "child", "compression")
jobs = st.builds(
    Job, kind=st.sampled_from(JOBS), costs=st.lists(st.integers(0, 9_000), min_size=1, max_size=4).map(tuple)
)
days = st.lists(st.lists(jobs, max_size=4), min_size=len(AGENTS), max_size=len(AGENTS))
"""What each agent of the chain does."""


def bill_of(micro_usd: int) -> Spend:
    """Return a bill whose tokens follow from the amount."""
    return Spend(micro_usd=micro_usd, prompt_tokens=micro_usd * 2, completion_tokens=micro_usd % 7)


@dataclass
class Chain:
    """Five agents at work.

    Attributes:
        budget: The budget of the pipeline that has the task.
        interrupted: Whether the budget goes through JSON and back after each step, as in a pause or a replay.
        may_top_up: Whether a person adds money when there is none.
        books: What vendors billed, by agent: kept by the vendors.
        entries: What was put on record.
        messages: The messages that were accepted, as they went over the wire.
        steps: How many jobs were begun.
    """

    budget: Budget
    interrupted: bool = False
    may_top_up: bool = True
    books: dict[str, list[Spend]] = field(default_factory=lambda: {agent: [] for agent in AGENTS})
    entries: list[AuditEntry] = field(default_factory=list)
    messages: list[Handoff] = field(default_factory=list)
    steps: int = 0

    def run(self, script: list[list[Job]], rejections: Iterable[int] = ()) -> "Chain":
        """Let every agent work and hand on; return the chain itself.

        Args:
            script: What each agent does.
            rejections: How often each agent's handoff is refused before it is accepted; each time it works again.
        """
        refused = dict(zip(AGENTS, rejections, strict=False))
        for place, (agent, todo) in enumerate(zip(AGENTS, script, strict=True)):
            received = self.budget.cost_tracking()
            for job in todo:
                self.work(agent, job)
            if place + 1 == len(AGENTS):
                self.complete(agent)
                continue
            for attempt in range(1, refused.get(agent, 0) + 1):
                self.hand_on(place, received, HandoffStatus.REJECTED, attempt)
                self.work(agent, Job("good", (attempt,)))
            message = self.hand_on(place, received, HandoffStatus.ACCEPTED, refused.get(agent, 0) + 1)
            self.keep(UNTOUCHED.relayed(message.cost_tracking))
        return self

    def work(self, agent: str, job: Job) -> None:
        """Do one job: reserve, pay bill by bill, settle."""
        self.steps += 1
        name, worth = str(self.steps), sum(job.costs)
        if lack := self.budget.shortage(agent, worth):
            if not self.may_top_up:
                raise OutOfMoneyError
            self.keep(self.budget.top_up(lack.missing_micro_usd))
        if job.kind == "fan-out":
            self.fan_out(agent, name, job)
            return
        self.keep(self.budget.reserve(name, agent, worth))
        if job.kind == "child":
            child = Budget(initial_micro_usd=self.budget.open[name].held_micro_usd)
            for cost in job.costs:
                child = kept(child.charge_unreserved("child", self.billed(agent, cost)))
            self.keep(self.budget.charge(name, "child", child.spent))
        else:
            for number, cost in enumerate(job.costs):
                self.pay(agent, name, number, job, self.billed(agent, cost))
        self.keep(self.budget.settle(name))

    def fan_out(self, agent: str, name: str, job: Job) -> None:
        """Let branches run at the same time: all are reserved before the first is paid, the last is paid first."""
        for branch, cost in enumerate(job.costs):
            if cost or not self.budget.shortage(agent):
                self.keep(self.budget.reserve(f"{name}/{branch}", agent, cost))
        for branch, cost in reversed(list(enumerate(job.costs))):
            if (place := f"{name}/{branch}") in self.budget.open:
                self.keep(self.budget.charge(place, "1", self.billed(agent, cost)).settle(place))

    def pay(self, agent: str, name: str, number: int, job: Job, bill: Spend) -> None:
        """Charge one bill of a job, in the way in which it comes."""
        if job.kind == "compression":
            bill = kept(Compressed(summary="s", verbatim=[], before_tokens=2, after_tokens=1, spend=bill)).spend
        if job.kind == "lost" and number == 0:
            self.keep(self.budget.charge_unreserved(agent, bill))
            return
        self.keep(self.budget.charge(name, str(number), bill))
        if job.kind == "twice":
            self.keep(self.budget.charge(name, str(number), bill))

    def hand_on(self, place: int, received: CostTracking, status: HandoffStatus, attempt: int) -> Handoff:
        """Build the message, send it, and put the receiver's answer on record."""
        own = spent_since(received, self.budget)
        state = AgentState(
            agent=Sender(agent_id=AGENTS[place], agent_version="1.0.0", execution_id=EXECUTION_ID),
            task_id=TASK_ID,
            task_description="Go on",
            cost=topped_up(received, self.budget),
            spend=own,
            traceparent=TRACEPARENT,
        )
        message = build_handoff(
            state,
            Target(agent_type=AGENTS[place + 1], agent_version="*"),
            [],
            handoff_id=f"{HANDOFF_ID[:-1]}{place}",
            timestamp=AT + timedelta(seconds=place),
        )
        read = Handoff.from_json(message.model_dump_json(exclude_unset=True))
        assert read.cost_tracking == self.budget.cost_tracking()
        if status is HandoffStatus.ACCEPTED:
            self.messages.append(read)
        self.entries.append(
            handoff_entry(read.to_json_object(), task_id=TASK_ID, status=status, timestamp=AT, attempt=attempt)
        )
        return read

    def complete(self, agent: str) -> None:
        """Put the end of the task on record, with the last agent's cost in it."""
        cost = AuditCost.of(self.budget.cost_tracking())
        self.entries.append(completion_entry({}, agent=agent, cost=cost, task_id=TASK_ID))

    def billed(self, agent: str, cost: int) -> Spend:
        """Return a vendor's bill, which the vendor puts into its books."""
        bill = bill_of(cost)
        self.books[agent].append(bill)
        return bill

    def keep(self, budget: Budget) -> None:
        """Keep the budget; under interruptions, as it comes back from where it was stored."""
        self.budget = kept(budget) if self.interrupted else budget

    @property
    def cost(self) -> TaskCost:
        """What the ledger says of the task's cost."""
        return cost_on_record(self.entries)

    @property
    def total(self) -> Spend:
        return sum((bill for bills in self.books.values() for bill in bills), start=Spend())


def kept(record: RecordT) -> RecordT:
    """Return a record after a round trip through JSON."""
    return type(record).model_validate_json(record.model_dump_json())


def cost_on_record(entries: list[AuditEntry]) -> TaskCost:
    """Return the ledger's cost of a task, from these entries."""
    return task_cost([record.fields for record in chain(entries=entries, task_id=TASK_ID, signer=None)])


def spent_since(received: CostTracking, budget: Budget) -> Spend:
    """Return what an agent has spent since it received the task."""
    return budget.spent.minus(received.spent)


def topped_up(received: CostTracking, budget: Budget) -> CostTracking:
    """Return what an agent received, with later top-ups."""
    return received.model_copy(
        update={"cost_budget_remaining_usd": to_usd(budget.ceiling_micro_usd - received.spent_micro_usd)}
    )


rejections = st.lists(st.integers(0, 2), min_size=4, max_size=4)


class TestChain:
    @settings(max_examples=40)
    @given(days, rejections)
    def test_the_sum_of_the_records_is_the_sum_of_the_bills(self, script: list[list[Job]], refused: list[int]) -> None:
        """With retries, lost and repeated results, fan-out, children and compression (S3-11-e, S3-9-c, C-12)."""
        done = Chain(Budget(initial_micro_usd=PLENTY)).run(script, refused)
        cost = done.cost

        assert cost.micro_usd == done.total.micro_usd == done.budget.spent_micro_usd
        assert (cost.prompt_tokens, cost.completion_tokens) == (done.total.prompt_tokens, done.total.completion_tokens)
        assert (cost.complete, cost.findings) == (True, ())

    @settings(max_examples=40)
    @given(days, rejections)
    def test_each_agent_is_charged_what_it_was_billed(self, script: list[list[Job]], refused: list[int]) -> None:
        """By the differences between records, not by cumulative amounts (C-12, S3-9-b)."""
        done = Chain(Budget(initial_micro_usd=PLENTY)).run(script, refused)
        billed = {agent: to_usd(sum(bill.micro_usd for bill in bills)) for agent, bills in done.books.items()}

        assert done.cost.by_agent == billed

    @settings(max_examples=40)
    @given(days, rejections, st.integers(0, 50_000))
    def test_every_message_has_the_amount_billed_so_far(
        self, script: list[list[Job]], refused: list[int], initial: int
    ) -> None:
        """Spent and remaining add up to the limit, top-ups included (S3-9-a, C-12)."""
        done = Chain(Budget(initial_micro_usd=initial)).run(script, refused)
        spent = [message.cost_tracking.spent_micro_usd for message in done.messages]
        own = [sum(bill.micro_usd for bill in done.books[agent]) for agent in AGENTS]
        costs = [message.cost_tracking for message in done.messages]
        ceilings = [cost.spent_micro_usd + cost.remaining_micro_usd for cost in costs]

        assert spent == [sum(own[: place + 1]) for place in range(4)]
        assert ceilings == sorted(ceilings)
        assert initial <= ceilings[0] <= ceilings[-1] <= done.budget.ceiling_micro_usd

    @settings(max_examples=40)
    @given(days, rejections, st.integers(0, 50_000))
    def test_pauses_and_replays_change_nothing(self, script: list[list[Job]], refused: list[int], initial: int) -> None:
        """The amounts are the same if the budget is stored and read after each step (S3-9-c, S3-11-e)."""
        straight = Chain(Budget(initial_micro_usd=initial)).run(script, refused)
        interrupted = Chain(Budget(initial_micro_usd=initial), interrupted=True).run(script, refused)

        assert interrupted.messages == straight.messages
        assert interrupted.budget == straight.budget
        assert interrupted.entries == straight.entries

    @settings(max_examples=40)
    @given(days, st.integers(0, 40_000))
    def test_the_limit_holds_across_the_chain(self, script: list[list[Job]], initial: int) -> None:
        """Without a top-up the chain stops before a job that it cannot afford (S3-9-c, S3-9-b)."""
        chain = Chain(Budget(initial_micro_usd=initial), may_top_up=False)
        try:
            chain.run(script)
        except OutOfMoneyError:
            assert chain.steps > 0

        assert chain.total.micro_usd == chain.budget.spent_micro_usd <= initial

    def test_every_kind_of_job_is_charged(self) -> None:
        """One of each: the charge does not depend on how the bill arrives (S3-11-e)."""
        script = [[Job(kind, (1_000, 200)) for kind in JOBS], [], [Job("good", (7,))], [], [Job("child", (1,))]]
        done = Chain(Budget(initial_micro_usd=PLENTY)).run(script)

        assert done.cost.usd == Decimal("0.008408")
        assert done.cost.by_agent == {
            "extract": Decimal("0.0084"),
            "analyse": Decimal(0),
            "score": Decimal("0.000007"),
            "check": Decimal(0),
            "summarise": Decimal("0.000001"),
        }


class TestDeduction:
    def test_the_message_reflects_what_the_sender_spent(self) -> None:
        """0.40 USD, and A spends 0.08: B receives 0.32 (S3-13.2-d, S3-9-a, S3-9-b)."""
        chain = Chain(Budget(initial_micro_usd=400_000))
        given_to_a = chain.budget.cost_tracking()
        chain.work("extract", Job("refused", (50_000, 30_000)))
        wire = chain.hand_on(0, given_to_a, HandoffStatus.ACCEPTED, 1).to_json_object()["costTracking"]

        assert wire["costBudgetRemainingUSD"] == 0.32
        assert wire["costSpentSoFarUSD"] == 0.08
        assert wire["tokenSpent"]["prompt"] == 160_000

    def test_the_records_of_three_handoffs_lack_the_last_agents_cost(self) -> None:
        """The document's literal sum over-counts, and lacks the last agent without the completion (C-12)."""
        script = [[Job("good", (100_000,))] for _ in AGENTS]
        done = Chain(Budget(initial_micro_usd=10**6)).run(script)
        cumulative = [message.cost_tracking.cost_spent_so_far_usd for message in done.messages]
        without_end = cost_on_record(done.entries[:-1])

        assert sum(cumulative) == Decimal("1.0")
        assert (without_end.usd, without_end.complete) == (Decimal("0.4"), False)
        assert sum(share.micro_usd for share in done.cost.shares) == done.total.micro_usd == 500_000

    @pytest.mark.parametrize(
        ("spent", "reason"),
        [
            pytest.param(399_999, None, id="a millionth is left"),
            pytest.param(400_000, Code.BUDGET_EXHAUSTED, id="nothing is left"),
            pytest.param(500_000, Code.BUDGET_EXHAUSTED, id="more was billed than there was"),
        ],
    )
    def test_a_receiver_does_not_execute_without_money(self, spent: int, reason: Code | None) -> None:
        """It checks before it begins (S3-9-b, S3-9-c)."""
        budget = Budget(initial_micro_usd=400_000).charge_unreserved("extract", bill_of(spent))
        message = {**EXAMPLE, "costTracking": budget.cost_tracking().to_json_object()}
        verdict, _ = check_handoff(message, RECEIVER, scan=lambda _: [], check_schema=handoff_gate())

        assert verdict.reason == reason
        assert verdict.valid is (reason is None)
        assert (UNTOUCHED.relayed(budget.cost_tracking()).shortage("score") is None) is verdict.valid
