"""Which artifacts a stage is given: those in the work scope first, as far as the token budget reaches.

The baton is always included; artifacts compete for what is left (S1 L87, L90, L93).
"""

import fnmatch
from collections.abc import Mapping, Sequence

from baton.artifacts.records import ArtifactRef, path_form
from baton.core.messages import Selected


def select_artifacts(
    artifacts: Sequence[ArtifactRef], work_scope: Sequence[str], budget: int, costs: Mapping[str, int]
) -> list[Selected]:
    """Decide for every artifact whether it is given, and say why.

    Artifacts whose path or id is in the work scope come first, newest first; then the others. Each is taken
    if its cost fits into what is left of the budget.

    Args:
        artifacts: The baton's references, oldest first.
        work_scope: Files, folders and globs the work is about.
        budget: Tokens that artifacts may cost together, at least 0.
        costs: The tokens of each artifact's content by id; one that is not there cannot be read as text.

    Returns:
        One verdict for each artifact, in the order of ``artifacts``.

    Raises:
        ValueError: The budget is negative.

    Example:
        >>> refs = [ArtifactRef(id=name, type="code", hash="0" * 64, path=name) for name in ("a.py", "b.py")]
        >>> [(s.id, s.included) for s in select_artifacts(refs, ["b.py"], 100, {"a.py": 60, "b.py": 60})]
        [('a.py', False), ('b.py', True)]
    """
    if budget < 0:
        raise ValueError(f"the token budget for artifacts is {budget}; it must be 0 or more")
    scoped = {ref.id: scope for ref in artifacts if (scope := _scope_of(ref, work_scope)) is not None}
    newest_first = list(reversed(artifacts))
    ranked = sorted(newest_first, key=lambda ref: ref.id not in scoped)
    left, verdicts = budget, {}
    for ref in ranked:
        cost = costs.get(ref.id)
        place = f"in the work scope ({scoped[ref.id]})" if ref.id in scoped else "outside the work scope"
        if cost is None:
            verdicts[ref.id] = Selected(id=ref.id, included=False, reason=f"{place}; its content is not text")
        elif cost > left:
            reason = f"{place}; costs {cost} tokens, {left} of {budget} are left"
            verdicts[ref.id] = Selected(id=ref.id, included=False, reason=reason, tokens=cost)
        else:
            left -= cost
            verdicts[ref.id] = Selected(id=ref.id, included=True, reason=f"{place}; fits", tokens=cost)
    return [verdicts[ref.id] for ref in artifacts]


def _scope_of(ref: ArtifactRef, work_scope: Sequence[str]) -> str | None:
    """Return the entry of the work scope that covers the artifact, if any does."""
    names = [path_form(name) for name in (ref.path, ref.id) if name]
    return next((scope for scope in work_scope if any(_covers(path_form(scope), name) for name in names)), None)


def _covers(scope: str, name: str) -> bool:
    """Return whether a file, folder or glob covers a path or an id."""
    if name == scope or fnmatch.fnmatchcase(name, scope):  # stars and brackets are legal in file names too
        return True
    folder = scope.rstrip("/*")
    return bool(folder) and name.startswith(f"{folder}/")
