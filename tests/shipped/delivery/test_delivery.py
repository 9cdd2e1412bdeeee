"""The shipped pipeline `delivery` on a real server, over real git repositories, with tests that really run."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from pydantic import JsonValue
from temporalio.client import Client, WorkflowFailureError, WorkflowHandle
from temporalio.worker import Worker

from activities.delivery.stages import STAGES
from baton import PipelineInput, PipelineResult, StepKind, WorkerParts
from baton.client import decide, read_run, roll_back
from baton.client.faces import ArtifactStore, explain_in
from baton.devserver import DevServer
from baton.handoff.store_safeguards import Safeguards
from baton.ledger.store import Ledger, LedgerOptions
from baton.plugin import BatonPlugin
from baton.testing import assert_replays, pipeline_worker
from tests.chat_server import chat_server, completion, configure
from tests.shipped.delivery.material import ADD, FIX, TEST, at, git, has_sandbox, project, state
from tests.support import failure, sealing_worker, until
from workflows.delivery import Delivery

Handle = WorkflowHandle[Any, PipelineResult]


@pytest.fixture(scope="module")
async def deliverer(client: Client) -> AsyncIterator[Worker]:
    """Return a worker of the pipeline that replays the workflow at every task."""
    async with pipeline_worker(client, [Delivery], STAGES, replay_every_task=True) as worker:
        yield worker


@pytest.fixture
def repo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a repository whose test fails, and keep the worktrees in the test's own folder."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return project(tmp_path / "project")


@pytest.fixture(autouse=True)
def _sandboxed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do without a sandbox where none works."""
    if not has_sandbox():
        monkeypatch.setenv("BATON_DELIVERY_SANDBOX", "none")


async def start(worker: Worker, repo: Path, **params: JsonValue) -> Handle:
    all_params: dict[str, JsonValue] = {"repository": str(repo), "test": [*TEST], **params}
    handle: Handle = await worker.client.start_workflow(
        Delivery.run,
        PipelineInput(goal="Add instead of subtract", params=all_params),
        id=f"delivery-{uuid4()}",
        task_queue=worker.task_queue,
    )
    return handle


async def asked(worker: Worker, handle: Handle, answer: bool | None, who: str = "ann") -> str:
    """Wait for the approval, decide it, and return its question."""
    waits = asyncio.ensure_future(until(handle, lambda now: any(wait.kind == "approval" for wait in now.waiting_for)))
    ends = asyncio.ensure_future(handle.result())
    await asyncio.wait([waits, ends], return_when=asyncio.FIRST_COMPLETED)
    if ends.done():
        waits.cancel()
        raise AssertionError(f"nobody is asked: {ends.result()}")
    ends.cancel()
    now = await waits
    [question] = now.questions
    if answer is not None:
        decision = question.answer("approve" if answer else "deny", who=who, why="as I see it")
        await decide(worker.client, handle.id, decision)
    return question.asks


async def seen(condition: Callable[[], object]) -> None:
    """Poll the files for a change, because there is no event to await."""
    async with asyncio.timeout(60):
        while not await asyncio.to_thread(condition):  # noqa: ASYNC110
            await asyncio.sleep(0.02)


class TestDelivery:
    async def test_offers_a_tested_and_approved_branch(
        self, deliverer: Worker, store: ArtifactStore, repo: Path
    ) -> None:
        """Planner, implementer, tester, reviewer, a person (S2-flow-a); the working copy is unchanged."""
        state_before = state(repo)
        handle = await start(deliverer, repo, patch=FIX)
        question = await asked(deliverer, handle, True)
        output: Any = (await handle.result()).output
        assert output["offered"] is True
        assert output["branch"].startswith("baton/add-instead-of-subtract-")
        assert "1 file, +1 -1" in question
        assert at(repo, output["branch"], "app/sums.py") == ADD.replace("one - two", "one + two")
        assert git(repo, "log", "-1", "--format=%an: %s", output["branch"]).strip() == "Baton: Add instead of subtract"
        state_after = state(repo)
        assert (state_after[0], state_after[1], *state_after[3:]) == (
            state_before[0],
            state_before[1],
            *state_before[3:],
        )
        assert set(str(state_after[2]).splitlines()) - set(str(state_before[2]).splitlines()) == {
            f"refs/heads/{output['branch']} {output['commit']}"
        }
        run = await read_run(deliverer.client, handle.id)
        assert [step.name for step in run.steps] == [
            "plan-change",
            "draft-change",
            "implement-change",
            "test-change",
            "review-change",
            "maintainer",
            "offer-branch",
        ]
        assert b"+    return one + two" in await store.get(
            next(ref.hash for ref in run.baton.artifacts if ref.id == "diff")
        )
        await assert_replays(handle, [Delivery], plugin=BatonPlugin(WorkerParts(artifacts=store)))

    async def test_works_on_the_whole_of_a_sparse_checkout(self, deliverer: Worker, repo: Path) -> None:
        """Tests and edits see every file of the commit, whatever the working copy leaves out; that stays as it is."""
        git(repo, "stash", "--quiet")
        git(repo, "sparse-checkout", "set", "app")
        edits: JsonValue = [{"path": "tests/test_sums.py", "find": "add(1, 2), 3", "replace": "add(3, 2), 1"}]
        handle = await start(deliverer, repo, edits=edits)
        await asked(deliverer, handle, True)
        output: Any = (await handle.result()).output
        assert "add(3, 2), 1" in at(repo, output["branch"], "tests/test_sums.py")
        assert not (repo / "tests").exists()
        assert git(repo, "sparse-checkout", "list").split() == ["app"]

    async def test_deletes_the_branch_that_a_person_denies(self, deliverer: Worker, repo: Path) -> None:
        """Nothing of it is left in the repository, the run says who denied it, and the compensation is a step."""
        state_before = state(repo)
        handle = await start(deliverer, repo, patch=FIX)
        await asked(deliverer, handle, False)
        output: Any = (await handle.result()).output
        assert output["offered"] is False
        assert "denied by ann: as I see it" in output["why"]
        assert state(repo) == state_before
        run = await read_run(deliverer.client, handle.id)
        assert [step.name for step in run.steps][-1] == "withdraw-branch"

    async def test_takes_silence_for_a_no(self, deliverer: Worker, repo: Path) -> None:
        """After the approver's time limit the branch is withdrawn."""
        state_before = state(repo)
        handle = await start(deliverer, repo, patch=FIX, approver="owner", approval_hours=0.0003)
        output: Any = (await handle.result()).output
        assert output["offered"] is False
        assert "'owner' was denied" in output["why"]
        assert state(repo) == state_before

    async def test_goes_back_to_the_implementer_when_tests_fail(self, deliverer: Worker, repo: Path) -> None:
        """The second change is made on top of the first; each round is a commit."""
        comment: JsonValue = {"edits": [{"path": "app/*.py", "find": "Sums.", "replace": "Adds."}], "title": "Rename"}
        mend: JsonValue = {"command": ["sed", "-i", "s/one - two/one + two/", "app/sums.py"]}
        handle = await start(deliverer, repo, changes=[comment, mend])
        await asked(deliverer, handle, True)
        output: Any = (await handle.result()).output
        assert at(repo, output["branch"], "app/sums.py") == ADD.replace("Sums", "Adds").replace(
            "one - two", "one + two"
        )
        assert git(repo, "rev-list", "--count", f"main..{output['branch']}").strip() == "2"
        run = await read_run(deliverer.client, handle.id)
        assert [step.name for step in run.steps].count("implement-change") == 2
        assert "Is it meant that on the base the tests fail?" in run.baton.open_questions

    async def test_goes_back_to_the_implementer_when_the_review_blocks(self, deliverer: Worker, repo: Path) -> None:
        """The tests pass, but a stop for a debugger is left in the diff."""
        stop = "    if one > 9:\n        breakpoint()\n"
        corrected = f"{stop}    return one + two"
        first: JsonValue = {"edits": [{"path": "app/sums.py", "find": "    return one - two", "replace": corrected}]}
        second: JsonValue = {"edits": [{"path": "app/sums.py", "find": stop, "replace": ""}]}
        handle = await start(deliverer, repo, changes=[first, second])
        await asked(deliverer, handle, True)
        output: Any = (await handle.result()).output
        assert at(repo, output["branch"], "app/sums.py") == ADD.replace("one - two", "one + two")

    async def test_gives_up_after_the_last_round(self, deliverer: Worker, store: ArtifactStore, repo: Path) -> None:
        """The run fails with what the tests said last; nothing is left in the repository."""
        state_before = state(repo)
        handle = await start(deliverer, repo, edits=[{"path": "app/sums.py", "find": "Sums.", "replace": "Adds."}])
        message = await failure(handle)
        assert "after round 1 the tests fail: " in message
        assert "ended with exit code 1" in message
        assert state(repo) == state_before
        run = await read_run(deliverer.client, handle.id)
        assert [step.name for step in run.steps][-1] == "withdraw-branch"
        assert [warning for entry, _ in run.history for warning in entry.warnings if "bullets" in warning] == []
        artifact = next(ref for ref in run.baton.artifacts if ref.id.startswith("tests-1"))
        assert b"AssertionError: -1 != 3" in await store.get(artifact.hash)

    async def test_does_not_say_that_tests_fail_where_none_ran(self, deliverer: Worker, repo: Path) -> None:
        """The message says what happened, of the change and of its base."""
        handle = await start(deliverer, repo, patch=FIX, test="no-such-runner")
        message = await failure(handle)
        assert "after round 1 no test could run: " in message
        assert "the tests fail" not in message
        run = await read_run(deliverer.client, handle.id)
        assert "Is it meant that on the base no test could run?" in run.baton.open_questions

    async def test_leaves_nothing_behind_when_it_is_canceled(self, deliverer: Worker, repo: Path) -> None:
        """While a person is asked."""
        state_before = state(repo)
        handle = await start(deliverer, repo, patch=FIX)
        await asked(deliverer, handle, None)
        await handle.cancel()
        with pytest.raises(WorkflowFailureError):
            await handle.result()
        assert state(repo) == state_before

    async def test_ends_what_was_canceled(self, deliverer: Worker, repo: Path, tmp_path: Path) -> None:
        """A command in the middle of its work is killed, and its checkout is removed."""
        state_before = state(repo)
        handle = await start(deliverer, repo, command="touch begun; while :; do mkdir -p out; sleep 0.01; done")
        await seen(lambda: [*tmp_path.glob("baton-delivery-*/tree/begun")])
        await handle.cancel()
        with pytest.raises(WorkflowFailureError):
            await handle.result()
        await seen(lambda: not [*tmp_path.glob("baton-delivery-*")])
        assert state(repo) == state_before

    async def test_makes_the_first_round_anew_after_a_roll_back(self, deliverer: Worker, repo: Path) -> None:
        """The second round's commit is dropped, and the work starts from the current base."""
        first: JsonValue = {"edits": [{"path": "app/sums.py", "find": "Sums.", "replace": "Adds."}]}
        handle = await start(deliverer, repo, changes=[first, {"patch": FIX}])
        await asked(deliverer, handle, None)
        git(repo, "commit", "--quiet", "--allow-empty", "-m", "meanwhile")
        await roll_back(deliverer.client, handle.id, "plan-change", by="ann", why="The base has moved")
        handle = deliverer.client.get_workflow_handle_for(Delivery.run, handle.id)
        await asked(deliverer, handle, True)
        output: Any = (await handle.result()).output
        assert output["base"] == git(repo, "rev-parse", "HEAD").strip()
        assert git(repo, "rev-list", "--count", f"main..{output['branch']}").strip() == "2"

    async def test_offers_no_branch_over_somebody_elses(self, deliverer: Worker, repo: Path) -> None:
        """If someone creates the branch in the meantime, theirs stays, and the run says why."""
        handle = await start(deliverer, repo, patch=FIX, branch="fix/sums")
        await asked(deliverer, handle, None)
        git(repo, "branch", "fix/sums")
        branch_commit = git(repo, "rev-parse", "fix/sums")
        await asked(deliverer, handle, True)
        assert "its name exists" in await failure(handle)
        assert git(repo, "rev-parse", "fix/sums") == branch_commit

    @pytest.mark.skipif(not has_sandbox(), reason="no sandbox works here")
    async def test_a_change_that_reads_the_workers_secrets_gets_none(
        self, deliverer: Worker, repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Tests are unapproved code of the change: they see neither the worker's files nor its environment."""
        secret = tmp_path / "baton" / "keys.toml"
        secret.parent.mkdir()
        secret.write_text("secret-of-the-worker")
        monkeypatch.setenv("BATON_KEYS", str(secret))
        reads = f"cat {secret}; cat /proc/*/environ; ls {secret.parent}; env; echo read it all; exit 1"
        handle = await start(deliverer, repo, patch=FIX, test=reads)
        message = await failure(handle)
        assert "read it all" in message
        run = await read_run(deliverer.client, handle.id)
        assert "secret-of-the-worker" not in json.dumps(run.baton.to_json_object())
        history = (await handle.fetch_history()).to_json()
        assert "secret-of-the-worker" not in history

    async def test_works_side_by_side_in_one_repository(self, deliverer: Worker, repo: Path) -> None:
        """Several deliveries at once have a branch and a worktree each."""
        handles = [await start(deliverer, repo, patch=FIX) for _ in range(3)]
        await asyncio.gather(*(asked(deliverer, handle, True) for handle in handles))
        outputs: list[Any] = [(await handle.result()).output for handle in handles]
        assert len({output["branch"] for output in outputs}) == 3
        assert all("one + two" in at(repo, output["branch"], "app/sums.py") for output in outputs)

    async def test_hands_facts_on_under_contracts(self, deliverer: Worker, repo: Path) -> None:
        """The tester's result is a fact of the reviewer's contract, with tool and time of retrieval (S5-fields-e)."""
        handle = await start(deliverer, repo, patch=FIX)
        await asked(deliverer, handle, True)
        await handle.result()
        explained = str(await handle.query("explain", "review-change"))
        assert "ended with exit code 0" in explained
        assert "is commit" in explained
        run = await read_run(deliverer.client, handle.id)
        stages = [step.name for step in run.steps if step.kind is StepKind.STAGE]
        assert "review-change" in stages
        for stage in stages:
            assert explain_in(run, stage).stage == stage

    @pytest.mark.parametrize(
        ("params", "message"),
        [
            pytest.param({}, "needs a change", id="no change"),
            pytest.param({"patch": "/no/such.diff"}, "cannot be read", id="a diff that is not there"),
            pytest.param({"patch": "hello\nworld\n"}, "is not a diff", id="a diff that is none"),
            pytest.param(
                {"command": "true", "base": "nowhere"},
                "the commit 'nowhere' does not exist",
                id="a base that is not there",
            ),
            pytest.param(
                {"command": "true", "branch": "../x"}, "not a valid branch name", id="a branch that cannot be"
            ),
            pytest.param({"command": "true", "tests": "x"}, "tests: Extra inputs", id="a parameter that is unknown"),
            pytest.param({"command": "true", "branch": "main"}, "its name exists", id="a branch of others"),
            pytest.param({"command": "true"}, "changes nothing", id="a command that changes nothing"),
            pytest.param({"command": "echo no; exit 7"}, r"fails (exit code 7): no", id="a command that fails"),
            pytest.param({"patch": FIX.replace("one - two", "two - one")}, "does not apply", id="another text"),
        ],
    )
    async def test_fails_at_once_on_what_cannot_be_delivered(
        self, deliverer: Worker, repo: Path, params: dict[str, JsonValue], message: str
    ) -> None:
        """The message says what to do, nothing is retried, and nothing is left in the repository."""
        state_before = state(repo)
        handle = await start(deliverer, repo, **params)
        assert message in await failure(handle)
        assert state(repo) == state_before
        run = await read_run(deliverer.client, handle.id)
        assert all(step.attempts == 1 for step in run.steps)

    async def test_says_that_a_repository_has_no_commit_yet(self, deliverer: Worker, tmp_path: Path) -> None:
        """There is none to name then; the remedy is to make one."""
        git(tmp_path, "init", "--quiet")
        handle = await start(deliverer, tmp_path, command="true")
        assert "the commit 'HEAD' does not exist" in (why := await failure(handle))
        assert "commit something there first" in why


class TestWithAModel:
    async def test_lets_a_model_correct_what_the_tests_refuse(
        self, deliverer: Worker, repo: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The second draft reads what the tests printed of the first; both answers are charged."""
        drafts = [
            {"title": "Divide", "edits": [{"path": "app/sums.py", "find": "one - two", "replace": "one / two"}]},
            {"title": "Add", "edits": [{"path": "app/sums.py", "find": "one / two", "replace": "one + two"}]},
        ]
        replies = [completion(json.dumps({"baton_patch": {}, "output": draft})) for draft in drafts]
        with chat_server(*replies) as server:
            configure(monkeypatch, server)
            handle = await start(deliverer, repo)
            await asked(deliverer, handle, True)
            output: Any = (await handle.result()).output
        assert at(repo, output["branch"], "app/sums.py") == ADD.replace("one - two", "one + two")
        assert git(repo, "log", "--format=%s", f"main..{output['branch']}").splitlines() == ["Add", "Divide"]
        first, second = [request.body["messages"][1]["content"] for request in server.asked]
        assert "AssertionError: 0.5 != 3" in second
        assert "AssertionError" not in first
        assert (await handle.result()).spend.prompt_tokens == 2_000

    async def test_applies_no_draft_outside_of_what_may_change(
        self, deliverer: Worker, repo: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A model that rewrites the tests is rejected, and nothing is left behind."""
        state_before = state(repo)
        draft = {"title": "x", "edits": [{"path": "tests/test_sums.py", "find": ", 3)", "replace": ", -1)"}]}
        with chat_server(completion(json.dumps({"baton_patch": {}, "output": draft}))) as server:
            configure(monkeypatch, server)
            handle = await start(deliverer, repo, paths=["app/*.py"])
            assert "may not change 'tests/test_sums.py'" in await failure(handle)
        assert state(repo) == state_before


async def test_the_offered_branch_has_a_provenance(server: DevServer, safeguards: Safeguards, repo: Path) -> None:
    """Commit, base, order, who approved, and the digests of diffs, test runs and reviews, from the ledger alone."""
    async with sealing_worker(server, safeguards, [Delivery], STAGES) as worker:
        handle = await start(worker, repo, patch=FIX)
        await asked(worker, handle, True)
        output: Any = (await handle.result()).output
        run = await read_run(worker.client, handle.id)
    async with Ledger(safeguards.ledger, LedgerOptions(signer=safeguards.keyring.signer())) as ledger:
        envelopes = map(json.loads, await ledger.attest([str(run.task_id)]))
        statements = [json.loads(base64.b64decode(envelope["payload"])) for envelope in envelopes]
    [provenance] = [
        statement for statement in statements if statement["predicateType"] == "https://slsa.dev/provenance/v1"
    ]
    build, details = provenance["predicate"]["buildDefinition"], provenance["predicate"]["runDetails"]

    subject = {"name": f"refs/heads/{output['branch']}", "digest": {"gitCommit": output["commit"]}}
    assert provenance["subject"] == [subject]
    assert build["resolvedDependencies"] == [{"digest": {"gitCommit": output["base"]}, "uri": str(repo)}]
    assert git(repo, "rev-parse", output["branch"]).strip() == output["commit"]
    assert build["externalParameters"]["goal"] == "Add instead of subtract"
    assert [decision["actor"] for decision in build["internalParameters"]["decisions"]] == ["ann"]
    assert {ref.hash for ref in run.baton.artifacts} <= {item["digest"]["sha256"] for item in details["byproducts"]}
    assert {artifact["name"] for artifact in details["byproducts"]} >= {"plan", "diff", "diff-1"}
