"""A Postgres server in a folder, for measurements and tests: that of the machine's packages, if it has one."""

import os
import pwd
import shutil
import signal
import subprocess
from pathlib import Path
from urllib.parse import quote


class Server:
    """A Postgres server in a folder, reached through a socket there.

    Args:
        folder: The folder.
        programs: Where `initdb` and `pg_ctl` are; they refuse to run as root, and then run as nobody.
    """

    def __init__(self, folder: Path, programs: Path) -> None:
        self.folder, self.programs = folder, programs
        self._nobody = pwd.getpwnam("nobody") if os.geteuid() == 0 else None
        if self._nobody is not None:
            os.chown(folder, self._nobody.pw_uid, self._nobody.pw_gid)

    def make(self) -> None:
        """Make an empty cluster."""
        self._run("initdb", "--auth=trust", "--username=postgres", "--encoding=UTF8", "--no-sync", "-D", self.data)

    def start(self, *settings: str) -> None:
        """Start the server, with settings such as `max_wal_size=4GB`."""
        given = "".join(f" -c {setting}" for setting in ("shared_buffers=32MB", *settings))
        options = f"-k {self.folder} -c listen_addresses=''{given}"
        self._run("pg_ctl", "start", "-w", "-D", self.data, "-l", str(self.folder / "log"), "-o", options)

    def stop(self, mode: str = "fast") -> None:
        """Stop the server: `fast` cleanly, `immediate` like a crash."""
        self._run("pg_ctl", "stop", "-w", "-m", mode, "-D", self.data)

    def kill(self) -> None:
        """Kill the main process, as the kernel does when memory is short; those of the connections then end."""
        os.kill(self.process_id, signal.SIGKILL)
        # Where nobody waits for orphans, as in some containers, the dead process still has its number, and the next
        # one would take it for alive. (It also looks whether the memory of the old one is in use.)
        (self.folder / "data" / "postmaster.pid").unlink()

    def output(self, program: str, *arguments: str) -> str:
        """Run a client program and return what it prints."""
        return subprocess.run(
            [self.programs / program, *arguments], check=True, capture_output=True, text=True, encoding="utf-8"
        ).stdout

    @property
    def process_id(self) -> int:
        """The server's main process, whose children serve the connections."""
        return int((self.folder / "data" / "postmaster.pid").read_text(encoding="utf-8").split()[0])

    @property
    def data(self) -> str:
        """The folder of the cluster."""
        return str(self.folder / "data")

    def url(self, database: str, role: str = "postgres") -> str:
        """Return the address of a database for a role."""
        return f"postgresql://{role}@/{database}?host={quote(str(self.folder))}"

    def _run(self, program: str, *arguments: str) -> None:
        result = subprocess.run(
            [str(self.programs / program), *arguments],
            check=False,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,  # a pipe would be inherited by the server, and never end
            stderr=subprocess.PIPE if program == "initdb" else subprocess.DEVNULL,
            cwd=self.folder,
            user=self._nobody and self._nobody.pw_uid,
            group=self._nobody and self._nobody.pw_gid,
            extra_groups=self._nobody and [],
        )
        assert result.returncode == 0, f"{program}: {(result.stderr or b'').decode()}"


def programs() -> Path | None:
    """Return the folder of the newest Postgres programs, or None without any."""
    packaged = [folder for folder in Path("/usr/lib/postgresql").glob("*/bin") if (folder / "pg_ctl").exists()]
    if packaged:
        return max(packaged, key=lambda folder: int(folder.parent.name))
    on_path = shutil.which("pg_ctl")
    return Path(on_path).parent if on_path else None
