"""The seals of actions: a worker verifies them before an action enters the history, and not in a replay."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pydantic import JsonValue
from temporalio.api.common.v1 import Payload
from temporalio.client import Client, WorkflowQueryFailedError, WorkflowUpdateFailedError
from temporalio.common import RawValue
from temporalio.worker import Worker

from baton import WorkerParts
from baton.client import read_run
from baton.client.faces import ArtifactStore
from baton.devserver import DevServer
from baton.errors import PipelineError
from baton.exchange.activity import EXCHANGE_ACTIVITIES
from baton.exchange.external import ACTION, QUERY_OUTSIDE, ActionKind, AgentAction, OutsideHandoff
from baton.handoff.sealed import UnverifiedHandoff
from baton.handoff.store_safeguards import Safeguards
from baton.handoff.store_signing import seal_json
from baton.keys.store_keyring import Keyring
from baton.outside.client_external import HandoffRef, OutsideAgents
from baton.plugin import BatonPlugin
from baton.testing import assert_replays, pipeline_worker
from tests.exchange.exchange_pipelines import HandsOutside
from tests.exchange.test_outside_service import waiting
from tests.support import Handle

PLAIN = {"encoding": b"json/plain"}
SEALED_ACTION = {**PLAIN, "baton-record": b"sealed-action"}


@pytest.fixture(scope="module")
async def exchange(server: DevServer, safeguards: Safeguards, store: ArtifactStore) -> AsyncIterator[Worker]:
    """Return a worker that knows the pipeline of these tests."""
    plugin = BatonPlugin(WorkerParts(artifacts=store), safeguards=safeguards)
    client = await Client.connect(server.address, plugins=[plugin])
    async with pipeline_worker(client, [HandsOutside], EXCHANGE_ACTIVITIES) as worker:
        yield worker


@pytest.fixture(scope="module")
async def agents(exchange: Worker, safeguards: Safeguards) -> AsyncIterator[OutsideAgents]:
    async with safeguards.shared().open() as guarded:
        yield OutsideAgents(exchange.client, guarded.gate)


async def found_in(handle: Handle) -> HandoffRef:
    """Return the handoff that waits in a pipeline."""
    [handoff] = await handle.query(QUERY_OUTSIDE, result_type=list[OutsideHandoff])
    return HandoffRef(handle.id, handoff)


def action(ref: HandoffRef, holder: str, kind: ActionKind, **members: Any) -> AgentAction:
    usual = {"handoff_id": ref.handoff.handoff_id, "digest": ref.handoff.digest, "agent": ref.handoff.agent}
    return AgentAction(**{**usual, "holder": holder, "kind": kind, "at": datetime.now(UTC), **members})


def claim(ref: HandoffRef, holder: str) -> bytes:
    move = action(ref, holder, ActionKind.CLAIM)
    return move.model_dump_json(by_alias=True, exclude_unset=True).encode()


async def refused(handle: Handle, argument: Any) -> str:
    with pytest.raises(WorkflowUpdateFailedError) as error:
        await handle.execute_update(ACTION, argument, result_type=OutsideHandoff)
    return str(getattr(error.value.cause, "message", error.value.cause))


async def events_of(handle: Handle) -> list[str]:
    """Return the types of a run's events."""
    return [event.WhichOneof("attributes") or "" async for event in handle.fetch_history_events()]


async def test_an_action_whose_seal_does_not_hold_leaves_nothing_in_the_history(
    exchange: Worker, safeguards: Safeguards
) -> None:
    """Forged actions cannot fill it: sealed with another key, tampered with, unsealed, or not JSON."""
    handle = await waiting(exchange)
    ref = await found_in(handle)
    other, good = (seal_json(claim(ref, "eve"), keys) for keys in (Keyring.generate(), safeguards.keyring))
    for data, why in (
        (other, "and there is no such key to seal"),
        (good.replace(b"eve", b"ivy"), "its seal does not hold"),
        (claim(ref, "eve"), "it is not sealed"),
        (b"{", "the seal cannot be verified"),
    ):
        for metadata in ({}, {"baton-fault": b""}):  # whoever says that it holds is not believed
            assert why in await refused(handle, RawValue(Payload(metadata={**SEALED_ACTION, **metadata}, data=data)))

    assert not [kind for kind in await events_of(handle) if "update" in kind]
    assert (await found_in(handle)).handoff.holder is None
    await handle.cancel()


async def test_an_action_as_an_earlier_release_marked_it_is_verified_as_it_was(
    exchange: Worker, safeguards: Safeguards
) -> None:
    """A service that is not yet upgraded keeps working, and its actions are verified as well."""
    handle = await waiting(exchange)
    ref = await found_in(handle)
    assert "it is not sealed" in await refused(handle, UnverifiedHandoff(claim(ref, "eve")))
    sealed = UnverifiedHandoff(seal_json(claim(ref, "ann"), safeguards.keyring, exchange.client.namespace))
    assert (await handle.execute_update(ACTION, sealed, result_type=OutsideHandoff)).holder == "ann"
    await handle.cancel()


async def test_an_action_that_is_too_large_is_refused_before_it_enters_the_history(exchange: Worker) -> None:
    """A few KiB can decompress to it; its seal is not even verified."""
    handle = await waiting(exchange)
    assert "of 4 MiB at most" in await refused(handle, UnverifiedHandoff(b"[" + b" " * 5_000_000 + b"]"))
    assert not [kind for kind in await events_of(handle) if "update" in kind]
    await handle.cancel()


async def test_a_worker_without_keys_refuses_actions_and_says_what_it_needs(
    client: Client, exchange: Worker, agents: OutsideAgents
) -> None:
    """The handoff waits on for a worker that has them."""
    async with pipeline_worker(client, [HandsOutside], EXCHANGE_ACTIVITIES) as poor:
        handle = await waiting(poor)
        ref = await found_in(handle)
        with pytest.raises(PipelineError, match=r"no keys to verify actions; .*BatonPlugin\(safeguards=…\)"):
            await agents.claim(ref, "reviewer")
        await handle.cancel()


async def test_actions_that_come_at_once_while_the_run_is_asked_replay(exchange: Worker, agents: OutsideAgents) -> None:
    """No local activity is involved, because a query would delay its end and change the order of answers.

    It replays without keys, because the actions in the history were verified when they arrived.
    """
    for _ in range(6):
        handle = await waiting(exchange)
        found = await found_in(handle)
        asking = [asyncio.create_task(_ask_on(handle)) for _ in range(3)]
        claims = [agents.claim(found, "reviewer", holder=f"ann-{number}") for number in range(4)]
        claimed = await asyncio.gather(*claims, return_exceptions=True)
        [winner] = [ref for ref in claimed if isinstance(ref, HandoffRef)]
        holder = winner.handoff.holder
        await agents.accept(winner, "reviewer", holder=holder)
        reports = [agents.return_report(winner, "reviewer", "done", holder=holder) for _ in range(2)]
        await asyncio.gather(*reports, return_exceptions=True)
        await handle.result()
        for question in asking:
            question.cancel()
        kinds = await events_of(handle)
        first = next(at for at, kind in enumerate(kinds) if "update_accepted" in kind)
        assert not [kind for kind in kinds[first:] if "marker" in kind]
        await assert_replays(handle, [HandsOutside])


async def _ask_on(handle: Handle) -> None:
    while True:
        with suppress(WorkflowQueryFailedError):
            await handle.query(QUERY_OUTSIDE)


async def test_the_artifacts_of_a_patch_are_looked_for_in_the_workers_store(
    exchange: Worker, agents: OutsideAgents, store: ArtifactStore
) -> None:
    """Later stages must be able to read them; an activity checks this."""
    handle = await waiting(exchange)
    found = await agents.claim(await found_in(handle), "reviewer")
    await agents.accept(found, "reviewer")
    hash = await store.put(b"the reviewed contract")
    for name, digest in (("lost", "0" * 64), ("review", hash)):
        ref: JsonValue = {"id": name, "type": "report", "hash": digest}
        if name == "lost":
            with pytest.raises(PipelineError, match="the workers' store has no 'lost'"):
                await agents.return_patch(found, "reviewer", {"artifacts": [ref]})
        else:
            await agents.return_patch(found, "reviewer", {"artifacts": [ref]})
    assert [artifact["id"] for artifact in (await handle.result()).baton["artifacts"]] == ["review"]
    await assert_replays(handle, [HandsOutside])


async def test_only_a_patch_changes_the_baton(exchange: Worker, agents: OutsideAgents) -> None:
    """Notes beside a rejection or a report would not be checked."""
    handle = await waiting(exchange)
    found = await agents.claim(await found_in(handle), "reviewer", holder="ann")
    await agents.accept(found, "reviewer", holder="ann")
    for kind, members in (
        (ActionKind.REJECT, {"notes": {"decided": ["x" * 5_000]}}),
        (ActionKind.REPORT, {"patch": {"goal": ""}}),
    ):
        assert "takes neither patch nor notes" in await refused(handle, action(found, "ann", kind, **members))
    await handle.cancel()


async def test_notes_are_recorded_whatever_the_clock_and_the_name_of_their_agent(
    exchange: Worker, agents: OutsideAgents
) -> None:
    """A decision from the future would be in no contract."""
    name = "x" * 200
    handle = await waiting(exchange, agent=name)
    found = await agents.claim(await found_in(handle), name, holder="ann")
    await agents.accept(found, name, holder="ann")
    later = datetime.now(UTC) + timedelta(days=1)
    patch = action(found, "ann", ActionKind.PATCH, notes={"decided": ["No cap"]}, at=later)
    await handle.execute_update(ACTION, patch, result_type=OutsideHandoff)
    await handle.result()
    [outcome] = (await read_run(exchange.client, handle.id)).state.outcomes
    [event] = outcome.events
    assert str(event["timestamp"]) < later.isoformat()
    await assert_replays(handle, [HandsOutside])
