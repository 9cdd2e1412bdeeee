"""What who imports an adapter without its extra is told."""

import subprocess
import sys

import pytest

WITHOUT = """
import sys

class Absent:
    def find_spec(name, path, target=None):
        if name == {lacks!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Absent)
import {module}
"""


@pytest.mark.parametrize(
    ("module", "lacks", "extra"),
    [
        ("baton.agents.pydantic_ai", "pydantic_ai", "agents"),
        ("baton.agents.pydantic_ai_durable", "pydantic_ai", "agents"),
        ("baton.agents.openai_agents", "agents", "openai-agents"),
        ("baton.agents.langgraph", "langchain_core", "langgraph"),
        ("baton.agents.chat_completions", "httpx2", "agents"),
        ("baton.doors.client_mcp_forms", "mcp", "mcp"),
        ("baton.doors.client_ag_ui_events", "ag_ui", "ag-ui"),
        ("baton.codec.server", "starlette", "codec"),
    ],
)
def test_an_adapter_names_the_extra_that_it_needs(module: str, lacks: str, extra: str) -> None:
    """The package that Python misses is often another than what it is installed by: `agents` is somebody else's."""
    code = WITHOUT.format(lacks=lacks, module=module)
    fresh = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    message = f"ModuleNotFoundError: {module} needs {lacks}: pip install 'temporal-baton[{extra}]'"
    assert fresh.stderr.splitlines()[-1:] == [message]
