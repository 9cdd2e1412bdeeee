"""What goes away and comes back while somebody decides: the network, the workers, the Temporal server."""

from pathlib import Path
from typing import Any

from playwright.async_api import Browser, Route
from temporalio.worker import Worker

from baton import Safeguards
from baton.client import read_run
from baton.devserver import DevServer, DevServerOptions
from baton.testing import pipeline_worker
from tests.console.browser.conftest import Office, Person, begun, desk_client, office_over
from tests.console.browser.desk_pipelines import DESK, DESK_STAGES, confirms
from tests.console.browser.test_deciding import asked, fill, press
from tests.support import until, until_waiting


async def votes(worker: Worker, handle: Any) -> list[str]:
    """Return who has approved the only approval that is open."""
    now = await until_waiting(worker.client.get_workflow_handle(handle.id), "publication")
    return [vote.who for vote in now.questions[0].votes]


class TestNetwork:
    """The browser's own."""

    async def test_24_offline_and_back(self, office: Office, desk_worker: Worker, quiet: list[Person]) -> None:
        """The page says so, keeps the inputs, and sends them once the network is back."""
        ann = await office.person()
        quiet.append(ann)
        handle = await begun(desk_worker, confirms, "offline-1", params={"needs": 2})
        await ann.open(await asked(handle, "publication"))
        await fill(ann, Why="on the train")
        await ann.page.context.set_offline(True)
        await press(ann, "Approve")
        await ann.sees("You are offline.")
        await ann.page.locator("#live.lost").wait_for()
        assert await ann.page.get_by_label("Why").input_value() == "on the train"
        await ann.shot("24-offline")
        assert await votes(desk_worker, handle) == []
        await ann.page.context.set_offline(False)
        await ann.sees("You have approved; 1 more must approve.")
        assert await votes(desk_worker, handle) == ["ann"]
        await handle.terminate()

    async def test_25_a_decision_whose_response_was_lost_counts_once(
        self, office: Office, desk_worker: Worker, quiet: list[Person]
    ) -> None:
        """It is sent again as the same decision."""
        ann = await office.person()
        quiet.append(ann)
        handle = await begun(desk_worker, confirms, "lost-1", params={"needs": 2})
        path = await asked(handle, "publication")
        await ann.open(path)
        sent: list[str] = []

        async def loses_the_first(route: Route) -> None:
            if route.request.method != "POST":
                await route.continue_()
                return
            sent.append(route.request.post_data or "")
            if len(sent) > 1:
                await route.continue_()
                return
            await route.fetch(max_redirects=0)
            await route.abort()

        await ann.page.route("**/approval?*", loses_the_first)
        await fill(ann, Why="only once")
        await press(ann, "Approve")
        await ann.sees("You have approved; 1 more must approve.")
        assert len(sent) == 2
        assert sent[0] == sent[1]
        assert await votes(desk_worker, handle) == ["ann"]
        await handle.terminate()


class TestServer:
    """What stands behind the console."""

    async def test_26_workers_gone_and_back(
        self, server: DevServer, chromium_browser: Browser, screenshots: Path, desk_safeguards: Safeguards
    ) -> None:
        """The page says that no worker has answered; with and without scripts, a decision counts once one does."""
        client = await desk_client(server, desk_safeguards)
        office = office_over(chromium_browser, client, screenshots)
        ann, bob = await office.person(), await office.person("bob", java_script_enabled=False)
        async with pipeline_worker(client, DESK, DESK_STAGES) as worker:
            handle = await begun(worker, confirms, "workers-1", params={"needs": 2})
            path = await asked(handle, "publication")
            for person in (ann, bob):
                await person.open(path)
                await fill(person, Why=f"{person.name} saw it")
        await press(ann, "Approve")
        await press(bob, "Approve")
        for person in (ann, bob):
            await person.sees("The server holds it")
            await person.shot(f"26-no-worker-{person.name}")
        async with Worker(client, task_queue=worker.task_queue, workflows=DESK, activities=DESK_STAGES):
            output = (await handle.result()).output
            assert sorted(output["who"].split(", ")) == ["ann", "bob"]
            await ann.sees(f"by {output['who']}")
        await office.close()

    async def test_27_the_temporal_server_is_killed_and_restarted(
        self, chromium_browser: Browser, screenshots: Path, tmp_path: Path, port: int
    ) -> None:
        """The page says so; a decision made meanwhile is kept, and counts once."""
        options = DevServerOptions(database=tmp_path / "temporal.db", port=port, ui_port=None)
        first = DevServer(options)
        await first.start()
        client = await desk_client(first, Safeguards.development(tmp_path))
        office = office_over(chromium_browser, client, screenshots)
        async with pipeline_worker(client, DESK, DESK_STAGES) as worker:
            handle = await begun(worker, confirms, "killed-1", params={"needs": 2})
            path = await asked(handle, "publication")
            ann = await office.person()
            await ann.open(path)
            await ann.page.locator("#live", has_text="live").wait_for()
            await fill(ann, Why="in spite of it all")
            first.process.kill()
            await first.process.wait()
            await press(ann, "Approve")
            await ann.sees("is kept, and is sent as soon as that is possible")
            await ann.shot("27-server-gone")
            async with DevServer(options):
                await ann.sees("You have approved; 1 more must approve.")
                await ann.shot("27-server-back")
                now = await until(handle, lambda now: bool(now.questions and now.questions[0].votes))
                assert [vote.who for vote in now.questions[0].votes] == ["ann"]
                run = await read_run(client, handle.id)
                assert run.failure is None
                await handle.terminate()
                await office.close()
        await first.stop()
