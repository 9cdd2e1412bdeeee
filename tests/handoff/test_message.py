"""What a stage's handoff tells its receiver: what matters of its inputs, and what is left to do."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from temporalio.worker import Worker

from baton import ArtifactRef, Budget, Pipeline, PipelineInput, pipeline
from baton.client import explain
from baton.core.inputs import encode_inputs
from baton.core.messages import StageInput
from baton.core.stages import StageSpec
from baton.devserver import DevServer
from baton.errors import HistoryError
from baton.handoff.records import ContextItem
from baton.handoff.relay import HandoffTerms, Relay
from baton.handoff.store_safeguards import Safeguards
from baton.ledger.store import Ledger, LedgerOptions
from baton.plugin import BatonPlugin
from baton.testing import assert_replays, run_pipeline
from tests.handoff.message_pipelines import check, paged, planned, read, weigh
from tests.support import sealing_worker

TASK = str(UUID(int=1, version=4))
AT = datetime(2026, 11, 21, tzinfo=UTC)


@pytest.fixture(scope="module")
async def worker(server: DevServer, safeguards: Safeguards) -> AsyncIterator[Worker]:
    async with sealing_worker(server, safeguards, [planned, paged], [read, weigh, check]) as worker:
        yield worker


def context_of(inputs: dict[str, Any], *, whole: frozenset[str] = frozenset(), **given: Any) -> list[ContextItem]:
    """Return the relevant context of a handoff to a stage with these inputs."""
    relay, cost = Relay("Delivery", TASK, TASK, HandoffTerms()), Budget(initial_micro_usd=1).cost_tracking()
    encoded = encode_inputs(inputs)
    stage_input = StageInput(stage="test", seq=1, task_id=TASK, baton={"goal": "g"}, inputs=encoded, **given)
    handoff = relay.message(StageSpec("test", whole=whole), stage_input, cost, handoff_id=TASK, now=AT)
    return handoff.relevant_context


class TestRelevantContext:
    def test_it_is_the_beginning_of_each_input(self) -> None:
        """With the name as its source, text and JSON on one line (S3-5.2-o)."""
        ref = ArtifactRef(id="art-1", type="plan", hash="0" * 64, summary="how to begin")
        items = context_of({"draft": "One\n\ntwo", "limits": {"eur": [1, 2]}, "plan": ref, "empty": " "})

        assert [(item.source, item.excerpt) for item in items] == [
            ("draft", "One two"),
            ("limits", '{"eur":[1,2]}'),
            ("plan", "artifact art-1 (plan): how to begin"),
        ]
        assert {item.relevance_score for item in items} == {0.5}

    def test_what_the_stage_needs_whole_comes_first(self) -> None:
        """Its score says so (S3-5.2-o)."""
        items = context_of({"a": "1", "b": "2"}, whole=frozenset({"b"}))

        assert [(item.source, item.relevance_score) for item in items] == [("b", 1.0), ("a", 0.5)]

    def test_it_is_short_whatever_the_inputs_are(self) -> None:
        """Five excerpts of at most 200 characters; the message has the inputs in full elsewhere."""
        large = {f"input{number}": {"rows": [{"id": n} for n in range(2_000)]} for number in range(9)}
        items = context_of({"text": "x" * 100_000, **large})

        assert len(items) == 5
        assert [len(item.excerpt) for item in items] == [200] * 5
        assert {item.excerpt[-1] for item in items} == {"…"}

    def test_sealed_personal_data_has_no_excerpt(self) -> None:
        """Not even its ciphertext."""
        sealed = {"v": 1, "fields": {"email": {"kid": f"dk-{'0' * 16}", "n": "A" * 16, "ct": "A" * 64}}}

        assert context_of({"person": {f"sub-{'0' * 32}": sealed}, "erased": {}, "style": "plain"})[-1].source == "style"
        assert "ct" not in "".join(item.excerpt for item in context_of({"person": {f"sub-{'0' * 32}": sealed}}))

    def test_a_contract_gives_its_facts_instead(self) -> None:
        """The most certain first, with where each is from; the score is its confidence (S3-5.2-o, S5-fields-g)."""
        facts = [
            {"claim": claim, "source": {"source": source}, "confidence": confidence}
            for claim, source, confidence in (
                ("Maybe.", "llm", "medium"),
                ("The cap is 250,000 EUR.", "contracts.search", "high"),
                ("Said so.", "user", "unverified"),
            )
        ]

        assert [tuple(dict(item).values()) for item in context_of({"draft": "x"}, contract={"facts": facts})] == [
            ("contracts.search", "The cap is 250,000 EUR.", 0.9),
            ("llm", "Maybe.", 0.6),
            ("user", "Said so.", 0.1),
        ]


async def bodies_of(safeguards: Safeguards, task_id: str) -> list[dict[str, Any]]:
    """Return the messages of a task that the ledger has, in order."""
    async with Ledger(safeguards.ledger, LedgerOptions(create=False)) as ledger:
        records = (await ledger.trace(task_id)).records
    return [record.body for record in records if "toAgent" in record.body]


class TestNames:
    async def test_a_handoff_names_the_steps_as_the_code_does(self, worker: Worker, safeguards: Safeguards) -> None:
        """Of a map each item; the agent is the stage, and what the map completes is one step of the plan."""
        run = await run_pipeline(worker, paged, PipelineInput(goal="Review the contract"))
        _, *pages, last = await bodies_of(safeguards, run.result.task_id)
        pages.sort(key=lambda body: body["remainingSubtasks"][0]["subtaskId"])
        left = [[subtask["subtaskId"] for subtask in body["remainingSubtasks"]] for body in (pages[0], last)]

        assert {body["toAgent"]["agentType"] for body in pages} == {"weigh"}
        assert left == [["2:page 1", "plan 3:archive"], ["3:check the pages", "plan 3:archive"]]
        done = [subtask["subtaskId"] for subtask in last["completedSubtasks"]]
        assert done == ["1:read", "2:page 1", "2:page 2", "2:page 3"]
        assert last["fromAgent"]["agentId"] == "page"
        assert sorted(body["relevantContext"][0]["excerpt"] for body in pages) == ["one", "three", "two"]
        await assert_replays(run.handle, [paged], plugin=BatonPlugin(safeguards=safeguards))

    async def test_an_item_is_explained_by_its_name(self, worker: Worker) -> None:
        """Without a worker and by one; the step has several."""
        run = await run_pipeline(worker, paged, PipelineInput(goal="Review the contract"))
        client, id = worker.client, run.handle.id
        explanation = await explain(client, id, "page 2")

        assert (explanation.stage, explanation.seq) == ("page 2", 2)
        assert explanation == await run.handle.query("explain", "page 2", result_type=type(explanation))
        assert (await explain(client, id, "weigh")).stage.startswith("page ")
        assert (await explain(client, id, "check the pages")).seq == 3
        with pytest.raises(HistoryError, match="step 2 has 3 stages: page 1, page 2, page 3; name one of them"):
            await explain(client, id, "2")


class TestPlan:
    async def test_what_is_left_is_what_the_plan_has_and_no_step_completed(
        self, worker: Worker, safeguards: Safeguards
    ) -> None:
        """The receiver comes first; a step outside of the plan takes nothing from it (S3-5.2-m, S3-2-e)."""
        run = await run_pipeline(worker, planned, PipelineInput(goal="Review the contract"))
        bodies = await bodies_of(safeguards, run.result.task_id)
        left = [[subtask["description"] for subtask in body["remainingSubtasks"]] for body in bodies]

        assert run.record.start.continued >= 1
        assert left == [
            ["Read the contract", "Weigh each clause", "release manager", "Weigh again", "archive"],
            ["Weigh each clause", "release manager", "Weigh again", "archive"],
            ["check", "release manager", "Weigh again", "archive"],
            ["Weigh again", "release manager", "archive"],
        ]
        assert [body["remainingSubtasks"][0]["subtaskId"] for body in bodies] == [
            *("1:read", "2:weigh", "4:check", "5:weigh"),
        ]
        assert [item["source"] for item in bodies[1]["relevantContext"]] == ["clause", "style", "limits"]
        await assert_replays(run.handle, [planned], plugin=BatonPlugin(safeguards=safeguards))

    @pytest.mark.parametrize(
        ("plan", "error"),
        [
            pytest.param("research", TypeError, id="a text"),
            pytest.param([7], TypeError, id="a number"),
            pytest.param([" "], ValueError, id="a blank name"),
            pytest.param([("a", "")], ValueError, id="a blank description"),
            pytest.param(["x" * 201], ValueError, id="a long name"),
            pytest.param(["\ud83d"], ValueError, id="half a character"),
            pytest.param(["x"] * 51, ValueError, id="too many steps"),
        ],
    )
    def test_a_plan_that_no_handoff_can_carry_is_refused_where_it_is_written(
        self, plan: Any, error: type[Exception]
    ) -> None:
        """The module does not load, instead of each run failing."""
        with pytest.raises(error, match=r"plan|stage is an async function"):
            pipeline(plan=plan)(lonely)


async def lonely(p: Pipeline) -> None:
    """Do nothing."""
