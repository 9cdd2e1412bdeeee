"""`baton why`: from a value of a run back to its sources, over agents, facts, tools, people and other runs."""

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
from temporalio.client import Client
from temporalio.worker import Worker

from baton import (
    Baton,
    BatonPatch,
    ContractTerms,
    Pipeline,
    PipelineInput,
    Spend,
    StageContext,
    StageResult,
    pipeline,
    stage,
)
from baton.agents import AgentAnswer, AgentTool, AgentWork, agent_stage
from baton.client import Provenance, Reason, ReasonKind, fork, why
from baton.errors import HistoryError
from baton.testing import PipelineRun, Reply, pipeline_worker, run_pipeline

NOTICE = "The notice period is ninety days."


def lookup(customer: str) -> str:
    """Look up what a customer pays."""
    return f"{customer} pays 4200 USD"


class Clerk:
    """An agent that looks something up, and answers with a price."""

    name = "quote"

    async def run(self, work: AgentWork) -> AgentAnswer:
        """Call the tool, and answer."""
        [tool] = [tool for tool in work.tools if tool.name == "crm.lookup"]
        await tool.call({"customer": "c-17"})
        work.charge(Spend(micro_usd=1_500, prompt_tokens=900, completion_tokens=60), "gpt-4o")
        return AgentAnswer(patch={"decision_log": ["Charge the list price"]}, output={"price": 4200, "currency": "USD"})


class Writer:
    """An agent that writes a text from what it is given."""

    name = "write"

    async def run(self, work: AgentWork) -> AgentAnswer:
        """Answer with a text and an artifact."""
        ref = await work.context.artifacts.write("offer", "We offer.", type="text")
        text = f"We offer it for {work.context.input('quote', dict)['price']} USD."
        return AgentAnswer(patch={"artifacts": [ref.model_dump(mode="json")]}, output=text)


@stage
async def legal(context: StageContext[Baton]) -> StageResult:
    """Say how long the notice is."""
    return StageResult(baton_patch=BatonPatch(acceptance=["signed"]), output={"notice": NOTICE})


@stage
async def rate(context: StageContext[Baton]) -> StageResult:
    """Rate the customer."""
    return StageResult(output={"grade": "triple-A"})


quote = agent_stage(Clerk(), tools=[AgentTool.of(lookup, name="crm.lookup")], notes=False)
writing = agent_stage(Writer(), notes=False)


@pipeline
async def law(p: Pipeline) -> object:
    """The part that another pipeline does."""
    return (await p.stage(legal)).output


@pipeline
async def rating(p: Pipeline) -> object:
    """Another such part."""
    return (await p.stage(rate)).output


@pipeline
async def checking(p: Pipeline) -> object:
    """A part with parts of its own."""
    await p.child(law, "Read the law", name="law")
    return (await p.child(rating, "Rate the customer", name="rating")).output


@pipeline
async def checked(p: Pipeline) -> object:
    """A pipeline whose part has parts, both in the second step."""
    await p.stage(legal)
    return (await p.child(checking, "Check the customer", name="checking")).output


@pipeline(contracts=ContractTerms())
async def offering(p: Pipeline) -> object:
    """Quote, have two others look, let a person decide, write."""
    quoted = await p.stage(quote)
    rules = await p.child(law, "Read the law", name="law")
    rated, _ = await p.fan_out(rate, legal)
    decided = await p.approve("head of sales", within=timedelta(days=1), asks="Offer it?", shows={"quote": quoted})
    text = await p.stage(writing, inputs={"quote": quoted.output, "country": p.params["country"]})
    return {
        "price": quoted.output["price"],
        "terms": {"notice": rules.output["notice"], "grade": rated.output["grade"]},
        "mail": f"Dear customer, {text.output}",
        "by": decided.who,
        "pages": 3,
    }


@pytest.fixture(scope="module")
async def offers(client: Client) -> AsyncIterator[Worker]:
    """Return a worker of these pipelines."""
    pipelines = [offering, law, rating, checking, checked]
    async with pipeline_worker(client, pipelines, [quote, legal, rate, writing]) as running:
        yield running


@pytest.fixture(scope="module")
async def offered(offers: Worker) -> PipelineRun:
    """Return a run that has ended."""
    start = PipelineInput(goal="Make an offer", params={"country": "Norway"})
    decisions = {"head of sales": Reply(True, who="maria", why="a good price")}
    return await run_pipeline(offers, offering, start, decisions=decisions)


def below(provenance: Provenance, reason: Reason) -> list[Reason]:
    """Return what a reason rests on."""
    by_id = {each.id: each for each in provenance.reasons}
    return [by_id[id] for id in reason.because]


def texts(reasons: list[Reason], *kinds: ReasonKind) -> list[str]:
    """Return the lines of the reasons of some kinds."""
    return [reason.text for reason in reasons if not kinds or reason.kind in kinds]


async def asked(client: Client, run: PipelineRun, path: str) -> Provenance:
    """Return where a value of a run comes from."""
    return await why(client, run.handle.id, path)


class TestWhy:
    async def test_a_field_of_the_output_leads_to_the_agent_and_to_its_tool(
        self, client: Client, offered: PipelineRun
    ) -> None:
        """With the model, the cost, and the person who let it go on."""
        provenance = await asked(client, offered, "output.price")
        first = provenance.reasons[0]
        step, approval = below(provenance, first)

        assert (first.kind, first.text) == (ReasonKind.VALUE, "output.price = 4200")
        assert (step.text, step.seq, step.spend.micro_usd, [*step.models]) == ("step 1 quote", 1, 1_500, ["gpt-4o"])
        assert texts(below(provenance, step), ReasonKind.TOOL) == ["tool crm.lookup: c-17 pays 4200 USD"]
        assert (approval.kind, approval.who, approval.why) == (ReasonKind.APPROVAL, "maria", "a good price")

    async def test_a_text_that_code_made_leads_to_the_text_in_it(self, client: Client, offered: PipelineRun) -> None:
        """Nothing records what code does, so the reason says how it was found; the input has its author."""
        provenance = await asked(client, offered, "output.mail")
        [step] = below(provenance, provenance.reasons[0])
        given = below(provenance, step)

        assert provenance.reasons[0].remarks == ["found by a part of its text"]
        assert step.text == "step 5 write"
        assert {"step 1 quote", "head of sales: approved"} <= {*texts(given)}
        [country] = [reason for reason in given if reason.text == "input country of step 5 write = Norway"]
        assert texts(below(provenance, country)) == ["parameter country, given when the run was started"]

    async def test_facts_of_the_contract_lead_to_who_found_them(self, client: Client, offered: PipelineRun) -> None:
        """The writer's contract has what the tool of the first agent returned, as a sure fact."""
        provenance = await asked(client, offered, "write.output")
        [step] = below(provenance, provenance.reasons[0])
        [fact] = [reason for reason in below(provenance, step) if reason.kind is ReasonKind.TOOL]

        assert (fact.text, fact.who, fact.confidence) == ("tool crm.lookup: c-17 pays 4200 USD", "quote", "high")

    async def test_a_child_and_a_branch_are_followed(self, client: Client, offered: PipelineRun) -> None:
        """An object is followed member by member, a child into its own history."""
        provenance = await asked(client, offered, "output.terms")
        notice, grade, _ = below(provenance, provenance.reasons[0])
        child, branch = below(provenance, notice)
        [inner] = below(provenance, child)

        assert texts(below(provenance, grade)) == ["step 3 rate"]
        assert branch.text == "step 3 legal"  # it says the same: nothing tells whose words the code took
        assert child.text.startswith("step 2 law, the pipeline ")
        assert (inner.workflow_id, inner.text.endswith(f"output.notice = {NOTICE}")) == (
            offered.record.children[0][0],
            True,
        )
        [legal] = below(provenance, inner)
        assert legal.text == "step 1 legal"
        assert texts(below(provenance, legal)) == ["the goal “Read the law”, given when the run was started"]

    async def test_the_child_of_a_child_is_that_of_its_own_step(self, client: Client, offers: Worker) -> None:
        """Its id begins with the parent's, which has the number of a step too."""
        run = await run_pipeline(offers, checked, PipelineInput(goal="Check the customer"))
        provenance = await asked(client, run, "output.grade")
        by_name = {reason.text.partition(",")[0]: reason.text for reason in provenance.reasons}

        assert ".rating.step2." in by_name["step 2 rating"]
        assert "step 1 rate" in by_name

    async def test_what_only_the_code_knows_is_said_to_be_the_codes(self, client: Client, offered: PipelineRun) -> None:
        """A number that no step answered, small as it is, is not taken for one that happens to be equal."""
        provenance = await asked(client, offered, "output.pages")
        [code, _] = below(provenance, provenance.reasons[0])

        assert code.kind is ReasonKind.CODE
        assert "step 5 write" in texts(below(provenance, code))

    @pytest.mark.parametrize(
        ("path", "title", "source"),
        [
            pytest.param("decision_log[0]", "decision_log[0] = Charge the list price", "step 1 quote", id="its number"),
            pytest.param("list price", "decision_log[0] = Charge the list price", "step 1 quote", id="words of it"),
            pytest.param("baton.acceptance.0", "acceptance[0] = signed", "step 3 legal", id="what a branch wrote"),
            pytest.param("offer", "artifact offer = ", "step 5 write", id="an artifact"),
            pytest.param("goal", "goal = Make an offer", "goal of the baton, given when", id="from the start"),
        ],
    )
    async def test_what_is_in_the_baton_leads_to_who_brought_it(
        self, client: Client, offered: PipelineRun, path: str, title: str, source: str
    ) -> None:
        """A decision, an entry, an artifact."""
        provenance = await asked(client, offered, path)
        first = provenance.reasons[0]

        assert first.text.startswith(title)
        assert below(provenance, first)[0].text.startswith(source)

    async def test_an_approval_names_who_gave_it(self, client: Client, offered: PipelineRun) -> None:
        """By its title."""
        provenance = await asked(client, offered, "head of sales")

        assert [(reason.kind, reason.who) for reason in provenance.reasons] == [(ReasonKind.APPROVAL, "maria")]

    async def test_a_fork_leads_back_to_the_run_that_was_paid(self, client: Client, offered: PipelineRun) -> None:
        """Its restored steps have their inputs in the other run's history, and the edit has its author."""
        patch: dict[str, Any] = {"constraints": ["Only in euros"]}
        handle = await fork(client, offered.handle.id, "write", by="bob", why="try euros", patch=patch)
        await handle.result()
        price, edited = await why(client, handle.id, "output.price"), await why(client, handle.id, "Only in euros")
        [step, *_] = below(price, price.reasons[0])
        [edit, *_] = below(edited, edited.reasons[0])

        assert [*step.models] == ["gpt-4o"]
        assert (edit.kind, edit.who, edit.why) == (ReasonKind.EDIT, "bob", "try euros")

    @pytest.mark.parametrize(
        ("path", "reason"),
        [
            ("output.cost", "output has no 'cost'; it has: price, terms, mail, by, pages"),
            ("decision_log[9]", r"decision_log has no 9; it has: 0"),
            ("nothing like it", "has no value 'nothing like it'; it has `output`, the fields goal, "),
        ],
    )
    async def test_what_is_not_there_is_refused_with_what_is(
        self, client: Client, offered: PipelineRun, path: str, reason: str
    ) -> None:
        """Whoever misspells a path reads the names next to it."""
        with pytest.raises(HistoryError, match=reason):
            await asked(client, offered, path)

    async def test_the_tree_tells_each_reason_once(self, client: Client, offered: PipelineRun) -> None:
        """And every reason is in it."""
        provenance = await asked(client, offered, "output")
        told = [(reason.id, again) for _, reason, again in provenance.tree()]

        assert {id for id, _ in told} == {reason.id for reason in provenance.reasons}
        first_tellings = [id for id, again in told if not again]
        assert {id for id, again in told if again} <= {*first_tellings}
