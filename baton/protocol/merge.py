"""JSON merge-patch (RFC 7396): the plain algorithm, without the baton's own rules.

The rules of the baton (`decision_log` only grows, `goal` stays) stand on top, in `baton.protocol.patching`.
"""

import copy
from typing import Any


def merge_patch(target: Any, patch: Any) -> Any:
    """Return ``target`` with ``patch`` merged into it (RFC 7396 section 2).

    Objects merge member by member, a null member removes, and anything else, lists included, replaces
    what was there. Neither argument is changed, and the result shares no list with ``patch``.

    Args:
        target: The document to patch.
        patch: The merge-patch.

    Returns:
        The patched document.

    Example:
        >>> merge_patch({"a": {"b": 1, "c": 2}, "d": [1]}, {"a": {"b": None}, "d": [2]})
        {'a': {'c': 2}, 'd': [2]}
    """
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    merged = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge_patch(merged.get(key), value)
    return merged


def difference(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """Return the smallest merge-patch that leads from ``before`` to ``after``.

    Args:
        before: A JSON object.
        after: A JSON object without null members (a merge-patch cannot set null; RFC 7396 section 1).

    Returns:
        A patch with ``merge_patch(before, patch) == after``; empty when they are equal.

    Example:
        >>> difference({"a": {"b": 1, "c": 2}, "d": [1]}, {"a": {"c": 2}, "d": [1, 2]})
        {'a': {'b': None}, 'd': [1, 2]}
    """
    patch: dict[str, Any] = {}
    for key in before.keys() | after.keys():
        if key not in after:
            patch[key] = None
        elif key not in before:
            patch[key] = after[key]
        elif before[key] != after[key]:
            both = isinstance(before[key], dict) and isinstance(after[key], dict)
            patch[key] = difference(before[key], after[key]) if both else after[key]
    return {key: patch[key] for key in sorted(patch)}
