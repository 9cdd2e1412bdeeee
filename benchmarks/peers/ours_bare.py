"""The workflow of bare activities, as one writes it by hand."""

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from benchmarks.peers.job import State, merged
    from benchmarks.peers.ours_pydantic_ai import bare_implement, bare_plan, bare_release, bare_review
    from benchmarks.raw import TERMS


@workflow.defn
class BareAgents:
    """The same agents of pydantic-ai in activities, called by a workflow written by hand."""

    @workflow.run
    async def run(self, state: State) -> State:
        """Run the job."""
        for bare in (bare_plan, bare_implement, bare_review, bare_release):
            state = merged(state, await workflow.execute_activity(bare, state, **TERMS))
        return state
