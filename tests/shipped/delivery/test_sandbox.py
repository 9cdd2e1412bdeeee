"""The change under test can access neither keys nor network, and never runs without a sandbox."""

import asyncio
import os
import shutil
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from activities.delivery import sandbox
from activities.delivery.records import DeliveryError
from activities.delivery.sandbox import Sandbox, environment_for, remove_folder
from activities.programs import ProgramResult, run_program
from baton.errors import BatonError
from tests.shipped.delivery.material import has_sandbox

PROBE = """\
import multiprocessing, os, pathlib, socket, subprocess, sys
def attempt(name, work):
    try: print(name, "REACHED", work())
    except Exception as error: print(name, "refused", type(error).__name__)
secret, port, worker = sys.argv[1:]
attempt("read", lambda: pathlib.Path(secret).read_text())
attempt("write", lambda: pathlib.Path(secret).write_text("x"))
attempt("truncate", lambda: os.truncate(secret, 0))
attempt("list", lambda: os.listdir(pathlib.Path(secret).parent))
attempt("link", lambda: os.link(secret, "linked") or pathlib.Path("linked").read_text())
attempt("rename", lambda: os.rename(secret, "moved"))
attempt("environment", lambda: pathlib.Path(f"/proc/{worker}/environ").read_bytes())
attempt("memory", lambda: open(f"/proc/{worker}/mem", "rb").read(1))
attempt("root", lambda: os.listdir(f"/proc/{worker}/root/root"))
attempt("signal", lambda: os.kill(int(worker), 0))
attempt("connect", lambda: socket.create_connection(("127.0.0.1", int(port)), 2))
attempt("datagram", lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("192.0.2.1", 53)))
attempt("socket", lambda: socket.socket(socket.AF_UNIX).connect(secret.replace("keys.toml", "socket")))
attempt("mode", lambda: os.chmod(pathlib.Path(secret).parent, 0o777))
attempt("mode of a program", lambda: os.chmod(sys.executable, 0o755))
attempt("mount", lambda: subprocess.run(["mount", "-t", "tmpfs", "none", "."], check=True, capture_output=True))
attempt("etc", lambda: os.listdir("/etc/baton") or open("/etc/shadow").read())
pathlib.Path("own").write_text("mine")
multiprocessing.Lock()
with socket.create_server(("127.0.0.1", 0)) as own:
    socket.create_connection(own.getsockname(), 2)
print("own folder and loopback work")
"""


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv(sandbox.MODE, raising=False)
    available = sandbox._find_sandbox
    available.cache_clear()
    yield
    available.cache_clear()


@contextmanager
def listening() -> Iterator[int]:
    """Serve a port of this machine, as the worker's Temporal service does."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


async def confined(box: Sandbox, *command: str, seconds: float = 60) -> ProgramResult:
    """Run a command in a sandbox, in its folder."""
    return await run_program(
        box.wrap(command, box.write[0]),
        folder=box.write[0],
        seconds=seconds,
        environment=environment_for(),
        merge_errors=True,
    )


@pytest.mark.skipif(sys.platform != "linux", reason="sandboxes are of Linux")
@pytest.mark.parametrize("kind", ["bubblewrap", "landlock"])
async def test_the_change_under_test_reaches_nothing_of_the_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """No access by files, processes or network; its own folder and loopback work."""
    if kind == "landlock":
        monkeypatch.setattr(shutil, "which", lambda *_, **__: None)
    if sandbox._find_sandbox() != kind:
        pytest.skip(f"{kind} does not work here: {sandbox._find_sandbox()}")
    secret, work = tmp_path / "worker" / "keys.toml", tmp_path / "work"
    secret.parent.mkdir()
    work.mkdir()
    secret.write_text("secret")
    with listening() as port, socket.socket(socket.AF_UNIX) as database:
        database.bind(str(secret.with_name("socket")))
        database.listen()
        box = Sandbox((work,))
        ran = await confined(box, sys.executable, "-c", PROBE, str(secret), str(port), str(os.getpid()))
    output = ran.output.decode()
    assert ran.code == 0, output
    assert "REACHED" not in output
    assert output.count("refused") == 17
    assert output.endswith("own folder and loopback work\n")
    assert secret.read_text() == "secret"


@pytest.mark.skipif(not has_sandbox(), reason="no sandbox works here")
async def test_a_daemon_ends_with_the_command_that_started_it(tmp_path: Path) -> None:
    """Also a process in its own session."""
    line = "(setsid sh -c 'while :; do date >> ticks; sleep 0.02; done' &) ; while ! test -s ticks; do :; done"
    await confined(Sandbox((tmp_path,)), "sh", "-c", line)
    ticks = (tmp_path / "ticks").read_bytes()
    await asyncio.sleep(0.2)
    assert (tmp_path / "ticks").read_bytes() == ticks


@pytest.mark.skipif(not has_sandbox(), reason="no sandbox works here")
async def test_the_network_is_there_where_it_is_allowed(tmp_path: Path) -> None:
    """An order says so."""
    with listening() as port:
        line = f"import socket; socket.create_connection(('127.0.0.1', {port}), 5)"
        for network in (True, False):
            ran = await confined(Sandbox((tmp_path,), network=network), sys.executable, "-c", line)
            assert (ran.code == 0) is network


def test_nothing_runs_without_a_sandbox_but_by_an_explicit_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error names both remedies."""
    monkeypatch.setattr(sandbox, "_find_sandbox", lambda: "it is not Linux")
    with pytest.raises(DeliveryError, match=r"install bubblewrap, or .* BATON_DELIVERY_SANDBOX=none"):
        Sandbox((tmp_path,)).wrap(["true"], tmp_path)
    monkeypatch.setenv(sandbox.MODE, "none")
    assert Sandbox((tmp_path,)).wrap(["true"], tmp_path) == ["true"]


def test_secrets_may_not_be_where_the_change_can_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An operator who adds readable folders cannot expose them by mistake."""
    keys = tmp_path / "tools" / "keys.toml"
    keys.parent.mkdir()
    keys.write_text("secret")
    monkeypatch.setenv("BATON_KEYS", str(keys))
    monkeypatch.setenv(sandbox.READABLE, str(tmp_path))
    monkeypatch.setattr(sandbox, "_find_sandbox", lambda: "bubblewrap")
    with pytest.raises(DeliveryError, match="BATON_KEYS is in"):
        Sandbox((tmp_path / "work",)).wrap(["true"], tmp_path)
    monkeypatch.delenv("BATON_KEYS")
    (tmp_path / ".baton").mkdir()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DeliveryError, match=r"\.baton is in"):
        Sandbox((tmp_path / "work",)).wrap(["true"], tmp_path)


def test_no_variable_of_the_worker_is_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Except for the named ones, which may not be Baton's or Temporal's."""
    for name in ("BATON_KEYS", "TEMPORAL_API_KEY", "PROJECT_MODE", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "x")
    assert "PROJECT_MODE" in environment_for(["PROJECT_MODE"])
    assert not {"BATON_KEYS", "TEMPORAL_API_KEY", "AWS_SECRET_ACCESS_KEY"} & environment_for().keys()
    for name in ("BATON_KEYS", "temporal_api_key"):
        with pytest.raises(DeliveryError, match=name):
            environment_for([name])


async def test_output_is_kept_within_a_limit(tmp_path: Path) -> None:
    """Its end, with the number of bytes before it."""
    line = "import sys; sys.stdout.write('a' * 50_000 + 'b' * 50_000)"
    command = [sys.executable, "-c", line]
    ran = await run_program(command, folder=tmp_path, seconds=60, environment={}, max_bytes=1_000)
    assert ran.output.endswith(b"]\n" + b"b" * 1_000)
    assert ran.dropped == 99_000


async def test_a_program_is_stopped_after_its_time(tmp_path: Path) -> None:
    """It has no exit code then."""
    ran = await run_program(["sleep", "600"], folder=tmp_path, seconds=0.2, environment=environment_for())
    assert ran.code is None


async def test_a_program_that_is_not_there_is_named(tmp_path: Path) -> None:
    """As a fault of the order, which no retry mends."""
    with pytest.raises(BatonError, match="'no-such-program'"):
        await run_program(["no-such-program"], folder=tmp_path, seconds=1, environment={})


def test_folders_that_nobody_may_write_to_are_removed(tmp_path: Path) -> None:
    """As Go keeps modules."""
    inner = tmp_path / "work" / "pkg"
    inner.mkdir(parents=True)
    (inner / "a.go").write_text("x")
    inner.chmod(0o555)
    remove_folder(tmp_path / "work")
    assert not (tmp_path / "work").exists()
