"""Agents in the lab: which it can hold back, and what a candidate may change about them."""

from typing import Any, Protocol, runtime_checkable

from baton.core.lab import LabTerms, Overrides
from baton.errors import LabRefusedError


@runtime_checkable
class RunsInLab(Protocol):
    """An agent that acts by guarded tools alone, which the lab answers; of others the lab does not know what they do.

    Example:
        >>> class Fixed:
        ...     name, lab_overrides = "plan", frozenset({"model"})
        >>> isinstance(Fixed(), RunsInLab)
        True
    """

    @property
    def lab_overrides(self) -> frozenset[str]:
        """Which of `model` and `prompt` it takes from `work.overrides`."""
        ...


def overrides_for(agent: Any, stage: str, lab: LabTerms | None) -> Overrides:
    """Return what a candidate changes about a stage's agent; nothing outside the lab.

    Raises:
        LabRefusedError: The lab cannot hold the agent back, or the agent does not take a change.
    """
    if lab is None:
        return Overrides()
    what = f"agent {agent.name!r} ({type(agent).__name__})"
    if not (isinstance(agent, RunsInLab) or stage in lab.allow):
        raise LabRefusedError(
            f"{what} is code that may do more than call its tools, so the lab does not run it; if it does not, name "
            "its stage (`--allow`), or name the one that the candidate changes (`stage=`)",
            is_unheld=lab.overrides == Overrides(),  # the record has no answer to a change
        )
    taken = agent.lab_overrides if isinstance(agent, RunsInLab) else frozenset[str]()
    for name in ("model", "prompt"):
        if getattr(lab.overrides, name) is not None and name not in taken:
            raise LabRefusedError(f"{what} does not take another {name}")
    return lab.overrides
