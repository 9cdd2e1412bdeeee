"""Baton against the other agent layers: the same four agents, scripted alike, each side as it is shipped.

Baton's side has the whole protocol on: contracts, sealed handoffs, the gate, the ledger. The sides of a comparison take
turns. As shipped, a peer runs on Temporal's development server as it is, and Baton on the server that it brings; the
peer on Baton's server stands beside, which is the comparison of the layers alone. Each side has scripted agents of its
own kind: a framework's layer those of the framework, Baton such as stand behind its port. Baton with agents of the
peer's framework stands beside, too.
"""

import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from baton import PipelineInput
from benchmarks.compare import Effort, ratio, take_turns
from benchmarks.load import Load, run_times, speed, stage_latencies
from benchmarks.measures import (
    LATENCY_COLUMNS,
    SPEED_COLUMNS,
    column,
    latency_rows,
    pipeline_input,
    speed_rows,
)
from benchmarks.peers.chain import LINKS, make_text
from benchmarks.peers.crews import Crews, scripts
from benchmarks.protocol import SIZES, measure_history
from benchmarks.report import Findings
from benchmarks.rig import Rig
from benchmarks.samples import large, small

BATON = "baton"
CHAIN_COLUMNS = ("side", "run p50 ms", "ratio")
_CONCURRENCY = 10
_PIPELINES = 40


@dataclass(frozen=True)
class Peer:
    """A side that Baton is measured against.

    Attributes:
        title: What people call it.
        module: Its module, of `benchmarks.peers.worker.PEERS`.
        workflow: The name of its workflow; None if it has no server and works in one process.
        framework: Baton's workflow with agents of the same framework; None if the peer has none.
    """

    title: str
    module: str
    workflow: str | None
    framework: str | None


PEERS: Mapping[str, Peer] = {
    "vs_openai_agents_c10": Peer("OpenAI Agents plugin", "openai_agents", "OpenAIDelivery", "OpenAIAgentsStages"),
    "vs_pydantic_ai_c10": Peer("pydantic-ai durable", "pydantic_ai", "PydanticAIDelivery", "PydanticAIStages"),
    "vs_langgraph_plugin_c10": Peer("LangGraph plugin", "langgraph", "LangGraphDelivery", "LangGraphStages"),
    "vs_langgraph_sqlite_c10": Peer("LangGraph, one process", "langgraph_sqlite", None, "LangGraphStages"),
    "vs_dbos_sqlite_c10": Peer("DBOS, one process", "dbos_sqlite", None, None),
}
"""The peers, by the figure that compares Baton with each."""

SAME: Mapping[str, Peer] = {
    "openai_agents": PEERS["vs_openai_agents_c10"],
    "pydantic_ai": PEERS["vs_pydantic_ai_c10"],
    "langgraph": PEERS["vs_langgraph_plugin_c10"],
}
"""The peers of whose framework Baton has agents as well, on the same server, by the ends of the figures' names."""


async def against(rig: Rig, effort: Effort, *, figure: str) -> Findings:
    """Measure pipelines per second and processor time against a peer, 10 at a time, with a state of 1 KB.

    Raises:
        RuntimeError: A side did not do the whole job.
    """
    peer = PEERS[figure]
    async with Crews(rig) as crews:
        baton_crew = await crews.ours("agents")
        if peer.workflow is None:
            loads = [Load(peer.title, await crews.piped(peer.module), peer.title, small())]
        else:
            servers = (("", "stock"), (", Baton's server", "shipped"))
            loads = [
                Load(f"{peer.title}{suffix}", await crews.peer(peer.module, server), peer.workflow, small())
                for suffix, server in servers
            ]
        loads.append(Load(BATON, baton_crew, "ScriptedStages", pipeline_input(small())))
        if peer.framework is not None:
            loads.append(
                Load(
                    f"{BATON} with {peer.framework.removesuffix('Stages')}",
                    baton_crew,
                    peer.framework,
                    loads[-1].argument,
                )
            )
        for load in loads:
            await _check(load)
        turn = partial(speed, pipelines=effort.pipelines(_PIPELINES), concurrency=_CONCURRENCY)
        results = await take_turns(peer.title, loads, turn, effort)
    findings = Findings(f"Baton against {peer.title}, {_CONCURRENCY} at a time", SPEED_COLUMNS)
    findings.rows.extend(speed_rows("1 KB", results, peer.title))
    findings.values[figure] = ratio(column(results, "per_second"), BATON, peer.title)
    return findings


async def same_framework(rig: Rig, effort: Effort, *, name: str) -> Findings:
    """Measure processor time and pipelines a second of a peer and of Baton, with one framework's agents on one server.

    Raises:
        RuntimeError: A side did not do the whole job.
    """
    peer = SAME[name]
    async with Crews(rig) as crews:
        loads = await _make_pair(crews, peer, small, "agents")
        for load in loads:
            await _check(load)
        turn = partial(speed, pipelines=effort.pipelines(_PIPELINES), concurrency=_CONCURRENCY)
        results = await take_turns(f"{peer.title}, same server", loads, turn, effort)
    findings = Findings(f"{peer.title} and Baton with the same agents, {_CONCURRENCY} at a time", SPEED_COLUMNS)
    findings.rows.extend(speed_rows("1 KB", results, peer.title))
    findings.values[f"cpu_vs_{name}"] = ratio(column(results, "worker_ms"), BATON, peer.title)
    return findings


async def agent_histories(rig: Rig, effort: Effort) -> Findings:
    """Count the bytes of history of four agents, Baton's encrypted beside the peers', by the size of the first state.

    Raises:
        RuntimeError: A side did not do the whole job.
    """
    findings = Findings("History of four agents, Baton encrypted", ("side", "events", "bytes", "of the peer's"))
    for size, make_baton in SIZES.items():

        def make(make_baton: Callable[[], dict[str, Any]] = make_baton) -> dict[str, Any]:
            return make_baton() | {"artifacts": []}  # their files do not exist, and agents open them

        async with Crews(rig, make) as crews:
            for name, peer in SAME.items():
                sizes = []
                for load in await _make_pair(crews, peer, make, "encrypted"):
                    await _check(load, make)
                    events, written = await measure_history(load)
                    sizes.append(written)
                    share = written / sizes[0]
                    title = f"{load.name} {peer.title}" if load.name == BATON else load.name
                    findings.rows.append((f"{title}, {size}", str(events), f"{written:,}", f"{share:.2f}"))
                if make_baton is large:
                    findings.values[f"history_vs_{name}"] = sizes[1] / sizes[0]
    return findings


async def _make_pair(crews: Crews, peer: Peer, make: Callable[[], dict[str, Any]], role: str) -> list[Load]:
    """Return a peer on Baton's server, and Baton with agents of its framework."""
    assert peer.workflow is not None
    assert peer.framework is not None
    return [
        Load(peer.title, await crews.peer(peer.module, "shipped"), peer.workflow, make()),
        Load(BATON, await crews.ours(role), peer.framework, pipeline_input(make())),
    ]


async def agent_stage(rig: Rig, effort: Effort) -> Findings:
    """Measure how long a stage by an agent takes, against the same agent in a bare activity.

    The figure is about the adapter and the stage around it; without contracts, and the whole protocol, stand beside.
    """
    bare, alone, without, whole = "bare", "stage", "without contracts", "whole protocol"
    async with Crews(rig) as crews:
        baton_crew, guarded = await crews.ours("baton"), await crews.ours("agents")
        loads = [
            Load(bare, await crews.ours("raw"), "BareAgents", small()),
            Load(alone, baton_crew, "PydanticAIStages", pipeline_input(small())),
            Load(without, baton_crew, "PydanticAIAlone", pipeline_input(small())),
            Load(whole, guarded, "PydanticAIStages", pipeline_input(small())),
        ]
        for load in loads:
            await _check(load)

        async def turn(load: Load) -> float:
            return statistics.median(await stage_latencies(load, effort.pipelines(40)))

        results = await take_turns("agent stage", loads, turn, effort)
    findings = Findings("A stage by an agent of pydantic-ai, one pipeline at a time", LATENCY_COLUMNS)
    findings.rows.extend(latency_rows("1 KB", results, bare))
    findings.values["agent_stage_vs_bare"] = ratio(results, alone, bare)
    return findings


async def agent_chain(rig: Rig, effort: Effort) -> Findings:
    """Measure how long a chain of four agents takes, each on the text of the one before, against bare activities.

    Raises:
        RuntimeError: A side did not end with the text of the last agent.
    """
    bare, alone, without, whole = "bare", "pipeline", "without contracts", "with safeguards"
    goal = small()["goal"]
    async with Crews(rig) as crews:
        baton_crew = await crews.ours("baton")
        loads = [
            Load(bare, await crews.ours("raw"), "BareChain", goal),
            Load(alone, baton_crew, "AgentChain", PipelineInput(goal=goal)),
            Load(without, baton_crew, "AgentChainAlone", PipelineInput(goal=goal)),
            Load(whole, await crews.ours("agents"), "AgentChain", PipelineInput(goal=goal)),
        ]
        for load in loads:
            result: Any = await (await load.crew.start(load.workflow, load.argument)).result()
            if (result if load.name == bare else result["output"]) != make_text(LINKS[-1]):
                raise RuntimeError(f"{load.name} did not end with the text of the last agent")

        async def turn(load: Load) -> float:
            return statistics.median(await run_times(load, effort.pipelines(40)))

        results = await take_turns("agent chain", loads, turn, effort)
    findings = Findings("A chain of four agents of pydantic-ai, one at a time", CHAIN_COLUMNS)
    findings.rows.extend(latency_rows("texts of 4 KB", results, bare))
    findings.values["agent_chain_vs_bare"] = ratio(results, alone, bare)
    return findings


async def _check(load: Load, make: Callable[[], dict[str, Any]] = small) -> None:
    """Make sure that a side does the job: every agent answered, and the state holds what they said.

    Raises:
        RuntimeError: It does not.
    """
    result: Any = await (await load.crew.start(load.workflow, load.argument)).result()
    state = extract_state(result)
    answers = scripts(make)
    expected = [*make()["decision_log"], *(decision for answer in answers for decision in answer["decision_log"])]
    if state["decision_log"] != expected or state["current_state"] != answers[-1]["current_state"]:
        raise RuntimeError(f"{load.name} did another job: its last state is not what the four agents answered")


def extract_state(result: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the state in what a side returned: itself, or the baton of a pipeline's result.

    Example:
        >>> extract_state({"decision_log": ["a"]}) == extract_state({"baton": {"decision_log": ["a"]}})
        True
    """
    state: Mapping[str, Any] = result.get("baton", result)
    return state
