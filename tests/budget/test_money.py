"""Money: exact inside, a JSON number outside."""

import json
from decimal import Decimal, localcontext

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from baton.wire.money import MAX_USD, Usd, UsdSpent, format_cost, parse_amount, to_micro_usd, to_usd

amounts = st.integers(-(10**15), 10**15)


class TestMicroUsd:
    @given(amounts)
    def test_no_millionth_is_lost_on_the_wire(self, micro: int) -> None:
        """Every amount up to a billion dollars has its own JSON number (money)."""
        wire = TypeAdapter(Usd).dump_json(to_usd(micro))
        read = TypeAdapter(Usd).validate_json(wire, strict=True)

        assert to_micro_usd(read) == micro
        assert isinstance(json.loads(wire), int | float)

    def test_errors_of_binary_fractions_are_rounded_away(self) -> None:
        """0.8 - 0.7 - 0.1 is slightly above zero, and 0.3 - 0.1 - 0.1 - 0.1 slightly below (money)."""
        assert to_micro_usd(Decimal(repr(0.8 - 0.7 - 0.1))) == 0
        assert to_micro_usd(Decimal(repr(0.3 - 0.1 - 0.1 - 0.1))) == 0

    def test_the_precision_of_the_callers_thread_does_not_matter(self) -> None:
        """A caller that rounds to three digits elsewhere loses nothing here."""
        with localcontext() as context:
            context.prec = 3

            assert to_usd(to_micro_usd(Decimal("123456.789012"))) == Decimal("123456.789012")


class TestAmountOf:
    @pytest.mark.parametrize("text", ["", "five", "0", "-1", "0.0000009", "1000000001", "1e999999", "-1e999999", "NaN"])
    def test_an_invalid_amount_is_rejected(self, text: str) -> None:
        """With an error for the person, however large the number is."""
        with pytest.raises(ValueError, match="is not an amount above zero"):
            parse_amount(text)

    @pytest.mark.parametrize(
        ("text", "micro"), [(" $5.00 ", 5_000_000), ("0.000001", 1), ("1e3", 1_000_000_000), ("1000000000", 10**15)]
    )
    def test_an_amount_is_read_to_the_millionth(self, text: str, micro: int) -> None:
        """With or without the currency sign."""
        assert parse_amount(text) == micro


class TestUsd:
    @pytest.mark.parametrize("value", ["0.08", True, None, [], float("nan"), float("inf"), MAX_USD + 1], ids=repr)
    def test_only_a_number_is_money(self, value: object) -> None:
        """A string that looks like a number is a sender's mistake (C-48)."""
        with pytest.raises(ValidationError):
            TypeAdapter(Usd).validate_python(value, strict=True)

    def test_a_decimal_that_json_cannot_represent_is_rejected(self) -> None:
        """Nothing is rounded silently."""
        with pytest.raises(ValidationError, match="round it"):
            TypeAdapter(Usd).validate_python(Decimal("0.12345678901234567890"))

    def test_spent_money_is_not_negative(self) -> None:
        """The remaining amount may be negative."""
        assert TypeAdapter(Usd).validate_python(-0.5) == Decimal("-0.5")
        with pytest.raises(ValidationError):
            TypeAdapter(UsdSpent).validate_python(-0.5)


class TestCost:
    @pytest.mark.parametrize(("micro", "tokens", "text"), [(0, 9, "unknown"), (0, 0, "$0.00"), (30_000, 9, "$0.03")])
    def test_tokens_without_a_price_are_not_free(self, micro: int, tokens: int, text: str) -> None:
        """Zero dollars would be read as a price."""
        assert format_cost(micro, tokens) == text
