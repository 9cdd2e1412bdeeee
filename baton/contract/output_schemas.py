"""The registry of output schemas: the shapes that contracts refer to by name and version (S5-fields-l, S5-check-m)."""

import re
from collections.abc import Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from baton.contract.errors import UnknownSchemaError
from baton.contract.records import OutputSchemaRef
from baton.contract.shelf import Shelf


@dataclass(frozen=True)
class OutputSchema:
    """A registered shape of an output.

    Attributes:
        name: Its name.
        version: Its version, for example `"1.2"`.
        schema: The JSON Schema, draft 2020-12.

    Example:
        >>> class Decision(BaseModel):
        ...     approved: bool
        >>> OutputSchema.of(Decision, "1.2").ref()
        OutputSchemaRef(schema_name='Decision', version='1.2')
    """

    name: str
    version: str
    schema: Mapping[str, Any]

    @classmethod
    def of(cls, kind: type[BaseModel], version: str, name: str | None = None) -> "OutputSchema":
        """Return the shape of a record.

        Args:
            kind: The record.
            version: Its version.
            name: Its name; the record's own by default.
        """
        return cls(name or kind.__name__, version, kind.model_json_schema(mode="validation"))

    def ref(self) -> OutputSchemaRef:
        """Return what a contract refers to it by."""
        return OutputSchemaRef(schema_name=self.name, version=self.version)


class OutputSchemas:
    """Output schemas by name and version; immutable.

    Args:
        schemas: The schemas.
        latest: Whether a name without a version means the newest one where several are registered (C-46).

    Raises:
        ValueError: Two have the same name and version.

    Example:
        >>> schemas = OutputSchemas([OutputSchema("ComplianceDecisionV1", "1.2", {"type": "object"})])
        >>> schemas.find(OutputSchemaRef.parse("ComplianceDecisionV1@1.2"))
        {'type': 'object'}
        >>> schemas.find(OutputSchemaRef.parse("ComplianceDecisionV1@1.3"))
        Traceback (most recent call last):
        baton.contract.errors.UnknownSchemaError: of the output schema 'ComplianceDecisionV1' there is no ...
    """

    def __init__(self, schemas: Iterable[OutputSchema] = (), *, latest: bool = False) -> None:
        self._shelf: Shelf[OutputSchema] = Shelf("output schema", UnknownSchemaError, _newest_first, latest=latest)
        for schema in schemas:
            self._shelf.add(schema.name, schema.version, schema)

    @property
    def schemas(self) -> list[OutputSchema]:
        """Every schema, by name, and of each name the newest first."""
        return list(self._shelf)

    def find(self, ref: OutputSchemaRef) -> dict[str, Any]:
        """Return the JSON Schema that a contract refers to, exactly that version.

        Returns:
            A new JSON object.

        Raises:
            UnknownSchemaError: There is none; the message names what comes near.
        """
        return deepcopy(dict(self._shelf.find(ref.schema_name, ref.version).schema))

    def ref(self, name: str, version: str | None = None) -> OutputSchemaRef:
        """Return the reference to a registered schema.

        Args:
            name: Its name.
            version: Its version. None takes the only one; of several the newest, if the registry allows that.

        Raises:
            UnknownSchemaError: There is none, or several and no version is named.
        """
        return self._shelf.find(name, version).ref()


def _newest_first(versions: Iterable[str]) -> list[str]:
    """Return versions such as 1.2 and 1.10 with the highest numbers first."""

    def numbers(version: str) -> tuple[list[int], str]:
        return [int(part) for part in re.findall(r"[0-9]+", version)[:8]], version

    return sorted(versions, key=numbers, reverse=True)
