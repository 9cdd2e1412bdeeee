"""Agents as stages on a real server: contracts, costs, retries, and keys that no history ever has."""

import asyncio
import os
import sys
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, suppress
from pathlib import Path
from typing import Any

import pydantic_ai.models
import pytest
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from temporalio.client import Client, WorkflowFailureError
from temporalio.worker import Worker

from baton import MemoryArtifactStore, Spend, WorkerParts
from baton.agents import AgentTool, AnswerForm, agent_stage
from baton.agents.chat_completions import chat_agent
from baton.agents.notes import NOTE_TOOLS
from baton.agents.pydantic_ai import PydanticAgent
from baton.agents.subprocess_agent import SubprocessAgent
from baton.client import RunRecord, StepStatus, read_run
from baton.client.faces import explain_in
from baton.devserver import DevServer
from baton.handoff.store_safeguards import Safeguards
from baton.plugin import BatonPlugin
from baton.testing import assert_replays, pipeline_worker
from tests.agents.agent_pipelines import AGENT_PIPELINES, CODE, DECIDE, FIND, ByAgents
from tests.agents.surfaces import in_history, with_marker
from tests.chat_server import ChatServer, chat_server, completion, refusal
from tests.contract.contract_pipelines import REPORT
from tests.support import Handle, failure, start

KEYS = {"provider": "sk-provider-0123456789abcdef", "plain": "sk-plain-0123456789abcdef", "program": "sk-prog-01234567"}
PATCH: dict[str, Any] = {"baton_patch": {"current_state": ["Found out"], "decision_log": ["Ask the customer"]}}
LOOKED_UP = completion(calls=[("crm_lookup", {"customer": "c-1"})])
FOUND = completion(calls=[("final_result", PATCH)])
DECIDED = completion('{"baton_patch": {"decision_log": ["Approved"]}}')
PROGRAM = "import os, sys; sys.stdin.read(); os.environ['PROGRAM_KEY']; print(sys.argv[1])"


def lookup(customer: str) -> str:
    return f"{customer} pays 20 USD"


def send(to: str) -> str:
    raise AssertionError("a denied tool ran")


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Set the keys as a worker has them, and allow requests, which go to this machine."""
    monkeypatch.setenv("PLAIN_KEY", KEYS["plain"])
    monkeypatch.setenv("PROGRAM_KEY", KEYS["program"])
    with pydantic_ai.models.override_allow_model_requests(True):
        yield


@pytest.fixture(scope="module", params=[True, False], ids=["sealed", "plain"])
def sealed(request: pytest.FixtureRequest) -> bool:
    """Return whether handoffs are sealed: agents work under contracts in both cases."""
    return bool(request.param)


@pytest.fixture(scope="module")
async def client(sealed: bool, server: DevServer, safeguards: Safeguards) -> Client:
    """Return a client that seals its handoffs, and one that does not."""
    parts = WorkerParts(artifacts=MemoryArtifactStore())
    plugin = BatonPlugin(parts, safeguards=safeguards if sealed else "off")
    return await Client.connect(server.address, plugins=[plugin])


def working(
    client: Client, models: ChatServer, program: str = PROGRAM, argument: str = "", **options: Any
) -> AbstractAsyncContextManager[Worker]:
    """Return a worker whose three agents are a framework's, a plain endpoint's and a command line's."""
    provider = OpenAIProvider(base_url=models.base, api_key=KEYS["provider"])
    framework = PydanticAgent(Agent(OpenAIChatModel("gpt-4o", provider=provider)), named="find", **options)
    plain = chat_agent("decide", models.url, "gpt-4o", key_env="PLAIN_KEY")
    command = [sys.executable, "-c", program, argument or REPORT.format(confidence=90)]
    coder = SubprocessAgent("code", command, environment=["PROGRAM_KEY"], grace=0.1)
    tools = [AgentTool.of(lookup, name="crm.lookup"), AgentTool.of(send, name="email.send")]
    stages = [
        agent_stage(framework, tools=tools, retries=FIND.spec.retries),
        agent_stage(plain, retries=DECIDE.spec.retries, forbids=DECIDE.spec.forbids),
        agent_stage(coder, retries=CODE.spec.retries, answers=AnswerForm.REPORT),
    ]
    return pipeline_worker(client, AGENT_PIPELINES, stages)


async def run_stages(client: Client, models: ChatServer, *stages: str, **options: Any) -> tuple[Handle, RunRecord]:
    """Run the pipeline with some of its stages to its end, and return how it went."""
    async with working(client, models, **options) as worker:
        handle = await start(worker, ByAgents.run, stages=list(stages))
        with suppress(WorkflowFailureError):
            await handle.result()
    return handle, await read_run(client, handle.id)


async def keys_in(client: Client, handle: Handle) -> list[str]:
    """Return where one of the keys is, in all that a run left behind."""
    texts = await in_history(client, handle)
    texts["history as exported"] = (await handle.fetch_history()).to_json()
    return [place for key in KEYS.values() for place in with_marker(texts, key)]


class TestPipeline:
    async def test_each_does_its_stage_under_a_contract(self, client: Client) -> None:
        """What a tool found is a sure fact for the next one; all name their handoff (S5-fields-a, S5-fields-i)."""
        with chat_server(LOOKED_UP, FOUND, DECIDED) as models:
            handle, run = await run_stages(client, models, "find", "decide", "code")
        explanation = explain_in(run, "decide")

        assert run.baton.decision_log[:2] == ["Ask the customer", "Approved"]
        assert "Send the email" in run.baton.decision_log[2]
        facts: Any = explanation.contract["facts"]
        assert [(fact["claim"], fact["confidence"]) for fact in facts] == [("c-1 pays 20 USD", "high")]
        assert "c-1 pays 20 USD" in models.asked[2].body["messages"][-1]["content"]
        named = [request.headers["x-baton-handoff-id"] for request in models.asked]
        assert named == [explain_in(run, "find").contract["handoffId"]] * 2 + [explanation.contract["handoffId"]]
        await assert_replays(handle, AGENT_PIPELINES, plugin=_plugin(client))

    async def test_the_tools_it_used_are_those_of_its_contract(self, client: Client) -> None:
        """The model is shown what is granted and no more (S5-compiler-h, S5-fields-k)."""
        with chat_server(LOOKED_UP, FOUND) as models:
            _, run = await run_stages(client, models, "find")

        assert explain_in(run, "find").contract["allowedTools"] == ["crm.lookup"]
        tool_names = [tool["function"]["name"] for tool in models.asked[0].body["tools"]]
        assert [name for name in tool_names if name not in NOTE_TOOLS] == ["crm_lookup", "final_result"]

    async def test_every_request_is_on_the_bill(self, client: Client) -> None:
        """Tokens and money, by the price list."""
        with chat_server(LOOKED_UP, FOUND, DECIDED) as models:
            _, run = await run_stages(client, models, "find", "decide")

        assert run.state.spend == Spend(micro_usd=10_500, prompt_tokens=3_000, completion_tokens=300)

    async def test_no_key_is_in_the_history(self, client: Client) -> None:
        """Neither of a run that went well nor of one that a provider refused with the key in its answer."""
        shouting = refusal(401, "invalid_api_key", f"Incorrect API key provided: {' '.join(KEYS.values())}")
        loud = "import os, sys; print(os.environ['PROGRAM_KEY'], file=sys.stderr); sys.exit(2)"
        with chat_server(LOOKED_UP, FOUND, DECIDED, shouting, shouting) as models:
            runs = [await run_stages(client, models, "find", "decide", "code")]
            runs += [await run_stages(client, models, stage) for stage in ("find", "decide")]
            runs += [await run_stages(client, models, "code", program=loud)]

        assert [run.steps[-1].status for _, run in runs] == [StepStatus.DONE, *[StepStatus.FAILED] * 3]
        assert models.asked[0].headers["authorization"] == f"Bearer {KEYS['provider']}"
        assert [await keys_in(client, handle) for handle, _ in runs] == [[], [], [], []]
        assert with_marker(await in_history(client, runs[0][0]), "Ask the customer") != []


class TestRetries:
    @pytest.mark.parametrize("name", ["find", "decide"])
    async def test_temporal_retries_a_transient_error(self, client: Client, name: str) -> None:
        """Each request is made once by the agent; the next run of the activity makes the next."""
        good = FOUND if name == "find" else DECIDED
        with chat_server(refusal(500, "server_error"), refusal(429, "rate_limit_exceeded"), good) as models:
            _, run = await run_stages(client, models, name)

        assert run.steps[0].status is StepStatus.DONE
        assert len(models.asked) == 3
        assert run.state.entries[0].attempt == 1

    @pytest.mark.parametrize("name", ["find", "decide"])
    @pytest.mark.parametrize(("status", "code"), [(400, "bad"), (401, "key"), (403, "no"), (404, "model_not_found")])
    async def test_a_permanent_error_is_not_retried(self, client: Client, name: str, status: int, code: str) -> None:
        """The stage fails at once, with the status."""
        with chat_server(refusal(status, code)) as models:
            handle, run = await run_stages(client, models, name)

        assert len(models.asked) == 1
        assert run.steps[0].status is StepStatus.FAILED
        assert f"answered {status}" in await failure(handle)

    async def test_an_unusable_answer_leads_to_a_retry_with_its_findings(self, client: Client) -> None:
        """It is the agent's to mend and no fault of the worker."""
        with chat_server(completion("Done!"), completion("Done!"), DECIDED) as models:
            _, run = await run_stages(client, models, "decide")

        assert run.state.entries[0].attempt == 2
        assert "is not a JSON object" in models.asked[2].body["messages"][-1]["content"]

    async def test_the_cost_of_a_lost_run_is_charged(self, client: Client) -> None:
        """The first run paid for its lookup before the provider failed."""
        with chat_server(LOOKED_UP, refusal(500, "server_error"), FOUND) as models:
            _, run = await run_stages(client, models, "find")

        assert run.state.spend.prompt_tokens == 2_000


class TestSubprocess:
    async def test_is_ended_with_its_run(self, client: Client, tmp_path: Path) -> None:
        """A cancelled pipeline leaves no process that goes on."""
        pipe = tmp_path / "told"
        os.mkfifo(pipe)
        endless = "import os, sys, time\nopen(sys.argv[1], 'w').write(str(os.getpid()))\nwhile True: time.sleep(60)"
        with chat_server() as models:
            async with working(client, models, program=endless, argument=str(pipe)) as worker:
                handle = await start(worker, ByAgents.run, stages=["code"])
                pid = int(await asyncio.to_thread(pipe.read_text))
                process = os.pidfd_open(pid)
                await handle.cancel()
                loop, gone = asyncio.get_running_loop(), asyncio.Event()
                loop.add_reader(process, gone.set)
                await gone.wait()
                loop.remove_reader(process)
                os.close(process)


def _plugin(client: Client) -> BatonPlugin:
    (plugin,) = client.config()["plugins"]
    assert isinstance(plugin, BatonPlugin)
    return plugin
