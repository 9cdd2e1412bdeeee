"""An operator repairs and starts runs in a browser: after a preview, once, and under their name."""

from typing import Any

from temporalio.worker import Worker

from baton.client import Role, decide, read_run, roll_back
from baton.console.pages_operate import fork_path, rollback_path
from tests.console.browser.conftest import Office, Person, begun
from tests.console.browser.desk_pipelines import asks, relay
from tests.support import answer_to, until_waiting


async def relayed(worker: Worker, id: str) -> Any:
    """Return a run whose publication was approved, and whose child waits for a person."""
    start = {"constraints": ["No new service"]}
    handle = await begun(worker, relay, id, "Write and publish", baton=start, params={"text": "Hello"})
    await decide(worker.client, handle.id, await answer_to(handle, "publication"))
    await until_waiting(handle, "part")
    return handle


class TestRollback:
    """Back to before a step."""

    async def test_17_a_rollback_does_what_its_preview_shows(
        self, office: Office, desk_worker: Worker, quiet: list[Person]
    ) -> None:
        """Which steps run again, which child stops, which approval is undone."""
        ann = await office.person()
        quiet.append(ann)
        handle = await relayed(desk_worker, "back-1")
        [(child, _, _)] = (await read_run(desk_worker.client, handle.id)).children
        await ann.open(rollback_path(handle.id))
        await ann.page.get_by_label("Back to before").select_option(label="2 publication")
        await ann.page.get_by_role("button", name="Preview").click()
        await ann.sees("3 steps will run again.")
        await ann.sees("is undone, and asked for again")
        await ann.page.get_by_role("link", name=child).wait_for()
        await ann.page.get_by_label("Why").fill("the text was wrong")
        await ann.shot("17-rollback-preview")
        await ann.page.get_by_role("button", name="Roll back", exact=True).click()
        await ann.page.wait_for_url(lambda url: "/rollback" not in url)
        await ann.shot("17-rolled-back")
        await until_waiting(desk_worker.client.get_workflow_handle(handle.id), "publication")
        run = await read_run(desk_worker.client, handle.id)
        assert "ann" in run.notes[-1].text
        assert "the text was wrong" in run.notes[-1].text
        assert [step.name for step in run.steps] == ["write", "publication"]
        stopped = await desk_worker.client.get_workflow_handle(child).describe()
        assert stopped.status is not None
        assert stopped.status.name == "TERMINATED"
        await desk_worker.client.get_workflow_handle(handle.id).terminate()

    async def test_18_an_outdated_preview_does_nothing(
        self, office: Office, desk_worker: Worker, quiet: list[Person]
    ) -> None:
        """Somebody else rolled back first: it does not happen twice, and the page says what happened."""
        ann = await office.person()
        quiet.append(ann)
        handle = await relayed(desk_worker, "back-2")
        await ann.open(rollback_path(handle.id, 2))
        await ann.page.get_by_label("Why").fill("me too")
        result = await roll_back(desk_worker.client, handle.id, "2", by="carol", why="quicker")
        while len((await read_run(desk_worker.client, handle.id)).steps) < 2:  # the new run comes to the step again
            pass
        await ann.page.get_by_role("button", name="Roll back", exact=True).click()
        await ann.sees("nothing was rolled back: the run continues as another run")
        await ann.sees("carol")
        await ann.shot("18-out-of-date")
        assert (await desk_worker.client.get_workflow_handle(handle.id).describe()).run_id == result.run_id
        await desk_worker.client.get_workflow_handle(handle.id).terminate()

    async def test_19_a_decider_looks_and_cannot_repair(
        self, office: Office, desk_worker: Worker, quiet: list[Person]
    ) -> None:
        """The preview is for everybody, the action for operators."""
        bob = await office.person("bob", Role.DECIDER)
        quiet.append(bob)
        handle = await relayed(desk_worker, "back-3")
        await bob.open(rollback_path(handle.id, 1))
        await bob.sees("This is for the role operator.")
        await bob.shot("19-decider")
        for path in (rollback_path(handle.id, 1), fork_path(handle.id, 1), "/start?pipeline=relay"):
            answer = await bob.page.request.post(f"{bob.base}{path}", form={"why": "x"}, headers={"origin": bob.base})
            assert answer.status == 403
        await handle.terminate()


class TestFork:
    """Another run from a step on."""

    async def test_20_with_a_patch(self, office: Office, desk_worker: Worker, quiet: list[Person]) -> None:
        """Protected fields are reported while typing; the fork names who and why, and the old run stays."""
        ann = await office.person()
        quiet.append(ann)
        handle = await relayed(desk_worker, "fork-1")
        await ann.open(fork_path(handle.id, 3))
        await ann.sees("is reused")
        patch = ann.page.get_by_label("Patch of the baton")
        await patch.fill('{"constraints": ["Cheap"]}')
        await ann.sees("constraints: is protected")
        await patch.fill('{"constraints": ["No new service", "Cheap"]}')
        await ann.sees("This patch fits the pipeline's rules.")
        await ann.page.get_by_label("Id of the new run").fill("fork-1-again")
        await ann.page.get_by_label("Why").fill("cheaper")
        await ann.shot("20-fork")
        await ann.page.get_by_role("button", name="Fork", exact=True).click()
        await ann.page.wait_for_url(lambda url: "/fork" not in url)
        other = desk_worker.client.get_workflow_handle("fork-1-again")
        await until_waiting(other, "part")
        run = await read_run(desk_worker.client, "fork-1-again")
        assert run.start.origin is not None
        assert (run.start.origin.by, run.start.origin.why) == ("ann", "cheaper")
        assert run.baton.constraints == ["No new service", "Cheap"]
        assert (await handle.describe()).close_time is None
        await other.terminate()
        await handle.terminate()

    async def test_21_sending_twice_forks_once_and_a_taken_id_is_refused(
        self, office: Office, desk_worker: Worker, quiet: list[Person]
    ) -> None:
        """The second submission leads to the same run."""
        ann = await office.person()
        quiet.append(ann)
        handle = await relayed(desk_worker, "fork-2")
        path = fork_path(handle.id, 3)
        await ann.open(path)
        body = await ann.page.eval_on_selector(
            "form.decide", "form => new URLSearchParams(new FormData(form)).toString()"
        )
        sent = body.replace("why=", "why=once")
        headers = {"origin": ann.base, "content-type": "application/x-www-form-urlencoded"}
        first, second = [await ann.page.request.post(f"{ann.base}{path}", data=sent, headers=headers) for _ in "ab"]
        assert first.url == second.url
        assert "-fork-" in first.url
        await ann.page.get_by_label("Id of the new run").fill(handle.id)
        await ann.page.get_by_label("Why").fill("again")
        await ann.page.get_by_role("button", name="Fork", exact=True).click()
        await ann.sees("another run has this id")
        await ann.shot("21-taken-id")
        await desk_worker.client.get_workflow_handle(first.url.rpartition("=")[2]).terminate()
        await handle.terminate()


class TestStart:
    """A new run, from the schema of the pipeline's input."""

    async def test_22_a_run_is_started_like_the_newest_one(
        self, office: Office, desk_worker: Worker, quiet: list[Person]
    ) -> None:
        """Its parameters are fields, whose values arrive typed."""
        ann = await office.person()
        quiet.append(ann)
        params = {"needs": 1, "who": ["ann"], "text": "An invoice", "deep": {"a": [1]}}
        handle = await begun(desk_worker, asks, "start-1", params=params)
        await until_waiting(handle, "payment")
        await ann.open("/start")
        while not await ann.page.get_by_role("link", name="asks", exact=True).count():
            await ann.page.reload()
        await ann.shot("22-start")
        await ann.page.get_by_role("link", name="asks", exact=True).click()
        while not await ann.page.get_by_label("deep").count():
            await ann.page.reload()  # the server's index lags behind: another run was the newest
        await ann.page.get_by_label("Goal").fill("Pay it")
        await ann.page.get_by_label("needs").fill("2")
        await ann.page.get_by_label("who").fill("ann\nbob")
        await ann.page.get_by_label("deep").fill('{"b": null}')
        await ann.page.get_by_label("Constraints").fill("Only in euros")
        await ann.page.get_by_label("Budget").fill("0.50")
        await ann.page.get_by_label("Id of the run").fill("started-1")
        await ann.shot("22-start-form")
        await ann.page.get_by_role("button", name="Start", exact=True).click()
        await ann.page.wait_for_url(lambda url: "/start" not in url)
        run = await read_run(desk_worker.client, "started-1")
        assert run.start.params == {"needs": 2, "who": ["ann", "bob"], "deep": {"b": None}}
        assert (run.start.goal, run.start.baton) == ("Pay it", {"constraints": ["Only in euros"]})
        assert run.ceiling_micro_usd == 500_000
        for workflow_id in ("start-1", "started-1"):
            await desk_worker.client.get_workflow_handle(workflow_id).terminate()

    async def test_23_a_pipeline_that_never_ran_and_an_invalid_form(
        self, office: Office, desk_worker: Worker, quiet: list[Person]
    ) -> None:
        """Each fault is shown at its field, nothing starts, and the inputs stay."""
        ann = await office.person()
        quiet.append(ann)
        await ann.open("/start?pipeline=brand-new")
        await ann.page.get_by_label("Goal").fill("Begin")
        await ann.page.get_by_label("Parameters").fill("{")
        await ann.page.get_by_label("Budget").fill("lots")
        await ann.page.get_by_role("button", name="Start", exact=True).click()
        await ann.sees("this is not JSON")
        await ann.sees("is not an amount above zero")
        assert await ann.page.get_by_label("Goal").input_value() == "Begin"
        await ann.shot("23-start-faults")
