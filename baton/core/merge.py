"""JSON merge-patch (RFC 7396): the plain algorithm, without the baton's own rules.

The rules of the baton (`decision_log` only grows, `goal` stays) stand on top, in `baton.core.patching`.
"""

import copy
from builtins import isinstance  # noqa: UP029 - the workflow sandbox replaces the global one by a slow one
from typing import Any


def merge_patch(target: Any, patch: Any) -> Any:
    """Return ``target`` with ``patch`` merged into it (RFC 7396 section 2).

    Objects merge member by member, a null member removes, and anything else, lists included, replaces
    what was there. Neither argument is changed. The result shares nothing with ``patch``; what the patch leaves
    alone are the very objects of ``target``.

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


def same_json(one: Any, other: Any) -> bool:
    """Return whether two JSON values are the same; unlike in Python, true is not 1 and false is not 0.

    Args:
        one: A JSON value.
        other: Another one.

    Example:
        >>> same_json([1, {"a": None}], [1.0, {"a": None}]), same_json({"a": 1}, {"a": True})
        (True, False)
    """
    if one is other:
        return True
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same_json(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same_json, one, other))
    return bool(one == other) and isinstance(one, bool) == isinstance(other, bool)


def difference(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """Return the smallest merge-patch that leads from ``before`` to ``after``.

    Args:
        before: A JSON object.
        after: A JSON object; members that are null in it must be null in ``before`` too, because a
            merge-patch cannot set null (RFC 7396 section 1).

    Returns:
        A patch with ``merge_patch(before, patch) == after``, its members sorted; empty when they are equal.
        It shares lists with ``after``.

    Example:
        >>> difference({"a": {"b": 1, "c": 2}, "d": [1]}, {"a": {"c": 2}, "d": [1, 2]})
        {'a': {'b': None}, 'd': [1, 2]}
    """
    patch: dict[str, Any] = {}
    for key in sorted(before.keys() | after.keys()):
        if key not in after:
            patch[key] = None
        elif key not in before:
            patch[key] = after[key]
        elif isinstance(before[key], dict) and isinstance(after[key], dict):
            if nested := difference(before[key], after[key]):
                patch[key] = nested
        elif not same_json(before[key], after[key]):
            patch[key] = after[key]
    return patch
