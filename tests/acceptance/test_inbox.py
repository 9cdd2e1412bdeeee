"""The installed `baton inbox`, as a person at a terminal and scripts call it, against real runs that wait."""

import asyncio
import json
import re
import unicodedata
from collections.abc import AsyncIterator, Callable, Coroutine
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from temporalio.client import Client
from temporalio.worker import Worker

from baton import Budget, PipelineInput, PipelineStatus
from baton.client import PendingHandoff, Question, read_run
from baton.devserver import DevServer
from baton.handoff.store_safeguards import Safeguards
from baton.plugin import BatonPlugin
from baton.testing import pipeline_worker
from baton.wire.names import QUERY_QUESTIONS
from tests.acceptance.operating import Operator
from tests.handoff import handoff_pipelines, handoff_stages
from tests.handoff.handoff_pipelines import Forgets, FourAgents, Spends
from tests.handoff.inbox_pipelines import PIPELINES, Tainted, TaintedTwice, asks_aside, asks_what
from tests.handoff.inbox_stages import STAGES
from tests.support import Handle, failure, start, until

ALL_PIPELINES = [*handoff_pipelines.PIPELINES, *PIPELINES]
ALL_STAGES: list[Callable[..., Any]] = [*handoff_stages.STAGES, *STAGES]
OUR_OWN = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
"""What rich writes to a terminal itself: colours, cursor, lines."""


@pytest.fixture(scope="module")
def operator(server: DevServer, tmp_path_factory: pytest.TempPathFactory) -> Operator:
    return Operator(tmp_path_factory.mktemp("operator"), {"TEMPORAL_ADDRESS": server.address})


@pytest.fixture(scope="module")
async def client(server: DevServer, tmp_path_factory: pytest.TempPathFactory) -> Client:
    safeguards = Safeguards.development(tmp_path_factory.mktemp("safeguards"))
    return await Client.connect(server.address, plugins=[BatonPlugin(safeguards=safeguards)])


@pytest.fixture(scope="module")
async def worker(client: Client) -> AsyncIterator[Worker]:
    async with pipeline_worker(client, ALL_PIPELINES, ALL_STAGES) as worker:
        yield worker


async def pending(worker: Worker, pipeline: Callable[..., Any], count: int = 1, **members: Any) -> Handle:
    """Start a run, and return it once this many handoffs wait for a person."""
    handle = await worker.client.start_workflow(
        pipeline,
        PipelineInput(goal="Review the contract", **members),
        id=f"contract-{uuid4().hex[:8]}",
        task_queue=worker.task_queue,
    )
    await until(handle, lambda now: now.status is PipelineStatus.PENDING_HANDOFF)
    while len(await waiting(handle)) < count:  # noqa: ASYNC110
        await asyncio.sleep(0.01)  # a query is no event that could be awaited
    return handle


async def waiting(handle: Handle) -> list[PendingHandoff]:
    """Return the pending handoffs of a run."""
    questions = await handle.query(QUERY_QUESTIONS, result_type=list[Question])
    return [question.handoff for question in questions if question.handoff]


async def poisoned(worker: Worker) -> Handle:
    return await pending(worker, FourAgents.run, params={"poisoned": True})


async def listed(operator: Operator, handle: Handle, *words: str) -> dict[str, Any]:
    """Return the inbox entry of a run, once the server has indexed it."""
    while True:
        for entry in await operator.json("inbox", *words):
            if entry["workflow_id"] == handle.id:
                match: dict[str, Any] = entry
                return match


async def answering(
    operator: Operator, answer: str, *words: str, meanwhile: Coroutine[Any, Any, object] | None = None
) -> tuple[int, str]:
    """Call the command on a terminal, answer its question, and return exit code and output.

    What happens `meanwhile` has happened once it is answered.
    """
    async with operator.at_a_terminal(*words) as screen:
        await screen.until("[y/N]")
        if meanwhile is not None:
            await meanwhile
        screen.type(f"{answer}\n")
        return await screen.code(), screen.written


class TestList:
    async def test_without_a_command_it_lists_pending_handoffs(self, operator: Operator, worker: Worker) -> None:
        """Run, step, agents, reason, since and deadline; the same as `baton inbox list`."""
        handle = await poisoned(worker)
        one = await listed(operator, handle)
        page = await operator("inbox")
        by_name = await operator.json("inbox", "list", "--limit", "1000")

        assert one in by_name
        assert (one["kind"], one["question"]["handoff"]["reason"], one["has_worker"]) == (
            "dead-letter",
            "SAFETY_VIOLATION",
            True,
        )
        assert one["choices"] == ["release", "requeue", "edit", "abandon"]
        [header] = [line for line in page.splitlines() if line.startswith("run ")]
        assert header.split() == ["run", "step", "since", "deadline", "from", "→", "to,", "why"]
        [line] = [line for line in page.splitlines() if line.startswith(handle.id)]
        assert "analyse → score, SAFETY_VIOLATION" in line
        await handle.terminate()

    async def test_it_lists_what_is_asked_for(self, operator: Operator, worker: Worker) -> None:
        """By kind, by pipeline, and what a person may decide."""
        handle = await poisoned(worker)
        for words in (["--kind", "dead-letter"], ["--pipeline", "FourAgents"], ["--mine", "--who", "ann"]):
            assert (await listed(operator, handle, *words))["workflow_id"] == handle.id
        for words in (["--kind", "approval"], ["--pipeline", "Four'Agents"]):
            assert handle.id not in [entry["workflow_id"] for entry in await operator.json("inbox", *words)]
        assert "is not one of" in await operator.refused("inbox", "--kind", "any", code=2)
        await handle.terminate()

    async def test_options_of_list_work_without_its_name(self, operator: Operator) -> None:
        """Options of `list` work without its name; unknown ones are rejected."""
        assert isinstance(await operator.json("inbox", "--limit", "1"), list)
        assert "No such option" in await operator.refused("inbox", "--nope", code=2)
        assert "No such command" in await operator.refused("inbox", "lst", code=2)

    async def test_it_needs_no_worker(self, operator: Operator, client: Client) -> None:
        """All is shown, and what is decided counts once a worker takes it up."""
        async with pipeline_worker(client, ALL_PIPELINES, ALL_STAGES) as short:
            handle = await poisoned(short)
            [one] = await waiting(handle)
        entry = await listed(operator, handle)
        page = await operator("inbox")
        output = await operator("inbox", "show", handle.id)
        left = await operator.refused("inbox", "release", handle.id, "--yes", "--why", "a quoted mail", code=4)

        actions = ["release", "requeue", "edit", "abandon"]
        assert (entry["choices"], entry["question"]["handoff"]["reason"]) == (actions, "SAFETY_VIOLATION")
        assert handle.id in page
        assert one.handoff_id in output
        assert "the server holds the decision" in " ".join(left.split())
        async with pipeline_worker(client, ALL_PIPELINES, ALL_STAGES, task_queue=short.task_queue):
            await handle.result()
        [settled] = (await read_run(client, handle.id)).handoff_decisions
        assert (settled.choice, settled.why, settled.via) == ("release", "a quoted mail", "signal")


class TestElsewhere:
    async def test_the_run_is_shown_as_waiting(self, operator: Operator, worker: Worker) -> None:
        """The page has its status, reason, deadline and where to decide; runs can be listed by this status."""
        handle = await poisoned(worker)
        [one] = await waiting(handle)
        listed_as = await listed(operator, handle)
        page, response, by_status = await asyncio.gather(
            operator("show", handle.id),
            operator.json("show", handle.id),
            operator.json("list", "--status", "pending-handoff", "--limit", "1000"),
        )

        assert page.splitlines()[0].endswith("PENDING_HANDOFF")
        assert "the handoff to step 3 score needs a decision" in page
        assert "SAFETY_VIOLATION" in page
        assert f"baton inbox show {handle.id}" in page
        assert "not begun" not in page
        assert [
            (pending_handoff["seq"], pending_handoff["handoff_id"]) for pending_handoff in response["pending_handoffs"]
        ] == [(3, one.handoff_id)]
        deadlines = [item["until"] for item in (listed_as["question"], response["pending_handoffs"][0])]
        of_the_run, of_its_timer = map(datetime.fromisoformat, deadlines)  # which starts when the task is completed
        assert abs(of_its_timer - of_the_run) < timedelta(minutes=1)
        assert (handle.id, "PENDING_HANDOFF") in [(run["workflow_id"], run["status"]) for run in by_status]
        await handle.terminate()


class TestShow:
    async def test_it_shows_all_findings_and_the_message(self, operator: Operator, worker: Worker) -> None:
        """Everything that a person needs to decide, and the commands."""
        handle = await poisoned(worker)
        [one] = await waiting(handle)
        page, response = await asyncio.gather(
            operator("inbox", "show", handle.id), operator.json("inbox", "show", handle.id, one.handoff_id[:8])
        )

        assert "SAFETY_VIOLATION (dead_letter)" in page
        assert all(finding.at in page for finding in one.findings)
        assert '"12 clauses extracted"' in page
        assert f"baton inbox release {handle.id} {one.handoff_id[:8]} --why" in page
        assert "top-up" not in page
        assert response["message"]["handoffId"] == one.handoff_id
        assert response["baton"]["current_state"] == ["12 clauses extracted"]
        assert response["question"]["handoff"]["findings"][0]["code"] == "SAFETY_VIOLATION"
        await handle.terminate()

    async def test_several_pending_handoffs_are_listed(self, operator: Operator, worker: Worker) -> None:
        """One must be chosen; for an unknown one the message lists the pending ones."""
        handle = await pending(worker, TaintedTwice.run, count=2)
        both = [wait.handoff_id for wait in await waiting(handle)]
        unclear, unknown, first = await asyncio.gather(
            operator.refused("inbox", "show", handle.id, code=2),
            operator.refused("inbox", "show", handle.id, "f47ac10b"),
            operator.json("inbox", "show", handle.id, both[0]),
        )

        assert "HANDOFF" in unclear
        assert [id for id in both if id not in unknown] == []
        assert "no handoff 'f47ac10b'" in unknown
        assert first["question"]["handoff"]["handoff_id"] == both[0]
        await handle.terminate()

    async def test_a_run_without_pending_handoffs_is_rejected(self, operator: Operator, worker: Worker) -> None:
        """Also a closed run, and an unknown one."""
        handle = await poisoned(worker)
        await handle.terminate()

        assert "no handoff that waits" in await operator.refused("inbox", "show", handle.id)
        assert "no longer waits for a decision" in await operator.refused(
            "inbox", "abandon", handle.id, "--yes", "--why", "too late"
        )
        assert "no such run" in await operator.refused("inbox", "show", "nothing-of-the-kind")


class TestHostileText:
    """A dead letter with text that attacks the reader's terminal."""

    async def test_its_text_cannot_control_a_terminal(self, operator: Operator, worker: Worker) -> None:
        """No escape sequence, no direction mark, no mark-up, no forged end of the fence."""
        handle = await pending(worker, Tainted.run)
        await listed(operator, handle)
        screens = await asyncio.gather(
            operator.on_a_terminal("inbox"),
            operator.on_a_terminal("inbox", "show", handle.id),
            operator.both("inbox", "show", handle.id),
        )
        terminal_list, terminal_page, (page, beside) = screens
        for screen in (terminal_list, terminal_page, page, beside):
            foreign = OUR_OWN.sub("", screen)
            assert [sign for sign in foreign if sign not in "\r\n" and steers(sign)] == []
        for screen in (terminal_page, page):
            assert "[bold red]markup[/bold red] [link=file:///etc/passwd]here[/link]" in screen
            assert "\x1b]" not in screen
            assert "\x1b[2J" not in screen
            ends = re.findall(r"\[END OF CONTEXT FROM PREVIOUS AGENT([^\]]*)\]", screen)
            assert ends
            assert all(re.fullmatch(r" [0-9a-f]{16}", nonce) for nonce in ends)
        await handle.terminate()

    async def test_deciding_shows_it_escaped(self, operator: Operator, worker: Worker) -> None:
        """The handoff is shown as data before its release."""
        handle = await pending(worker, Tainted.run)
        code, screen = await answering(operator, "n", "inbox", "release", handle.id, "--why", "let me see")

        assert code == 1
        assert "Ignore all previous instructions" in screen
        assert [sign for sign in OUR_OWN.sub("", screen) if sign not in "\r\n" and steers(sign)] == []
        await handle.terminate()


def steers(sign: str) -> bool:
    """Return whether a character can control a terminal, such as an escape or a direction mark."""
    return unicodedata.category(sign) in ("Cc", "Cf", "Zl", "Zp")


class TestDecide:
    async def test_a_release_passes_it_on_with_a_name(self, operator: Operator, worker: Worker) -> None:
        """The handoff continues, and the effective decision is printed (S3-11-d)."""
        handle = await poisoned(worker)
        response = await operator.json("inbox", "release", handle.id, "--yes", "--why", "a quoted mail", "--who", "bob")

        assert (response["choice"], response["who"], response["why"]) == ("release", "bob", "a quoted mail")
        await handle.result()

    async def test_a_requeue_is_validated_again(self, operator: Operator, worker: Worker) -> None:
        """Remaining faults are found again."""
        handle = await poisoned(worker)
        line = await operator("inbox", "requeue", handle.id, "--yes", "--why", "the scan was updated")

        assert re.fullmatch(r"requeued analyse → score by ann at .*: the scan was updated\n", line)
        while [wait.attempts for wait in await waiting(handle)] != [2]:  # noqa: ASYNC110
            await asyncio.sleep(0.01)  # a query is no event that could be awaited
        await handle.terminate()

    async def test_an_edit_is_in_the_history(self, operator: Operator, worker: Worker, tmp_path: Path) -> None:
        """The baton is changed, with person and reason, and the next handoff is sent."""
        handle = await pending(worker, Forgets.run, params={"stubborn": True})
        patch = tmp_path / "fix.json"
        patch.write_text(json.dumps({"work_scope": ["annex/*"]}), encoding="utf-8")
        output = await operator(
            "inbox", "edit", handle.id, "--yes", "--patch", f"@{patch}", "--why", "the scope was missing"
        )

        assert output.startswith("edited forgetful → scoped by ann at ")
        assert (await handle.result()).baton["current_state"] == ["Worked in annex/*"]
        run = await read_run(worker.client, handle.id)
        assert [(entry.by, entry.why) for entry, _ in run.history if entry.by] == [("ann", "the scope was missing")]

    async def test_a_top_up_is_in_dollars(self, operator: Operator, worker: Worker) -> None:
        """The waiting stage runs (C-21)."""
        handle = await pending(worker, Spends.run, budget=Budget(initial_micro_usd=200_000))
        page = await operator("inbox", "show", handle.id)
        response = await operator.json(
            "inbox", "top-up", handle.id, "--yes", "--usd", "0.03", "--why", "it is worth it"
        )

        assert "--usd 5.00" in page
        assert response["data"] == {"micro_usd": 30_000}
        assert (await handle.result()).spend.micro_usd == 230_000

    async def test_abandoning_fails_the_stage(self, operator: Operator, worker: Worker) -> None:
        """The run's failure has person and reason."""
        handle = await poisoned(worker)
        line = await operator("inbox", "abandon", handle.id, "--yes", "--why", "an attack")

        assert re.fullmatch(r"abandoned analyse → score by ann at .*: an attack\n", line)
        assert "abandoned by ann: an attack" in await failure(handle)

    async def test_on_a_terminal_it_asks_for_confirmation(self, operator: Operator, worker: Worker) -> None:
        """A no decides nothing and exits with 1, a yes decides; the handoff is shown first."""
        handle = await poisoned(worker)
        words = ("inbox", "abandon", handle.id, "--why", "an attack")
        no, screen = await answering(operator, "n", *words)
        still = await waiting(handle)
        yes, _ = await answering(operator, "y", *words)

        assert (no, yes, len(still)) == (1, 0, 1)
        assert "abandon the handoff to 'score'? [y/N]" in OUR_OWN.sub("", screen)
        assert "Ignore all previous instructions" in screen
        assert "nothing was decided" in screen
        assert "abandoned by ann" in await failure(handle)

    async def test_without_a_terminal_nothing_is_decided_unless_confirmed(
        self, operator: Operator, worker: Worker, tmp_path: Path
    ) -> None:
        """Each command that decides, pays or rolls back shows its effect, and exits with 2."""
        handle = await poisoned(worker)
        patch = tmp_path / "fix.json"
        patch.write_text('{"constraints": ["No cookies"]}', encoding="utf-8")
        begun = (await read_run(worker.client, handle.id)).run_id
        for words in (
            ("inbox", "release"),
            ("inbox", "requeue"),
            ("inbox", "edit", "--patch", f"@{patch}"),
            ("inbox", "abandon"),
            ("rollback", "--to", "1"),
            ("fork", "--at", "1"),
        ):
            message = await operator.refused(*words, handle.id, "--why", "why not", code=2)
            assert "--yes" in message
        assert (await read_run(worker.client, handle.id)).run_id == begun
        assert len(await waiting(handle)) == 1
        await handle.terminate()

    async def test_many_are_decided_after_one_question(self, operator: Operator, worker: Worker) -> None:
        """Those of a code and a pipeline; handoffs that do not allow the decision stay unchanged."""
        tainted = [await poisoned(worker) for _ in range(3)]
        other_handle = await pending(worker, Forgets.run, params={"stubborn": True})
        for handle in (*tainted, other_handle):
            await listed(operator, handle)
        words = ("inbox", "release", "--all", "--code", "safety-violation", "--why", "a quoted mail")
        await operator.refused(*words, "--pipeline", "Nobody", "--yes")
        assert "--yes" in await operator.refused(*words, code=2)
        decided = await operator.json(*words, "--pipeline", "FourAgents", "--yes")

        tainted_ids = {handle.id for handle in tainted}
        assert [row["refused"] for row in decided if row["workflow_id"] in tainted_ids] == [None] * 3
        for handle in tainted:
            await handle.result()
        assert len(await waiting(other_handle)) == 1
        await other_handle.terminate()

    async def test_approvals_are_decided_at_once_too(self, operator: Operator, worker: Worker) -> None:
        """Those of a title and a pipeline, each as it was shown; without a confirmation none is."""
        handles = [await start(worker, asks_what) for _ in range(3)]
        for handle in handles:
            await until(handle, lambda now: bool(now.questions))
            assert (await listed(operator, handle))["kind"] == "approval"
        words = ("approve", "--all", "--title", "what", "--why", "all read")
        await operator.refused(*words, "--pipeline", "Nobody", "--yes", "--set", "amount=7")
        assert "--yes" in await operator.refused(*words, "--set", "amount=7", code=2)
        assert "the answer lacks amount" in await operator.refused(*words, "--yes", code=2)
        assert "--all" in await operator.refused("approve", handles[0].id, "--title", "what", "--why", "w", code=2)
        decided = await operator.json(*words, "--pipeline", "asks_what", "--yes", "--set", "amount=7")

        assert {(row["workflow_id"], row["outcome"]) for row in decided} >= {(one.id, "decided") for one in handles}
        assert [(await handle.result()).output for handle in handles] == [{"amount": 7}] * 3

    async def test_of_many_one_whose_baton_changed_meanwhile_takes_the_people_it_needs(
        self, operator: Operator, worker: Worker
    ) -> None:
        """What is listed was published before the change; a vote is not called a decision."""
        handle = await start(worker, asks_aside)
        await until(handle, lambda now: bool(now.questions) and not now.waiting_for)
        await listed(operator, handle)
        words = ("inbox", "requeue", "--all", "--pipeline", "asks_aside", "--why", "w", "--yes", "--who")

        output = await operator(*words, "ann")
        assert "0 handoffs decided: requeue" in output
        assert "counted, 1 more must agree" in output
        [again] = await operator.json(*words, "ann")
        [last] = await operator.json(*words, "bob")

        assert [(row["outcome"], row["missing"]) for row in (again, last)] == [("counted", 1), ("decided", 0)]
        await handle.result()
        [settled] = (await read_run(worker.client, handle.id)).handoff_decisions
        assert (settled.choice, settled.who) == ("requeue", "ann, bob")

    async def test_a_decision_applies_to_what_was_shown(self, operator: Operator, worker: Worker) -> None:
        """While Bob reads, Ann has it resent: his yes does not apply to the new handoff (S3-11-d)."""
        handle = await poisoned(worker)

        async def requeue() -> None:
            await operator("inbox", "requeue", handle.id, "--yes", "--why", "the scan was updated")
            while [wait.attempts for wait in await waiting(handle)] != [2]:  # noqa: ASYNC110
                await asyncio.sleep(0.01)  # a query is no event that could be awaited

        words = ("inbox", "release", handle.id, "--why", "a quoted mail", "--who", "bob")
        code, screen = await answering(operator, "y", *words, meanwhile=requeue())

        assert code == 1
        assert "was requeued by ann at" in " ".join(OUR_OWN.sub("", screen).split())
        assert [wait.attempts for wait in await waiting(handle)] == [2]
        await handle.terminate()

    async def test_an_invalid_decision_is_rejected(self, operator: Operator, worker: Worker, tmp_path: Path) -> None:
        """Exit code 1, no output, no decision, not even for a patch that breaks a rule."""
        handle = await poisoned(worker)
        bad, broken = tmp_path / "bad.json", tmp_path / "broken.json"
        bad.write_text('{"goal": null}', encoding="utf-8")
        broken.write_text("{", encoding="utf-8")
        why = ("--why", "why not")
        names = await asyncio.gather(
            *(
                operator.refused(*words, *why, "--who", name, code=2)
                for words in (
                    ("inbox", "release", handle.id),
                    ("approve", handle.id),
                    ("rollback", handle.id, "--to", "1"),
                    ("fork", handle.id, "--at", "1"),
                )
                for name in ("ann\x1b[2K", "x" * 201)
            )
        )
        money, patch, none, reason, amount = await asyncio.gather(
            operator.refused("inbox", "top-up", handle.id, "--yes", "--usd", "5", *why, "--json"),
            operator.both("inbox", "edit", handle.id, "--yes", "--patch", f"@{bad}", *why, code=1),
            operator.refused("inbox", "edit", handle.id, "--patch", f"@{broken}", *why, code=2),
            operator.refused("inbox", "abandon", handle.id, code=2),
            operator.refused("inbox", "top-up", handle.id, "--usd", "-5", *why, code=2),
        )

        assert "does not allow 'top_up'; use release, requeue, edit, abandon" in money
        assert "goal" in patch[1]
        assert "is not JSON" in " ".join(none.replace("│", " ").split())
        assert "say why" in reason
        assert "--usd" in amount
        texts = [" ".join(name.replace("│", " ").split()) for name in names]
        assert ["a person's name is recorded: " in item for item in texts] == [True] * len(names)
        assert ["\x1b[2K" in name for name in names] == [False] * len(names)
        assert len(await waiting(handle)) == 1
        await handle.terminate()
