"""The commands of docs/operations.md that restore a backup, typed as they stand there."""

import os
import re
import shutil
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path

MANUAL = (Path(__file__).parents[2] / "docs" / "operations.md").read_text(encoding="utf-8")
STEPS = MANUAL.split("To restore, on this machine or another:\n\n```sh\n")[1].split("```")[0]


def record(ledger: Path, text: str) -> sqlite3.Connection:
    """Open a ledger as a worker does, write into it, and return the connection, still open."""
    connection = sqlite3.connect(ledger)
    connection.execute("pragma journal_mode = wal")
    connection.execute("create table if not exists records (text)")
    connection.executemany("insert into records values (?)", [(text * 500,)] * 200)
    connection.commit()
    return connection


def records(ledger: Path) -> set[str]:
    """Return the first character of what is on record, after a check of the whole file."""
    with closing(sqlite3.connect(ledger)) as connection:
        assert connection.execute("pragma integrity_check").fetchall() == [("ok",)]
        return {text[0] for (text,) in connection.execute("select text from records")}


class TestRestore:
    """The volume with artifacts, ledger and vault."""

    def test_a_ledger_replaces_that_of_a_killed_worker_and_the_list_of_erasures_stays(self, tmp_path: Path) -> None:
        """A `-wal` file left behind neither breaks the restored ledger nor adds to it, and no erasure is undone."""
        (script,) = re.findall(r"--entrypoint sh worker -euc '(.+?)' <artifacts\.tar", STEPS, re.DOTALL)
        worked, volume = tmp_path / "worked", tmp_path / "volume"
        worked.mkdir()
        witness = tmp_path / "witness" / "witness.jsonl"
        witness.parent.mkdir()
        witness.write_text("of records that the backup lacks", encoding="utf-8")
        (worked / "vault.db.erasures").write_text("ann\n", encoding="utf-8")
        record(worked / "ledger.db", "a").close()
        backup = subprocess.run(["tar", "--create", "--file=-", "."], cwd=worked, capture_output=True, check=True)
        with (worked / "vault.db.erasures").open("a", encoding="utf-8") as erasures:
            erasures.write("bob\n")
        record(worked / "ledger.db", "b").close()
        with closing(record(worked / "ledger.db", "c")):  # killed now: what is in the `-wal` file stays there
            shutil.copytree(worked, volume)
        assert (volume / "ledger.db-wal").stat().st_size > 0

        subprocess.run(
            ["sh", "-euc", script.replace("/var/lib/baton", str(volume))],
            input=backup.stdout,
            check=True,
            cwd=tmp_path,
            env={**os.environ, "BATON_WITNESS": str(witness)},
        )

        assert records(volume / "ledger.db") == {"a"}
        assert (volume / "vault.db.erasures").read_text(encoding="utf-8") == "ann\nbob\n"
        [kept] = witness.parent.iterdir()
        assert kept.name.startswith("witness.jsonl-"), "it is evidence, and no worker starts beside it"

    def test_it_begins_with_an_image_and_with_nothing_that_writes(self) -> None:
        """Another machine has no image, and only `worker` is built; here, workers would write into what is replaced."""
        assert STEPS.splitlines()[:2] == ["docker compose build", "docker compose stop"]
