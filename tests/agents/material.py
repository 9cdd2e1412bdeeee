"""What the tests of the agents share: a contract, a context under it, tools, a stage that is called."""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from baton import Baton, Stage, StageContext
from baton.agents import agent_stage
from baton.agents.langgraph import LangGraphAgent
from baton.contract.records import EventType, HandoffContract

HANDOFF = "5b1d7c52-58f5-4dd5-9a3e-0c6f6f8c3e11"
BATON = Baton(goal="Add OAuth2 login", decision_log=["Use JWT"])
PATCH: dict[str, Any] = {"decision_log": ["Keep sessions out, because they need a store"]}
ANSWER = {"baton_patch": PATCH}


def contract(allowed: Iterable[str] = (), forbidden: Iterable[str] = ()) -> HandoffContract:
    """Return a contract that allows and forbids tools."""
    return HandoffContract(
        handoff_id=HANDOFF,
        receiving_agent="plan",
        task="Plan the login",
        facts=[],
        excluded_context=[],
        allowed_tools=sorted(allowed),
        forbidden_tools=sorted(forbidden),
        created_at=datetime.now(UTC),
        trace_id="trace-1",
    )


def context(given: HandoffContract | None = None, **members: Any) -> StageContext[Baton]:
    """Return the context of a stage, under a contract that allows `crm.lookup` unless there is another one."""
    return StageContext.for_test(BATON, contract=given or contract(["crm.lookup"], ["email.send"]), **members)


def lookup(customer: str) -> str:
    """Find what a customer pays."""
    return f"{customer} pays 20 USD"


def node_stage(node: Any, *, name: str | None = None, **options: Any) -> Stage[Any, Any]:
    """Return the stage of a LangGraph node or graph."""
    return agent_stage(LangGraphAgent(node, **options), name=name)


def events(stage_context: StageContext[Any]) -> list[tuple[EventType, str | None]]:
    """Return the kinds and tools of what a stage recorded."""
    return [(event.type, event.tool_name) for event in stage_context.session.events]
