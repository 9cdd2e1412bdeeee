"""The checks of `baton doctor` that need no server."""

import re
import resource
import signal
from pathlib import Path
from typing import Any

import pytest
from temporalio.service import RPCError, RPCStatusCode

from baton.artifacts.store import open_store
from baton.cli.doctor import Finding, Mark, _await_finding, check_protection, check_settings, check_store


class TestTrust:
    @pytest.mark.parametrize(
        ("settings", "mark"),
        [
            pytest.param({"target_host": "localhost:7233"}, Mark.OK, id="this machine by name"),
            pytest.param({"target_host": "[::1]:7233"}, Mark.OK, id="this machine by its IPv6 address"),
            pytest.param({"target_host": "10.0.0.5:7233"}, Mark.WARN, id="another machine"),
            pytest.param({"target_host": "temporal.example.com:7233", "tls": True}, Mark.OK, id="TLS"),
            pytest.param({"target_host": "temporal.example.com:7233", "api_key": "k"}, Mark.OK, id="an API key"),
        ],
    )
    def test_an_open_way_to_another_machine_is_warned_of(self, settings: dict[str, Any], mark: Mark) -> None:
        """Without TLS whoever is on the way reads batons and decides."""
        assert check_protection(settings).mark is mark


class TestSettings:
    def test_a_variable_that_nothing_reads_is_named_with_what_it_resembles(self) -> None:
        """It was ignored without a word, and the default was used."""
        found = check_settings(["BATON_LEDGR", "BATON_KEY_SEAL", "BATON_ZZZ", "BATON_USER", "LEDGR"])

        assert found.mark is Mark.WARN
        assert "BATON_LEDGR is unknown (did you mean BATON_LEDGER?)" in found.found
        assert "BATON_KEY_SEAL is unknown (did you mean BATON_KEYS?)" in found.found
        assert found.found.endswith("BATON_ZZZ is unknown")

    def test_each_variable_that_is_read_somewhere_is_known(self) -> None:
        """Here, in the compose file, and by the shipped pipelines."""
        root = Path(__file__).parents[2]
        folders = ("baton", "workflows", "activities", "deploy")
        files = [root / "docker-compose.yml", *(file for one in folders for file in (root / one).rglob("*.py"))]
        read = {name for file in files for name in re.findall(r"\bBATON_[A-Z_]*[A-Z]", file.read_text("utf-8"))}

        assert "BATON_LEDGER" in read
        assert check_settings(read).mark is Mark.OK, check_settings(read).found


class TestStore:
    async def test_a_folder_that_can_be_written_is_fine(self, tmp_path: Path) -> None:
        """It is written to, because only that proves it."""
        assert (await check_store(str(tmp_path / "artifacts"), open_store)).mark is Mark.OK

    @pytest.mark.parametrize(
        ("where", "mark"),
        [
            pytest.param("memory:", Mark.WARN, id="memory"),
            pytest.param("{file}/artifacts", Mark.FAIL, id="below a file"),
            pytest.param("nosuch://bucket", Mark.FAIL, id="a URL of no store"),
        ],
    )
    async def test_one_that_keeps_nothing_is_named_with_a_remedy(self, tmp_path: Path, where: str, mark: Mark) -> None:
        """What to do about it stands beside it."""
        file = tmp_path / "file"
        file.touch()

        found = await check_store(where.format(file=file), open_store)

        assert found.mark is mark
        assert found.remedy

    async def test_one_without_room_fails(self, tmp_path: Path) -> None:
        """It is written to each time: what an earlier check put there proves nothing."""
        where = str(tmp_path / "artifacts")
        assert (await check_store(where, open_store)).mark is Mark.OK
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))  # as a disk that is full
        try:
            full = await check_store(where, open_store)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
            signal.signal(signal.SIGXFSZ, ignored)
        assert (full.mark, bool(full.remedy)) == (Mark.FAIL, True)


class TestTheServersAnswers:
    @pytest.mark.parametrize(
        ("status", "words"),
        [
            pytest.param(RPCStatusCode.PERMISSION_DENIED, "your permissions", id="it does not let us in"),
            pytest.param(RPCStatusCode.NOT_FOUND, "the namespace's name", id="it has no such namespace"),
            pytest.param(RPCStatusCode.UNAVAILABLE, "the server's log", id="it cannot, as with a full disk"),
            pytest.param(RPCStatusCode.UNKNOWN, "the server's log", id="it does not know why itself"),
        ],
    )
    async def test_the_remedy_is_for_what_it_says(self, status: RPCStatusCode, words: str) -> None:
        """Whose disk is full is not sent to look for rights."""

        async def asking() -> Finding:
            raise RPCError("shard status unknown", status, b"")

        found = await _await_finding("runs", asking())

        assert (found.mark, found.found) == (Mark.FAIL, "shard status unknown")
        assert words in (found.remedy or "")
