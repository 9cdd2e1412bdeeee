"""The baton itself: the small record that travels with a pipeline, and the patch a stage returns.

The baton records what happened and why; work products are artifacts. Of its eight fields only `goal` is required.
Subclasses may add fields, each with a default; a nullable field defaults to None.
"""

from collections.abc import Mapping
from types import NoneType
from typing import Any, ClassVar, Self, TypeVar, get_args

from pydantic import (
    ConfigDict,
    Field,
    JsonValue,
    SerializerFunctionWrapHandler,
    ValidationError,
    model_serializer,
    model_validator,
)
from pydantic_core import PydanticCustomError, to_json

from baton.core.artifacts import ArtifactRef, PathText
from baton.wire.json_values import digest, find_excess
from baton.wire.records import Record, Statement

BatonT = TypeVar("BatonT", bound="Baton")


class Baton(Record):
    """What is known about a pipeline's work, in eight fields.

    The record is small (500 to 2,000 tokens) and frozen; only a patch changes it. The fields keep the order of
    the published example.

    Attributes:
        goal: The objective, in one sentence.
        current_state: What is true right now, 3 to 8 bullets.
        decision_log: Key decisions, oldest first; append-only.
        constraints: Hard rules found on the way.
        work_scope: Files and modules touched or planned, as `normalize_path` writes paths; globs are allowed.
        artifacts: References to what was produced, never content.
        open_questions: What later stages must resolve.
        acceptance: Tests and checks that must pass.

    Example:
        >>> Baton(goal="Initialize deenup", current_state=["Workflow starting"]).decision_log
        []
    """

    FIELDS: ClassVar[tuple[str, ...]] = (
        "goal",
        "current_state",
        "decision_log",
        "constraints",
        "work_scope",
        "artifacts",
        "open_questions",
        "acceptance",
    )

    goal: Statement
    current_state: list[str] = Field(default_factory=list)
    decision_log: list[str] = Field(default_factory=list)
    constraints: list[str] = Field(default_factory=list)
    work_scope: list[PathText] = Field(default_factory=list)
    artifacts: list[ArtifactRef] = Field(default_factory=list)
    open_questions: list[str] = Field(default_factory=list)
    acceptance: list[str] = Field(default_factory=list)

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        """Check that each additional field has a default, and each nullable one defaults to None."""
        super().__pydantic_init_subclass__(**kwargs)
        for name, field in cls.model_fields.items():
            if field.is_required() and name != "goal":
                raise TypeError(f"{cls.__name__}.{name} has no default; every additional field of a baton needs one")
            if field.default is not None and field.default_factory is None and NoneType in get_args(field.annotation):
                raise TypeError(
                    f"{cls.__name__}.{name} may be None but has another default; null in a patch resets a field to "
                    "its default, so make that None"
                )

    @model_validator(mode="after")
    def _is_exact_in_json(self) -> Self:
        """Reject numbers that JSON cannot represent exactly; only additional fields can hold numbers."""
        if self.model_extra or len(type(self).model_fields) > len(self.FIELDS):
            _ = self.digest
        return self

    @property
    def digest(self) -> str:
        """`sha256:<hex>` over the canonical JSON of the record; approvals are bound to it."""
        return digest(self.to_json_object())

    def to_json_object(self) -> dict[str, Any]:
        """Return the record as a JSON object in field order, without None."""
        return self.model_dump(mode="json", exclude_none=True)

    @classmethod
    def from_json_object(cls, members: Mapping[str, Any]) -> Self:
        """Return the record for a JSON object, in which times and enums are strings.

        Example:
            >>> Baton.from_json_object({"goal": "Add login"}).goal
            'Add login'
        """
        if (limit := find_excess(members)) is not None:
            fault = PydanticCustomError("too_many", "{text}", {"text": limit.text})
            raise ValidationError.from_exception_data(cls.__name__, [{"type": fault, "loc": limit.path, "input": None}])
        text = to_json(members)  # raises on values that are not JSON
        # The plain baton holds JSON types only, and parsing text takes twice as long.
        return cls.model_validate(dict(members)) if cls is Baton else cls.model_validate_json(text)

    def restricted(self, fields: frozenset[str] | None, decisions: int | None) -> Self:
        """Return a copy with only ``fields`` and the newest ``decisions``; the goal is always kept.

        The rest stays in the workflow, so the input of a stage does not grow with the length of the pipeline.

        Example:
            >>> Baton(goal="g", decision_log=["a", "b", "c"]).restricted(None, 2).decision_log
            ['b', 'c']
        """
        update: dict[str, Any] = {}
        if decisions is not None and len(self.decision_log) > decisions:
            update["decision_log"] = self.decision_log[len(self.decision_log) - decisions :]
        if fields is not None:
            hidden = type(self).model_fields.keys() - fields - {"goal"}
            update |= {name: type(self).model_fields[name].get_default(call_default_factory=True) for name in hidden}
        return self.model_copy(update=update) if update else self


class BatonPatch(Record):
    """The fields that a stage changed.

    A list replaces the old list, except `decision_log`, whose entries are appended. Unset fields are left out
    of the JSON, because null would clear them.

    Attributes:
        goal: A new objective; rejected if the pipeline froze its goal.
        current_state: Replaces the old state.
        decision_log: New decisions to append.
        constraints: Replaces the old rules.
        work_scope: Replaces the old scope.
        artifacts: Replaces the old references.
        open_questions: Replaces the old questions.
        acceptance: Replaces the old checks.

    Example:
        >>> BatonPatch(current_state=["Plan written"]).model_dump_json()
        '{"current_state":["Plan written"]}'
    """

    goal: str | None = None
    current_state: list[str] | None = None
    decision_log: list[str] | None = None
    constraints: list[str] | None = None
    work_scope: list[PathText] | None = None
    artifacts: list[ArtifactRef] | None = None
    open_questions: list[str] | None = None
    acceptance: list[str] | None = None

    @model_serializer(mode="wrap")
    def _serialize_set_fields(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {name: value for name, value in handler(self).items() if name in self.model_fields_set}

    def to_json_object(self) -> dict[str, JsonValue]:
        """Return the set fields as a JSON object."""
        members: dict[str, JsonValue] = self.model_dump(mode="json")
        return members


class AnyBaton(Baton):
    """A baton of unknown type; additional fields are kept."""

    model_config = ConfigDict(extra="allow")
