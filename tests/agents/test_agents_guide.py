"""The page on agents: what it shows runs."""

import re
from pathlib import Path
from typing import Any

import pytest

from baton import Stage

PAGE = Path(__file__).parents[2] / "docs" / "agents.md"


def test_the_examples_of_the_page_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """One after the other, as a reader would type them; nobody is asked anything."""
    monkeypatch.setenv("OPENAI_API_KEY", "unused")
    page = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    names: dict[str, Any] = {"__name__": "page"}
    for example in page:
        exec(compile(example, str(PAGE), "exec"), names)

    stages = [name for name, value in names.items() if isinstance(value, Stage)]
    assert stages == ["plan", "find", "review", "code", "draft"]
