"""What the tests of the shipped pipelines share."""

import pytest


@pytest.fixture(autouse=True)
def by_rules_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove any configured model."""
    for name in ("BATON_LLM_URL", "BATON_LLM_MODEL", "BATON_LLM_KEY"):
        monkeypatch.delenv(name, raising=False)
