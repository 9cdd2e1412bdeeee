"""The stages of `contract_review`: extract clauses → analyse → score risk → executive summary.

Each stage is an agent. Its reservation limits the cost of its model, if the run has a budget.
"""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from activities.contract_review.agents import Analyst, Extractor, Scorer, Writer
from activities.contract_review.records import ContractBaton
from baton import Retries
from baton.agents.port import AgentLimits, agent_stage

_TERMS: dict[str, Any] = {
    "timeout": timedelta(minutes=20),
    "heartbeat": timedelta(seconds=10),
    "retries": Retries(never=("TypeError", "ReviewError")),  # a retry does not mend a wrong file or parameter
}

extract_clauses = agent_stage(
    Extractor(),
    writes=["current_state", "decision_log", "constraints", "artifacts", "open_questions", "extracted_clauses"],
    baton_type=ContractBaton,
    **_TERMS,
)
"""Split the contract into clauses with topic and place, and find its sides."""

analyse_clauses = agent_stage(
    Analyst(),
    writes=["current_state", "decision_log", "artifacts", "risk_flags"],
    baton_type=ContractBaton,
    **_TERMS,
    limits=AgentLimits(requests=4),
    reserve_micro_usd=100_000,
)
"""Locate topics and words in every clause, and ask the model to judge for the side."""

score_risk = agent_stage(
    Scorer(),
    writes=["current_state", "decision_log", "artifacts", "acceptance", "risk_flags"],
    baton_type=ContractBaton,
    **_TERMS,
)
"""Compare each finding of the model with the appetite, as in ISO 31000."""

write_summary = agent_stage(
    Writer(),
    writes=["current_state", "decision_log", "artifacts", "open_questions", "work_scope"],
    baton_type=ContractBaton,
    **_TERMS,
    limits=AgentLimits(requests=4),
    reserve_micro_usd=100_000,
)
"""Write the report; every statement has citations."""

STAGES: list[Callable[..., Any]] = [extract_clauses, analyse_clauses, score_risk, write_summary]
"""The stages that a worker runs."""
