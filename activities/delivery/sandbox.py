"""Run a program within limits: of time, of output, and of what it can reach.

The change under test is code that is not approved yet, and a model may have written it. It runs in a sandbox that
can write to its own folder, read the system's programs, and reach neither the network nor the worker's keys, ledger
and vault. Bubblewrap is used where it is installed, Landlock and namespaces of the Linux kernel otherwise; where
neither works, nothing runs unless the worker's operator sets ``BATON_DELIVERY_SANDBOX=none``.
"""

import asyncio
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from activities.delivery.records import DeliveryError

MODE, READABLE = "BATON_DELIVERY_SANDBOX", "BATON_DELIVERY_READABLE"
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/sys/devices/system/cpu", "/nix/store")
# Not the whole of /etc: a worker's keys may be there.
_SYSTEM_ETC = (
    *("alternatives", "ca-certificates", "fonts", "group", "hosts", "java", "ld.so.cache", "ld.so.conf"),
    *("ld.so.conf.d", "localtime", "mime.types", "nsswitch.conf", "passwd", "pki", "protocols", "resolv.conf"),
    *("services", "ssl", "timezone"),
)
_SECRETS = ("BATON_KEYS", "BATON_LEDGER", "BATON_VAULT", "BATON_ARTIFACTS", "TEMPORAL_CONFIG_FILE")
_VARIABLES = ("PATH", "LANG", "LANGUAGE", "LC_ALL", "LC_CTYPE", "TZ", "TERM", "USER", "LOGNAME", "SHELL")
_CONFINE = str(Path(__file__).with_name("confine.py"))
_BLOCK = 65_536
_LAST_OUTPUT_SECONDS = 5.0


@dataclass(frozen=True)
class Ran:
    """How a program ended."""

    code: int | None
    output: bytes
    errors: bytes
    dropped: int
    seconds: float


@dataclass(frozen=True)
class Sandbox:
    """What a command can reach."""

    write: tuple[Path, ...]
    read: tuple[Path, ...] = ()
    network: bool = False

    def wrap(self, command: Sequence[str], folder: Path) -> list[str]:
        """Return the command that runs ``command`` in the sandbox."""
        if os.environ.get(MODE) == "none":
            return [*command]
        read = [str(place) for place in self._readable()]
        write = [str(place) for place in self.write]
        _refuse_secrets([*read, *write])
        match _available():
            case "bubblewrap":
                net = ["--share-net"] if self.network else []
                system = [part for place in read for part in ("--ro-bind-try", place, place)]
                own = ["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"]  # noqa: S108 - one of its own
                bind = [*(part for place in write for part in ("--bind", place, place)), "--chdir", str(folder)]
                options = ["--unshare-all", *net, "--die-with-parent", "--new-session", "--cap-drop", "ALL", *own]
                return ["bwrap", *options, *system, *bind, "--", *command]
            case "landlock":
                spec = json.dumps({"read": read, "write": write, "network": self.network})
                return [sys.executable, "-I", "-S", _CONFINE, spec, *command]
            case why:
                raise DeliveryError(
                    f"no sandbox works for the change under test on this worker ({why}): install bubblewrap, or "
                    f"run the worker where nothing is worth protecting and set {MODE}=none"
                )

    def _readable(self) -> Iterable[Path]:
        named = [Path(place) for place in os.environ.get(READABLE, "").split(os.pathsep) if place]
        interpreters = [Path(sys.prefix), Path(sys.base_prefix)]
        for place in self.read:  # a virtual environment leads to the interpreter that it was made with
            python = (place / "bin" / "python").resolve()
            interpreters += [python.parents[1]] if python.is_file() and len(python.parents) > 2 else []
        system = [*(Path(place) for place in _SYSTEM), *(Path("/etc", name) for name in _SYSTEM_ETC)]
        places = [*system, *interpreters, *self.read, *named]
        return dict.fromkeys(place for one in places for place in (one, one.resolve()) if place.exists())


def environment_for(names: Sequence[str] = (), further: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment of a program: what programs need and what is asked for by name."""
    for name in names:
        if name.upper().startswith(("BATON_", "TEMPORAL_")):
            raise DeliveryError(f"the parameter 'environment' names {name!r}, which can hold a key of the worker")
    passed = {name: os.environ[name] for name in (*_VARIABLES, *names) if name in os.environ}
    return {**passed, **(further or {})}


async def run_program(
    command: Sequence[str],
    *,
    folder: Path,
    seconds: float,
    environment: Mapping[str, str],
    stdin: bytes = b"",
    most_bytes: int = 4_000_000,
    together: bool = False,
) -> Ran:
    """Run a program to its end, or until its time is over; whatever it started in its session ends with it."""
    began = time.monotonic()
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            cwd=folder,
            env=dict(environment),
            stdin=asyncio.subprocess.PIPE if stdin else asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT if together else asyncio.subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as error:
        raise DeliveryError(f"the program {command[0]!r} cannot be started ({error.strerror}); install it") from error
    output, errors = _Kept(most_bytes), _Kept(most_bytes)
    work = asyncio.gather(
        _feed(process.stdin, stdin), output.read(process.stdout), errors.read(process.stderr), process.wait()
    )
    try:
        await asyncio.wait_for(asyncio.shield(work), seconds)
        code = process.returncode
    except TimeoutError:
        code = None
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):  # nothing of it is left
            os.killpg(process.pid, signal.SIGKILL)
        # Its output ends when everything that could write has ended, unless it left the session unconfined.
        await asyncio.wait([work], timeout=_LAST_OUTPUT_SECONDS)
        work.cancel()
    dropped = output.dropped + errors.dropped
    return Ran(code, output.result(), errors.result(), dropped, time.monotonic() - began)


def remove_folder(folder: Path) -> None:
    """Remove a folder if it exists, also where programs left folders in it without write permission."""
    shutil.rmtree(folder, ignore_errors=True)
    if folder.exists():
        for place, names, _ in os.walk(folder):
            for inner in (Path(place, name) for name in names):
                if not inner.is_symlink():
                    with contextlib.suppress(OSError):
                        inner.chmod(0o700)
        shutil.rmtree(folder, ignore_errors=True)


@cache
def _available() -> str:
    """Return which sandbox works here, or why none does."""
    if shutil.which("bwrap"):
        trial = ["bwrap", "--unshare-all", "--ro-bind", "/", "/", "--proc", "/proc", "true"]
        if subprocess.run(trial, capture_output=True, check=False, timeout=30).returncode == 0:
            return "bubblewrap"
    if sys.platform != "linux":
        return "it is not Linux"
    spec = json.dumps({"read": _SYSTEM, "write": [], "network": False})
    trial = [sys.executable, "-I", "-S", _CONFINE, spec, "true"]
    ran = subprocess.run(trial, capture_output=True, check=False, timeout=30, cwd="/usr")
    return "landlock" if ran.returncode == 0 else ran.stderr.decode("utf-8", "replace").strip()[:300]


def _refuse_secrets(places: Sequence[str]) -> None:
    """Refuse a sandbox from which the worker's secrets could be read."""
    named = {name: os.environ.get(name, "").removeprefix("sqlite:///").removeprefix("file://") for name in _SECRETS}
    secrets = {name: Path(value) for name, value in named.items() if value and "://" not in value}
    secrets[".baton"] = Path(".baton")  # where keys, ledger and vault are unless said otherwise
    for name, secret in secrets.items():
        place = secret.resolve()
        if secret.exists() and (
            open_to := next((it for it in places if place.is_relative_to(Path(it).resolve())), None)
        ):
            raise DeliveryError(f"{name} is in {open_to!r}, where the change under test could read it; move it")


@dataclass
class _Kept:
    """The end of a stream, within a limit of bytes."""

    most: int
    kept: bytearray = field(default_factory=bytearray)
    dropped: int = 0

    async def read(self, stream: asyncio.StreamReader | None) -> None:
        while stream is not None and (block := await stream.read(_BLOCK)):
            self.kept += block
            over = max(len(self.kept) - self.most, 0)
            del self.kept[:over]
            self.dropped += over

    def result(self) -> bytes:
        """Return what was kept, after a line that says how much was left out."""
        return (f"[{self.dropped:,} bytes left out]\n".encode() if self.dropped else b"") + bytes(self.kept)


async def _feed(stream: asyncio.StreamWriter | None, content: bytes) -> None:
    """Write standard input; a program need not read all of it."""
    if stream is not None:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            stream.write(content)
            await stream.drain()
        stream.close()
