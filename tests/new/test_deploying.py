"""The image, the compose file and the CI of a project, without Docker: their commands, run as written."""

import asyncio
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from baton.devserver.processes import held_port
from baton.keys.store_keyring import ENVIRONMENT
from baton.worker import Settings
from tests.wheels import ROOT, Installed, run

READS = {f"BATON_{name.upper()}" for name in Settings.model_fields} | {"BATON_KEYS", ENVIRONMENT}
SCHEMAS = {"compose.yaml": "vendor.compose-spec", ".github/workflows/ci.yml": "vendor.github-workflows"}


@pytest.fixture(scope="module")
def project(wheel: Installed, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a new project."""
    folder = tmp_path_factory.mktemp("deploying")
    wheel.run(["baton", "new", "harbour", "--template", "minimal"], folder)
    return folder / "harbour"


@pytest.fixture(scope="module")
def services(project: Path) -> dict[str, Any]:
    """Return the services of the compose file."""
    return dict(yaml.safe_load((project / "compose.yaml").read_text(encoding="utf-8"))["services"])


@pytest.fixture(scope="module")
def image(wheel: Installed, project: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the image's working folder: the files of the Dockerfile's COPY, and the package of its RUN."""
    app = tmp_path_factory.mktemp("image")
    for line in (project / "Dockerfile").read_text(encoding="utf-8").splitlines():
        if line.startswith("COPY "):
            [*sources, target] = line.split()[1:]
            for source in sources:
                copy = shutil.copytree if (project / source).is_dir() else shutil.copy
                copy(project / source, app / target)
        elif line.startswith("RUN pip install "):
            # The packages are those of the tests' environment, so that no index is asked.
            arguments = shlex.split(line.removeprefix("RUN pip install "))
            pip = [sys.executable, "-m", "pip", "--python", str(wheel.programs / "python"), "install"]
            run([*pip, "--no-deps", "--no-build-isolation", *arguments], app, wheel.variables)
    return app


@pytest.mark.parametrize("name", SCHEMAS)
def test_each_file_is_valid(name: str, project: Path) -> None:
    """By the schema of the program that reads it."""
    check = Path(sys.executable).with_name("check-jsonschema")
    run([check, "--builtin-schema", SCHEMAS[name], str(project / name)], ROOT, os.environ)


def test_its_worker_reads_each_variable_that_compose_sets(services: dict[str, Any]) -> None:
    """A misspelt variable would silently mean the default."""
    variables = {name for name in services["worker"]["environment"] if name.startswith("BATON_")}

    assert variables <= READS


@asynccontextmanager
async def running(command: list[str], folder: Path, variables: Mapping[str, str]) -> AsyncIterator[None]:
    """Run a program while the context is open."""
    process = await asyncio.create_subprocess_exec(*command, cwd=folder, env=variables, stdout=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.terminate()
        await process.wait()


async def test_the_services_of_its_compose_file_work_together(
    wheel: Installed, project: Path, image: Path, services: dict[str, Any], tmp_path: Path
) -> None:
    """The server with its arguments and health check, the job that makes the keys, the production worker, a run."""
    temporal, keys, worker = services["temporal"], services["keys"], services["worker"]
    program = Path(sys.executable).with_name("temporal")
    [script] = keys["command"]
    with held_port() as port:
        address = f"127.0.0.1:{port}"
        variables = {**wheel.variables, "TEMPORAL_ADDRESS": address}
        for name, value in worker["environment"].items():
            if name.startswith("BATON_"):
                variables[name] = value.replace("/etc/baton", str(tmp_path)).replace("/var/lib/baton", str(tmp_path))
        command = [*temporal["entrypoint"], *temporal["command"]]
        assert command[0] == "temporal"
        arguments = [argument.replace("/data", str(tmp_path)) for argument in command[1:]]
        async with running([str(program), *arguments, "--port", str(port), "--headless"], tmp_path, variables):
            [_, program_name, *check] = temporal["healthcheck"]["test"]
            assert program_name == "temporal"
            while await (
                await asyncio.create_subprocess_exec(
                    *(program, *check, "--address", address), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
                )
            ).wait():
                pass  # as compose does, until it is healthy
            run([*keys["entrypoint"], script.replace("$$", "$")], image, variables)
            async with running([str(wheel.programs / "python"), "worker.py"], image, variables):
                printed = await asyncio.to_thread(start_run, wheel, project, variables)

    assert printed.strip() == "A relay team trains the handoff at full speed."
    assert (tmp_path / "keys.toml").is_file()


def start_run(wheel: Installed, project: Path, variables: Mapping[str, str]) -> str:
    """Start a run as the project's service does."""
    service_variables = {
        name: value for name, value in variables.items() if name not in ("BATON_LEDGER", "BATON_VAULT")
    }
    return run([wheel.programs / "python", "service.py"], project, service_variables)
