"""An environment of its own with the built wheel, as a newcomer has it: the checkout is out of sight."""

import os
import subprocess
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def run(
    command: Sequence[str | Path], folder: Path, environment: Mapping[str, str], *, code: int = 0, error: bool = False
) -> str:
    """Run a command to its end and return what it printed; fail with its words if it ends with another code."""
    ended = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert ended.returncode == code, f"{command}: {ended.stdout}\n{ended.stderr}"
    return ended.stderr if error else ended.stdout


@dataclass(frozen=True)
class Installed:
    """An environment with the wheel.

    Attributes:
        programs: The folder of its programs.
        packages: The folder of its packages.
        variables: What its programs are to find in their environment.
    """

    programs: Path
    packages: Path
    variables: Mapping[str, str]

    def run(self, words: Sequence[str], folder: Path, *, code: int = 0) -> str:
        """Run one of its programs, and return what it printed."""
        return run([self.programs / words[0], *words[1:]], folder, self.variables, code=code)

    def refused(self, words: Sequence[str], folder: Path) -> str:
        """Run a program that must exit with 1, and return its error output."""
        return run([self.programs / words[0], *words[1:]], folder, self.variables, code=1, error=True)


def install(place: Path, wheel: Path | None = None) -> Installed:
    """Install a wheel below ``place``, by default that of the checkout, with the packages of the tests' environment."""
    plain = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    wheels, home = place / "wheels", place / "venv"
    wheels.mkdir(parents=True)
    if wheel is None:
        build = "import hatchling.build, sys; print(hatchling.build.build_wheel(sys.argv[1]))"
        run([sys.executable, "-c", build, wheels], ROOT, plain)
        [wheel] = wheels.glob("*.whl")
    run([sys.executable, "-m", "venv", "--without-pip", home], place, plain)
    programs = home / "bin"
    pip = [sys.executable, "-m", "pip", "--python", str(programs / "python")]
    run([*pip, "install", "-q", "--no-deps", "--no-index", str(wheel)], place, plain)
    [packages] = home.glob("lib/python*/site-packages")
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib"), encoding="utf-8")
    configured = ("PYTHON", "BATON_", "TEMPORAL_", "AGENT_", "OPENAI_", "CI")
    variables = {key: value for key, value in plain.items() if not key.startswith(configured)}
    return Installed(programs, packages, {**variables, "PATH": f"{programs}{os.pathsep}{variables['PATH']}"})


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """Return an environment with the wheel, in which no model is configured.

    Its mypy learns the types of all packages once for all of pytest's processes, which takes it half a minute.
    """
    environment = install(tmp_path_factory.mktemp("environment"))
    own = tmp_path_factory.getbasetemp()
    everyones = own.parent if "PYTEST_XDIST_WORKER" in os.environ else own
    return replace(environment, variables={**environment.variables, "MYPY_CACHE_DIR": str(everyones / "types")})
