"""The options of every command."""

import pytest

from baton.cli.options import GlobalOptions
from baton.client.faces import DEFAULT_STORE


class TestMerge:
    def test_a_later_option_replaces_only_its_own_value(self) -> None:
        """The others keep their values."""
        both = GlobalOptions(address="a:1", namespace="n").merge(GlobalOptions(json=True, address="b:2"))

        assert both == GlobalOptions(json=True, address="b:2", namespace="n")


class TestStore:
    def test_the_option_wins_over_the_environment_and_that_over_the_default(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Workers read the same variable, so the command finds their payloads."""
        monkeypatch.delenv("BATON_ARTIFACTS", raising=False)
        assert GlobalOptions().store == DEFAULT_STORE

        monkeypatch.setenv("BATON_ARTIFACTS", "s3://bucket")
        assert GlobalOptions().store == "s3://bucket"
        assert GlobalOptions(artifacts="here").store == "here"
