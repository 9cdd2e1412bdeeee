"""What a newcomer waits for: from an empty folder to a first pipeline, and to a project whose tests pass."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.compare import Effort
from benchmarks.report import Findings
from benchmarks.rig import Rig

ROOT = Path(__file__).parents[1]
TEMPLATES = ("agents", "review", "minimal")


async def new_project(rig: Rig, effort: Effort) -> Findings:
    """Measure the three commands from an empty folder to a pipeline's output, and `baton new` until the tests pass.

    The wheel is built before; it and all that it needs is installed by pip, from its cache or an index.
    """
    findings = Findings("A project of one's own", ("", "s"))
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        wheel = _build_wheel(folder)
        programs = _create_environment(folder)
        commands = (
            ["pip", "install", "--quiet", f"temporal-baton[new] @ {wheel.as_uri()}"],
            ["baton", "new", "relay"],
            ["python", "-m", "relay"],
        )
        seconds = [
            _measure_command(programs, arguments, folder / "relay" if "-m" in arguments else folder)
            for arguments in commands
        ]
        findings.rows.extend(
            (" ".join(arguments[:2]), f"{duration:.1f}") for arguments, duration in zip(commands, seconds, strict=True)
        )
        findings.values["first_pipeline_s"] = sum(seconds)
        totals = []
        for template in TEMPLATES[: 1 if effort.quick else None]:
            name = f"{template}-team"
            creation = _measure_command(programs, ["baton", "new", name, "--template", template], folder)
            totals.append(creation + _measure_command(programs, ["python", "-m", "pytest", "--quiet"], folder / name))
            findings.rows.append((f"baton new --template {template}, until its tests pass", f"{totals[-1]:.1f}"))
        findings.values["new_project_s"] = max(totals)
    return findings


def _build_wheel(folder: Path) -> Path:
    """Return the wheel of this checkout."""
    build = "import hatchling.build, sys; print(hatchling.build.build_wheel(sys.argv[1]))"
    subprocess.run([sys.executable, "-c", build, str(folder)], cwd=ROOT, check=True, capture_output=True)
    [wheel] = folder.glob("*.whl")
    return wheel


def _create_environment(folder: Path) -> Path:
    """Return the programs of a fresh virtual environment."""
    home = folder / "venv"
    subprocess.run([sys.executable, "-m", "venv", str(home)], check=True)
    return home / ("Scripts" if sys.platform == "win32" else "bin")


def _measure_command(programs: Path, arguments: Sequence[str], folder: Path) -> float:
    """Return how long a command takes; it fails if the command does."""
    inherited = {
        name: value for name, value in os.environ.items() if not name.startswith(("AGENT_", "OPENAI_", "TEMPORAL_"))
    }
    environment = {
        **inherited,
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    }
    started = time.perf_counter()
    subprocess.run(
        [str(programs / arguments[0]), *arguments[1:]],
        cwd=folder,
        env=environment,
        check=True,
        stdout=subprocess.DEVNULL,
    )
    return time.perf_counter() - started
