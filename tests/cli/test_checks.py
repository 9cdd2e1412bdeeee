"""The checks of `baton doctor` that need no server."""

import re
import resource
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
from temporalio.service import RPCError, RPCStatusCode

from baton import open_store
from baton.cli.doctor import check_protection, check_settings
from baton.cli.storage_checks import check_store
from baton.client.faces import CheckMark as Mark
from baton.client.faces import CheckResult, run_check


class TestProtection:
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
    def test_an_unprotected_connection_to_another_machine_is_a_warning(
        self, settings: dict[str, Any], mark: Mark
    ) -> None:
        """Without TLS anyone on the network reads batons and decides."""
        assert check_protection(settings).mark is mark


class TestSettings:
    def test_an_unknown_variable_is_named_with_a_similar_one(self) -> None:
        """A typo would otherwise select the default silently."""
        finding = check_settings(["BATON_LEDGR", "BATON_KEY_SEAL", "BATON_ZZZ", "BATON_USER", "LEDGR"])

        assert finding.mark is Mark.WARN
        assert "BATON_LEDGR is unknown (did you mean BATON_LEDGER?)" in finding.found
        assert "BATON_KEY_SEAL is unknown (did you mean BATON_KEYS?)" in finding.found
        assert finding.found.endswith("BATON_ZZZ is unknown")

    def test_each_variable_that_is_read_somewhere_is_known(self) -> None:
        """Here, in the compose file, and by the shipped pipelines."""
        root = Path(__file__).parents[2]
        folders = ("baton", "workflows", "activities", "deploy")
        files = [root / "docker-compose.yml", *(file for one in folders for file in (root / one).rglob("*.py"))]
        read = {name for file in files for name in re.findall(r"\bBATON_[A-Z_]*[A-Z]", file.read_text("utf-8"))}

        assert "BATON_LEDGER" in read
        assert check_settings(read).mark is Mark.OK, check_settings(read).found


class TestStore:
    async def test_a_writable_folder_is_ok(self, tmp_path: Path) -> None:
        """It is checked by writing to it."""
        assert (await check_store(str(tmp_path / "artifacts"), open_store)).mark is Mark.OK

    @pytest.mark.parametrize(
        ("where", "mark"),
        [
            pytest.param("memory:", Mark.WARN, id="memory"),
            pytest.param("{file}/artifacts", Mark.FAIL, id="below a file"),
            pytest.param("nosuch://bucket", Mark.FAIL, id="a URL of no store"),
        ],
    )
    async def test_an_unusable_store_is_named_with_a_remedy(self, tmp_path: Path, where: str, mark: Mark) -> None:
        """The finding says what to do."""
        file = tmp_path / "file"
        file.touch()

        finding = await check_store(where.format(file=file), open_store)

        assert finding.mark is mark
        assert finding.remedy

    async def test_a_folder_that_is_gone_is_not_made_again(self, tmp_path: Path) -> None:
        """The check itself would hide it."""
        folder = tmp_path / "artifacts"
        assert (await check_store(str(folder), open_store)).mark is Mark.OK
        shutil.rmtree(folder)
        gone = await check_store(str(folder), open_store)

        assert (gone.mark, "is gone" in gone.found, folder.exists()) == (Mark.FAIL, True, False)

    async def test_a_full_disk_fails(self, tmp_path: Path) -> None:
        """Each check writes new bytes, since old ones prove nothing."""
        where = str(tmp_path / "artifacts")
        assert (await check_store(where, open_store)).mark is Mark.OK
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))  # as a disk that is full
        try:
            finding = await check_store(where, open_store)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
            signal.signal(signal.SIGXFSZ, handler)
        assert (finding.mark, bool(finding.remedy)) == (Mark.FAIL, True)


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
    async def test_the_remedy_fits_the_servers_error(self, status: RPCStatusCode, words: str) -> None:
        """A full disk of the server is not reported as missing permissions."""

        async def asking() -> CheckResult:
            raise RPCError("shard status unknown", status, b"")

        finding = await run_check("runs", asking())

        assert (finding.mark, finding.found) == (Mark.FAIL, "shard status unknown")
        assert words in (finding.remedy or "")
