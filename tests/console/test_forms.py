"""Forms of JSON Schemas: the fields that a page shows, and the value that a submitted form sends."""

import datetime
import decimal
import enum
import json
from typing import Any, Literal

import pytest
from pydantic import BaseModel, Field

from baton.console.forms import MAX_FIELDS, FieldKind, SchemaForm, parse_json


class Speed(enum.StrEnum):
    """How fast."""

    SLOW = "slow"
    FAST = "fast"


class Address(BaseModel):
    """Where to."""

    street: str
    number: int = 1


class Order(BaseModel):
    """One field of each kind."""

    amount: int = Field(gt=0, le=100, description="How much")
    agreed: bool
    speed: Speed
    day: datetime.date
    price: decimal.Decimal
    address: Address
    ratio: float = 0.5
    kind: Literal["x", "y"] = "x"
    fixed: Literal[5] = 5
    sure: bool | None = None
    note: str | None = "none"
    code: str = Field("a", max_length=3)
    tags: list[str] = []
    counts: list[int] = [1, 2]
    either: int | str = 3
    addresses: list[Address] = []
    further: dict[str, Any] = {}
    billing: Address | None = None


SCHEMA = Order.model_json_schema()
LEAST = {
    "answer/amount": "40",
    "answer/agreed": "true",
    "answer/speed": '"fast"',
    "answer/day": "2026-11-27",
    "answer/price": "1.10",
    "answer/address/street": "Elm",
}


def as_shown(form: SchemaForm) -> dict[str, str]:
    """Return what a browser sends if a person fills in nothing but what is required."""
    return {**{field.name: field.text for field in form.fields()}, **LEAST}


class TestFields:
    """What a page shows of a schema."""

    def test_each_kind_of_value_has_a_kind_of_field(self) -> None:
        """Choices, numbers, texts and lists are typed; anything else is JSON; objects are groups."""
        kinds = {field.name.removeprefix("answer/"): field.kind for field in SchemaForm(SCHEMA, "answer").fields()}
        assert kinds == {
            "amount": FieldKind.NUMBER,
            "agreed": FieldKind.CHOICE,
            "speed": FieldKind.CHOICE,
            "day": FieldKind.TEXT,
            "price": FieldKind.TEXT,
            "address/street": FieldKind.TEXT,
            "address/number": FieldKind.NUMBER,
            "ratio": FieldKind.NUMBER,
            "kind": FieldKind.CHOICE,
            "fixed": FieldKind.CHOICE,
            "sure": FieldKind.CHOICE,
            "note": FieldKind.TEXT,
            "code": FieldKind.TEXT,
            "tags": FieldKind.LINES,
            "counts": FieldKind.LINES,
            "either": FieldKind.TEXT,
            "addresses": FieldKind.JSON,
            "further": FieldKind.JSON,
            "billing/street": FieldKind.TEXT,
            "billing/number": FieldKind.NUMBER,
        }

    def test_a_field_has_the_models_metadata(self) -> None:
        """Title, description, limits, choices, and whether it is required."""
        fields = {field.name: field for field in SchemaForm(SCHEMA, "answer").fields()}
        amount = fields["answer/amount"]
        assert (amount.label, amount.help, amount.required) == ("Amount", "How much", True)
        assert amount.attributes == {"max": "100", "step": "1"}
        assert fields["answer/code"].attributes == {"maxlength": "3"}
        assert fields["answer/day"].attributes == {"type": "date"}
        assert fields["answer/speed"].choices == [('"slow"', "slow"), ('"fast"', "fast")]
        assert [label for _, label in fields["answer/sure"].choices] == ["not given", "yes", "no"]
        assert fields["answer/address/street"].group == "Address"
        assert fields["answer/address/street"].required
        assert not fields["answer/billing/street"].required

    def test_fields_hold_the_defaults_or_a_value(self) -> None:
        """The value of an earlier answer, or the model's defaults."""
        texts = {field.name: field.text for field in SchemaForm(SCHEMA, "answer").fields()}
        assert (texts["answer/ratio"], texts["answer/kind"], texts["answer/counts"]) == ("0.5", '"x"', "1\n2")
        earlier = SchemaForm(SCHEMA, "answer", {"amount": 7, "address": {"street": "Oak"}, "tags": ["a\nb"]})
        fields = {field.name: field for field in earlier.fields()}
        assert (fields["answer/amount"].text, fields["answer/address/street"].text) == ("7", "Oak")
        assert fields["answer/tags"].kind is FieldKind.JSON  # an entry of two lines would become two entries

    def test_fields_hold_the_defaults_of_objects_and_lists(self) -> None:
        """As `Question.form` has them where a factory makes them; a default that is cleared stays so."""
        schema = {
            "properties": {
                "tags": {"type": "array", "items": {"type": "string"}, "default": ["urgent"]},
                "to": {"properties": {"street": {"type": "string"}}, "default": {"street": "Elm"}},
            }
        }
        form = SchemaForm(schema, "answer")
        assert {field.name: field.text for field in form.fields()} == {
            "answer/tags": "urgent",
            "answer/to/street": "Elm",
        }
        assert form.parse({"answer/tags": "", "answer/to/street": "Oak"}).value == {"tags": [], "to": {"street": "Oak"}}

    def test_names_with_the_separator_stay_distinct(self) -> None:
        """A schema's names are untrusted."""
        schema = {"properties": {"a/b": {"type": "string"}, "a": {"properties": {"b": {"type": "string"}}}}}
        form = SchemaForm(schema, "answer")
        ids = {field.name: field.id for field in form.fields()}
        assert len(ids) == 2
        assert len(set(ids.values())) == 2
        assert form.parse(dict.fromkeys(ids, "x")).value == {"a/b": "x", "a": {"b": "x"}}

    @pytest.mark.parametrize(
        "schema",
        [
            pytest.param({}, id="it is empty"),
            pytest.param({"type": "array"}, id="it is not of an object"),
            pytest.param({"properties": {str(n): {"type": "string"} for n in range(MAX_FIELDS + 1)}}, id="too many"),
        ],
    )
    def test_a_schema_without_a_form_is_edited_as_json(self, schema: dict[str, Any]) -> None:
        """Any answer can be given."""
        form = SchemaForm(schema, "answer")
        assert [(field.name, field.kind) for field in form.fields()] == [("answer", FieldKind.JSON)]
        assert form.parse({"answer": '{"a": [1]}'}).value == {"a": [1]}

    @pytest.mark.parametrize(
        "member",
        [
            pytest.param({"$ref": "#/$defs/Loop"}, id="a loop"),
            pytest.param({"$ref": 5, "anyOf": "x", "type": ["a"]}, id="nonsense"),
            pytest.param({"enum": [{"a": 1}, None, "<b>"]}, id="odd choices"),
            pytest.param("text", id="not a schema"),
            pytest.param({"type": "integer", "minimum": "<", "title": {}, "description": []}, id="odd limits"),
        ],
    )
    def test_hostile_schemas_make_a_form_of_few_fields(self, member: Any) -> None:
        """A pipeline's schema is untrusted."""
        schema = {"properties": {"a": member}, "$defs": {"Loop": {"properties": {"next": {"$ref": "#/$defs/Loop"}}}}}
        assert 0 < len(SchemaForm(schema, "answer").fields()) < 5


class TestFormResult:
    """What a submitted form sends."""

    def test_an_untouched_form_sends_the_models_defaults(self) -> None:
        """With only the required fields filled in."""
        form = SchemaForm(SCHEMA, "answer")
        filled = form.parse(as_shown(form))
        assert filled.faults == {}
        order = Order.model_validate_json(json.dumps(filled.value))
        assert order == Order(
            amount=40,
            agreed=True,
            speed=Speed.FAST,
            day=datetime.date(2026, 11, 27),
            price=decimal.Decimal("1.10"),
            address=Address(street="Elm"),
        )

    def test_every_kind_of_value_survives(self) -> None:
        """A record shown as a form and sent again is the same record."""
        order = Order(
            amount=1,
            agreed=False,
            speed=Speed.SLOW,
            day=datetime.date(2026, 1, 2),
            price=decimal.Decimal("0.30"),
            address=Address(street='Elm <b> & "co"', number=-4),
            ratio=1e-9,
            kind="y",
            sure=False,
            note="two\nlines",
            code="",
            tags=["one", "two"],
            counts=[-1, 10**20],
            either="text",
            addresses=[Address(street="é")],
            further={"a": {"b": [None, True]}},
            billing=Address(street="Oak", number=2),
        )
        form = SchemaForm(SCHEMA, "answer", order.model_dump(mode="json"))
        filled = form.parse({field.name: field.text.replace("\n", "\r\n") for field in form.fields()})
        assert filled.faults == {}
        assert Order.model_validate_json(json.dumps(filled.value)) == order

    def test_a_cleared_default_stays_cleared(self) -> None:
        """Clearing a field is intentional."""
        form = SchemaForm(SCHEMA, "answer")
        cleared = form.parse({**as_shown(form), "answer/note": "", "answer/code": "", "answer/counts": " "})
        assert (cleared.value["note"], cleared.value["code"], cleared.value["counts"]) == (None, "", [])

    @pytest.mark.parametrize(
        ("name", "text"),
        [
            pytest.param("amount", "", id="required and empty"),
            pytest.param("amount", "4.5", id="not a whole number"),
            pytest.param("amount", "true", id="true is not a number"),
            pytest.param("amount", "0", id="not above the limit"),
            pytest.param("amount", "101", id="above the limit"),
            pytest.param("code", "four", id="too long"),
            pytest.param("ratio", "NaN", id="not a number of JSON"),
            pytest.param("ratio", "1e999", id="a number without end"),
            pytest.param("speed", '"warp"', id="not a choice"),
            pytest.param("speed", "__import__('os')", id="code"),
            pytest.param("counts", "1\nx", id="a line that is no number"),
            pytest.param("further", "{", id="not JSON"),
            pytest.param("further", "[" * 100_000, id="nested too deep"),
        ],
    )
    def test_an_invalid_input_is_a_fault_of_its_field(self, name: str, text: str) -> None:
        """The other fields keep their inputs, and the form can be shown again."""
        form = SchemaForm(SCHEMA, "answer")
        inputs = {**as_shown(form), f"answer/{name}": text}
        filled = form.parse(inputs)
        assert [*filled.faults] == [f"answer/{name}"]
        fields = {field.name: field for field in form.fields(inputs, filled.faults)}
        assert (fields[f"answer/{name}"].text, bool(fields[f"answer/{name}"].fault)) == (text, True)
        assert fields["answer/day"].text == "2026-11-27"

    def test_a_choice_of_structures_is_json_and_lists_are_read_line_by_line(self) -> None:
        """A required list without a line is empty, and JSON of endless length is refused."""
        some = {"anyOf": [{"type": "array"}, {"type": "object"}]}
        flags = {"type": "array", "items": {"type": "boolean"}}
        schema = {"properties": {"some": some, "flags": flags, "none": flags}, "required": ["some", "flags", "none"]}
        form = SchemaForm(schema, "answer")
        assert [field.kind for field in form.fields()] == [FieldKind.JSON, FieldKind.LINES, FieldKind.LINES]
        filled = form.parse({"answer/some": "[1]", "answer/flags": "true\nfalse", "answer/none": ""})
        assert filled.value == {"some": [1], "flags": [True, False], "none": []}
        assert [*form.parse({"answer/some": f"[{'0,' * 60_000}0]"}).faults] == ["answer/some"]

    def test_what_the_model_refuses_is_told_at_its_field(self) -> None:
        """A refusal names fields with points between them; what is about no field stays a refusal."""
        form = SchemaForm(SCHEMA, "answer")
        refusal = (
            "the answer does not fit: amount: Value error, must be even; or zero; address.street: too short; "
            "further.a.b: no; counts.1: Input should be 2; answer: Value error, too much in all"
        )
        assert form.faults_in(refusal) == (
            {
                "answer/amount": "must be even; or zero",
                "answer/address/street": "too short",
                "answer/further": "no",
                "answer/counts": "Input should be 2",
            },
            "too much in all",
        )
        assert form.faults_in("the run is paused: amount: x") == ({}, "the run is paused: amount: x")

    def test_json_has_no_constants_of_other_languages(self) -> None:
        """Such as NaN, which Python accepts."""
        with pytest.raises(ValueError, match="Infinity is not JSON"):
            parse_json('{"a": Infinity}')
