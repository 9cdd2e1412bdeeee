"""`baton outside serve`, as a process: agents outside reach it with their tokens."""

import asyncio
import json
import os
import sys
import urllib.error
import urllib.request
from asyncio.subprocess import PIPE
from pathlib import Path

from baton.devserver import DevServer

TOKEN = "0123456789abcdef-reviewer"


def listed(url: str, token: str) -> tuple[int, object]:
    """Return the status and the body of a list."""
    request = urllib.request.Request(f"{url}/handoffs", headers={"Authorization": f"Bearer {token}"})
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


async def test_the_service_is_a_command(own_server: DevServer, tmp_path: Path) -> None:
    """It serves agents with a token, refuses others, and stops on SIGTERM."""
    tokens = tmp_path / "tokens.toml"
    tokens.write_text(f'reviewer = "{TOKEN}"\n', encoding="utf-8")
    keys = tmp_path / "keys.toml"
    make = await asyncio.create_subprocess_exec(sys.executable, "-m", "baton", "keys", "new", str(keys))
    assert await make.wait() == 0
    environment = {
        **os.environ,
        "TEMPORAL_ADDRESS": own_server.address,
        "BATON_KEYS": str(keys),
        "BATON_LEDGER": str(tmp_path / "ledger.db"),
    }
    command = (sys.executable, "-m", "baton", "outside", "serve", str(tokens), "--port", "0")
    serving = await asyncio.create_subprocess_exec(*command, stderr=PIPE, stdout=PIPE, env=environment, cwd=tmp_path)
    try:
        assert serving.stderr is not None
        while b"serving 1 agents at" not in (line := await serving.stderr.readline()):
            assert line, "it ended"
        url = line.decode().split()[-1]
        assert await asyncio.to_thread(listed, url, TOKEN) == (200, [])
        assert (await asyncio.to_thread(listed, url, "another-token-of-16"))[0] == 401
    finally:
        serving.terminate()
    assert await serving.wait() == 0
