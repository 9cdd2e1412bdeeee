"""The check of outputs against registered schemas."""

from collections.abc import Callable
from functools import lru_cache

import rfc8785
from pydantic import JsonValue
from pydantic_core import from_json

from baton.contract.records import OutputSchemaRef, UnknownSchemaError
from baton.contract.registry import OutputSchemas
from baton.errors import ConfigurationError, PipelineError
from baton.handoff.store_gate import SchemaGate


def output_check(schemas: OutputSchemas | None, named: str) -> Callable[[JsonValue], list[str]]:
    """Return a check that lists what is wrong with an output, for the agent that corrects it; empty if it fits."""
    if schemas is None:
        raise ConfigurationError(
            f"the stage's output is to fit {named!r}, and this worker has no output schemas; start it with "
            "BatonPlugin(WorkerParts(schemas=…))"
        )
    try:
        gate = _gate(rfc8785.dumps(schemas.find(OutputSchemaRef.parse(named))))
    except UnknownSchemaError as error:
        raise ConfigurationError(
            f"the stage's output is to fit {named!r}, which this worker does not have: {error}"
        ) from error
    except ValueError as error:
        why = str(error).partition("\n")[0]
        raise PipelineError(f"the output schema {named!r} is no JSON Schema of draft 2020-12: {why}") from None
    return lambda output: [f"output does not fit {named}: {finding.text}" for finding in gate(output)]


@lru_cache(maxsize=64)
def _gate(schema: bytes) -> SchemaGate:
    """Return the compiled gate of a schema, given as canonical JSON."""
    return SchemaGate(from_json(schema))
