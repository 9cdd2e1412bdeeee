"""The worker of the shipped pipelines: `python worker.py`. Its settings are those of `baton.worker.Settings`."""

from activities.code_review import stages as code_review_stages
from activities.compliance_review import stages as compliance_review_stages
from activities.contract_review import stages as contract_review_stages
from activities.delivery import stages as delivery_stages
from activities.project_init import stages as project_init_stages
from baton.worker import run_worker
from workflows.code_review import CodeReview
from workflows.compliance_review import ComplianceReview
from workflows.contract_review import ContractReview
from workflows.delivery import Delivery
from workflows.project_init import ProjectInit

WORKFLOWS = (ProjectInit, ContractReview, CodeReview, Delivery, ComplianceReview)
"""The pipelines this worker runs."""

STAGES = (
    *project_init_stages.STAGES,
    *contract_review_stages.STAGES,
    *code_review_stages.STAGES,
    *delivery_stages.STAGES,
    *compliance_review_stages.STAGES,
)
"""The stages of these pipelines."""

SCHEMAS = compliance_review_stages.SCHEMAS.schemas
"""The output schemas in their contracts."""

if __name__ == "__main__":
    run_worker(WORKFLOWS, STAGES, schemas=SCHEMAS)
