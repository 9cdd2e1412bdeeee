"""Who works in `compliance_review`, and the shape of its decision: the pipeline's entries in the registries."""

from activities.compliance_review import research
from activities.compliance_review.records import SCHEMA_NAME, SCHEMA_VERSION, ComplianceDecision
from baton.contract.agents import AgentEntry, AgentRegistry
from baton.contract.output_schemas import OutputSchema, OutputSchemas

RESEARCHER = "ResearchAgent"
REVIEWER = "ComplianceReviewAgent"
WRITER = "ExplanationWriter"
VERSION = "1.0.0"

REVIEWERS_TOOLS = ("policy.search", "crm.read_customer_status")
"""The tools that the compliance agent is able to use."""
FORBIDDEN = ("email.send", "crm.update_customer")
"""Tools that it may not call, whatever anybody tells it."""

DECISION = f"{SCHEMA_NAME}@{SCHEMA_VERSION}"
SCHEMAS = OutputSchemas([OutputSchema.of(ComplianceDecision, SCHEMA_VERSION, SCHEMA_NAME)])
"""The output schemas of the pipeline; its workers need them too (`WorkerParts(schemas=…)`)."""

AGENTS = AgentRegistry(
    AgentEntry(name=name, version=VERSION, capability=frozenset({capability}), tools=frozenset(tools))
    for name, capability, tools in (
        (RESEARCHER, "compliance.research", research.TOOLS),
        (REVIEWER, "compliance.review", REVIEWERS_TOOLS),
        (WRITER, "compliance.explain", ()),
    )
)
"""The agents of the pipeline; a stage that is not among them is sent nothing."""
