"""The same four activities in a workflow written by hand."""

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from benchmarks.peers.job import State
    from benchmarks.raw import TERMS, merge, raw_implement, raw_plan, raw_release, raw_review


@workflow.defn
class RawDelivery:
    """Four activities, one after the other."""

    @workflow.run
    async def run(self, state: State) -> State:
        """Run the pipeline."""
        state = merge(state, await workflow.execute_activity(raw_plan, state, **TERMS))
        state = merge(state, await workflow.execute_activity(raw_implement, state, **TERMS))
        state = merge(state, await workflow.execute_activity(raw_review, state, **TERMS))
        return merge(state, await workflow.execute_activity(raw_release, state, **TERMS))
