"""A process that works on a vault: what tests start, crowd and kill.

python -m tests.personal.eraser FOLDER seal SUBJECT NUMBER     seals NUMBER times, and prints each payload
python -m tests.personal.eraser FOLDER die SUBJECT             erases, and is killed before the ledger has it
python -m tests.personal.eraser FOLDER tear SUBJECT            is killed after the list has it, before the commit
"""

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from baton.keys.claims import HeadVerifier
from baton.keys.store_keyring import Keyring
from baton.ledger.entries import Trace
from baton.ledger.records import AuditEntry
from baton.personal.records import SubjectErasedError
from baton.personal.store import Vault, VaultOptions
from tests.personal.material import TASK


class Deadly:
    """A ledger whose process dies when it is asked for anything."""

    async def append_all(self, entries: list[AuditEntry]) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    async def erased_tasks(self) -> list[str]:
        return []

    async def trace(self, task_id: str, *, verifier: HeadVerifier) -> Trace:
        raise NotImplementedError


async def main(folder: Path, what: str, subject: str, number: int) -> None:
    async with Vault(folder / "vault.db", Keyring.development(folder), VaultOptions(ledger=Deadly())) as vault:
        if what == "seal":
            for at in range(number):
                try:
                    payload = await vault.seal(subject, TASK, {"at": at})
                except SubjectErasedError:
                    print("refused", flush=True)
                    return
                print(json.dumps(payload), flush=True)
        if what == "die":
            await vault.erase(subject, "request-of-the-dead")
        if what == "tear":
            append = vault._list.append

            def tear(notices: Any) -> None:
                append(notices)
                os.kill(os.getpid(), signal.SIGKILL)

            vault._list.append = tear  # type: ignore[method-assign]
            await vault.erase(subject, "request-of-the-dead")


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2], sys.argv[3], int((sys.argv[4:] or ["0"])[0])))
    sys.stdout.flush()
    os._exit(0)
