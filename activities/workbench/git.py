"""Git, made careful: a checkout's own hooks, monitors and helpers must not start, and nothing asks for a password.

The user's configuration is out of sight, so that the answer does not depend on whose worker asks.
"""

import os
from collections.abc import Sequence
from pathlib import Path

from activities.workbench.programs import Ran, environment_for, run_program
from baton.errors import BatonError

_SECONDS = 120.0
_MOST_BYTES = 64_000_000
_SAFE = {
    "core.fsmonitor": "false",
    "core.hooksPath": os.devnull,
    "core.sparseCheckout": "false",
    "core.pager": "cat",
    "core.quotePath": "false",
    "commit.gpgSign": "false",
    "tag.gpgSign": "false",
    "gc.auto": "0",
    "advice.detachedHead": "false",
    "protocol.ext.allow": "never",
}
_ENVIRONMENT = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_ALLOW_PROTOCOL": "",  # older gits know only this; a fetch would start the program that the checkout names
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ASKPASS": "true",
    "LC_ALL": "C",
}


class GitError(BatonError):
    """Git refuses; the message has what it said."""


class Git:
    """Git in one folder.

    Attributes:
        folder: The folder: a checkout, or one of its worktrees.
    """

    def __init__(self, folder: Path, *, is_top: bool = False) -> None:
        """Take the folder.

        Args:
            folder: The folder.
            is_top: Whether no repository around it is meant, should it have none of its own any more.
        """
        self.folder = folder
        self._further = {**_ENVIRONMENT, **({"GIT_CEILING_DIRECTORIES": str(folder.parent)} if is_top else {})}

    async def ask(self, *arguments: str, given: bytes = b"") -> Ran:
        """Run git and return how it ended, whatever its exit code.

        Raises:
            GitError: It took longer than two minutes, or said more than 64 MB.
            ProgramError: There is no git.
        """
        # A worktree and its checkout may belong to another user than the worker; the caller named the folder.
        settings = [part for name, value in _SAFE.items() for part in ("-c", f"{name}={value}")]
        command = ["git", *settings, "-c", "safe.directory=*", *arguments]
        environment = environment_for(further=self._further)
        ran = await run_program(
            command,
            folder=self.folder,
            seconds=_SECONDS,
            environment=environment,
            given=given,
            most_bytes=_MOST_BYTES,
            bound=False,
        )
        if ran.code is None or ran.dropped:
            what = f"took longer than {_SECONDS:g} s" if ran.code is None else f"said more than {_MOST_BYTES:,} bytes"
            raise GitError(f"git {arguments[0]} {what} in {str(self.folder)!r}; try a smaller repository or change")
        return ran

    async def run(self, *arguments: str, given: bytes = b"") -> bytes:
        """Run git and return its output.

        Raises:
            GitError: It took too long, or ended with another exit code than 0.
        """
        ran = await self.ask(*arguments, given=given)
        if ran.code != 0:
            raise GitError(f"git {arguments[0]} fails in {str(self.folder)!r}: {said(ran)}")
        return ran.output

    async def line(self, *arguments: str) -> str:
        """Run git and return its one line of output.

        Raises:
            GitError: It took too long, or ended with another exit code than 0.
        """
        return (await self.run(*arguments)).decode("utf-8", "replace").strip()

    async def commit_of(self, name: str) -> str | None:
        """Return the full id of the commit that a name stands for, or None where it stands for none."""
        ran = await self.ask("rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")
        return ran.output.decode().strip() if ran.code == 0 else None


def paths_of(output: bytes) -> Sequence[str]:
    r"""Return the paths of an output that git separates by NUL (`-z`); bytes that are no UTF-8 are shown escaped.

    Example:
        >>> paths_of(b"a.py\0src/b.py\0")
        ['a.py', 'src/b.py']
    """
    return [raw.decode("utf-8", "backslashreplace") for raw in output.split(b"\0") if raw]


def said(ran: Ran) -> str:
    """Return the most telling line of what git said."""
    lines = [line.strip() for line in ran.errors.decode("utf-8", "replace").splitlines() if line.strip()]
    telling = [line for line in lines if line.startswith(("error:", "fatal:"))] or lines
    return "; ".join(telling[:3])[:500] or f"exit code {ran.code}"
