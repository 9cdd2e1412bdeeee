"""`baton serve` as a process: its token, its card, a task over A2A, and its end."""

import asyncio
import json
import signal
import stat
import sys
import tomllib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.types import a2a_pb2 as pb
from temporalio.worker import Worker

from baton.devserver import DevServer
from tests.doors.test_a2a import said, send, states

CODE = Path(__file__).with_name("door_pipelines.py")


@asynccontextmanager
async def served(server: DevServer, folder: Path, *arguments: str) -> AsyncIterator[tuple[dict[str, Any], Any]]:
    """Yield what the command says once it serves, and its process."""
    command = [sys.executable, "-m", "baton", "serve", *arguments, "--json", "--port", "0", "--address", server.address]
    process = await asyncio.create_subprocess_exec(*command, cwd=folder, stdout=-1, stderr=-1)
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        line = await process.stdout.readline()
        assert line, (await process.stderr.read()).decode()
        yield json.loads(line), process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def test_pipelines_of_a_file_are_served(
    server: DevServer, doors_worker: Worker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a token of this machine's user, that only they can read; a signal ends it."""
    monkeypatch.setenv("BATON_USER", "ann")
    async with served(server, tmp_path, str(CODE), "--task-queue", doors_worker.task_queue) as (said_first, process):
        assert said_first["pipelines"] == ["article", "conformance", "delegating", "endless", "quick"]
        file = tmp_path / ".baton" / "tokens.toml"
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        token = tomllib.loads(file.read_text())["ann"]
        async with httpx.AsyncClient(headers={"authorization": f"Bearer {token}"}, timeout=60) as http:
            card = await A2ACardResolver(http, said_first["url"]).get_agent_card()
            skill = next(skill for skill in card.skills if skill.id == "article")
            assert skill.description == "Write an outline, ask for the sizes, and return them."
            client = ClientFactory(ClientConfig(httpx_client=http)).create(card)
            events = await send(client, said("Batons", skill="quick"))
        assert states(events)[-1] == pb.TASK_STATE_COMPLETED
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 0


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["quick", "--host", "0.0.0.0"],
        ["quick", "--url", "nonsense"],
        ["quick", "--tokens", "missing.toml"],
        ["quick", "--tokens", "short.toml"],
        ["quick", "--people", "missing.toml"],
        ["quick", "--trust", "offers.toml"],
        ["--agents"],
        ["quick", "--tokens", "a.toml", "--people", "b.toml"],
        ["missing.py"],
        ["--offers", "missing.toml"],
        ["--offers", "offers.toml"],
        ["quick", "--push", "https://hooks.example"],
    ],
)
async def test_a_service_that_nobody_means_is_refused(tmp_path: Path, arguments: list[str]) -> None:
    """Before it looks for the Temporal server, which is not there."""
    (tmp_path / "short.toml").write_text('ann = "short"\n')
    (tmp_path / "offers.toml").write_text('[quick]\nparams = {type = "nonsense"}\n')
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "baton",
        "serve",
        *arguments,
        "--address",
        "127.0.0.1:1",
        cwd=tmp_path,
        stdout=-1,
        stderr=-1,
    )
    _, errors = await process.communicate()
    assert process.returncode in (1, 2)
    assert errors
    assert b"Traceback" not in errors
