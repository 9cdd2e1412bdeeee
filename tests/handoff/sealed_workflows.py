"""Workflows that hand on: to an activity, to another workflow, and a handoff that they received."""

from typing import Any

from temporalio import activity, workflow

from baton.handoff.records import Handoff
from baton.handoff.sealed import UnverifiedHandoff
from tests.patience import IN_TIME


@activity.defn
async def receive(handoff: Handoff) -> str:
    """Return what arrived, whatever the hint says."""
    assert isinstance(handoff, UnverifiedHandoff)
    return handoff.raw.decode()


@workflow.defn
class Receives:
    """Takes one handoff by signal, and passes it on as it came."""

    def __init__(self) -> None:
        self._arrived: UnverifiedHandoff | None = None

    @workflow.run
    async def run(self) -> list[str]:
        """Return what arrived here and at the next receiver."""
        await workflow.wait_condition(lambda: self._arrived is not None)
        assert self._arrived is not None
        passed_on: str = await workflow.execute_activity("receive", self._arrived, start_to_close_timeout=IN_TIME)
        return [self._arrived.raw.decode(), passed_on]

    @workflow.signal
    async def take(self, handoff: UnverifiedHandoff) -> None:
        """Take a handoff."""
        self._arrived = handoff


@workflow.defn
class Hands:
    """Builds a handoff in the sandbox, and hands it to an activity and to another workflow."""

    @workflow.run
    async def run(self, members: dict[str, Any], receiver: str) -> str:
        handoff = Handoff.from_json_object(members)
        arrived: str = await workflow.execute_activity("receive", handoff, start_to_close_timeout=IN_TIME)
        await workflow.get_external_workflow_handle(receiver).signal("take", handoff)
        return arrived
