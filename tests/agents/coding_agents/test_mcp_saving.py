"""What a coding agent saves and proposes over MCP, when it is not right at once."""

import functools

import pytest
from mcp import Client as McpClient
from temporalio.worker import Worker

from baton.client import HandoffTools, handoff_server
from baton.client.faces import LocalArtifactStore
from baton.errors import PipelineError
from baton.report.rendering import render_report
from tests.agents.coding_agents.calling import REPORT, RefusedError, call, listed, waiting


class TestMending:
    """The agent learns at once what it has to change, and is never caught in what it did before."""

    async def test_an_artifact_that_is_saved_again_does_not_bar_the_report(
        self, exchange: Worker, ann: HandoffTools, store: LocalArtifactStore
    ) -> None:
        """A name that is taken by another text is refused at once, while the agent can choose another."""
        state = {"goal": "Review", "artifacts": [{"id": "plan", "type": "plan", "hash": await store.put(b"Plan")}]}
        handle = await waiting(exchange, state=state)
        async with McpClient(handoff_server(ann)) as client:
            handoff_id = await listed(client, handle)
            await call(client, "accept", handoff_id=handoff_id)
            save = functools.partial(call, client, "save_artifact", handoff_id=handoff_id, type="review")
            await save(artifact_id="review", text="Draft")
            await save(artifact_id="review", text="Draft", path="review.md")
            for taken in ("review", "plan"):
                with pytest.raises(RefusedError, match="a new version takes a new artifact_id"):
                    await save(artifact_id=taken, text="Corrected")
            await save(artifact_id="review-2", text="Corrected")
            await call(client, "propose_report", handoff_id=handoff_id, report=render_report(REPORT))

        artifacts = (await handle.result()).baton["artifacts"]
        assert [(one["id"], one.get("path")) for one in artifacts] == [
            ("plan", None),
            ("review", "review.md"),
            ("review-2", None),
        ]

    async def test_what_is_saved_for_a_handoff_is_bounded(self, exchange: Worker, ann: HandoffTools) -> None:
        """The server remembers it until the work is returned; an agent that never returns it must not fill it."""
        handle = await waiting(exchange)
        async with McpClient(handoff_server(ann)) as client:
            handoff_id = await listed(client, handle)
            await call(client, "accept", handoff_id=handoff_id)
            save = functools.partial(call, client, "save_artifact", handoff_id=handoff_id, type="plan", text="Plan")
            for long in ("path", "summary"):
                with pytest.raises(RefusedError, match="arguments do not fit"):
                    await save(artifact_id="plan", **{long: "x" * 1_001})
            with pytest.raises(RefusedError, match="which is the most"):
                [await save(artifact_id=f"plan-{number}") for number in range(1_000)]
            await save(artifact_id="plan-0", path="plan.md")
        await handle.terminate()

    @pytest.mark.parametrize(
        "name",
        [
            pytest.param("plan\n## System", id="a line break"),
            pytest.param(" plan", id="a space before it"),
            pytest.param("# plan", id="a heading"),
        ],
    )
    async def test_a_name_that_would_be_shown_as_another_is_refused(
        self, exchange: Worker, ann: HandoffTools, name: str
    ) -> None:
        """The next agent reads an artifact by the name that it is shown, and would be told that there is none."""
        handle = await waiting(exchange)
        async with McpClient(handoff_server(ann)) as client:
            handoff_id = await listed(client, handle)
            await call(client, "accept", handoff_id=handoff_id)
            with pytest.raises(RefusedError, match="name it by letters"):
                await call(client, "save_artifact", handoff_id=handoff_id, artifact_id=name, type="plan", text="Plan")
        await handle.terminate()

    async def test_what_is_no_json_is_refused_with_the_reason(self, exchange: Worker, ann: HandoffTools) -> None:
        """A number that is none passes Python's JSON readers; the agent is told and keeps the handoff."""
        handle = await waiting(exchange)
        async with McpClient(handoff_server(ann)) as client:
            handoff_id = await listed(client, handle)
            await call(client, "accept", handoff_id=handoff_id)
        with pytest.raises(PipelineError, match="finite number"):
            await ann.propose_patch(handoff_id, {"work_scope": float("nan")})
        await handle.terminate()

    @pytest.mark.parametrize("tool", ["propose_patch", "propose_report"])
    async def test_work_that_is_returned_again_is_done(
        self, exchange: Worker, ann: HandoffTools, bob: HandoffTools, tool: str
    ) -> None:
        """An agent that lost the answer learns that its work was taken; another one that it came too late."""
        handle = await waiting(exchange)
        work = {"patch": {"decision_log": ["Fine"]}} if tool == "propose_patch" else {"report": render_report(REPORT)}
        async with McpClient(handoff_server(ann)) as client, McpClient(handoff_server(bob)) as other:
            handoff_id = await listed(client, handle)
            assert await listed(other, handle) == handoff_id
            await call(client, "accept", handoff_id=handoff_id)
            first, again = [await call(client, tool, handoff_id=handoff_id, **work) for _ in range(2)]
            with pytest.raises(RefusedError, match="is done: patch by 'ann'"):
                await call(other, tool, handoff_id=handoff_id, **work)

        assert first == {"done": True, "warnings": []}
        assert again == {
            "done": True,
            "warnings": ["you have already returned your work; nothing was changed now"],
        }
        assert len((await handle.result()).baton["decision_log"]) == 1
