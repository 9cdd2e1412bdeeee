"""The embedded server: it serves, keeps its state, fails with clear errors and is never left behind."""

import asyncio
import json
import mmap
import os
import signal
import sqlite3
import stat
import sys
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import HistoryEventFilterType
from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest, GetWorkflowExecutionHistoryRequest
from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.common import SearchAttributeKey, SearchAttributePair, TypedSearchAttributes

from baton.devserver import TUNED, DevServer, DevServerOptions
from baton.devserver.processes import find_temporal
from baton.errors import ServerError
from baton.wire.names import ATTRIBUTE_STAGE, SEARCH_ATTRIBUTES

STAGE = SearchAttributeKey.for_keyword(ATTRIBUTE_STAGE)

# A program that starts a server on the given file, says where, and then waits to be interrupted or killed.
PROGRAM = """\
import asyncio, os, sys
from pathlib import Path
from baton.devserver import DevServer, DevServerOptions

async def main():
    async with DevServer(DevServerOptions(database=Path(sys.argv[1]), ui_port=None)) as server:
        print(server.process.pid, flush=True)
        await asyncio.Event().wait()

try:
    asyncio.run(main())
except KeyboardInterrupt:
    os._exit(3)
"""


@pytest.fixture(scope="module")
async def full_server() -> AsyncIterator[DevServer]:
    """A server in memory with a namespace and a codec endpoint."""
    options = DevServerOptions(namespace="release", codec_endpoint="http://127.0.0.1:9/codec")
    async with DevServer(options) as server:
        yield server


async def _wait_for_end(process_id: int) -> None:
    """Wait until the process has ended, whoever its parent is: its pidfd becomes readable."""
    try:
        descriptor = os.pidfd_open(process_id)
    except ProcessLookupError:
        return
    loop = asyncio.get_running_loop()
    future = loop.create_future()
    loop.add_reader(descriptor, future.set_result, None)
    try:
        await asyncio.wait_for(future, 180)
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)


def _get(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=120) as response:
        body: bytes = response.read()
        return body


class TestDevServer:
    async def test_it_serves_as_soon_as_it_is_started(self, full_server: DevServer) -> None:
        """The first call of a client succeeds: namespace and search attributes exist."""
        client = await Client.connect(full_server.address, namespace="release")
        handle = await client.start_workflow(
            "Delivery",
            id="first",
            task_queue="nobody",
            search_attributes=TypedSearchAttributes(
                [
                    SearchAttributePair(SearchAttributeKey.for_keyword(name), "plan")
                    for name, kind in SEARCH_ATTRIBUTES.items()
                    if kind == "Keyword"
                ]
            ),
        )
        assert (await handle.describe()).typed_search_attributes[STAGE] == "plan"

    async def test_a_long_poll_ends_within_seconds(self, full_server: DevServer) -> None:
        """A busy server may miss the notification of an end; by default clients then wait 20 seconds."""
        client = await Client.connect(full_server.address, namespace="release")
        handle = await client.start_workflow("Delivery", id="waited for", task_queue="nobody")
        request = GetWorkflowExecutionHistoryRequest(
            namespace="release",
            execution=WorkflowExecution(workflow_id=handle.id),
            wait_new_event=True,
            history_event_filter_type=HistoryEventFilterType.HISTORY_EVENT_FILTER_TYPE_CLOSE_EVENT,
        )
        async with asyncio.timeout(15):
            response = await client.workflow_service.get_workflow_execution_history(request)
        assert (list(response.history.events), bool(response.next_page_token)) == ([], True)

    async def test_the_default_namespace_exists_too(self, full_server: DevServer) -> None:
        """Tools without a namespace still work."""
        client = await Client.connect(full_server.address)
        response = await client.workflow_service.describe_namespace(DescribeNamespaceRequest(namespace="default"))
        assert response.namespace_info.name == "default"

    async def test_the_ui_is_served_and_knows_the_codec_server(self, full_server: DevServer) -> None:
        """The page loads, and its settings have the endpoint for the browser."""
        assert full_server.ui_url is not None
        assert b"<html" in await asyncio.to_thread(_get, full_server.ui_url)
        settings = json.loads(await asyncio.to_thread(_get, f"{full_server.ui_url}/api/v1/settings"))
        assert settings["Codec"]["Endpoint"] == "http://127.0.0.1:9/codec"

    async def test_two_servers_run_side_by_side(self, full_server: DevServer) -> None:
        """Free ports are really free, so tests and programs do not meet."""
        async with DevServer(DevServerOptions(ui_port=None)) as other:
            assert other.address != full_server.address
            assert other.ui_url is None

    async def test_a_taken_port_is_an_error(self, full_server: DevServer) -> None:
        """The program does not connect to another server on that port."""
        port = int(full_server.address.rpartition(":")[2])
        with pytest.raises(ServerError, match=f"port {port} of 127.0.0.1 is taken: .*another, or 0 .*--port of"):
            await DevServer(DevServerOptions(port=port)).start()
        with pytest.raises(ServerError, match=f"port {port} of 127.0.0.1 is taken: .*`ui_port` \\(--ui-port of"):
            await DevServer(DevServerOptions(ui_port=port)).start()

    async def test_it_is_started_once(self, full_server: DevServer) -> None:
        """A second start is a programmer's mistake."""
        with pytest.raises(RuntimeError, match="already started"):
            await full_server.start()

    def test_it_has_no_address_before_it_is_started(self) -> None:
        """The error says how to start it."""
        with pytest.raises(RuntimeError, match="async with"):
            _ = DevServer().address


class TestDatabase:
    async def test_state_survives_a_restart(self, tmp_path: Path) -> None:
        """Runs and their search attributes are still there, and the same options start a second time."""
        options = DevServerOptions(database=tmp_path / "new" / "pipelines.db", ui_port=None)
        async with DevServer(options) as server:
            client = await Client.connect(server.address)
            await client.start_workflow(
                "Delivery",
                id="oauth2",
                task_queue="nobody",
                search_attributes=TypedSearchAttributes([SearchAttributePair(STAGE, "implement")]),
            )
        async with DevServer(options) as server:
            client = await Client.connect(server.address)
            description = await client.get_workflow_handle("oauth2").describe()
            assert description.status == WorkflowExecutionStatus.RUNNING
            assert description.typed_search_attributes[STAGE] == "implement"

    async def test_only_one_server_uses_a_file(self, tmp_path: Path) -> None:
        """Two servers on one file would silently corrupt it; the second is told who has it."""
        options = DevServerOptions(database=tmp_path / "pipelines.db", ui_port=None)
        async with DevServer(options) as server:
            with pytest.raises(ServerError) as refused:
                await DevServer(options).start()
            assert server.address in str(refused.value)
            assert str(server.process.pid) in str(refused.value)

    async def test_a_tuned_file_has_a_write_ahead_log(self, tmp_path: Path) -> None:
        """The setting is in the file itself."""
        database = tmp_path / "pipelines.db"
        async with DevServer(DevServerOptions(database=database, ui_port=None)):
            pass
        connection = sqlite3.connect(database)
        try:
            assert connection.execute("pragma journal_mode").fetchone() == ("wal",)
        finally:
            connection.close()

    @pytest.mark.skipif(sys.platform != "linux", reason="other systems do not show a process's environment")
    @pytest.mark.parametrize(
        ("set_variables", "tuned", "file", "expected"),
        [
            ({}, True, "p.db", {"GOGC": "400", "GOMEMLIMIT": "2GiB"}),
            ({"GOGC": "75"}, True, "p.db", {"GOGC": "75", "GOMEMLIMIT": "2GiB"}),
            ({}, False, "p.db", {}),
            ({}, True, None, {}),
        ],
    )
    async def test_a_tuned_server_with_a_file_may_use_more_memory(
        self,
        monkeypatch: pytest.MonkeyPatch,
        tmp_path: Path,
        set_variables: dict[str, str],
        tuned: bool,
        file: str | None,
        expected: dict[str, str],
    ) -> None:
        """Within bounds; the user's own setting wins, and a stock server has its defaults."""
        for name in ("GOGC", "GOMEMLIMIT"):
            monkeypatch.delenv(name, raising=False)
        for name, value in set_variables.items():
            monkeypatch.setenv(name, value)
        database = None if file is None else tmp_path / file
        async with DevServer(DevServerOptions(database=database, tuned=tuned, ui_port=None)) as server:
            environment = await asyncio.to_thread(Path(f"/proc/{server.process.pid}/environ").read_text)
        variables = dict(line.partition("=")[::2] for line in environment.split("\0"))

        assert {name: variables[name] for name in ("GOGC", "GOMEMLIMIT") if name in variables} == expected

    async def test_other_users_may_not_read_it(self, tmp_path: Path) -> None:
        """It has all payloads in clear, like the ledger's file, unless they are encrypted."""
        database = tmp_path / "pipelines.db"
        async with DevServer(DevServerOptions(database=database, ui_port=None)):
            modes = {stat.S_IMODE(os.stat(f"{database}{end}").st_mode) for end in ("", "-wal")}

        assert modes == {0o600}

    async def test_its_log_is_beside_it(self, tmp_path: Path) -> None:
        """Operators find the log by the database's name, and a restart appends to it."""
        options = DevServerOptions(database=tmp_path / "pipelines.db", ui_port=None)
        for _ in range(2):
            async with DevServer(options):
                pass
        assert options.log_file == tmp_path / "pipelines.db.log"
        assert options.log_file.read_text().count("Temporal Server:") == 2

    @pytest.mark.parametrize("option", ["database", "log"])
    async def test_a_file_that_cannot_be_opened_is_named(self, tmp_path: Path, option: str) -> None:
        """A wrong path is reported before anything is started."""
        (tmp_path / "file").touch()
        wrong = tmp_path / "file" / "pipelines"
        options = DevServerOptions(database=wrong) if option == "database" else DevServerOptions(log=wrong)
        with pytest.raises(ServerError, match=r"file/pipelines.*' cannot be opened: (Not a directory|File exists)"):
            await DevServer(options).start()

    async def test_a_server_that_ends_at_once_is_quoted(self, tmp_path: Path) -> None:
        """The error has the end of the server's output, and the file is free again."""
        (tmp_path / "pipelines.db").write_bytes(b"this is no database" * 100)
        options = DevServerOptions(database=tmp_path / "pipelines.db", ui_port=None)
        for _ in range(2):
            with pytest.raises(ServerError, match=r"ended with code 1 before it served(?s:.*)not a database"):
                await DevServer(options).start()


class TestStop:
    async def test_stopping_twice_is_fine(self) -> None:
        """And a server that was never started can be stopped too."""
        server = await DevServer(DevServerOptions(ui_port=None)).start()
        await server.stop()
        await server.stop()
        assert server.process.returncode is not None
        await DevServer().stop()

    async def test_a_server_that_does_not_answer_is_killed(self, tmp_path: Path) -> None:
        """A canceled stop, as at a second Ctrl-C, kills at once, without the grace period."""
        server = await DevServer(DevServerOptions(database=tmp_path / "p.db", ui_port=None)).start()
        server.process.send_signal(signal.SIGSTOP)
        stopping = asyncio.create_task(server.stop())
        await asyncio.sleep(0)
        stopping.cancel()
        with pytest.raises(asyncio.CancelledError):
            await stopping
        assert server.process.returncode == -signal.SIGKILL

    async def test_a_cancelled_start_leaves_no_process(self) -> None:
        """A program that is interrupted while its server starts does not leave it."""
        server = DevServer(DevServerOptions(ui_port=None))
        starting = asyncio.create_task(server.start())
        while server._process is None:  # noqa: ASYNC110 - the server tells nobody else that it was launched
            await asyncio.sleep(0)
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        assert server.process.returncode == -signal.SIGKILL

    @pytest.mark.parametrize(
        ("received", "code"),
        [
            pytest.param(signal.SIGINT, 3, id="interrupted"),
            pytest.param(signal.SIGTERM, -signal.SIGTERM, id="terminated"),
            pytest.param(signal.SIGKILL, -signal.SIGKILL, id="killed"),
        ],
    )
    @pytest.mark.skipif(sys.platform != "linux", reason="other systems have no signal for a parent's death")
    async def test_it_ends_with_its_program(self, tmp_path: Path, received: signal.Signals, code: int) -> None:
        """However the program ends, the server ends too, and the file is free."""
        database = tmp_path / "pipelines.db"
        program = await asyncio.create_subprocess_exec(
            sys.executable, "-c", PROGRAM, str(database), stdout=asyncio.subprocess.PIPE
        )
        assert program.stdout is not None
        child = int(await program.stdout.readline())
        program.send_signal(received)
        assert await program.wait() == code
        await _wait_for_end(child)
        async with DevServer(DevServerOptions(database=database, ui_port=None)) as server:
            assert server.process.returncode is None


class TestDevServerOptions:
    def test_everything_listens_on_this_machine(self) -> None:
        """The gRPC port and the UI, because the server authenticates nobody."""
        line = " ".join(DevServerOptions().arguments(7233, 8233))
        assert "--ip 127.0.0.1 --port 7233" in line
        assert "--ui-ip 127.0.0.1 --ui-port 8233" in line

    def test_tuning_can_be_switched_off(self) -> None:
        """For comparisons, and as a way out."""
        line = " ".join(DevServerOptions(tuned=False, database=Path("p.db")).arguments(7233, None))
        assert "--sqlite-pragma" not in line
        assert not any(name in line for name in TUNED)

    def test_it_does_not_check_for_newer_versions(self) -> None:
        """By default the server calls an external host when it starts."""
        assert "frontend.enableServerVersionCheck=false" in DevServerOptions().arguments(7233, None)

    def test_own_settings_override(self) -> None:
        """A test can enable what it needs, or override tuned settings; values are JSON."""
        options = DevServerOptions(settings={"frontend.WorkflowPauseEnabled": False, **dict.fromkeys(TUNED, "x")})
        values = [value for value in options.arguments(7233, None) if value.startswith(("history.", "frontend.W"))]
        assert sorted(values) == sorted(["frontend.WorkflowPauseEnabled=false", *(f'{name}="x"' for name in TUNED)])

    def test_the_server_knows_every_tuned_setting(self) -> None:
        """The server ignores unknown names silently, so a typing mistake would go unnoticed."""
        with find_temporal().open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as program:
            assert [name for name in TUNED if program.find(name.encode()) < 0] == []
