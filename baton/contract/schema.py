"""The published JSON Schemas of the handoff contract, one for each version, and what a release may change (S5-fm-a).

The documents lie in `docs/schemas`. A sender and a receiver of different releases agree because a minor only adds
optional members, which is proved for every pair of releases (S5-check-k, S5-check-o).
"""

import copy
import json
from collections.abc import Mapping
from functools import cache
from typing import Any

from baton.contract.records import CONTRACT_CURRENT, CONTRACT_RELEASED, HandoffContract
from baton.wire.schema_documents import released_document
from baton.wire.schema_reading import SchemaReader
from baton.wire.schema_registry import Release, SchemaRegistry


def contract_schema(version: str = CONTRACT_CURRENT) -> dict[str, Any]:
    """Return the JSON Schema of the contract as of a version.

    Args:
        version: A released version, for example `"1.0"`.

    Returns:
        A new JSON object with its `$schema` and `$id`; it refers to nothing outside itself.

    Raises:
        ValueError: No such version was released.

    Example:
        >>> sorted(set(contract_schema("1.1")["properties"]) - set(contract_schema("1.0")["properties"]))[:2]
        ['excludedCounts', 'messageId']
    """
    if version not in CONTRACT_RELEASED:
        raise ValueError(f"there is no contract schema {version!r}; released are {', '.join(CONTRACT_RELEASED)}")
    return copy.deepcopy(_document(version))


def contract_text(version: str = CONTRACT_CURRENT) -> str:
    """Return the document that is published of a version: the text of `docs/schemas/contract-<version>.json`.

    Args:
        version: A released version.

    Raises:
        ValueError: No such version was released.

    Example:
        >>> contract_text("1.0").splitlines()[2]
        '  "$id": "urn:baton:schema:contract:1.0",'
    """
    return json.dumps(contract_schema(version), indent=2, ensure_ascii=False) + "\n"


@cache
def contract_schemas() -> SchemaRegistry:
    """Return the registry of the contract's schema; its next release has to keep what its number promises."""
    return SchemaRegistry([Release(one, contract_schema(one)) for one in CONTRACT_RELEASED])


def as_current(contract: Mapping[str, Any]) -> dict[str, Any]:
    """Return a contract of any released version as the current one would have written it.

    Args:
        contract: A valid contract as JSON; without a `schemaVersion` it is one of version 1.0.

    Returns:
        A new JSON object; a contract of a newer minor comes back as it is.

    Raises:
        ValueError: Its version was never released.

    Example:
        >>> as_current({"handoffId": "risk-review-2026-001"})
        {'schemaVersion': '1.1', 'handoffId': 'risk-review-2026-001'}
    """
    return contract_schemas().upcast({"schemaVersion": CONTRACT_RELEASED[0], **contract})


@cache
def contract_reader() -> SchemaReader:
    """Return what puts a fault of a contract's shape into a sentence."""
    return SchemaReader(contract_schema())


@cache
def _document(version: str) -> dict[str, Any]:
    return released_document(HandoffContract, "contract", version)
