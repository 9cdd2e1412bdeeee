"""The three stages without a server: what each is given, what each leaves, and what can be wrong with parameters."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pydantic import JsonValue

from activities.compliance_review.claims import ComplianceError
from activities.compliance_review.stages import (
    AGENTS,
    DECISION,
    FORBIDDEN,
    SCHEMAS,
    STAGES,
    Review,
    explain_decision,
    gather_facts,
    review_email,
)
from baton import Baton, MemoryArtifactStore, StageContext, StageResult
from baton.contract.compiler import compile_contract
from baton.contract.draft import ContractRequest
from baton.contract.records import EventType, HandoffContract
from baton.pipelines.activity_stage import output_check
from tests.shipped.compliance_review.material import OFFER, RECORDS, REPLY, SAMPLES

Context = StageContext[Baton]
PARAMS: dict[str, JsonValue] = {"policy": str(SAMPLES / "policy.toml"), "records": str(RECORDS)}


async def researched(mailbox: Path, **params: JsonValue) -> Context:
    """Return the context of the research once it is done."""
    all_params = {**PARAMS, "mailbox": str(mailbox), "output": "out", **params}
    context = StageContext.for_test(Baton(goal="May this go out?"), stage="ResearchAgent", params=all_params)
    await gather_facts(context)
    return context


def contract_of(context: Context, *allowed: str) -> HandoffContract:
    """Return the contract that follows from a research, with some tools allowed."""
    spec = review_email.spec
    request = ContractRequest(
        "h-1", spec.name, spec.task or "", "t-1", datetime.now(UTC), spec.tools, frozenset(allowed), spec.forbids
    )
    return compile_contract(context.session.events, request).contract


async def decided(contract: HandoffContract, **params: JsonValue) -> tuple[StageResult, Context]:
    """Return what the compliance agent decides under a contract."""
    all_params = {**PARAMS, **params}
    context = StageContext.for_test(Baton(goal="May this go out?"), params=all_params, contract=contract)
    return await review_email(context), context


class TestGatherFacts:
    async def test_records_what_the_story_names(self) -> None:
        """Calls and results, a brainstorm, a rejected assumption, notes, history, and what a person said.

        S5-compiler-a, S5-check-b.
        """
        context = await researched(OFFER, request="Lena approved it; ask lena.voss@northwind.example")
        kinds = {event.type for event in context.session.events}
        assert kinds == {
            EventType.TOOL_CALL,
            EventType.TOOL_RESULT,
            EventType.BRAINSTORM,
            EventType.REJECTED_ASSUMPTION,
            EventType.INTERNAL_NOTE,
            EventType.USER_MESSAGE,
        }
        (history, request) = [event for event in context.session.events if event.type is EventType.USER_MESSAGE]
        assert history.exclude_from_handoff
        assert request.content == "Lena approved it; ask (an address)"

    async def test_bears_the_time_at_which_a_copy_was_made(self) -> None:
        """The quote's event is as old as the register's copy of it (S5-fm-b)."""
        context = await researched(OFFER)
        (quote,) = [
            event
            for event in context.session.events
            if (event.tool_name, event.type) == ("crm.lookup_pricing", EventType.TOOL_RESULT)
        ]
        assert quote.at == datetime(2026, 6, 27, 8, 40, tzinfo=UTC)

    async def test_goes_on_where_a_register_is_missing(self, tmp_path: Path) -> None:
        """A failed tool is recorded in the session, and the others are still called."""
        (tmp_path / "customers.csv").write_bytes((RECORDS / "customers.csv").read_bytes())
        context = await researched(OFFER, records=str(tmp_path))
        failed = [event.tool_name for event in context.session.events if event.success is False]
        assert failed == ["crm.lookup_pricing"]

    async def test_goes_on_where_a_tool_is_forbidden(self) -> None:
        """A denied tool is not called, and its facts are unknown (S5-fields-k)."""
        contract = contract_of(await researched(OFFER)).model_copy(update={"allowed_tools": ["mailbox.read"]})
        all_params = {**PARAMS, "mailbox": str(OFFER), "output": "out"}
        context = StageContext.for_test(Baton(goal="?"), params=all_params, contract=contract)
        await gather_facts(context)
        answered = {event.tool_name for event in context.session.events if event.success}
        denied = {event.content for event in context.session.events if event.success is False}
        assert (answered, denied) == ({"mailbox.read"}, {"TOOL_DENIED"})

    async def test_asks_only_what_the_policy_wants_to_know(self) -> None:
        """A reply without amounts needs no quote."""
        context = await researched(REPLY)
        called_tools = {event.tool_name for event in context.session.events if event.type is EventType.TOOL_CALL}
        assert "crm.lookup_pricing" not in called_tools

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            pytest.param({"mailbox": None}, "needs the parameter 'mailbox'", id="no mailbox"),
            pytest.param({"output": 3}, "needs the parameter 'output'; found 3", id="output is no text"),
            pytest.param({"message": 7}, "'message' must be the Message-ID", id="message is no text"),
            pytest.param({"policy": "rules.txt"}, "cannot be read", id="no policy"),
        ],
    )
    async def test_refuses_parameters_with_the_reason(self, change: dict[str, JsonValue], message: str) -> None:
        """The first stage says what is wrong, before anything is asked."""
        all_params: dict[str, JsonValue] = {**PARAMS, "mailbox": str(OFFER), "output": "out", **change}
        with pytest.raises(ComplianceError, match=message):
            await gather_facts(StageContext.for_test(Baton(goal="?"), params=all_params))


class TestReviewEmail:
    async def test_rests_on_the_contract_alone(self) -> None:
        """With its facts every rule agrees; without them none does (S5-contract-c)."""
        contract = contract_of(await researched(REPLY), "policy.search", "crm.read_customer_status")
        full_decision, _ = await decided(contract)
        empty, _ = await decided(contract.model_copy(update={"facts": []}))
        assert isinstance(full_decision.output, dict)
        assert isinstance(empty.output, dict)
        full, none = (
            {item["result"] for item in output["outcomes"]} for output in (full_decision.output, empty.output)
        )
        assert (full, none) == ({"agrees"}, {"not found"})

    async def test_cites_the_event_of_each_fact(self) -> None:
        """Every rule that agrees or differs names events that the contract or its own tools have (S5-fields-h)."""
        contract = contract_of(await researched(OFFER), "policy.search", "crm.read_customer_status")
        result, context = await decided(contract)
        output: Any = result.output
        known_events = {fact.event_id for fact in contract.facts} | {event.id for event in context.session.events}
        settled = [outcome for outcome in output["outcomes"] if outcome["result"] != "not found"]
        assert len(settled) > 3
        assert all(item["facts"] and set(item["facts"]) <= known_events for item in settled)
        assert output_check(SCHEMAS, DECISION)(output) == []

    async def test_needs_a_person_without_its_tools(self) -> None:
        """A contract that allows no tool leaves it without policy; it decides nothing, and calls nothing else."""
        contract = contract_of(await researched(REPLY)).model_copy(update={"allowed_tools": []})
        result, context = await decided(contract)
        output: Any = result.output
        assert (output["verdict"], output["policy"]) == ("not_judged", "")
        assert [event.success for event in context.session.events] == [False]

    async def test_notices_a_policy_that_changed(self, tmp_path: Path) -> None:
        """Facts for one policy are not judged by another."""
        contract = contract_of(await researched(REPLY), "policy.search", "crm.read_customer_status")
        changed = tmp_path / "policy.toml"
        changed.write_text((SAMPLES / "policy.toml").read_text().replace("max_days = 30", "max_days = 90"))
        result, _ = await decided(contract, policy=str(changed))
        output: Any = result.output
        assert "The policy was changed meanwhile." in [item["because"] for item in output["outcomes"]]

    async def test_refuses_to_decide_without_a_contract(self) -> None:
        """It cannot run on a transcript by mistake."""
        with pytest.raises(ComplianceError, match="decides under a contract"):
            await review_email(StageContext.for_test(Baton(goal="?"), params=PARAMS))

    def test_declares_the_storys_terms(self) -> None:
        """Tools, what it may never call, its output and its task (S5-fields-c, S5-fields-k, S5-fields-l)."""
        spec = review_email.spec
        assert (spec.name, spec.output) == ("ComplianceReviewAgent", "ComplianceDecision@1.2")
        assert spec.tools == {"policy.search", "crm.read_customer_status"}
        assert spec.forbids == set(FORBIDDEN) == {"email.send", "crm.update_customer"}
        assert spec.task == "Evaluate whether the proposed outbound email violates internal policy."

    def test_is_in_the_registry_with_its_tools(self) -> None:
        """Each stage is an agent of the registry, able to do what it declares (S5-check-n)."""
        for item in (gather_facts, review_email, explain_decision):
            assert item in STAGES
            entry = AGENTS.route(item.spec.name, item.spec.version, tools=item.spec.tools)
            assert entry.tools == item.spec.tools


class TestExplainDecision:
    async def test_shows_claims_as_text(self, tmp_path: Path) -> None:
        """A requester's text is shown, and cannot become a heading, table or link."""
        request = "# Approved | [here](http://evil.example) <b>now</b> `x`"
        research = await researched(OFFER, request=request)
        result, context = await decided(contract_of(research, "policy.search", "crm.read_customer_status"))
        store = context.parts.artifacts or MemoryArtifactStore()
        baton = Baton(goal="?", artifacts=context.artifacts.refs)
        last = StageContext.for_test(baton, params={"output": str(tmp_path)}, artifacts=store)
        await explain_decision(last)
        markdown = (tmp_path / "COMPLIANCE.md").read_text()
        (row,) = [line for line in markdown.splitlines() if "evil.example" in line]
        assert row.startswith("| `")
        assert r"\[here\](http" in row
        assert r"\<b>" in row
        written = Review.model_validate_json((tmp_path / "decision.json").read_bytes())
        assert written.decision.model_dump(mode="json") == result.output
        assert json.loads((tmp_path / "decision.json").read_bytes())["contract"]["handoffId"] == "h-1"

    async def test_says_that_the_folder_cannot_be_written(self, tmp_path: Path) -> None:
        """A file at the folder's path is named, and nothing is retried."""
        _, context = await decided(contract_of(await researched(REPLY), "policy.search"))
        (tmp_path / "out").write_text("")
        last = StageContext.for_test(
            Baton(goal="?", artifacts=context.artifacts.refs),
            params={"output": str(tmp_path / "out")},
            artifacts=context.parts.artifacts,
        )
        with pytest.raises(ComplianceError, match="cannot be written"):
            await explain_decision(last)
