"""Approvals: what a pipeline asks with `Pipeline.approve`, and the stages that people approve with their arguments."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, TypedDict

from pydantic import BaseModel, JsonValue
from temporalio import workflow

from baton.core.exhibits import build_exhibits
from baton.core.inputs import encode_inputs, encode_params
from baton.core.questions import APPROVE, DENY, Question, approval_choices
from baton.core.stages import HasSpec, spec_of
from baton.runtime.questions import parse_form
from baton.runtime.workflow_questions import Asking
from baton.wire.json_values import Json

Then = tuple[HasSpec, Mapping[str, Json]] | tuple[HasSpec, Mapping[str, Json], Mapping[str, Any]]
"""A stage to approve as well, with its parameters and optional inputs."""


class ApprovalTerms(TypedDict, total=False):
    """Who decides, and the default; documented at `Pipeline.approve`."""

    needs: int
    who: Sequence[str]
    proof: bool
    default: bool


@dataclass(frozen=True)
class ApprovalRequest:
    """The arguments of `Pipeline.approve`, checked before the step begins."""

    title: str
    within: timedelta
    asks: str | None = None
    shows: Mapping[str, Any] | Sequence[Any] = ()
    then: Then | None = None
    answer: type[BaseModel] | None = None
    needs: int = 1
    who: Sequence[str] = ()
    proof: bool = False
    default: bool = False
    stage: str | None = field(init=False, default=None)
    arguments: dict[str, Any] = field(init=False, default_factory=dict)  # of that stage

    def __post_init__(self) -> None:
        """Check the arguments, and copy those of the stage: what is shown is what is approved."""
        for name, value, kinds in (("who", self.who, Sequence), ("shows", self.shows, Sequence | Mapping)):
            if isinstance(value, str) or not isinstance(value, kinds):
                raise TypeError(f"approval {self.title!r}: {name} is a {type(value).__name__}; expected a list")
        if self.then is not None:
            object.__setattr__(self, "stage", spec_of(self.then[0]).name)
            inputs = encode_inputs(self.then[2]) if len(self.then) > 2 else {}
            object.__setattr__(self, "arguments", stage_arguments(encode_params(self.then[1]), inputs))
        if self.default and self.answer is not None:
            try:
                parse_form(self.answer, None)
            except ValueError as error:
                raise ValueError(f"the default would approve {self.title!r} without an answer: {error}") from None

    def asking(self, seq: int) -> Asking:
        """Return the question."""
        then = None if self.stage is None else (f"stage {self.stage!r}", self.arguments)
        question = Question(
            id="",
            seq=seq,
            title=self.title,
            asks=self.asks or "",
            since=workflow.now(),
            until=workflow.now() + self.within,
            choices=approval_choices(self.answer),
            shows=build_exhibits(self.shows, then),
            needs=self.needs,
            who=[*self.who],
            proof=self.proof,
        )
        forms = {} if self.answer is None else {APPROVE: self.answer}
        return Asking(question, self.within, APPROVE if self.default else DENY, forms)


def stage_arguments(params: dict[str, JsonValue], inputs: dict[str, JsonValue]) -> dict[str, Any]:
    """Return a stage's encoded arguments as an approval shows and binds them."""
    return {"params": params, **({"inputs": inputs} if inputs else {})}
