"""The registry of output schemas."""

from types import ModuleType

import pytest
from pydantic import BaseModel
from temporalio.client import Client

from baton import ContractTerms, PipelineInput
from baton.contract.records import OutputSchemaRef, UnknownSchemaError
from baton.contract.registry import OutputSchema, OutputSchemas
from baton.testing import pipeline_worker, run_pipeline
from baton.worker import collect_served
from tests.contract import schema_pipelines


class ComplianceDecision(BaseModel):
    """A record that an agent returns."""

    approved: bool


SCHEMAS = OutputSchemas(
    [
        OutputSchema("ComplianceDecisionV1", "1.2", {"title": "old"}),
        OutputSchema("ComplianceDecisionV1", "1.10", {"title": "new"}),
        OutputSchema.of(ComplianceDecision, "1.0"),
    ]
)


class TestOutputSchemas:
    def test_an_exact_name_and_version(self) -> None:
        """Referenced by both (S5-fields-l, S5-check-m, C-46)."""
        assert SCHEMAS.find(OutputSchemaRef.parse("ComplianceDecisionV1@1.2")) == {"title": "old"}
        assert SCHEMAS.find(OutputSchemaRef.parse("ComplianceDecision@1.0"))["required"] == ["approved"]

    @pytest.mark.parametrize(
        ("ref", "message"),
        [
            pytest.param("ComplianceDecisionV2@1.2", "did you mean 'ComplianceDecisionV1'", id="a similar name"),
            pytest.param("ComplianceDecisionV1@1.3", "there are 1.10, 1.2", id="another version"),
            pytest.param("xyz@1.0", "there are ComplianceDecision, ComplianceDecisionV1", id="nothing near"),
        ],
    )
    def test_what_is_not_registered_is_refused(self, ref: str, message: str) -> None:
        """Downstream could not read the output (S5-valid-g)."""
        with pytest.raises(UnknownSchemaError) as caught:
            SCHEMAS.find(OutputSchemaRef.parse(ref))

        assert message in str(caught.value)

    def test_a_version_that_is_not_named(self) -> None:
        """The only one, or by policy the newest, and never by chance (C-46)."""
        assert SCHEMAS.ref("ComplianceDecision").version == "1.0"
        with pytest.raises(UnknownSchemaError, match="several versions and none is named"):
            SCHEMAS.ref("ComplianceDecisionV1")
        assert OutputSchemas(SCHEMAS.schemas, latest=True).ref("ComplianceDecisionV1").version == "1.10"

    def test_each_reader_has_a_schema_of_its_own(self) -> None:
        """A change to the copy does not change the registered schema."""
        ref = OutputSchemaRef.parse("ComplianceDecisionV1@1.2")
        SCHEMAS.find(ref).clear()

        assert SCHEMAS.find(ref) == {"title": "old"}

    def test_the_same_schema_twice_is_misuse(self) -> None:
        """Which of them is meant would be a matter of order (S5-check-m)."""
        with pytest.raises(ValueError, match=r"'ComplianceDecision' 1\.0 is registered twice"):
            OutputSchemas([*SCHEMAS.schemas, OutputSchema("ComplianceDecision", "1.0", {})])

    def test_a_model_instead_of_its_schema_is_misuse(self) -> None:
        """It is refused where it is written, and not by the first stage that returns an output."""
        with pytest.raises(TypeError, match=r"make it with OutputSchema\.of\(Model, version\)"):
            OutputSchema("Decision", "1.0", BaseModel)  # type: ignore[arg-type]


async def test_a_schema_that_a_pipeline_names_is_known_to_its_worker(client: Client) -> None:
    """To any worker that has the pipeline, and to what serves its file."""
    async with pipeline_worker(client, [schema_pipelines.named_once], [schema_pipelines.count_facts]) as worker:
        run = await run_pipeline(worker, schema_pipelines.named_once, PipelineInput(goal="Count"))
    assert run.result.output == {"facts": 3}

    [schema] = collect_served([schema_pipelines]).schemas
    for value in (OutputSchemas([schema]), ContractTerms(schemas=OutputSchemas([schema])), schema):
        module = ModuleType("named")
        module.value = value  # type: ignore[attr-defined]
        assert collect_served([module]).schemas == [schema]
