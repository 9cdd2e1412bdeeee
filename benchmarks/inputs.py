"""Whether what agents hand on arrives, and what it costs the history: texts of 40 KB along a chain, with safeguards."""

from baton import BatonPlugin, PipelineInput, Safeguards, WorkerParts, open_store
from baton.client import Connection, connect
from baton.testing import pipeline_worker, run_pipeline
from benchmarks.compare import Effort
from benchmarks.report import Findings
from benchmarks.rig import Rig
from benchmarks.workflows.inputs import AGENTS, ARRIVED, LONGER, SCRIBES, hands_texts_on


async def inputs(rig: Rig, effort: Effort) -> Findings:
    """Run a chain of five agents and one of ten, and compare what was written with what stood in the prompts."""
    server = await rig.server()
    parts = WorkerParts(artifacts=open_store(rig.folder / "inputs"))
    plugin = BatonPlugin(parts, safeguards=Safeguards.development(rig.folder))
    client = await connect(Connection(address=server.address), plugins=[plugin])
    ARRIVED.clear()
    sizes: dict[int, int] = {}
    async with pipeline_worker(client, [hands_texts_on], SCRIBES) as worker:
        for agents in (AGENTS, LONGER):
            start = PipelineInput(goal="Write a manual", params={"agents": agents})
            run = await run_pipeline(worker, hands_texts_on, start)
            sizes[agents] = sum(event.ByteSize() for event in (await run.handle.fetch_history()).events)
    findings = Findings("Inputs of 40 KB along a chain of agents", ("agents", "history, bytes"))
    findings.rows.extend((str(agents), f"{size:,}") for agents, size in sizes.items())
    arrived, written = (sum(column) for column in zip(*ARRIVED, strict=True))
    findings.values["delivered_share"] = arrived / written
    findings.values["inputs_history_bytes_per_stage"] = (sizes[LONGER] - sizes[AGENTS]) / (LONGER - AGENTS)
    return findings
