"""The installed `baton`, as operators and scripts call it, against a real server and real workers."""

import asyncio
import json
import re
import signal
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client
from temporalio.common import VersioningBehavior

from baton import WorkerParts, open_store
from baton.client import read_run, waits
from baton.client.faces import check_routing
from baton.core.messages import PipelineInput
from baton.devserver import DevServer, DevServerOptions
from baton.plugin import BatonPlugin
from tests.acceptance.operating import ROOT, Operator, heard
from tests.runs.test_builds import versioned_worker
from tests.support import Handle, approve, until_waiting

PIPELINES = "tests.acceptance.operated_pipelines"
CHANGED = "tests.acceptance.changed_pipelines"
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


@pytest.fixture(scope="module")
def operator(server: DevServer, tmp_path_factory: pytest.TempPathFactory) -> Operator:
    return Operator(tmp_path_factory.mktemp("operator"), {"TEMPORAL_ADDRESS": server.address})


@pytest.fixture(scope="module")
async def at_rest(operator: Operator) -> Operator:
    """Return the operator once there are three runs, and no worker any more.

    `past-closed` was approved and is completed, `past-waiting` waits for a decision, `past-stumbling` for the
    next try of a stage.
    """
    parts = WorkerParts(artifacts=open_store(operator.folder / "artifacts"))
    client = await Client.connect(operator.variables["TEMPORAL_ADDRESS"], plugins=[BatonPlugin(parts)])

    async def start(pipeline: str, id: str, **members: Any) -> Handle:
        start = PipelineInput(goal="Add OAuth2 login", **members)
        return await client.start_workflow(pipeline, start, id=id, task_queue="past")

    async with operator.worker("past"):
        closed = await start("Delivery", "past-closed", task_id="task-1", params={"depth": 2})
        waiting = await start("Delivery", "past-waiting")
        stumbling = await start("Stumbles", "past-stumbling")
        await approve(client, closed)
        await until_waiting(waiting, "release manager")
        await closed.result()
        run = await read_run(client, stumbling.id)
        while not (now := await waits(client, run)) or not now.pending[0].failure:  # noqa: ASYNC110
            await asyncio.sleep(0.05)  # a failed try leaves no event in the history that could be awaited
    return operator


@pytest.fixture(scope="module")
async def at_work(operator: Operator) -> AsyncIterator[Operator]:
    """Return the operator while a worker works for the task queue `baton`."""
    async with operator.worker():
        yield operator


class TestReading:
    """Reading the histories of open and closed runs without a worker."""

    async def test_show_prints_the_state_of_a_run(self, at_rest: Operator) -> None:
        """Status, baton and pending decisions of a closed, a waiting and a failing run.

        Proves S1-design-e: the run's history alone holds it.
        """
        closed, waiting, stumbling = await asyncio.gather(
            *(at_rest.json("show", name) for name in ("past-closed", "past-waiting", "past-stumbling"))
        )

        assert (closed["status"], closed["task_id"], closed["waiting_for"]) == ("COMPLETED", "task-1", [])
        assert closed["output"] == {"depth": 2}
        assert closed["baton"]["decision_log"] == ["Chose JWT over sessions", "Use PyJWT"]
        assert closed["spend"] == {"micro_usd": 80_000, "prompt_tokens": 4200}
        [asked] = waiting["waiting_for"]
        assert (waiting["status"], asked["name"], asked["kind"], asked["seq"]) == (
            "RUNNING",
            "release manager",
            "approval",
            4,
        )
        assert asked["until"] > asked["since"]
        [tried] = stumbling["waiting_for"]
        assert (tried["name"], tried["failure"]) == ("stumble", "RuntimeError: the model did not answer")
        assert tried["next_try"] > tried["since"]

    async def test_show_prints_the_baton_after_any_stage(self, at_rest: Operator) -> None:
        """The baton right after a stage, as JSON, as a page, and as the Markdown that agents read.

        Proves S1-design-i: how understanding evolved can be replayed step by step.
        """
        then, page, markdown = await asyncio.gather(
            at_rest.json("show", "past-closed", "--at", "plan"),
            at_rest("show", "past-closed", "--at", "1"),
            at_rest("show", "past-closed", "--markdown", "--at", "implement"),
        )

        assert then["baton"]["current_state"] == ["The plan is written"]
        assert "right after step 1 plan" in page
        assert "· Which library?" in page
        assert markdown.startswith("## Baton (Handoff Context)\n\n**Goal:** Add OAuth2 login\n")
        assert "- The module is written\n" in markdown

    async def test_history_lists_every_change_with_author_and_time(self, at_rest: Operator) -> None:
        """Every change with stage and time, the rejected attempt, the merge with its conflict, and the person.

        Proves S1-design-h: every patch is recorded with its timestamp and stage.
        """
        response, page = await asyncio.gather(at_rest.json("history", "past-closed"), at_rest("history", "past-closed"))

        rows = [(row["seq"], row["stage_id"], row["kind"], row["attempt"]) for row in response["history"]]
        assert rows == [
            (1, "plan", "stage", 1),
            (2, "implement", "stage", 2),
            (3, "check", "branch", 1),
            (3, "review", "branch", 1),
            (3, "check+review", "merge", 1),
            (4, "release manager", "approval", 1),
            (5, "release", "stage", 1),
        ]
        implemented, merged, decided = response["history"][1], response["history"][4], response["history"][5]
        assert implemented["removed_constraints"] == ["No new database"]
        assert merged["conflicts"][0]["values"] == {"check": ["42 tests pass"], "review": ["The code reads well"]}
        assert (decided["by"], decided["why"]) == ("ann", "it is tested")
        assert [row["timestamp"] for row in response["history"]] == sorted(
            row["timestamp"] for row in response["history"]
        )
        words = ("implement ×2", "+ decision: Use PyJWT", "- constraint: No new database", "“it is tested”", "by ann")
        assert [word for word in words if word not in page] == []

    async def test_diff_compares_field_by_field(self, at_rest: Operator) -> None:
        """The differences between two stages; `start` is the first baton."""
        response, page, same = await asyncio.gather(
            at_rest.json("diff", "past-closed", "plan", "implement"),
            at_rest("diff", "past-closed", "start", "plan"),
            at_rest("diff", "past-waiting", "2", "implement"),
        )

        assert response["fields"] == {
            "current_state": {"removed": ["The plan is written"], "added": ["The module is written"]},
            "decision_log": {"removed": [], "added": ["Use PyJWT"]},
            "constraints": {"removed": ["No new database"], "added": []},
        }
        assert "- Workflow starting\n+ The plan is written\n" in page
        assert same.endswith("the batons are the same\n")

    async def test_list_finds_runs_by_their_labels(self, at_rest: Operator) -> None:
        """By pipeline, status, stage and task; JSON and page have the same runs."""
        finds = {
            ("--task", "task-1"): {"past-closed"},
            ("--pipeline", "Stumbles"): {"past-stumbling"},
            ("--status", "waiting", "--stage", "release manager"): {"past-waiting"},
        }

        listings = await asyncio.gather(*(at_rest.json("list", *arguments) for arguments in finds))

        workflow_ids = [
            {run["workflow_id"] for run in runs if run["workflow_id"].startswith("past-")} for runs in listings
        ]
        assert workflow_ids == list(finds.values())
        assert listings[0][0]["status"] == "COMPLETED"
        assert "past-closed  Delivery  COMPLETED" in await at_rest("list", "--task", "task-1")

    async def test_watch_prints_a_closed_run_and_resumes_after_any_line(self, at_rest: Operator) -> None:
        """An interrupted follower with its last cursor misses nothing and gets nothing twice.

        Proves S1-design-i.
        """
        all_news = [json.loads(line) for line in (await at_rest("watch", "past-closed", "--json")).splitlines()]
        rests = await asyncio.gather(
            *(
                at_rest("watch", "past-closed", "--from", all_news[place]["cursor"], "--json")
                for place in (0, 3, len(all_news) - 1)
            )
        )

        whats = [item["what"] for item in all_news]
        assert (whats[0], whats[-1], whats.count("step_done")) == ("run_started", "run_ended", 5)
        assert whats.count("step_started") == 5
        assert all_news[-1]["output"] == {"depth": 2}
        assert (await at_rest("watch", "past-closed")).endswith('\n\n{"depth":2}\n')
        assert [[json.loads(line) for line in rest.splitlines()] for rest in rests] == [all_news[1:], all_news[4:], []]
        await at_rest.refused("watch", "past-closed", "--from", "12", "--json", code=2)

    async def test_artifacts_are_listed_written_and_saved(self, at_rest: Operator) -> None:
        """By id, from the deployment's store; an existing file is not overwritten."""
        listed, content, _ = await asyncio.gather(
            at_rest.json("artifact", "list", "past-closed"),
            at_rest("artifact", "cat", "past-closed", "plan-1"),
            at_rest.refused("artifact", "cat", "past-closed", "none"),
        )
        await at_rest("artifact", "save", "past-closed", "plan-1")
        await at_rest.refused("artifact", "save", "past-closed", "plan-1", code=2)

        assert [item["id"] for item in listed] == ["plan-1"]
        assert content.startswith("Plan for: ")
        assert (at_rest.folder / "plan.md").read_text(encoding="utf-8") == content

    async def test_diff_compares_start_and_end_by_default(self, at_rest: Operator) -> None:
        """The default shows all changes of a run."""
        all_diffs, named = await asyncio.gather(
            at_rest.json("diff", "past-closed"), at_rest.json("diff", "past-closed", "start", "5")
        )

        assert all_diffs["fields"] == named["fields"]

    async def test_replay_checks_whether_code_fits_a_history(self, at_rest: Operator) -> None:
        """The original code fits a history, from the server and from a file; changed code does not.

        Proves S1-design-i.
        """
        file = str(at_rest.folder / "tests" / "histories" / "closed.json")  # folders that the export makes
        await at_rest("export", "past-closed", file)
        fits = await at_rest.json("replay", file, "past-waiting", "-m", PIPELINES, "--path", str(ROOT))
        broken = await at_rest.json("replay", file, "-m", CHANGED, "--path", str(ROOT), code=1)
        refused = await at_rest.refused("export", "past-closed", file, code=2)

        assert [case["fits"] for case in fits] == [True, True]
        assert [(case["fits"], case["pipeline"]) for case in broken] == [(False, "Delivery")]
        assert "Nondeterminism error" in broken[0]["problem"]
        assert "--force" in refused

    async def test_replay_checks_the_newest_runs_before_a_deployment(self, at_rest: Operator) -> None:
        """Open runs come first; with neither runs nor a number the command is rejected."""
        fits = await at_rest.json("replay", "--last", "200", "-m", PIPELINES, "--path", str(ROOT))
        broken = await at_rest.json("replay", "--last", "200", "-m", CHANGED, "--path", str(ROOT), code=1)
        refused = await at_rest.refused("replay", "-m", PIPELINES, "--path", str(ROOT), code=2)

        runs = [case["source"].partition("/")[0] for case in fits]
        assert {"past-closed", "past-waiting", "past-stumbling"} <= {*runs}
        assert runs.index("past-waiting") < runs.index("past-closed")
        assert all(case["fits"] for case in fits)
        assert {case["pipeline"] for case in broken} == {"Delivery"}
        assert not any(case["fits"] for case in broken)
        assert "--last" in refused

    async def test_an_unknown_name_is_reported_in_one_line(self, at_rest: Operator) -> None:
        """Exit code 1, no output, and the message lists the existing ones."""
        run, stage, unfinished, namespace = await asyncio.gather(
            at_rest.refused("show", "past-nothing"),
            at_rest.refused("diff", "past-closed", "plan", "nothing"),
            at_rest.refused("show", "past-waiting", "--at", "release manager"),
            at_rest.refused("list", "--namespace", "nowhere", code=3),
        )

        assert "there is no such run" in run
        assert "1 plan, 2 implement, 3 check+review, 4 release manager, 5 release" in stage
        assert "has not ended" in unfinished
        assert "nowhere" in namespace
        assert [len(message.splitlines()) for message in (run, stage, unfinished, namespace)] == [1, 1, 1, 1]


class TestDeciding:
    async def test_an_approval_is_bound_to_the_baton_that_was_shown(self, at_work: Operator) -> None:
        """The only open approval is found, its question and baton are shown, and the run completes."""
        goal = at_work.folder / "first.json"
        goal.write_text(json.dumps({"goal": "Add login", "acceptance": ["All tests pass"]}), encoding="utf-8")
        async with at_work.started(
            "run", "Delivery", "--baton", f"@{goal.name}", "--id", "asked", "--watch"
        ) as watching:
            assert watching.stderr is not None
            assert await watching.stderr.readline() == b"started asked\n"
            await at_work.until_asked("asked")
            response = await at_work.json("show", "asked")
            output, beside = await at_work.both("approve", "asked", "--yes", "--why", "it is tested", "--who", "ben")
            lines, _ = await watching.communicate()

        assert "Ship it?" in beside
        assert "· All tests pass" in beside
        assert response["waiting_for"][0]["asks"] == "Ship it?"
        assert output.startswith("approved release manager by ben")
        assert watching.returncode == 0
        assert "5 release: done" in lines.decode()
        assert lines.decode().endswith("\n\n{}\n")  # the output, as `baton watch` shows it too
        message = await at_work.refused("approve", "asked", "--yes", "--why", "again")
        assert "no longer waits for a decision: it is COMPLETED" in message
        [entry] = [row for row in (await at_work.json("history", "asked"))["history"] if row["kind"] == "approval"]
        assert (entry["by"], entry["approved"], entry["why"]) == ("ben", True, "it is tested")

    async def test_a_run_that_its_worker_rejects_fails_at_once(self, at_work: Operator) -> None:
        """Only the worker knows the fields of the pipeline's baton; it answers at once."""
        output, code = b"", 0
        while not code:  # a worker that is slow to answer is not waited for
            async with at_work.started("run", "Delivery", "-g", "Go", "--baton", '{"constraint": ["a"]}') as running:
                _, output = await running.communicate()
                code = running.returncode or 0

        assert code == 1
        assert b"failed at once" in output
        assert b"did you mean 'constraints'?" in output

    async def test_a_denied_run_fails_for_those_who_watch_it(self, at_work: Operator) -> None:
        """`run --watch` and `watch` exit with 1, and the last line has the reason."""
        async with at_work.started("run", "Delivery", "-g", "Add login", "--id", "denied", "-w", "--json") as watching:
            started = await heard(watching, lambda line: line["workflow_id"] == "denied")
            await heard(watching, lambda news: news.get("kind") == "approval")
            decided = await at_work.json("deny", "denied", "--yes", "release manager", "--why", "not today")
            ended = await heard(watching, lambda news: news["what"] == "run_ended")
            await watching.wait()

        assert set(started) == {"workflow_id", "run_id"}
        assert (decided["choice"], decided["who"], decided["via"]) == ("deny", "ann", "update")
        assert "'release manager' was denied by ann: not today" in ended["text"]
        assert watching.returncode == 1
        assert "Failed: ApprovalDeniedError" in await at_work("show", "denied")

    async def test_with_no_worker_nothing_is_decided(self, operator: Operator) -> None:
        """An approval opens when a worker runs the code; the error says at once that there is none."""
        await operator("run", "Delivery", "-g", "Add login", "--id", "unheard", "--task-queue", "nobody")

        message = await operator.refused("approve", "unheard", "--yes", "--why", "it is tested")

        assert "no worker polls task queue 'nobody'" in message

    async def test_workers_without_runs_are_reported(self, operator: Operator) -> None:
        """Otherwise a watcher would wait forever."""
        client = await Client.connect(operator.variables["TEMPORAL_ADDRESS"], plugins=[BatonPlugin(safeguards="off")])
        async with versioned_worker(client, "unchosen", "one", VersioningBehavior.PINNED):
            while not await check_routing(client, "unchosen"):  # noqa: ASYNC110 - its first poll has to arrive
                await asyncio.sleep(0.1)
            _, output = await operator.both("run", "Delivery", "-g", "Add login", "--task-queue", "unchosen")

        assert "so the run does not begin" in output
        assert "set-current-version --deployment-name unchosen --build-id one" in output

    async def test_the_task_queue_comes_from_the_workers_environment(self, operator: Operator) -> None:
        """Commands in a worker's environment use its task queue."""
        worker = replace(operator, variables={**operator.variables, "BATON_TASK_QUEUE": "elsewhere"})

        _, output = await worker.both("run", "Delivery", "-g", "Add login", "--id", "elsewhere-1")

        assert "'elsewhere'" in output
        assert "no worker polls task queue 'elsewhere'" in await worker("doctor", code=1)


class TestRepairing:
    async def test_a_watcher_follows_a_rollback_to_the_new_run(self, at_work: Operator) -> None:
        """The rollback is reported once, and its reason is in the history."""
        await at_work("run", "Delivery", "-g", "Add login", "--id", "again")
        async with at_work.started("watch", "again", "--json") as watching:
            first_approval = await heard(watching, lambda news: news.get("kind") == "approval")
            response = await at_work.json("rollback", "again", "--yes", "--to", "implement", "--why", "another library")
            gone_on = await heard(watching, lambda news: news["what"] == "run_replaced")
            second_approval = await heard(watching, lambda news: news.get("kind") == "approval")
            await at_work("approve", "again", "--yes", "--why", "it is tested")
            await watching.communicate()

        assert (response["from_run_id"], response["name"], response["seq"]) == (
            first_approval["run_id"],
            "implement",
            2,
        )
        assert gone_on["run_id"] == second_approval["run_id"] == response["run_id"] != first_approval["run_id"]
        assert watching.returncode == 0
        [note] = (await at_work.json("show", "again"))["notes"]
        assert note["text"].endswith("rolled back to before 'implement' by ann: another library")

    async def test_many_runs_are_rolled_back_after_one_question(self, at_work: Operator) -> None:
        """Every failed run of a pipeline with the stage; the question lists the repeated stages and their cost."""
        for name in ("bulk-1", "bulk-2"):
            await at_work("run", "Delivery", "-g", "Add login", "--id", name)
            await at_work.until_asked(name)
            await at_work("deny", name, "--yes", "--why", "not today")
            await at_work.until(name, lambda news: news["what"] == "run_ended")
        words = ("rollback", "--all", "--pipeline", "Delivery", "--to", "implement", "--why", "once more")
        output, preview = await at_work.both(*words, code=2)
        response = await at_work.json(*words, "--yes")

        assert output == ""
        assert "bulk-1" in preview
        assert {"bulk-1", "bulk-2"} <= {item["workflow_id"] for item in response if "run_id" in item}
        for name in ("bulk-1", "bulk-2"):
            await at_work.until_asked(name)
            assert (await at_work.json("show", name))["status"] == "RUNNING"
        await at_work.refused("rollback", "--to", "1", "--why", "w", code=2)
        await at_work.refused("rollback", "bulk-1", "--all", "--to", "1", "--why", "w", code=2)

    async def test_a_run_is_canceled_with_person_and_reason(self, at_work: Operator) -> None:
        """Only after confirmation; the budget was set at the start."""
        await at_work("run", "Delivery", "-g", "Add login", "--id", "canceled", "--budget", "0.50")
        await at_work.until_asked("canceled")
        await at_work.refused("cancel", "canceled", "--why", "not needed", code=2)
        await at_work.json("cancel", "canceled", "--why", "not needed", "--yes")
        await at_work.until("canceled", lambda news: news["what"] == "run_ended")
        response = await at_work.json("show", "canceled")

        assert response["status"] == "CANCELED"
        assert re.fullmatch(r"not needed \(by .+\)", response["failure"])
        await at_work.refused("cancel", "canceled", "--why", "again", "--yes")
        await at_work.refused("run", "Delivery", "-g", "x", "--budget", "-1", code=2)

    async def test_suggested_commands_are_quoted_for_the_shell(self, at_rest: Operator) -> None:
        """An id with a space is quoted for the shell."""
        output = await at_rest(
            "run", "Delivery", "--goal", "Add login", "--id", "login of ann", "--task-queue", "nobody's"
        )

        assert output.splitlines()[-1] == "baton watch 'login of ann'"

    async def test_a_fork_keeps_earlier_steps_and_corrects_the_baton(self, at_rest: Operator) -> None:
        """Earlier steps are not repeated, and the new run's history has the correction and its author."""
        options = ("--at", "implement", "--why", "no cookies", "--id", "forked")
        async with at_rest.worker("forks"):
            patch = '{"constraints": ["No cookies"]}'
            await at_rest("fork", "past-closed", "--yes", "--patch", patch, *options, "--task-queue", "forks")
            await at_rest.until_asked("forked")

        response = await at_rest.json("history", "forked")
        assert [(row["stage_id"], row["status"]) for row in response["history"]][:3] == [
            ("plan", "reused"),
            ("edit", "done"),
            ("implement", "done"),
        ]
        assert (response["history"][1]["by"], response["history"][1]["change"]) == (
            "ann",
            {"constraints": ["No cookies"]},
        )
        assert response["task_id"] == "task-1"


class TestStarting:
    async def test_an_unknown_pipeline_is_reported_at_once(self, operator: Operator) -> None:
        """The message lists the worker's pipelines; the server knows only those with runs."""
        async with operator.worker("misspelt"):
            where = ("--task-queue", "misspelt")
            output, message = await operator.both("run", "Delivry", "-g", "Add login", "--id", "misspelt", *where)
            _, fine = await operator.both("run", "Delivery", "-g", "Add login", "--id", "spelt", *where)

        assert "started Delivry as misspelt" in output
        assert "the run does not begin" in message
        assert "temporal workflow terminate --workflow-id misspelt" in message
        assert "Delivry is not registered on this worker, available workflows: " in message
        assert "Delivery" in message
        assert fine == ""


class TestLabels:
    async def test_runs_start_without_them_and_doctor_adds_them(self, tmp_path: Path) -> None:
        """Only commands that depend on them are rejected; one command adds them."""
        async with DevServer(DevServerOptions(ui_port=None, search_attributes={})) as bare:
            operator = Operator(tmp_path, {"TEMPORAL_ADDRESS": bare.address})
            _, output = await operator.both("run", "Delivery", "-g", "Add login", "--id", "bare")
            listings, refused, sick = await asyncio.gather(
                operator.json("list", "--pipeline", "Delivery"),
                operator.refused("list", "--status", "waiting"),
                operator.json("doctor", code=1),
            )
            healed = await operator.json("doctor", "--fix", code=1)  # no worker is there for the run

        assert "lacks Baton's search attributes" in output
        assert "task queue 'baton'" in output
        assert [item["workflow_id"] for item in listings] == ["bare"]
        assert "doctor --fix" in refused
        assert [mark_of(item, "search attributes") for item in (sick, healed)] == ["fail", "ok"]
        assert all(item["remedy"] for item in sick if item["mark"] == "fail")


def mark_of(findings: list[dict[str, Any]], check: str) -> str:
    """Return how a check of the doctor ended."""
    [mark] = [finding["mark"] for finding in findings if finding["check"] == check]
    return str(mark)


class TestInterrupting:
    async def test_a_watcher_ends_with_130(self, at_rest: Operator) -> None:
        """The shell sees an interrupt, not a failed run."""
        async with at_rest.started("watch", "past-waiting", "--json") as watching:
            await heard(watching, lambda news: news["what"] == "step_started")
            watching.send_signal(signal.SIGINT)
            _, beside = await watching.communicate()

        assert (watching.returncode, beside) == (130, b"")

    async def test_a_terminated_command_restores_the_cursor(self, at_rest: Operator) -> None:
        """It stayed hidden after `timeout 60 baton watch RUN`; the exit code still shows the signal."""
        code, screen = await at_rest.terminated_on_a_terminal("watch", "past-waiting", once="release manager")

        assert code == -signal.SIGTERM
        assert screen.rfind("\x1b[?25h") > screen.rfind("\x1b[?25l") > -1


class TestTerminal:
    async def test_watch_leaves_the_whole_page_behind(self, at_rest: Operator) -> None:
        """The page is updated in place; at the end it stays, and the cursor is visible again."""
        screen = await at_rest.on_a_terminal("watch", "past-closed")
        page = ESCAPES.sub("", screen).rpartition("Delivery  past-closed")[2]

        assert page.splitlines()[-2:] == ["", '{"depth":2}']
        assert [row.split()[:3] for row in page.splitlines()[-7:-2]] == [
            ["✓", "1", "plan"],
            ["✓", "2", "implement"],
            ["✓", "3", "check+review"],
            ["✓", "4", "release"],
            ["✓", "5", "release"],
        ]
        assert page.startswith("  COMPLETED")
        assert "by ann: it is tested" in page
        assert screen.rfind("\x1b[?25h") > screen.rfind("\x1b[?25l")
