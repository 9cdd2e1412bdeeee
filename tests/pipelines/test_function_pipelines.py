"""`@pipeline`: a pipeline that is one async function."""

import sys
from pathlib import Path

import pytest
from temporalio.client import Client, WorkflowFailureError

import baton
from baton import PipelineInput
from baton.devserver import DevServer
from baton.testing import assert_replays, connected, pipeline_worker, run_pipeline
from tests.chat_server import chat_server, completion
from tests.pipelines import function_pipelines as kinds
from tests.support.processes import ROOT, ran

STAGES = [kinds.gather, kinds.compose]
HELLO = """
import baton
from baton import Baton, BatonPatch, Pipeline, pipeline, stage

@stage
async def greet(baton: Baton) -> BatonPatch:
    return BatonPatch(current_state=["greeted"])

@pipeline
async def hello(p: Pipeline) -> str:
    await p.stage(greet)
    return f"{p.baton.goal}, {p.inputs['to']}"

if __name__ == "__main__":
    print(baton.run(hello, "Say hello", inputs={"to": "Ada"}).output)
"""

PYDANTIC = """
import httpx
from pydantic_ai import Agent
from pydantic_ai.models.test import TestModel

model = TestModel(custom_output_text="a draft")
agent = PydanticAgent(Agent(model, name="draft"), of_output=lambda text: AgentAnswer(output=text))
"""
OPENAI = """
from agents import Agent

def text(output):
    return AgentAnswer(output=output)

models = provider(base_url={url!r}, api_key="key", api="chat")
agent = OpenAIAgent(Agent("draft", model="gpt-4o"), provider=models, of_output=text)
"""
LANGGRAPH = """
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langgraph.graph import START, MessagesState, StateGraph

chat = GenericFakeChatModel(messages=iter([AIMessage('{{"baton_patch": {{"current_state": ["drafted"]}}}}')]))

async def ask(state: MessagesState):
    return {{"messages": [await chat.ainvoke(state["messages"])]}}

graph = StateGraph(MessagesState).add_node("ask", ask).add_edge(START, "ask").compile()
agent = LangGraphAgent(graph, into={{"messages": "messages"}}, out={{"answer": "messages"}})
"""
WITH_AGENT = """
import baton
from baton import Pipeline, pipeline
from baton.agents import AgentAnswer, LangGraphAgent, OpenAIAgent, PydanticAgent, agent_stage, provider
{framework}
draft = agent_stage(agent, name="draft", instructions="Write.", writes=["current_state"])

@pipeline
async def article(p: Pipeline) -> object:
    drafted = await p.stage(draft)
    return drafted.output or p.baton.current_state[0]

if __name__ == "__main__":
    print(baton.run(article, goal="Write", quiet=True).output)
"""


@pytest.fixture
async def client(server: DevServer) -> Client:
    return await connected(server.address)


async def test_it_runs_as_a_workflow_of_its_name(client: Client) -> None:
    """A client starts it by the function or by name, and the history replays."""
    async with pipeline_worker(client, [kinds.article], STAGES, replay_every_task=True) as worker:
        by_class = await client.execute_workflow(
            kinds.article, PipelineInput(goal="batons"), id="function-1", task_queue=worker.task_queue
        )
        by_name = await run_pipeline(worker, "article", PipelineInput(goal="batons"))
        await assert_replays(by_name.handle, [kinds.article])

    assert by_class.output == by_name.result.output == "done"
    assert by_name.baton.current_state == ["written about batons"]


async def test_terms_and_children_are_those_of_any_pipeline(client: Client) -> None:
    """The decorator takes the arguments of `Pipeline`; a function pipeline can be a child."""
    async with pipeline_worker(client, [kinds.article, kinds.under_terms, kinds.parent], STAGES) as worker:
        renamed = await run_pipeline(worker, "renamed", PipelineInput(goal="batons"))
        parent = await run_pipeline(worker, kinds.parent, PipelineInput(goal="batons"))

    assert (renamed.result.steps, renamed.result.output) == (1, None)
    assert parent.result.output == {"done": True}
    assert parent.baton.decision_log == ["found three facts"]


def test_an_unsuitable_function_is_an_error() -> None:
    """At import, naming what was found."""

    async def nested(p: baton.Pipeline) -> None: ...

    def not_async(p: baton.Pipeline) -> None: ...

    async def two(p: baton.Pipeline, q: object) -> None: ...

    faults = []
    for function in (nested, not_async, two, None.__class__):
        with pytest.raises(TypeError) as refused:
            baton.pipeline(function)  # type: ignore[arg-type]
        faults.append(str(refused.value))

    assert "top level" in faults[0]
    assert all("async function of one argument" in fault for fault in faults[1:])


async def test_a_file_runs_by_itself(tmp_path: Path) -> None:
    """`baton.run` starts server and worker; the result is on stdout, the progress on stderr."""
    code, said, progress = await run_file(HELLO, tmp_path)

    assert (code, said) == (0, "Say hello, Ada"), progress
    assert "COMPLETED" in progress
    assert progress.startswith("starting a Temporal server")


@pytest.mark.parametrize(
    ("framework", "output"),
    [(PYDANTIC, "a draft"), (OPENAI, "a draft"), (LANGGRAPH, "drafted")],
    ids=["pydantic", "openai", "langgraph"],
)
async def test_an_agent_may_be_in_its_pipelines_file(framework: str, output: str, tmp_path: Path) -> None:
    """The frameworks and their clients pass through the workflow sandbox."""
    with chat_server(completion("a draft")) as server:
        text = WITH_AGENT.format(framework=framework.format(url=server.base))
        code, said, progress = await run_file(text, tmp_path)

    assert (code, said) == (0, output), progress


async def run_file(text: str, folder: Path) -> tuple[int | None, str, str]:
    """Run a file that calls `baton.run` as a process; return its exit code, output and standard error."""
    script = folder / "article.py"
    script.write_text(text, encoding="utf-8")
    environment = {"PYTHONPATH": str(ROOT), "HOME": str(folder), "PATH": "/usr/bin:/bin"}
    code, said, progress = await ran(sys.executable, str(script), folder=folder, environment=environment)
    return code, said.strip(), progress


async def test_it_runs_inside_a_running_event_loop(
    server: DevServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As in a notebook, on the server that the environment names."""
    monkeypatch.setenv("TEMPORAL_ADDRESS", server.address)
    monkeypatch.chdir(tmp_path)

    result = baton.run(kinds.article, "batons", quiet=True)

    assert result.output == "done"
    assert (tmp_path / ".baton" / "ledger.db").exists(), "it is set up as a worker is, with safeguards"


async def test_a_failure_reaches_the_caller(server: DevServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The pipeline's error is the cause of the raised one."""
    monkeypatch.setenv("TEMPORAL_ADDRESS", server.address)
    monkeypatch.chdir(tmp_path)

    with pytest.raises(WorkflowFailureError) as failed:
        baton.run(kinds.failing, "batons", quiet=True)

    assert "no facts" in str(failed.value.cause)
