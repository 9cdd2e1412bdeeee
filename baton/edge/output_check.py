"""Whether what an agent returned fits the output schema that its contract names (S5-fields-l)."""

from functools import lru_cache

import rfc8785
from pydantic import JsonValue
from pydantic_core import from_json

from baton.edge.schema_gate import SchemaGate
from baton.protocol.contract import OutputSchemaRef
from baton.protocol.errors import PipelineError
from baton.protocol.output_schemas import OutputSchemas


def output_findings(schemas: OutputSchemas | None, named: str, output: JsonValue) -> list[str]:
    """Return what is wrong with an output, in sentences for the agent that is to mend it; empty if it fits.

    Args:
        schemas: The registered schemas of the worker.
        named: The schema, as `"Name@version"`.
        output: What the stage returned as its output.

    Raises:
        PipelineError: The worker has no such schema; asking the agent again would not help.
    """
    if schemas is None:
        raise PipelineError(
            f"the stage's output is to fit {named!r}, and this worker has no output schemas; start it with "
            "BatonPlugin(WorkerParts(schemas=…))"
        )
    found = schemas.find(OutputSchemaRef.parse(named))
    return [f"output does not fit {named}: {finding.text}" for finding in _gate(rfc8785.dumps(found))(output)]


@lru_cache(maxsize=64)
def _gate(schema: bytes) -> SchemaGate:
    """Return the compiled gate of a schema, given as canonical JSON."""
    return SchemaGate(from_json(schema))
