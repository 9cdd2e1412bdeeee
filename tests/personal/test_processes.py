"""Several processes on one vault, and processes that die in the middle of an erasure."""

import json
import signal
from collections import Counter
from pathlib import Path

import pytest

from baton.keys.store_keyring import Keyring
from baton.ledger.store import Ledger, LedgerOptions
from baton.personal.records import SEALED_ONLY, Erased
from baton.personal.store import Vault, VaultOptions
from tests.personal.material import MARKER, SUBJECT, TASK, everything_in
from tests.support.processes import started


class TestCrash:
    @pytest.mark.parametrize(
        ("how", "owed"),
        [
            pytest.param("die", False, id="between the destruction of the keys and the ledger"),
            pytest.param("tear", True, id="between the erasure list and the commit"),
        ],
    )
    async def test_erasing_again_completes_it(self, tmp_path: Path, how: str, owed: bool) -> None:
        """The keys stay destroyed, and each task gets exactly one record (C-24, S3-12.3-a)."""
        keyring = Keyring.development(tmp_path)
        async with Vault(tmp_path / "vault.db", keyring) as vault:
            payload = await vault.seal(SUBJECT, TASK, {"email": MARKER})
            wrapped = await vault._file.read(
                lambda connection: connection.execute("SELECT bytes FROM wrapped_key").fetchone()[0]
            )

        dead = started("tests.personal.eraser", str(tmp_path), how, SUBJECT)
        dead.communicate()
        assert dead.returncode == -signal.SIGKILL
        assert (wrapped in everything_in(tmp_path)) is owed

        async with (
            Ledger(tmp_path / "ledger.db", LedgerOptions(signer=keyring.signer(), policy=SEALED_ONLY)) as ledger,
            Vault(tmp_path / "vault.db", keyring, VaultOptions(ledger=ledger)) as vault,
        ):
            assert [type(value) for value in (await vault.open(payload, TASK)).values()] == [Erased]
            assert wrapped not in everything_in(tmp_path)
            report = await vault.erase(SUBJECT, "another request")

            assert (report.repeated, report.request_id, report.task_ids) == (True, "request-of-the-dead", (TASK,))
            assert len((await ledger.trace(TASK, verifier=keyring.public())).records) == 1
            assert (await vault.erase(SUBJECT, "a third one")).task_ids == ()


class TestSeveralProcesses:
    async def test_an_erasure_applies_to_other_processes(self, tmp_path: Path) -> None:
        """(e) What the other process sealed is unreadable, and it can seal nothing more (C-24)."""
        async with Vault(tmp_path / "vault.db", Keyring.development(tmp_path)) as vault:
            other = started("tests.personal.eraser", str(tmp_path), "seal", SUBJECT, "100000")
            assert other.stdout is not None
            first = json.loads(other.stdout.readline())
            assert list((await vault.open(first, TASK)).values()) == [{"at": 0}]

            assert (await vault.erase(SUBJECT, "r-1")).removed["keys"] == 1
            rest, _ = other.communicate()

            *payloads, last = rest.splitlines()
            assert (other.returncode, last) == (0, "refused")
            for payload in (first, *map(json.loads, payloads)):
                assert [type(value) for value in (await vault.open(payload, TASK)).values()] == [Erased]

    async def test_processes_that_start_together_create_one_key(self, tmp_path: Path) -> None:
        """A new subject of two processes is one subject, and every use is counted (C-24)."""
        keyring = Keyring.development(tmp_path)
        processes = [started("tests.personal.eraser", str(tmp_path), "seal", SUBJECT, "20") for _ in range(3)]
        lines = [line for one in processes for line in one.communicate()[0].splitlines()]

        assert [process.returncode for process in processes] == [0, 0, 0]
        async with Vault(tmp_path / "vault.db", keyring) as vault:
            rows = await vault._file.read(
                lambda connection: list(connection.execute("SELECT generation, used FROM data_key"))
            )
            assert rows == [(1, 60)]
            opened = [list((await vault.open(json.loads(line), TASK)).values()) for line in lines]
            assert Counter(str(one) for (one,) in opened) == Counter({str({"at": at}): 3 for at in range(20)})
