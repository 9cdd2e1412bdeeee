"""Orders of another company that arrive over A2A, sent with the SDK's own client; each company has its own keys."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import httpx
import pytest
from a2a.client import A2ACardResolver, Client, ClientConfig, ClientFactory
from a2a.types import a2a_pb2 as pb
from a2a.utils.errors import (
    A2AError,
    ContentTypeNotSupportedError,
    ExtensionSupportRequiredError,
    InvalidParamsError,
    TaskNotFoundError,
)
from google.protobuf.json_format import MessageToDict, ParseDict
from google.protobuf.struct_pb2 import Value

from baton import PipelineInput
from baton.client import Access, ExportHandoff, Offer, Orders, ServiceParts, Tokens, serve_service, service
from baton.client.faces import Rate
from baton.devserver import DevServer
from baton.devserver.processes import held_port
from baton.ledger.records import Kind
from baton.protocol import Receipt, open_order, verify_receipt
from tests.doors.conftest import TOKENS, http_of
from tests.doors.door_pipelines import endless, hang
from tests.doors.test_a2a import BINDINGS, EXTENSION, agent, send, states, task_id
from tests.doors.test_serve_command import served
from tests.handoff.companies import Company, accepting, company
from tests.handoff.order_pipelines import compute, orders_score, other_pipeline, risk_scoring
from tests.handoff.test_order_faults import accept_killed

ORDER_TYPE = "application/vnd.baton.order+json"
RECEIPT_TYPE = "application/vnd.baton.receipt+json"


@pytest.fixture(scope="module")
async def globex(server: DevServer, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Company]:
    pipelines = [risk_scoring, other_pipeline, endless]
    async with company(server, tmp_path_factory.mktemp("globex"), pipelines, [compute, hang]) as made:
        yield made


@asynccontextmanager
async def serving(globex: Company, orders: Orders | None) -> AsyncIterator[str]:
    """Yield the address of the receiver's service, which offers two of its three pipelines."""
    with held_port() as port:
        url = f"http://127.0.0.1:{port}"
    offers = {name: Offer(name, globex.worker.task_queue) for name in ("risk_scoring", "endless")}
    parts = ServiceParts(
        globex.client, offers, Access(tokens=Tokens(TOKENS), rate=Rate(10_000, 10_000)), url, orders=orders
    )
    async with serve_service(service(parts), port=urlsplit(url).port or 0):
        yield url


@pytest.fixture(scope="module")
async def orders_url(acme: Company, globex: Company) -> AsyncIterator[str]:
    """Return the address of a service that takes orders which the sender's keys signed."""
    async with serving(globex, Orders(globex.gate, acme.gate.keyring.public(), "globex")) as url:
        yield url


async def export(acme: Company, to: str = "risk_scoring", audience: str = "globex") -> bytes:
    """Return an order of a new run."""
    id, start = f"deal-{uuid4()}", PipelineInput(goal="Sell the deal")
    await acme.client.execute_workflow(orders_score, start, id=id, task_queue=acme.worker.task_queue)
    return await ExportHandoff(acme.client, acme.gate, id, "score", to, audience).commit(by="ann")


def ordering(data: bytes, **members: Any) -> pb.Message:
    """Return the message that an order is sent with."""
    parts = [pb.Part(raw=data, media_type=ORDER_TYPE)]
    given = {"parts": parts, "extensions": [EXTENSION], "message_id": str(uuid4()), **members}
    return pb.Message(role=pb.ROLE_USER, **given)


def receipts(artifacts: Any) -> list[bytes]:
    """Return the receipts among artifacts."""
    return [artifact.parts[0].raw for artifact in artifacts if artifact.parts[0].media_type == RECEIPT_TYPE]


def confirmed(acme: Company, globex: Company, data: bytes, task: pb.Task) -> Receipt:
    """Return the answer in a task's receipt, as the sender verifies it."""
    [receipt] = receipts(task.artifacts)
    raw = open_order(data, acme.gate.keyring.public()).raw
    return verify_receipt(receipt, globex.gate.keyring.public(), raw)


async def listed(client: Client, **request: Any) -> list[str]:
    return [task.id for task in (await client.list_tasks(pb.ListTasksRequest(**request))).tasks]


async def order_records(globex: Company, receipt: Receipt) -> list[tuple[str, str]]:
    return await globex.records(receipt.task_id, receipt.handoff_id)


class TestAnOrder:
    @pytest.mark.parametrize("binding", BINDINGS)
    async def test_it_starts_the_pipeline_that_it_is_for(
        self, acme: Company, globex: Company, orders_url: str, binding: str
    ) -> None:
        """As the caller's task, with the receipt that convinces the sender; the ledger has it."""
        data = await export(acme)
        async with agent(orders_url, binding=binding) as client:
            events = await send(client, ordering(data))
            task = await client.get_task(pb.GetTaskRequest(id=task_id(events)))
        receipt = confirmed(acme, globex, data, events[0].task)

        assert (states(events)[-1], receipt.verdict.valid) == (pb.TASK_STATE_COMPLETED, True)
        output = next(artifact for artifact in task.artifacts if artifact.artifact_id == "output")
        given = MessageToDict(output.parts[0].data)["given"]
        assert given["inputs"]["deal"] == "The deal"
        assert await order_records(globex, receipt) == [(Kind.HANDOFF, "ACCEPTED"), (Kind.RELAY, "STARTED")]

    async def test_it_may_be_text(self, acme: Company, globex: Company, orders_url: str) -> None:
        """JSON is text; without a stream the answer has the receipt too."""
        data = await export(acme)
        part = pb.Part(text=data.decode(), media_type=ORDER_TYPE)
        async with agent(orders_url, streaming=False) as client:
            [event] = await send(client, ordering(data, parts=[part]))

        assert event.task.status.state == pb.TASK_STATE_COMPLETED
        assert confirmed(acme, globex, data, event.task).verdict

    async def test_the_card_says_how_it_is_sent(self, orders_url: str) -> None:
        async with http_of(None) as http:
            card = await A2ACardResolver(http, orders_url).get_agent_card()
        assert MessageToDict(card.capabilities.extensions[0].params)["order"] == ORDER_TYPE
        assert ORDER_TYPE in card.default_input_modes

    async def test_the_same_order_again_is_the_same_task(self, acme: Company, globex: Company, orders_url: str) -> None:
        """In whatever message and context it comes, with the receipt of the same answer."""
        data = await export(acme)
        async with agent(orders_url) as client:
            answers = [await send(client, ordering(data, context_id=context)) for context in ("", "c-1", "c-2")]
        [first, *later] = [confirmed(acme, globex, data, events[0].task) for events in answers]

        assert {task_id(events) for events in answers} == {task_id(answers[0])}
        assert {(receipt.verdict.valid, receipt.anchor is not None) for receipt in later} == {(True, True)}
        assert await order_records(globex, first) == [(Kind.HANDOFF, "ACCEPTED"), (Kind.RELAY, "STARTED")]

    async def test_the_task_is_the_callers(self, acme: Company, globex: Company, orders_url: str) -> None:
        """They list, read and cancel it; it does not exist for another caller, who cannot send it again either."""
        data, context = await export(acme, "endless"), str(uuid4())
        async with agent(orders_url, streaming=False) as ann, agent(orders_url, "bob") as bob:
            [event] = await send(ann, ordering(data, context_id=context), return_immediately=True)
            id = event.task.id
            assert confirmed(acme, globex, data, event.task).verdict
            assert id not in await listed(bob)
            for call in (
                bob.get_task(pb.GetTaskRequest(id=id)),
                bob.cancel_task(pb.CancelTaskRequest(id=id)),
                send(bob, ordering(data)),
            ):
                with pytest.raises(TaskNotFoundError):
                    await call
            while not (ids := await listed(ann, context_id=context)):
                pass  # the server's index lags behind by a moment
            assert ids == [id]
            assert (await ann.cancel_task(pb.CancelTaskRequest(id=id))).status.state == pb.TASK_STATE_CANCELED

    async def test_of_two_callers_at_once_one_has_it(self, acme: Company, globex: Company, orders_url: str) -> None:
        """One run starts, for the caller whose order was on record first."""
        data = await export(acme)
        async with agent(orders_url) as ann, agent(orders_url, "bob") as bob:
            both = [send(client, ordering(data)) for client in (ann, bob) for _ in range(2)]
            answers = await asyncio.gather(*both, return_exceptions=True)
        tasks = [answer[0].task for answer in answers if isinstance(answer, list)]

        assert len({task.id for task in tasks}) == 1
        assert {type(answer) for answer in answers} <= {list, TaskNotFoundError}
        started = [(Kind.HANDOFF, "ACCEPTED"), (Kind.RELAY, "STARTED")]
        assert await order_records(globex, confirmed(acme, globex, data, tasks[0])) == started

    async def test_a_service_that_was_killed_goes_on_where_it_was(
        self, acme: Company, globex: Company, orders_url: str
    ) -> None:
        """The order is on record, and its run is not there yet: it starts as the same caller's, and nobody else's."""
        earlier, data = await export(acme), await export(acme)
        earlier_id, order_id = (open_order(each, acme.gate.keyring.public()).id for each in (earlier, data))
        async with agent(orders_url) as ann, agent(orders_url, "bob") as bob:
            id = task_id(await send(ann, ordering(earlier, context_id="c-1"))).replace(earlier_id, order_id)
            await accept_killed("before", acme, globex, data, id)
            with pytest.raises(TaskNotFoundError):
                await send(bob, ordering(data))
            events = await send(ann, ordering(data, context_id="c-2"))

        assert (task_id(events), states(events)[-1]) == (id, pb.TASK_STATE_COMPLETED)
        receipt = confirmed(acme, globex, data, events[0].task)
        assert await order_records(globex, receipt) == [(Kind.HANDOFF, "ACCEPTED"), (Kind.RELAY, "STARTED")]

    async def test_one_that_came_by_mail_is_nobodys_task(self, acme: Company, globex: Company, orders_url: str) -> None:
        """The run belongs to who accepted the file; and the other way round, the file starts nothing more."""
        mailed, sent = await export(acme), await export(acme)
        first = await accepting(globex, acme, mailed, audience="globex").commit(by="bob")
        async with agent(orders_url) as client:
            with pytest.raises(TaskNotFoundError):
                await send(client, ordering(mailed))
            id = task_id(await send(client, ordering(sent)))
        second = await accepting(globex, acme, sent, audience="globex").commit(by="bob")

        assert first.started
        assert (second.workflow_id, second.started) == (id, False)


def _changed(acme: Company, data: bytes) -> bytes:
    return data.replace(b"Sell the deal", b"Sell the farm").replace(b"The deal", b"The farm")


class TestRefused:
    @pytest.mark.parametrize(
        ("change", "to"),
        [
            pytest.param(_changed, "risk_scoring", id="changed bytes"),
            pytest.param(lambda acme, data: data, "other_pipeline", id="a pipeline that is not offered"),
            pytest.param(lambda acme, data: b"{}", "risk_scoring", id="no order"),
        ],
    )
    async def test_what_is_no_order_for_this_service(
        self,
        acme: Company,
        globex: Company,
        orders_url: str,
        change: Callable[[Company, bytes], bytes],
        to: str,
    ) -> None:
        """It is an error of the protocol, and nothing is on record."""
        data = await export(acme, to)
        before = await globex.gate.ledger.newest(1)
        async with agent(orders_url) as client:
            assert change(acme, data) != data or to == "other_pipeline"
            with pytest.raises(InvalidParamsError):
                await send(client, ordering(change(acme, data)))
        assert await globex.gate.ledger.newest(1) == before

    @pytest.mark.parametrize(
        ("members", "error"),
        [
            pytest.param({"extensions": []}, ExtensionSupportRequiredError, id="without the extension"),
            pytest.param({"task_id": "order-1"}, InvalidParamsError, id="for a task that there is"),
            pytest.param({"parts": "two"}, InvalidParamsError, id="with another part"),
            pytest.param({"parts": "data"}, InvalidParamsError, id="as data"),
        ],
    )
    async def test_what_is_sent_in_another_way(
        self, acme: Company, orders_url: str, members: dict[str, Any], error: type[A2AError]
    ) -> None:
        data = await export(acme)
        message = ordering(data, **{**members, "parts": [pb.Part(raw=data, media_type=ORDER_TYPE)]})
        if members.get("parts") == "two":
            message.parts.add(text="and be quick")
        if members.get("parts") == "data":
            message.parts[0].data.CopyFrom(ParseDict(json.loads(data), Value()))
        async with agent(orders_url) as client:
            with pytest.raises(error):
                await send(client, message)

    async def test_a_viewer_orders_nothing(self, acme: Company, orders_url: str) -> None:
        data = await export(acme)
        async with agent(orders_url, "eve") as client:
            with pytest.raises(A2AError):
                await send(client, ordering(data))
        async with agent(orders_url) as client:
            assert states(await send(client, ordering(data)))[-1] == pb.TASK_STATE_COMPLETED

    async def test_a_key_that_the_service_does_not_trust(self, acme: Company, globex: Company) -> None:
        """The key in the file vouches for nothing."""
        data = await export(acme)
        before = await globex.gate.ledger.newest(1)
        others = Orders(globex.gate, globex.gate.keyring.public(), "globex")
        async with serving(globex, others) as url, agent(url) as client:
            with pytest.raises(InvalidParamsError):
                await send(client, ordering(data))
        assert await globex.gate.ledger.newest(1) == before

    async def test_a_service_that_trusts_nobody(self, acme: Company, globex: Company) -> None:
        """Its card does not have the media type, and it takes no order."""
        data = await export(acme)
        async with serving(globex, None) as url, agent(url) as client:
            with pytest.raises(ContentTypeNotSupportedError):
                await send(client, ordering(data))

    @pytest.mark.parametrize("streaming", [True, False])
    async def test_a_rejected_order_is_a_rejected_task(
        self, acme: Company, globex: Company, orders_url: str, streaming: bool
    ) -> None:
        """One for another company: the receipt says why, and there is no run."""
        data = await export(acme, audience="umbrella")
        async with agent(orders_url, streaming=streaming) as client:
            [event] = await send(client, ordering(data))
            with pytest.raises(TaskNotFoundError):
                await client.get_task(pb.GetTaskRequest(id=event.task.id))
        receipt = confirmed(acme, globex, data, event.task)

        assert event.task.status.state == pb.TASK_STATE_REJECTED
        assert (receipt.verdict.valid, receipt.verdict.reason) == (False, "SIGNATURE_INVALID")
        assert await order_records(globex, receipt) == [(Kind.HANDOFF, "REJECTED")]


async def test_the_command_takes_orders_of_those_it_trusts(
    server: DevServer, acme: Company, globex: Company, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`baton serve --trust --audience`, with the keys and the ledger of its workers."""
    data = await export(acme)
    for name, file in {"KEYS": "keys.toml", "LEDGER": "ledger.db"}.items():
        monkeypatch.setenv(f"BATON_{name}", str(globex.folder / file))
    tokens = tmp_path / "tokens.toml"
    tokens.write_text('acme = "acme-token-0123456789"\n')
    tokens.chmod(0o600)
    queue = ["--task-queue", globex.worker.task_queue, "--tokens", str(tokens)]
    trust = ["--trust", acme.publish(tmp_path), "--audience", "globex"]
    headers = {"authorization": "Bearer acme-token-0123456789"}
    async with (
        served(server, tmp_path, "risk_scoring", *queue, *trust) as (first, _),
        httpx.AsyncClient(headers=headers, timeout=60) as http,
    ):
        card = await A2ACardResolver(http, first["url"]).get_agent_card()
        events = await send(ClientFactory(ClientConfig(httpx_client=http)).create(card), ordering(data))

    assert states(events)[-1] == pb.TASK_STATE_COMPLETED
    assert confirmed(acme, globex, data, events[0].task).verdict
