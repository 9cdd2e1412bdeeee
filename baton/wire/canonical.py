"""One canonical form of JSON, and the digest over it (RFC 8785)."""

import hashlib
from typing import Any

import rfc8785


def digest(value: Any) -> str:
    """Return `sha256:<hex>` over the canonical JSON (RFC 8785) of ``value``.

    Two values with the same members in another order have the same digest.

    Args:
        value: JSON as Python: dicts, lists, strings, numbers below 2**53, booleans and None.

    Returns:
        `"sha256:"` and 64 hexadecimal digits.

    Raises:
        rfc8785.CanonicalizationError: The value is not JSON, or has a number JSON cannot carry exactly.

    Example:
        >>> digest({"b": 1, "a": 2}) == digest({"a": 2, "b": 1})
        True
    """
    return "sha256:" + hashlib.sha256(rfc8785.dumps(value)).hexdigest()
