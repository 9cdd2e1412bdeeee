"""The front of the test kit: every name is there, and nothing is loaded before it is asked for."""

import subprocess
import sys
from types import ModuleType

import pytest

import baton.agents
import baton.testing

LOADS = """
import sys
import baton.testing.plugin
print(sorted(name for name in ("temporalio", "cryptography", "sqlite3") if name in sys.modules))
"""


class TestFront:
    """`baton.testing` and `baton.agents`."""

    @pytest.mark.parametrize("front", [baton.agents, baton.testing])
    def test_every_name_can_be_imported(self, front: ModuleType) -> None:
        """Exactly those of the list."""
        assert [name for name in dir(front) if getattr(front, name, None) is None] == []
        with pytest.raises(AttributeError, match="has no attribute 'pipline_worker'"):
            front.pipline_worker  # noqa: B018

    def test_the_plugin_loads_nothing_heavy(self) -> None:
        """Pytest loads it in every project with Baton installed."""
        process = subprocess.run([sys.executable, "-c", LOADS], capture_output=True, text=True, check=True)

        assert process.stdout.strip() == "[]"
