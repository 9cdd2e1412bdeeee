"""The pipeline `compliance_review`: research a proposed e-mail → decide under a contract → explain the decision."""

from pydantic import JsonValue
from temporalio import workflow

from baton import ContractTerms, Pipeline, PipelineInput, PipelineResult
from baton.contract.draft import ContractPolicy

with workflow.unsafe.imports_passed_through():
    from activities.compliance_review.agents import AGENTS, FORBIDDEN, SCHEMAS
    from activities.compliance_review.stages import explain_decision, gather_facts, review_email

_TERMS = ContractTerms(
    policy=ContractPolicy(tool_ages={"crm.lookup_pricing": 15}),  # a price may change while an e-mail is discussed
    forbidden=frozenset(FORBIDDEN),
    agents=AGENTS,
    schemas=SCHEMAS,
)


@workflow.defn(name="compliance_review")
class ComplianceReview:
    """Review an e-mail before it is sent, by a policy and what is known of those it goes to.

    Parameters: `mailbox`, an `.mbox` or `.eml` file with the proposed e-mail; `policy`, its rules in TOML; `records`,
    a folder with the registers `customers` and `prices` in CSV; `output`, the folder for the explanation.
    `message` says which e-mail of the mailbox it is, and `request` what the person who wants to send it has to say;
    both may be left out. Nothing is sent and no register is changed.
    """

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start, freeze_goal=True, contracts=_TERMS)

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        """Research, decide and explain, one after the other; only the first gets the path of the mailbox."""
        await self.pipeline.stage(gather_facts)
        await self.pipeline.stage(review_email, params=self._only("policy", "records"))
        explained = await self.pipeline.stage(explain_decision, params=self._only("output"))
        return self.pipeline.result(explained.output)

    def _only(self, *names: str) -> dict[str, JsonValue]:
        """Return some of the parameters."""
        return {name: value for name, value in self.pipeline.params.items() if name in names}
