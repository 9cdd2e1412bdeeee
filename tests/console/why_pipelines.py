"""What the tests ask why about: an agent with a tool, a person in its mail, and a decision."""

from datetime import timedelta

from baton import Baton, BatonPatch, ContractTerms, Pipeline, Spend, StageContext, pipeline, stage
from baton.agents import AgentAnswer, AgentTool, AgentWork, agent_stage

MAIL = "jane.marker@example.org"
THOUGHT = "A customer of ten years <b>must not</b> pay the list price."

LONG = "at length " * 50_000


def lookup(customer: str) -> str:
    """Look up what a customer pays."""
    return f"{customer} pays 4200 USD"


class Clerk:
    """An agent that looks a price up."""

    name = "quote"

    async def run(self, work: AgentWork) -> AgentAnswer:
        """Call the tool, think and answer."""
        [tool] = [tool for tool in work.tools if tool.name == "crm.lookup"]
        await tool.call({"customer": "c-17"})
        work.context.session.internal_note(THOUGHT)
        work.context.session.internal_note(LONG)
        work.charge(Spend(micro_usd=1_500, prompt_tokens=900, completion_tokens=60), "gpt-4o")
        return AgentAnswer(patch={"decision_log": ["Charge the list price"]}, output={"price": 4200, "currency": "USD"})


class Writer:
    """An agent that knows an address."""

    name = "mail"

    async def run(self, work: AgentWork) -> AgentAnswer:
        """Think of the address, and answer."""
        await work.context.personal.read("email")
        work.context.session.internal_note(f"Write to {MAIL}.")
        return AgentAnswer(patch={"current_state": ["Mailed"]}, output="Dear customer, it is 4200 USD.")


@stage(personal_data=["email"])
async def enter(context: StageContext[Baton]) -> BatonPatch:
    """Seal the address of the customer."""
    await context.personal.write(f"customer-{context.given.task_id}", {"email": MAIL})
    return BatonPatch(current_state=["Entered"])


quoting = agent_stage(Clerk(), tools=[AgentTool.of(lookup, name="crm.lookup")], notes=False)
mailing = agent_stage(Writer(), personal_data=["email"], notes=False)


@pipeline(contracts=ContractTerms())
async def offers(p: Pipeline) -> object:
    """Quote, ask a person, mail."""
    await p.stage(enter)
    quoted = await p.stage(quoting)
    decided = await p.approve("head of sales", within=timedelta(days=1), asks="Offer it?", shows={"quote": quoted})
    mailed = await p.stage(mailing, inputs={"quote": quoted.output})
    more = {"per.piece": 42, "pieces[0]": 1, "": 0}  # no path leads to these
    return {"price": quoted.output["price"], "text": mailed.output, "by": decided.who, **more}
