"""A service hands off to a pipeline; handoffs also work encrypted, and on workers without a cache."""

import re
import uuid
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from temporalio.client import Client
from temporalio.worker import Worker

from baton import Budget, Spend
from baton.client import hand_off_to
from baton.core.messages import PipelineInput
from baton.devserver import DevServer
from baton.errors import PipelineError
from baton.exchange.activity import EXCHANGE_ACTIVITIES
from baton.exchange.records import Reply
from baton.handoff.records import Handoff, Sender, Target
from baton.handoff.relay import AgentState, Envelope, build_handoff
from baton.handoff.sealed import SealError
from baton.handoff.store_safeguards import Safeguards
from baton.keys.store_keyring import Keyring
from baton.outside.client_external import StartReceiver
from baton.plugin import BatonPlugin
from baton.testing import pipeline_worker
from tests.exchange.exchange_pipelines import EXCHANGES, Broadcasts, Receives, StreamsIn, StreamsOut, ThereAndBack
from tests.patience import IN_TIME
from tests.support import GOAL, start, until


def message(to: str | None, *, agent: str = "risk", at: datetime | None = None, task_id: str | None = None) -> Handoff:
    id = uuid.uuid4()
    return build_handoff(
        AgentState(
            agent=Sender(agent_id="intake", agent_version="1.0.0", execution_id=str(uuid.uuid4())),
            task_id=task_id or str(uuid.uuid4()),
            task_description="Score the risk",
            cost=Budget(initial_micro_usd=400_000).cost_tracking(),
            spend=Spend(),
            traceparent=f"00-{id.hex}-{id.hex[:16]}-01",
            current_state={"goal": GOAL, "decision_log": ["Use the 2026 terms"]},
        ),
        Target(agent_type=agent, agent_version="*"),
        [],
        handoff_id=str(id),
        timestamp=at or datetime.now(UTC),
        envelope=Envelope(audience=to, initial=True),
    )


class TestHandOffTo:
    async def test_a_running_pipeline_answers_a_service(self, exchange: Worker, safeguards: Safeguards) -> None:
        """By the same signal and gate; sent again, it gets the same answer (C-20)."""
        receiver = await start(exchange, Receives.run, rounds=2)
        handoff = message(receiver.id)
        answers = [
            await hand_off_to(exchange.client, handoff, within=IN_TIME, keyring=safeguards.keyring) for _ in range(2)
        ]

        assert answers[0].answer is Reply.ACCEPTED
        assert answers[0] == answers[1]
        await until(receiver, lambda now: now.seq == 2)
        assert (await receiver.query("baton"))["decision_log"] == ["Took over from intake"]
        await receiver.terminate()

    async def test_a_pipeline_is_started_for_it(self, exchange: Worker, safeguards: Safeguards) -> None:
        """Start and signal are one request."""
        to = f"risk-{uuid.uuid4()}"
        starting = StartReceiver(Receives.run, PipelineInput(goal=GOAL), exchange.task_queue)
        answer = await hand_off_to(
            exchange.client, message(to), within=IN_TIME, keyring=safeguards.keyring, starting=starting
        )

        assert answer.accepted

    @pytest.mark.parametrize("starts", [False, True], ids=["it ran", "it is started for it"])
    async def test_a_repeat_to_an_ended_pipeline_gets_the_same_answer(
        self, exchange: Worker, safeguards: Safeguards, starts: bool
    ) -> None:
        """It is executed once; a service that lost the answer does not know of it."""
        to = f"risk-{uuid.uuid4()}"
        starting = StartReceiver(Receives.run, PipelineInput(goal=GOAL), exchange.task_queue) if starts else None
        if not starts:
            await start(exchange, Receives.run, id=to)
        handoff, receiver, keyring = message(to), exchange.client.get_workflow_handle(to), safeguards.keyring
        first = await hand_off_to(exchange.client, handoff, within=IN_TIME, keyring=keyring, starting=starting)
        await receiver.result()
        run_id = (await receiver.describe()).run_id

        repeated = await hand_off_to(exchange.client, handoff, within=IN_TIME, keyring=keyring, starting=starting)
        assert repeated == first
        assert (await receiver.describe()).run_id == run_id

    async def test_an_ended_pipeline_is_started_again_for_another_handoff(
        self, exchange: Worker, safeguards: Safeguards
    ) -> None:
        """It has not answered that one."""
        to = f"risk-{uuid.uuid4()}"
        starting = StartReceiver(Receives.run, PipelineInput(goal=GOAL), exchange.task_queue)
        for _ in range(2):
            answer = await hand_off_to(
                exchange.client, message(to), within=IN_TIME, keyring=safeguards.keyring, starting=starting
            )
            assert answer.accepted
            await exchange.client.get_workflow_handle(to).result()

    async def test_a_refusal_is_a_value(self, exchange: Worker, safeguards: Safeguards) -> None:
        """With its code and reason."""
        receiver = await start(exchange, Receives.run)
        answer = await hand_off_to(
            exchange.client, message(receiver.id, agent="summary"), within=IN_TIME, keyring=safeguards.keyring
        )

        assert (answer.answer, answer.code) == (Reply.REJECTED, "ROUTING_ERROR")
        await receiver.terminate()

    async def test_a_handoff_that_took_too_long_raises_an_alert(self, exchange: Worker, safeguards: Safeguards) -> None:
        """More than five seconds from dispatch to accept is a breach, by pair of agents.

        S3-6.5-d, S3-6.5-e, -f; the fourth of the protocols of S3-2-f.
        """
        receiver = await start(exchange, Receives.run, rounds=2)
        handoff = message(receiver.id, at=datetime.now(UTC) - timedelta(seconds=8))
        await hand_off_to(exchange.client, handoff, within=IN_TIME, keyring=safeguards.keyring)

        now = await until(receiver, lambda now: now.seq == 2)
        [note] = [note for note in now.notes if "longest allowed" in note]
        match = re.match(r"'intake' to 'risk': a handoff by signal took ([0-9.]+) s from dispatch to accept", note)
        assert match is not None
        assert float(match[1]) >= 8, "and as much longer as this machine took"
        await receiver.terminate()

    async def test_a_message_for_nobody_is_refused(self, exchange: Worker, safeguards: Safeguards) -> None:
        """Without an address, or to a pipeline that is not running."""
        keyring = safeguards.keyring
        with pytest.raises(ValueError, match="names no audience"):
            await hand_off_to(exchange.client, message(None), within=IN_TIME, keyring=keyring)
        with pytest.raises(PipelineError, match="nothing runs as 'nobody'"):
            await hand_off_to(exchange.client, message("nobody"), within=IN_TIME, keyring=keyring)

    async def test_an_answer_with_an_unknown_seal_is_refused(self, exchange: Worker) -> None:
        """Its seal is verified before it is read."""
        receiver = await start(exchange, Receives.run)
        with pytest.raises(SealError, match="there is no such key"):
            await hand_off_to(exchange.client, message(receiver.id), within=IN_TIME, keyring=Keyring.generate())


class TestAnyWorker:
    async def test_handoffs_broadcasts_and_streams_work_alike(self, server: DevServer, safeguards: Safeguards) -> None:
        """Nothing in them depends on what the server can read."""
        own = replace(safeguards, encrypt=True)
        client = await Client.connect(server.address, plugins=[BatonPlugin(safeguards=own)])
        async with pipeline_worker(client, EXCHANGES, EXCHANGE_ACTIVITIES) as worker:
            quick = timedelta(seconds=1)
            there = await start(worker, ThereAndBack.run, task_timeout=quick, to=f"risk-{uuid.uuid4()}")
            incoming = await start(worker, StreamsIn.run, task_timeout=quick)
            stream = await start(worker, StreamsOut.run, task_timeout=quick, to=incoming.id, count=3)
            receiver = await start(worker, Receives.run, task_timeout=quick)
            broadcast = await start(worker, Broadcasts.run, task_timeout=quick, to={"risk": receiver.id})

            outputs: list[Any] = [(await handle.result()).output for handle in (there, stream, incoming, broadcast)]
        assert outputs[0][0]["answer"] == outputs[1]["answer"] == "accepted"
        assert outputs[2]["chunks"] == [1, 2, 3]
        assert outputs[3]["answers"]["risk"]["answer"] == "accepted"
