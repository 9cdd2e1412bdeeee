"""What a request costs."""

import sys
import tomllib
from decimal import Decimal
from pathlib import Path

import pytest

from baton.agents import prices
from baton.agents.prices import cost
from baton.compression.summariser import Price


class TestCost:
    """`cost`."""

    def test_a_known_model_has_its_price(self) -> None:
        """By the price list, which needs no network."""
        assert cost("gpt-4o", 1_000_000, 1_000_000) == 12_500_000

    def test_what_came_from_the_providers_cache_is_cheaper(self) -> None:
        """The price list knows by how much."""
        whole, cached = cost("gpt-4o", 1_000_000, 0), cost("gpt-4o", 1_000_000, 0, 1_000_000)

        assert whole is not None
        assert cached is not None
        assert 0 < cached < whole

    @pytest.mark.parametrize("url", [None, "https://models.example/v1/chat/completions"])
    def test_a_model_that_nobody_knows_has_none(self, url: str | None) -> None:
        """Which is something else than costing nothing."""
        assert cost("house-model-1", 1_000, 100, url=url) is None

    def test_an_endpoint_that_nobody_knows_costs_what_the_model_costs(self) -> None:
        """A gateway's address says nothing of the price."""
        assert cost("gpt-4o", 1_000, 0, url="https://models.example/v1") == cost("gpt-4o", 1_000, 0)

    def test_a_price_that_is_given_counts(self) -> None:
        """Whatever the list says."""
        assert cost("gpt-4o", 1_000, 100, price=Price(prompt=Decimal(1), completion=Decimal(2))) == 1_200

    def test_it_is_told_once_where_there_is_no_price_list(
        self, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Whoever set a budget learns that it never runs out, and what to install."""
        monkeypatch.setitem(sys.modules, "genai_prices", None)
        monkeypatch.setattr(prices, "_has_price_list", prices._has_price_list.__wrapped__)

        assert [cost("model-of-nobody", 1_000, 100) for _ in range(2)] == [None, None]
        assert [record.getMessage() for record in caplog.records] == [
            "nobody knows what 'model-of-nobody' costs; its tokens are charged, and no money: give the agent a price, "
            "or install genai-prices"
        ]

    @pytest.mark.parametrize("extra", ["agents", "openai-agents", "chat", "langgraph"])
    def test_every_adapter_that_charges_brings_the_price_list(self, extra: str) -> None:
        """Known models have their prices, whichever of the extras is installed alone."""
        project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text(encoding="utf-8"))["project"]

        assert any(needed.startswith("genai-prices") for needed in project["optional-dependencies"][extra])
