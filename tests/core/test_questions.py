"""What a question tells before anybody answers: the defaults of its form, and whose it is to decide."""

from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import pytest
from pydantic import BaseModel, Field

from baton.client import Question, Vote
from baton.core.questions import approval_choices

AT = datetime(2026, 11, 27, tzinfo=UTC)


class Payment(BaseModel):
    """A form within a form."""

    amount: int
    currency: str = "EUR"


def question(form: type[BaseModel] | None = None, **further: Any) -> Question:
    """Return an approval."""
    return Question(id="7:a", seq=7, title="legal", since=AT, until=AT, choices=approval_choices(form), **further)


class Report(BaseModel):
    """A form with defaults that are made, one of them another each time."""

    tags: list[str] = Field(default_factory=lambda: ["urgent"])
    payment: Payment = Field(default_factory=lambda: Payment(amount=3), alias="pay")
    token: str = Field(default_factory=lambda: uuid4().hex)
    broken: int = Field(default_factory=lambda: 1 // 0)
    title: str


def test_a_form_has_the_defaults_that_its_factories_make() -> None:
    """They are a suggestion: nothing that answers are bound to depends on what a factory makes."""
    first, second = question(form=Report), question(form=Report)
    form: Any = first.form
    defaults = {name: member["default"] for name, member in form["properties"].items() if "default" in member}
    assert defaults.pop("token") != second.form["properties"]["token"]["default"]  # type: ignore[index]
    assert defaults == {"tags": ["urgent"], "pay": {"amount": 3, "currency": "EUR"}}
    assert (first.terms, first.digest_with("b")) == (second.terms, second.digest_with("b"))


@pytest.mark.parametrize(
    ("who", "votes", "name", "is_for"),
    [
        pytest.param([], [], "ann", True, id="anybody may"),
        pytest.param(["ANN "], [], "ann", True, id="named, however it is spelled"),
        pytest.param(["bob"], [], "ann", False, id="only another is"),
        pytest.param(["bob", "group:leads"], [], "ann", True, id="a group, whose members only workers know"),
        pytest.param(["ann", "bob"], ["Ann"], "ann", False, id="has decided"),
        pytest.param(["ann", "bob"], ["bob"], "ann", True, id="another has decided"),
    ],
)
def test_a_question_is_for_who_may_decide_and_has_not(
    who: list[str], votes: list[str], name: str, is_for: bool
) -> None:
    """For a list of what is one's own to do."""
    cast = [Vote(who=each, choice="approve", at=AT, via="update") for each in votes]
    assert question(who=who, needs=2, votes=cast).is_for(name) is is_for
