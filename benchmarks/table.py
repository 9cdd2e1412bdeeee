"""The figures of `results.json` as a Markdown table: `python -m benchmarks.table`."""

import json
from collections.abc import Mapping
from pathlib import Path

from benchmarks.report import GOALS


def table(results: Mapping[str, float | str]) -> str:
    """Return the figures as a Markdown table, and below it how to measure them again.

    Args:
        results: What `results.json` holds.

    Example:
        >>> print(table({"import_ms": 120.0, "environment": "Python 3.11", "command": "python -m benchmarks"}))
        | what | figure | goal |
        |---|---|---|
        | milliseconds of processor time that `from baton import Pipeline, stage` takes | 120 | - |
        <BLANKLINE>
        Measured by `python -m benchmarks` on Python 3.11.
    """
    rows = [
        f"| {goal.what} | {results[name]:,g} | {goal if goal.is_set else '-'} |"
        for name, goal in GOALS.items()
        if name in results
    ]
    source = f"Measured by `{results['command']}` on {results['environment']}."
    return "\n".join(["| what | figure | goal |", "|---|---|---|", *rows, "", source])


if __name__ == "__main__":
    print(table(json.loads(Path(__file__).with_name("results.json").read_text(encoding="utf-8"))))
