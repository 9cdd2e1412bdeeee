"""Which artifacts a stage is given: those in the work scope first, as far as the token budget reaches.

The baton is always included; artifacts compete for what is left.
"""

import fnmatch
from collections.abc import Mapping, Sequence

from baton.artifacts.records import ArtifactRef, path_form
from baton.core.messages import Selected


def select_artifacts(
    artifacts: Sequence[ArtifactRef], work_scope: Sequence[str], budget: int, costs: Mapping[str, int]
) -> list[Selected]:
    """Decide for every artifact whether it is given, and say why."""
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
