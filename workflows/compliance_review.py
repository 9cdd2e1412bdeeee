"""The pipeline `compliance_review`: research a proposed e-mail → decide under a contract → explain the decision."""

from pydantic import JsonValue
from temporalio import workflow

from baton import ContractTerms, Pipeline, PipelineInput, PipelineResult
from baton.contract.draft import ContractPolicy

with workflow.unsafe.imports_passed_through():
    from activities.compliance_review.stages import (
        AGENTS,
        FORBIDDEN,
        SCHEMAS,
        explain_decision,
        gather_facts,
        review_email,
    )

_TERMS = ContractTerms(
    policy=ContractPolicy(tool_ages={"crm.lookup_pricing": 15}),  # a price may change in the meantime
    forbidden=frozenset(FORBIDDEN),
    agents=AGENTS,
    schemas=SCHEMAS,
)


@workflow.defn(name="compliance_review")
class ComplianceReview:
    """Review an e-mail before it is sent, by a policy and the known facts about its recipients.

    Parameters: `mailbox`, an `.mbox` or `.eml` file with the proposed e-mail; `policy`, a TOML file; `records`, a
    folder with the registers `customers.csv` and `prices.csv`; `output`, the folder for the explanation. Optional are
    `message`, the Message-ID of the proposed e-mail, and `request`, a remark of its sender. Nothing is sent and no
    register is changed.
    """

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start, protected=["goal"], contracts=_TERMS)

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        """Research, decide and explain; only the research gets the path of the mailbox."""
        await self.pipeline.stage(gather_facts)
        await self.pipeline.stage(review_email, params=self._select_params("policy", "records"))
        explained = await self.pipeline.stage(explain_decision, params=self._select_params("output"))
        return self.pipeline.result(explained.output)

    def _select_params(self, *names: str) -> dict[str, JsonValue]:
        """Return the parameters with these names."""
        return {name: value for name, value in self.pipeline.params.items() if name in names}
