"""The shipped pipeline `contract_review` with safeguards: its handoffs on record, at the cost that was spent."""

from pathlib import Path

import pytest
from temporalio.client import Client

from activities.contract_review.stages import STAGES
from baton import PipelineInput, WorkerParts
from baton.artifacts.store import MemoryArtifactStore
from baton.budget.records import Budget
from baton.devserver import DevServer
from baton.handoff.store_safeguards import Safeguards
from baton.ledger.store import Ledger, LedgerOptions
from baton.plugin import BatonPlugin
from baton.testing import pipeline_worker, run_pipeline
from tests.shipped.contract_review.material import SERVICES
from workflows.contract_review import ContractReview


async def test_three_handoffs_one_task_and_what_it_cost(
    server: DevServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four agents: exactly three accepted handoff records, one task id, and the cost that was spent.

    S3-13.3-a, S3-13.3-b, S3-13.3-c.
    """
    for name in ("BATON_LLM_URL", "BATON_LLM_MODEL", "BATON_LLM_KEY"):
        monkeypatch.delenv(name, raising=False)
    safeguards = Safeguards.development(tmp_path / "keys")
    plugin = BatonPlugin(WorkerParts(artifacts=MemoryArtifactStore()), safeguards=safeguards)
    client = await Client.connect(server.address, plugins=[plugin])
    start = PipelineInput(
        goal="Review it for the customer",
        params={
            "source": str(SERVICES),
            "output": str(tmp_path / "out"),
            "prices": {"prompt_per_million": 2.5, "completion_per_million": 10},
        },
        budget=Budget(initial_micro_usd=1_000_000),
    )
    async with pipeline_worker(client, [ContractReview], STAGES) as worker:
        run = await run_pipeline(worker, ContractReview.run, start)
    async with Ledger(safeguards.ledger, LedgerOptions(create=False)) as ledger:
        task = await ledger.trace(run.result.task_id, verifier=safeguards.keyring.public())
        everything = [record.fields for record in await ledger.newest(100)]

    accepted = [one for one in everything if (one.kind, one.status) == ("handoff", "ACCEPTED")]
    assert [(one.from_agent, one.to_agent) for one in accepted] == [
        ("extract-clauses", "analyse-clauses"),
        ("analyse-clauses", "score-risk"),
        ("score-risk", "write-summary"),
    ]
    assert {one.task_id for one in everything} == {run.result.task_id}
    assert task.report.verdict.startswith("valid")  # every record is proved
    assert task.cost.micro_usd == run.result.spend.micro_usd > 0
    assert task.cost.complete
    assert task.cost.findings == ()
