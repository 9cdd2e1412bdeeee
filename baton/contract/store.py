"""Check outputs against registered schemas."""

from collections.abc import Callable
from functools import lru_cache

import rfc8785
from pydantic import JsonValue
from pydantic_core import from_json

from baton.contract.records import OutputSchemaRef, UnknownSchemaError
from baton.contract.registry import OutputSchemas
from baton.core.store_schemas import SchemaGate
from baton.errors import ConfigurationError, PipelineError


def output_check(schemas: OutputSchemas | None, schema_name: str) -> Callable[[JsonValue], list[str]]:
    """Return a check that lists the faults of an output, for the agent that corrects them."""
    if schemas is None:
        raise ConfigurationError(
            f"the stage's output must fit {schema_name!r}, but this worker has no output schemas; start it with "
            "BatonPlugin(WorkerParts(schemas=…))"
        )
    try:
        gate = _compile_gate(rfc8785.dumps(schemas.find(OutputSchemaRef.parse(schema_name))))
    except UnknownSchemaError as error:
        raise ConfigurationError(
            f"the stage's output must fit {schema_name!r}, which this worker does not have: {error}"
        ) from error
    except ValueError as error:
        reason = str(error).partition("\n")[0]
        raise PipelineError(f"the output schema {schema_name!r} is not JSON Schema 2020-12: {reason}") from None
    return lambda output: [f"output does not fit {schema_name}: {finding.text}" for finding in gate(output)]


@lru_cache(maxsize=64)
def _compile_gate(schema: bytes) -> SchemaGate:
    """Compile a schema, given as canonical JSON."""
    return SchemaGate(from_json(schema))
