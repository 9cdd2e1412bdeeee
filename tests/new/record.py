"""Records what the template of `baton new` keeps, histories and cassettes: `python -m tests.new.record`.

The same rules hold as for `tests.replay.record`: what is there is kept; before the first release, delete a file to
record it again. The answers come from the scripts of the projects, so no key is needed or used.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from baton.new.names import Template
from baton.new.store_projects import TEMPLATES, make

RECORDED = TEMPLATES / "0.1.0" / "project" / "tests"
PIPELINES = {Template.MINIMAL: "summary", Template.AGENTS: "article", Template.REVIEW: "release"}
DECISIONS = {Template.REVIEW: {"editor": True}}
RUN = """
import asyncio, os, sys
from baton import BatonPlugin, MemoryArtifactStore, PipelineInput, WorkerParts
from baton.testing import local_server, pipeline_worker, run_pipeline
from baton.worker import discover
from temporalio.client import Client

async def main(pipeline, decisions, file):
    served = discover("relay")
    from relay.__main__ import GOAL, PARAMS
    async with local_server() as server:
        plugin = BatonPlugin(WorkerParts(artifacts=MemoryArtifactStore()), safeguards="off")
        client = await Client.connect(server.address, plugins=[plugin], identity="test")
        async with pipeline_worker(client, served.pipelines, served.stages, task_queue="baton") as worker:
            start = PipelineInput(goal=GOAL, params=PARAMS)
            run = await run_pipeline(worker, served.pipelines[0], start, id=pipeline, decisions=decisions)
        history = await run.handle.fetch_history()
    with open(file, "w", encoding="utf-8") as kept:
        kept.write(history.to_json() + "\\n")

asyncio.run(main(sys.argv[1], eval(sys.argv[2]), sys.argv[3]))
sys.stdout.flush()
os._exit(0)
"""


def record(template: Template, folder: Path) -> None:
    """Record the missing files for one template."""
    project = folder / template.value
    make(project, "relay", "relay", template)
    without_models = {name: value for name, value in os.environ.items() if not name.startswith(("AGENT_", "OPENAI_"))}
    history = RECORDED / "histories" / f"{PIPELINES[template]}.json"
    if not history.exists():
        history.parent.mkdir(exist_ok=True)
        arguments = [PIPELINES[template], repr(DECISIONS.get(template, {})), str(history)]
        subprocess.run([sys.executable, "-c", RUN, *arguments], cwd=project, env=without_models, check=True)
        print(f"recorded {history.name}")
    cassettes = RECORDED / "cassettes" / f"test_{template.value}"
    if not cassettes.exists():
        project = folder / f"{template.value}-with-history"
        make(project, "relay", "relay", template)
        command = [sys.executable, "-m", "pytest", "-q", "--baton-record"]
        subprocess.run(command, cwd=project, env={**without_models, "CI": ""}, check=True)
        for file in sorted((project / "tests" / "cassettes").rglob("*.json")):
            cassettes.mkdir(parents=True, exist_ok=True)
            (cassettes / file.name).write_bytes(file.read_bytes())
            print(f"recorded {file.name}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder_name:
        for template in Template:
            record(template, Path(folder_name))
