"""The workflows of bare activities, as one writes them by hand; Baton is not loaded into their sandbox."""

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from benchmarks.peers.chain import BARE
    from benchmarks.peers.job import State, merge
    from benchmarks.peers.ours_pydantic_ai import bare_implement, bare_plan, bare_release, bare_review
    from benchmarks.raw import TERMS


@workflow.defn
class BareAgents:
    """The same agents of pydantic-ai in activities, called by a workflow written by hand."""

    @workflow.run
    async def run(self, state: State) -> State:
        """Run the job."""
        for bare in (bare_plan, bare_implement, bare_review, bare_release):
            state = merge(state, await workflow.execute_activity(bare, state, **TERMS))
        return state


@workflow.defn
class BareChain:
    """The same agents in activities, called by a workflow written by hand."""

    @workflow.run
    async def run(self, goal: str) -> str:
        """Run the chain."""
        text = ""
        for bare in BARE:
            prompt = f"Goal: {goal}\n\nInput `text`:\n{text}" if text else f"Goal: {goal}"
            text = await workflow.execute_activity(bare, prompt, **TERMS)
        return text
