"""What must not cross is searched for in every place of a run; it is in none but its sender's own."""

import json
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client

from baton import PipelineInput, WorkerParts
from baton.client.faces import LocalArtifactStore, explain_in
from baton.contract.records import Explanation
from baton.devserver import DevServer
from baton.handoff.store_safeguards import Safeguards
from baton.hosting.tracing import open_tracing
from baton.keys.store_keyring import Keyring
from baton.ledger.store import Ledger, LedgerOptions
from baton.plugin import BatonPlugin
from baton.testing import PipelineRun, assert_replays, pipeline_worker, run_pipeline
from baton.wire.names import QUERY_BATON, QUERY_EXPLAIN, QUERY_HISTORY, QUERY_STATUS
from tests.chat_server import chat_server, completion
from tests.collector import collecting
from tests.contract.leak_pipelines import LEAK_PIPELINES, SCHEMAS, Confides, ConfidesTogether
from tests.contract.leak_stages import CROSSES, LEAK_STAGES, MARKERS, NEVER, SENDERS
from tests.support.surfaces import LogCapture, Surfaces, assert_not_seen, assert_seen, surfaces_of

SHAPES: dict[str, Callable[..., Any]] = {"in a row": Confides.run, "at once": ConfidesTogether.run}


@dataclass(frozen=True)
class Searched:
    """A run, and every place where something of it can be.

    Attributes:
        run: The run.
        surfaces: All places.
        journals: The names of the sender's journal, as artifact and as file; only there may its thoughts be.
        senders: The names of the events with what the sender returned.
    """

    run: PipelineRun
    surfaces: Surfaces
    journals: tuple[str, ...]
    senders: tuple[str, ...]


@pytest.fixture(scope="module", params=["in a row, sealed", "in a row, plain", "at once, sealed"])
async def searched(
    request: pytest.FixtureRequest, server: DevServer, tmp_path_factory: pytest.TempPathFactory
) -> Searched:
    """Run a sender with secrets and receivers that tell all they know, and gather all places."""
    shape, sealing = request.param.split(", ")
    folder = tmp_path_factory.mktemp("leaks")
    guards = Safeguards(Keyring.generate(), folder / "ledger.db") if sealing == "sealed" else None
    store = LocalArtifactStore(folder / "artifacts")
    answer = completion('{"baton_patch": {"decision_log": ["Nothing"]}}')
    with LogCapture() as logs, chat_server(answer) as model, collecting() as collector:
        tracing = open_tracing({"OTEL_EXPORTER_OTLP_ENDPOINT": collector.endpoint})
        assert tracing is not None
        plugin = BatonPlugin(WorkerParts(artifacts=store, schemas=SCHEMAS), safeguards=guards or "off", tracing=tracing)
        client = await Client.connect(server.address, plugins=[plugin])
        async with pipeline_worker(client, LEAK_PIPELINES, LEAK_STAGES) as worker:
            start = PipelineInput(goal="Keep it to yourself", params={"model_url": model.url})
            run = await run_pipeline(worker, SHAPES[shape], start)
            prompts = await asked(run)
        tracing.close()
    async with AsyncExitStack() as stack:
        ledger = None
        if guards is not None:
            ledger = await stack.enter_async_context(Ledger(folder / "ledger.db", LedgerOptions(create=False)))
        surfaces = await surfaces_of(
            client,
            run.handle.id,
            prompts={"ask_model": [f"{request.headers} {json.dumps(request.body)}" for request in model.asked]},
            logs=logs,
            ledger=ledger,
            artifacts=store,
            folders=[folder],
        )
    for name, content in (*prompts.items(), *((f"span/{at}", str(span)) for at, span in enumerate(collector.spans))):
        surfaces.add(name, content)
    await assert_replays(run.handle, LEAK_PIPELINES, plugin=plugin)
    journals = tuple(name for name, content in surfaces.pieces.items() if content.startswith(b'{"stage":"confide"'))
    return Searched(run, surfaces, journals, await senders_events(run))


async def asked(run: PipelineRun) -> dict[str, str]:
    """Return what a run's queries, its result and its explanations say, by the names of surfaces."""
    matches = {
        "result": run.result.model_dump_json(),
        **{f"query/{name}": str(await run.handle.query(name)) for name in (QUERY_BATON, QUERY_HISTORY, QUERY_STATUS)},
    }
    for name in ("tell_all", "tell_again"):
        explanation: Explanation = await run.handle.query(QUERY_EXPLAIN, name, result_type=Explanation)
        matches[f"query/explain-{name}"] = explanation.model_dump_json() + explanation.to_markdown()
        matches[f"explain/{name}"] = explain_in(run.record, name).to_markdown()
    return matches


async def senders_events(run: PipelineRun) -> tuple[str, ...]:
    """Return patterns of the events with what the sender returned: the end of its activity."""
    scheduled: dict[int, str] = {}
    matches: list[str] = []
    for event in (await run.handle.fetch_history()).events:
        if event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED:
            scheduled[event.event_id] = event.activity_task_scheduled_event_attributes.activity_type.name
        ended = event.activity_task_completed_event_attributes.scheduled_event_id
        if scheduled.get(ended) == "confide":
            matches.append(f"history/*/{event.event_id}-ACTIVITY_TASK_COMPLETED/*")
    return tuple(matches)


class TestLeaks:
    @pytest.mark.parametrize("kind", NEVER)
    def test_what_is_never_handed_on_is_in_no_place(self, searched: Searched, kind: str) -> None:
        """No prompt, log, message, record, history event, query or artifact of a receiver has it.

        S5-prob-a, S5-prob-b, S5-prob-g, S5-contract-c, S5-compiler-b, S5-compiler-c, S5-check-c, S5-check-p,
        S5-code-b.
        """
        assert_not_seen(MARKERS[kind], searched.surfaces.without(*searched.journals))

    @pytest.mark.parametrize("kind", SENDERS)
    def test_what_is_not_good_enough_stays_in_the_senders_result(self, searched: Searched, kind: str) -> None:
        """A stale or failed result, or a decision that was not accepted: only what the sender itself returned has it.

        S5-prob-c, S5-compiler-d, S5-check-d, S5-check-q, S5-code-b.
        """
        assert_seen(MARKERS[kind], searched.surfaces.only(searched.senders[0]))
        assert_not_seen(MARKERS[kind], searched.surfaces.without(*searched.journals, *searched.senders))

    @pytest.mark.parametrize("kind", CROSSES)
    def test_what_crosses_is_found(self, searched: Searched, kind: str) -> None:
        """The search finds what is there: in the receivers' messages, prompts, logs, artifacts and records."""
        kinds = {name.partition("/")[0] for name in searched.surfaces.pieces}
        assert kinds >= {"history", "record", "page", "artifact", "file", "log", "result", "query", "explain", "span"}
        sealed, in_a_row = "ledger" in kinds, "prompt" in kinds
        also = ["ledger/*"] * sealed + ["prompt/*"] * in_a_row
        for place in ("history/*SCHEDULED/*", "artifact/*", "file/*", "log/*", "result", "explain/tell_again", *also):
            assert_seen(MARKERS[kind], searched.surfaces.only(place).without(*searched.journals))

    def test_each_event_left_out_is_labelled(self, searched: Searched) -> None:
        """The record of what was left out has one label for each event, and no content (S5-fields-j, S5-compiler-g)."""
        explanation = explain_in(searched.run.record, "tell_again")
        assert (
            {
                "type:brainstorm",
                "type:internal_note",
                "type:rejected_assumption",
                "explicit:user_message",
                "explicit:tool_result",
                "stale:crm.lookup_pricing",
                "failed:crm.lookup_customer",
                "unsupported:decision",
            }
            <= {omission.label for omission in explanation.left_out}
            == set(explanation.terms.excluded_context)
        )
        events = [omission.event_id for omission in explanation.left_out]
        assert len(events) == len(set(events))
        assert not set(events) & {fact.event_id for fact in explanation.terms.facts}

    def test_each_fact_tells_where_it_is_from(self, searched: Searched) -> None:
        """Source, method, time and sureness stand with each (S5-compiler-e, S5-compiler-f, S5-fields-i, S5-prob-h)."""
        facts = explain_in(searched.run.record, "tell_again").terms.facts
        sources = {
            kind: (fact.source.source, fact.source.method, fact.confidence)
            for fact in facts
            for kind in CROSSES
            if MARKERS[kind] in fact.claim
        }
        assert sources == {
            "fact": ("crm.lookup_customer", "tool_call:crm.lookup_customer", "high"),
            "user-word": ("user", "user_input", "unverified"),
            "model-word": ("confide", "llm_generation", "medium"),
        }

    def test_the_journal_has_what_was_kept_back(self, searched: Searched) -> None:
        """Nothing is lost: the sender's journal has the texts, under the hashes that its events name (S5-prob-i)."""
        for kind in NEVER:
            assert_seen(MARKERS[kind], searched.surfaces.only(*searched.journals))
