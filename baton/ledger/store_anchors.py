"""An anchor file: heads and checkpoints kept apart from the ledger, so that no one can wind both back unseen.

Put it where the ledger's database cannot write: another machine, another owner, a disk that only appends. It
follows the rule of a transparency log's witness: a new checkpoint is taken only with the proof that the ledger
only grew since the last one, and it is on the disk before it counts as taken.
"""

import contextlib
import json
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from baton.ledger.chain import ChainHead
from baton.ledger.errors import LedgerError, LedgerUnavailableError
from baton.ledger.merkle import verify_consistency
from baton.ledger.proof import Checkpoint
from baton.wire.canonical import hash_of

if sys.platform != "win32":
    import fcntl


class AnchorFile:
    """A file of heads and checkpoints, a line of JSON each, that only grows."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def heads(self) -> list[ChainHead]:
        """Return every head, the oldest first."""
        return [ChainHead.model_validate(line["head"]) for line in self._lines() if "head" in line]

    def checkpoints(self) -> list[Checkpoint]:
        """Return every checkpoint, the oldest first."""
        return [Checkpoint.model_validate(line["checkpoint"]) for line in self._lines() if "checkpoint" in line]

    def add_heads(self, heads: Sequence[ChainHead]) -> None:
        """Add heads; they are on the disk when this returns."""
        with self._opened() as file:
            self._append(file, [{"head": head.model_dump(mode="json", exclude_none=True)} for head in heads])

    def add_checkpoint(self, checkpoint: Checkpoint, proof: Sequence[bytes] = ()) -> None:
        """Add a checkpoint, if the ledger only grew since the last one; it is on the disk when this returns."""
        with self._opened() as file:
            known = self.checkpoints()
            if known and not _continues(known[-1], checkpoint, proof):
                raise LedgerError(
                    f"the checkpoint of {checkpoint.ledger!r} at {checkpoint.size} records does not continue the one "
                    f"at {known[-1].size} in {str(self.path)!r}: records that were there are gone or others"
                )
            if not known or known[-1].size != checkpoint.size:
                self._append(file, [{"checkpoint": checkpoint.model_dump(mode="json", exclude_none=True)}])

    @property
    def torn(self) -> bool:
        """Whether the last line broke off: a writer died before it was told anything. The next one removes it."""
        return bool(self._read()[1])

    def _lines(self) -> list[dict[str, Any]]:
        whole, _ = self._read()
        found = []
        for number, line in enumerate(whole.splitlines(), 1):
            members = _parsed(line)
            if members is None:
                raise LedgerError(f"line {number} of {str(self.path)!r} is not an anchor; the file was changed")
            found.append(members)
        return found

    def _read(self) -> tuple[bytes, bytes]:
        """Return the whole lines, and what is left of a torn one; a last line that lacks its break only is whole."""
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            return b"", b""
        except OSError as error:
            raise self._unusable(error) from error
        whole, torn = data[: data.rfind(b"\n") + 1], data[data.rfind(b"\n") + 1 :]
        return (whole, torn) if _parsed(torn) is None else (data + b"\n", b"")

    @contextlib.contextmanager
    def _opened(self) -> Iterator[IO[bytes]]:
        """Open the file for this process alone, with the line that an earlier writer left torn removed."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with open(self.path, "a+b", buffering=0) as file:
                if sys.platform != "win32":
                    fcntl.flock(file, fcntl.LOCK_EX)
                whole, _ = self._read()
                size = file.seek(0, os.SEEK_END)
                if size >= len(whole):
                    file.truncate(len(whole))
                else:
                    file.write(b"\n")
                yield file
        except OSError as error:
            raise self._unusable(error) from error

    def _append(self, file: IO[bytes], lines: Sequence[dict[str, Any]]) -> None:
        data = b"".join(json.dumps(line, separators=(",", ":")).encode() + b"\n" for line in lines)
        start = file.seek(0, os.SEEK_END)
        try:
            while data:
                data = data[file.write(data) or 0 :]
            os.fsync(file.fileno())
        except OSError:
            with contextlib.suppress(OSError):
                file.truncate(start)
            raise

    def _unusable(self, error: OSError) -> LedgerUnavailableError:
        return LedgerUnavailableError(f"cannot use the anchor file {str(self.path)!r}: {error.strerror or error}")


def _parsed(line: bytes) -> dict[str, Any] | None:
    """Return the members of a line that is an anchor, or None."""
    try:
        members = json.loads(line)
        if "head" in members:
            ChainHead.model_validate(members["head"])
        else:
            Checkpoint.model_validate(members["checkpoint"])
    except (ValueError, TypeError, KeyError):
        return None
    return dict(members)


def _continues(old: Checkpoint, new: Checkpoint, proof: Sequence[bytes]) -> bool:
    if old.ledger != new.ledger:
        return False
    return verify_consistency(old.size, hash_of(old.root), new.size, hash_of(new.root), proof)
