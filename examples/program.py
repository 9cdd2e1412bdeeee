"""A program as an agent, called by a stage with code around it. Offline."""

import sys

import baton
from baton import Baton, Pipeline, StageContext, StageResult, pipeline, stage
from baton.agents import AnswerForm, SubprocessAgent, agent_stage

SCRIPT = "import sys; print('Imports sorted' if 'Sort the imports' in sys.stdin.read() else 'What?')"
coder = SubprocessAgent(name="code", command=[sys.executable, "-c", SCRIPT])  # a real one: ["claude", "--print"]
code = agent_stage(coder, answers=AnswerForm.TEXT, notes=False)


@stage
async def change(context: StageContext[Baton]) -> StageResult:
    """Have the agent work in this stage's activity: what it costs is this stage's."""
    done = str((await code(context)).output)
    return StageResult(output={"done": done.strip(), "understood": "?" not in done})


@pipeline
async def changed(p: Pipeline) -> object:
    """Change the code."""
    return (await p.stage(change)).output


if __name__ == "__main__":
    print(baton.run(changed, goal="Sort the imports").output)
