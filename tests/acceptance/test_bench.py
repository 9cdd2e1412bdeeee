"""`make bench`, cut down to a few pipelines: it measures, writes what it was told to and leaves nothing behind."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.report import GOALS

ROOT = Path(__file__).parents[2]


def bench(*arguments: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Run `python -m benchmarks` and return the result."""
    command = [sys.executable, "-m", "benchmarks", *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=300, check=False)


def test_a_quick_run_measures_both_sides_and_writes_the_figures(tmp_path: Path) -> None:
    """Servers, workers and clients start, both sides run, and the file has the requested figures."""
    output = tmp_path / "results.json"
    measured_figures = [
        "stage_latency_vs_raw",
        "embedded_vs_stock_latency",
        "start_to_first_stage_ms",
        "signal_accept_p99_ms_c1",
    ]

    ended = bench("--quick", "--rounds", "1", *(f"--only={name}" for name in measured_figures), "--output", str(output))

    assert ended.returncode == 0, ended.stdout + ended.stderr
    results = json.loads(output.read_text(encoding="utf-8"))
    figures = results.keys() - {"environment", "command", "updates"}
    assert figures == {*measured_figures}
    assert all(name in ended.stdout for name in figures)
    assert all(results[name] > 0 for name in figures), "what took a time took it forwards"


@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
def test_a_run_leaves_no_process_and_no_results_behind() -> None:
    """Without an output a partial run writes nothing, and its servers and workers end with it."""
    committed = (ROOT / "benchmarks" / "results.json").read_bytes()

    ended = bench("--quick", "--rounds", "1", "--only", "history_bytes_growth")

    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert (ROOT / "benchmarks" / "results.json").read_bytes() == committed
    folder = next(line.split()[-1] for line in ended.stderr.splitlines() if line.startswith("works in "))
    assert not Path(folder).exists()
    assert [pid for pid, line in command_lines() if folder in line] == []


def test_an_unknown_figure_is_refused_with_the_known_ones() -> None:
    """A misspelt figure measures nothing, and the message lists the known ones."""
    ended = bench("--only", "throughput")

    assert ended.returncode == 2
    assert all(name in ended.stderr for name in GOALS)


def command_lines() -> list[tuple[str, str]]:
    """Return process id and command line of every running process."""
    matches = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            matches.append((path.parent.name, path.read_bytes().replace(b"\0", b" ").decode(errors="replace")))
        except OSError:  # it ended meanwhile
            continue
    return matches
