"""The sandbox that limits what a program can access.

The change under test is unapproved code, possibly written by a model. It runs in a sandbox that can write to its own
folder and read the system's programs, but cannot access the network or the worker's keys, ledger and vault. Bubblewrap
is used if installed, otherwise Landlock and Linux namespaces. If neither works, nothing runs unless the worker's
operator sets ``BATON_DELIVERY_SANDBOX=none``.
"""

import contextlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from activities.delivery.records import DeliveryError

MODE, READABLE = "BATON_DELIVERY_SANDBOX", "BATON_DELIVERY_READABLE"
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/sys/devices/system/cpu", "/nix/store")
# Not all of /etc: it may hold a worker's keys.
_SYSTEM_ETC = (
    *("alternatives", "ca-certificates", "fonts", "group", "hosts", "java", "ld.so.cache", "ld.so.conf"),
    *("ld.so.conf.d", "localtime", "mime.types", "nsswitch.conf", "passwd", "pki", "protocols", "resolv.conf"),
    *("services", "ssl", "timezone"),
)
_SECRETS = ("BATON_KEYS", "BATON_LEDGER", "BATON_VAULT", "BATON_ARTIFACTS", "TEMPORAL_CONFIG_FILE")
_VARIABLES = ("PATH", "LANG", "LANGUAGE", "LC_ALL", "LC_CTYPE", "TZ", "TERM", "USER", "LOGNAME", "SHELL")
_CONFINE = str(Path(__file__).with_name("confine.py"))


@dataclass(frozen=True)
class Sandbox:
    """The files and network that a command can access."""

    write: tuple[Path, ...]
    read: tuple[Path, ...] = ()
    network: bool = False

    def wrap(self, command: Sequence[str], folder: Path) -> list[str]:
        """Return the command that runs ``command`` in the sandbox."""
        if os.environ.get(MODE) == "none":
            return [*command]
        read = [str(path) for path in self._readable()]
        write = [str(path) for path in self.write]
        _reject_exposed_secrets([*read, *write])
        match _find_sandbox():
            case "bubblewrap":
                net = ["--share-net"] if self.network else []
                system = [part for path in read for part in ("--ro-bind-try", path, path)]
                private = ["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"]  # noqa: S108 - a private one
                bind = [*(part for path in write for part in ("--bind", path, path)), "--chdir", str(folder)]
                options = ["--unshare-all", *net, "--die-with-parent", "--new-session", "--cap-drop", "ALL", *private]
                return ["bwrap", *options, *system, *bind, "--", *command]
            case "landlock":
                spec = json.dumps({"read": read, "write": write, "network": self.network})
                return [sys.executable, "-I", "-S", _CONFINE, spec, *command]
            case reason:
                raise DeliveryError(
                    f"no sandbox is available on this worker for the change under test ({reason}): install bubblewrap, "
                    f"or run an isolated worker with {MODE}=none"
                )

    def _readable(self) -> Iterable[Path]:
        configured = [Path(path) for path in os.environ.get(READABLE, "").split(os.pathsep) if path]
        interpreters = [Path(sys.prefix), Path(sys.base_prefix)]
        for folder in self.read:  # a virtual environment links to its base interpreter
            python = (folder / "bin" / "python").resolve()
            interpreters += [python.parents[1]] if python.is_file() and len(python.parents) > 2 else []
        system = [*(Path(path) for path in _SYSTEM), *(Path("/etc", name) for name in _SYSTEM_ETC)]
        paths = [*system, *interpreters, *self.read, *configured]
        return dict.fromkeys(candidate for path in paths for candidate in (path, path.resolve()) if candidate.exists())


def environment_for(names: Sequence[str] = (), extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return a program's environment: common variables, those in ``names``, and ``extra``."""
    for name in names:
        if name.upper().startswith(("BATON_", "TEMPORAL_")):
            raise DeliveryError(f"the parameter 'environment' names {name!r}, which can hold a key of the worker")
    inherited = {name: os.environ[name] for name in (*_VARIABLES, *names) if name in os.environ}
    return {**inherited, **(extra or {})}


def remove_folder(folder: Path) -> None:
    """Remove a folder if it exists, including subfolders without write permission."""
    shutil.rmtree(folder, ignore_errors=True)
    if folder.exists():
        for parent, names, _ in os.walk(folder):
            for child in (Path(parent, name) for name in names):
                if not child.is_symlink():
                    with contextlib.suppress(OSError):
                        child.chmod(0o700)
        shutil.rmtree(folder, ignore_errors=True)


@cache
def _find_sandbox() -> str:
    if shutil.which("bwrap"):
        trial_command = ["bwrap", "--unshare-all", "--ro-bind", "/", "/", "--proc", "/proc", "true"]
        if subprocess.run(trial_command, capture_output=True, check=False, timeout=30).returncode == 0:
            return "bubblewrap"
    if sys.platform != "linux":
        return "it is not Linux"
    spec = json.dumps({"read": _SYSTEM, "write": [], "network": False})
    trial_command = [sys.executable, "-I", "-S", _CONFINE, spec, "true"]
    result = subprocess.run(trial_command, capture_output=True, check=False, timeout=30, cwd="/usr")
    return "landlock" if result.returncode == 0 else result.stderr.decode("utf-8", "replace").strip()[:300]


def _reject_exposed_secrets(paths: Sequence[str]) -> None:
    """Raise `DeliveryError` if the sandbox could read the worker's secrets."""
    settings = {name: os.environ.get(name, "").removeprefix("sqlite:///").removeprefix("file://") for name in _SECRETS}
    secrets = {name: Path(value) for name, value in settings.items() if value and "://" not in value}
    secrets[".baton"] = Path(".baton")  # the default folder of keys, ledger and vault
    for name, secret in secrets.items():
        secret_path = secret.resolve()
        if secret.exists() and (
            exposing_path := next((path for path in paths if secret_path.is_relative_to(Path(path).resolve())), None)
        ):
            raise DeliveryError(f"{name} is in {exposing_path!r}, where the change under test could read it; move it")
