"""The shipped pipeline `compliance_review` on a real server: the story of S5, from a mailbox file to an explanation."""

import json
import shutil
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic import JsonValue
from temporalio.client import Client
from temporalio.worker import Worker

from activities.compliance_review.stages import SCHEMAS, STAGES, Review
from baton import PipelineInput, WorkerParts
from baton.client.faces import LocalArtifactStore, explain_in
from baton.devserver import DevServer
from baton.handoff.store_safeguards import Safeguards
from baton.ledger.store import Ledger, LedgerOptions
from baton.plugin import BatonPlugin
from baton.testing import PipelineRun, pipeline_worker, run_pipeline
from tests.chat_server import chat_server, completion, configure
from tests.shipped.compliance_review.material import OFFER, RECORDS, REPLY, SAMPLES
from tests.support import failure
from tests.support.surfaces import LogCapture, Surfaces, assert_not_seen, assert_seen, surfaces_of
from workflows.compliance_review import ComplianceReview

STEPS = ["ResearchAgent", "ComplianceReviewAgent", "ExplanationWriter"]


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the worker's artifact store."""
    return tmp_path_factory.mktemp("artifacts")


@pytest.fixture(scope="module")
def plugin(stored: Path, safeguards: Safeguards) -> BatonPlugin:
    return BatonPlugin(WorkerParts(artifacts=LocalArtifactStore(stored), schemas=SCHEMAS), safeguards=safeguards)


@pytest.fixture(scope="module")
async def reviewer(server: DevServer, plugin: BatonPlugin) -> AsyncIterator[Worker]:
    """Return a worker of the pipeline that replays the workflow at every task."""
    client = await Client.connect(server.address, plugins=[plugin])
    async with pipeline_worker(client, [ComplianceReview], STAGES, replay_every_task=True) as worker:
        yield worker


def fresh_records(folder: Path) -> Path:
    """Return a copy of the registers with yesterday's quote, retrieved now."""
    shutil.copytree(RECORDS, folder)
    quoted = (datetime.now(UTC).date() - timedelta(days=1)).isoformat()
    rows = f"customer,quote,quoted_on,amount,currency\nC-1007,Q-9,{quoted},48000,EUR\n"
    (folder / "prices.csv").write_text(rows)
    return folder


async def review(worker: Worker, mailbox: Path, out: Path, **params: JsonValue) -> PipelineRun:
    all_params: dict[str, JsonValue] = {
        "mailbox": str(mailbox),
        "policy": str(SAMPLES / "policy.toml"),
        "records": str(RECORDS),
        "output": str(out),
        **params,
    }
    return await run_pipeline(worker, ComplianceReview.run, PipelineInput(goal="May this go out?", params=all_params))


async def searched(
    worker: Worker, run: PipelineRun, safeguards: Safeguards, stored: Path, logs: LogCapture, out: Path
) -> Surfaces:
    """Return every place that can hold data of a run."""
    async with Ledger(safeguards.ledger, LedgerOptions(create=False)) as ledger:
        store = LocalArtifactStore(stored)
        return await surfaces_of(worker.client, run.handle.id, logs=logs, ledger=ledger, artifacts=store, folders=[out])


def reviewed(out: Path) -> Review:
    return Review.model_validate_json((out / "decision.json").read_bytes())


class TestComplianceReview:
    async def test_gives_no_verdict_by_rules(self, reviewer: Worker, tmp_path: Path) -> None:
        """An ordinary reply to a customer agrees with every rule, and without a model nobody judged it.

        S5-check-r, S5-check-s, S5-compiler-i.
        """
        run = await review(reviewer, REPLY, tmp_path)
        output: Any = run.result.output
        assert (output["verdict"], output["differs"], output["not_found"]) == ("not_judged", [], [])
        assert run.step_names == STEPS
        assert [step.attempts for step in run.record.steps] == [1, 1, 1]
        assert [warning for entry, _ in run.record.history for warning in entry.warnings if "bullets" in warning] == []
        assert "**Not judged.**" in (tmp_path / "COMPLIANCE.md").read_text()
        for stage in STEPS:
            assert explain_in(run.record, stage).stage == stage

    async def test_holds_back_the_offer_of_the_story(self, reviewer: Worker, tmp_path: Path) -> None:
        """The quote is stale, so nobody knows whether it holds.

        S5-prob-c, S5-compiler-d, S5-check-q.
        """
        run = await review(reviewer, OFFER, tmp_path, request="Lena said that it is approved.")
        output: Any = run.result.output
        assert (output["verdict"], output["differs"], output["not_found"]) == ("not_judged", [], ["QUO-1"])
        result = reviewed(tmp_path)
        assert "stale:crm.lookup_pricing" in result.contract["excludedContext"]
        assert not [fact for fact in result.contract["facts"] if "Q-2231" in fact["claim"]]

    async def test_lets_it_pass_once_the_quote_is_there(self, reviewer: Worker, tmp_path: Path) -> None:
        """The same e-mail with a fresh quote meets every rule."""
        records = fresh_records(tmp_path / "records")
        run = await review(reviewer, OFFER, tmp_path / "out", records=str(records))
        output: Any = run.result.output
        assert (output["verdict"], output["not_found"]) == ("not_judged", [])

    async def test_does_not_believe_a_person_or_a_thread(self, reviewer: Worker, tmp_path: Path) -> None:
        """The requester's message crosses as unverified, even in the words of a tool.

        S5-fields-i, S5-prob-b.
        """
        spoof = "Quote Q-9 of 2026-06-26 offers customer C-1007 48000.00 EUR."
        run = await review(reviewer, OFFER, tmp_path, request=spoof)
        output: Any = run.result.output
        assert output["not_found"] == ["QUO-1"]
        result = reviewed(tmp_path)
        (texts,) = [fact for fact in result.contract["facts"] if fact["claim"] == spoof]
        assert (texts["confidence"], texts["source"]["source"]) == ("unverified", "user")
        assert texts["eventId"] in result.decision.set_aside

    async def test_finds_nothing_where_a_register_fails(self, reviewer: Worker, tmp_path: Path) -> None:
        """A failed tool leaves the label `failed:` and no fact, so the rule has nothing to compare."""
        records = tmp_path / "records"
        shutil.copytree(RECORDS, records)
        (records / "prices.csv").write_text("customer\nC-1007")
        run = await review(reviewer, OFFER, tmp_path / "out", records=str(records))
        output: Any = run.result.output
        assert "QUO-1" in output["not_found"]
        assert "failed:crm.lookup_pricing" in reviewed(tmp_path / "out").contract["excludedContext"]

    async def test_finds_nothing_in_a_text_that_cannot_be_read(self, reviewer: Worker, tmp_path: Path) -> None:
        """A text in the wrong charset is displayed differently by each program, so a person has to look."""
        mail = tmp_path / "mail.eml"
        mail.write_bytes(REPLY.read_bytes() + "We guarantee € 90000.\n".encode("cp1252"))
        run = await review(reviewer, mail, tmp_path / "out")
        output: Any = run.result.output
        assert output["verdict"] == "not_judged"
        assert {"QUO-1", "PHR-1"} <= set(output["not_found"])

    async def test_leaves_somebody_elses_report(self, reviewer: Worker, tmp_path: Path) -> None:
        """It is rejected before any tool is called."""
        (tmp_path / "COMPLIANCE.md").write_text("mine\n")
        params: dict[str, Any] = {
            "mailbox": str(REPLY),
            "policy": str(SAMPLES / "policy.toml"),
            "records": str(RECORDS),
        }
        handle = await reviewer.client.start_workflow(
            ComplianceReview.run,
            PipelineInput(goal="g", params={**params, "output": str(tmp_path)}),
            id=f"foreign-{tmp_path.name}",
            task_queue=reviewer.task_queue,
        )
        assert "was not written by this pipeline" in await failure(handle)
        assert (tmp_path / "COMPLIANCE.md").read_text() == "mine\n"

    async def test_asks_the_account_at_the_time_of_the_decision(self, reviewer: Worker, tmp_path: Path) -> None:
        """The agent's own tool says that the account is suspended; its answer is cited by its event."""
        mail = tmp_path / "mail.eml"
        mail.write_bytes(REPLY.read_bytes().replace(b"acme.example", b"birch.example"))
        run = await review(reviewer, mail, tmp_path / "out")
        output: Any = run.result.output
        assert output["differs"] == ["ACC-1"]
        result = reviewed(tmp_path / "out")
        (status,) = [tool_use for tool_use in result.used if tool_use.tool == "crm.read_customer_status"]
        assert status.event in result.decision.results("differs")[0].facts

    async def test_tells_what_the_agent_saw_and_what_not(self, reviewer: Worker, tmp_path: Path) -> None:
        """Source, time, confidence and event of each fact; the reason of each label; the tools; the handoff.

        S5-contract-b, S5-fields-f, S5-fields-j, S5-fields-k, S5-fields-p.
        """
        run = await review(reviewer, OFFER, tmp_path)
        markdown, result = (tmp_path / "COMPLIANCE.md").read_text(), reviewed(tmp_path)
        contract = result.contract
        assert set(contract["excludedContext"]) == {
            "explicit:user_message",
            "type:brainstorm",
            "type:rejected_assumption",
            "type:internal_note",
            "stale:crm.lookup_pricing",
        }
        assert contract["allowedTools"] == ["crm.read_customer_status", "policy.search"]
        assert contract["forbiddenTools"] == ["crm.update_customer", "email.send"]
        assert contract["task"] == "Evaluate whether the proposed outbound email violates internal policy."
        assert contract["outputSchema"] == {"schemaName": "ComplianceDecision", "version": "1.2"}
        for fact in contract["facts"]:
            assert fact["eventId"] in markdown
            assert fact["source"]["source"] in markdown
            assert fact["source"]["method"] == f"tool_call:{fact['source']['source']}"
        for label in (*contract["excludedContext"], *contract["allowedTools"], *contract["forbiddenTools"]):
            assert f"`{label}`" in markdown
        assert contract["handoffId"] in markdown
        assert result.decision.handoff_id == contract["handoffId"]
        assert contract["traceId"] == run.result.task_id.replace("-", "")

    async def test_writes_no_address_anywhere(
        self, reviewer: Worker, tmp_path: Path, safeguards: Safeguards, stored: Path
    ) -> None:
        """The addresses of mailbox and thread are in no event, no artifact, no file and no record (S5-prob-g)."""
        with LogCapture() as logs:
            run = await review(reviewer, OFFER, tmp_path / "out", request="Lena approved it.")
        matches = await searched(reviewer, run, safeguards, stored, logs, tmp_path / "out")
        assert_seen("debating the budget approval", matches.only("artifact/*"))  # the journal: what is kept is searched
        for place in ("history/*", "ledger/*", "file/*"):
            assert_seen("acme.example", matches.only(place))
        for marker in ("jane.doe@", "omar.reyes@", "lena.voss@", "Jane Doe"):
            assert_not_seen(marker, matches)

    async def test_gives_the_agent_no_word_of_the_mailbox(
        self, reviewer: Worker, tmp_path: Path, safeguards: Safeguards, stored: Path
    ) -> None:
        """Neither e-mail nor thread are anywhere but in the journal of the research (S5-contract-c).

        S5-prob-a, S5-prob-b, S5-check-p.
        """
        with LogCapture() as logs:
            run = await review(reviewer, OFFER, tmp_path)
        matches = await searched(reviewer, run, safeguards, stored, logs, tmp_path)
        journals = [name for name, content in matches.pieces.items() if content.startswith(b'{"stage":"ResearchAgent"')]
        assert_seen("skip the compliance check", matches.only(*journals))
        for words in (
            "skip the compliance check",
            "only factor",
            "debating the budget",
            "twelve other",
            "as discussed",
        ):
            assert_not_seen(words, matches.without(*journals))

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            pytest.param({"records": None}, "needs the parameter 'records'", id="no registers"),
            pytest.param({"mailbox": "none.mbox"}, "cannot be read", id="no mailbox"),
            pytest.param({"message": "<nobody@acme.example>"}, "0 of them have the Message-ID", id="no such message"),
        ],
    )
    async def test_fails_at_once_on_what_cannot_be_used(
        self, reviewer: Worker, tmp_path: Path, change: dict[str, Any], message: str
    ) -> None:
        """A wrong parameter is not retried."""
        params: dict[str, Any] = {
            "mailbox": str(OFFER),
            "policy": str(SAMPLES / "policy.toml"),
            "records": str(RECORDS),
            "output": str(tmp_path / "out"),
            **change,
        }
        handle = await reviewer.client.start_workflow(
            ComplianceReview.run,
            PipelineInput(goal="May this go out?", params=params),
            id=f"wrong-{tmp_path.name}",
            task_queue=reviewer.task_queue,
        )
        assert message in await failure(handle)


class TestWithAModel:
    async def test_holds_an_email_back_for_a_concern(
        self, reviewer: Worker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A model's concern that cites facts needs a person's review; without citations it is dropped.

        It reads the contract inside the fence of the user turn, and neither e-mail nor thread (S5-contract-c).
        """
        status = "2.ComplianceReviewAgent.4"  # what its own tool said of the account
        concern = {"text": "The account was suspended until yesterday.", "facts": [status]}
        concerns = [concern, {"text": "I feel uneasy.", "facts": []}]
        reply = completion(json.dumps({"baton_patch": {}, "output": {"verdict": "approved", "concerns": concerns}}))
        with chat_server(completion("{}"), reply) as server:
            configure(monkeypatch, server)
            run = await review(reviewer, REPLY, tmp_path)
        output: Any = run.result.output
        assert output["verdict"] == "needs_review"
        (decision_concerns,) = reviewed(tmp_path).decision.concerns
        assert (decision_concerns.by, decision_concerns.facts) == ("model", (status,))
        prompt = server.asked[0].body["messages"][1]["content"]
        assert "## Handoff Contract" in prompt
        assert "exports run every night" not in prompt
        assert run.result.spend.prompt_tokens == 2_000  # the answer that was of no use is paid, too
