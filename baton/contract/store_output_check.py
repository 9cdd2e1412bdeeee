"""Whether what an agent returned fits the output schema that its contract names (S5-fields-l)."""

from collections.abc import Callable
from functools import lru_cache

import rfc8785
from pydantic import JsonValue
from pydantic_core import from_json

from baton.contract.errors import UnknownSchemaError
from baton.contract.output_schemas import OutputSchemas
from baton.contract.records import OutputSchemaRef
from baton.errors import PipelineError
from baton.handoff.store_schema import SchemaGate


def output_check(schemas: OutputSchemas | None, named: str) -> Callable[[JsonValue], list[str]]:
    """Return what tells what is wrong with an output, in sentences for the agent that is to mend it; empty if it fits.

    Ask for it before an agent works for nothing.

    Args:
        schemas: The worker's output schemas, or None if it has none.
        named: The schema, as `"Name@version"`.

    Raises:
        PipelineError: The worker has no such schema, or it is none; asking the agent again would not help.
    """
    if schemas is None:
        raise PipelineError(
            f"the stage's output is to fit {named!r}, and this worker has no output schemas; start it with "
            "BatonPlugin(WorkerParts(schemas=…))"
        )
    try:
        gate = _gate(rfc8785.dumps(schemas.find(OutputSchemaRef.parse(named))))
    except UnknownSchemaError as error:
        raise PipelineError(
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
