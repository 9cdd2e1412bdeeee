"""The published JSON Schema of the handoff contract; the document is in `docs/schemas`."""

import copy
from functools import cache
from typing import Any

from baton.contract.records import CONTRACT_CURRENT, HandoffContract
from baton.wire.schemas import SchemaReader, published_document


def contract_schema() -> dict[str, Any]:
    """Return the JSON Schema of the contract, a new object that refers to nothing outside itself.

    Example:
        >>> contract_schema()["$id"]
        'urn:baton:schema:contract:1.0'
    """
    return copy.deepcopy(_document())


@cache
def contract_reader() -> SchemaReader:
    """Return what puts a fault of a contract's shape into a sentence."""
    return SchemaReader(_document())


@cache
def _document() -> dict[str, Any]:
    return published_document(HandoffContract, "contract", CONTRACT_CURRENT)
