"""A coding agent over MCP: the pipeline waits until the agent fetches the task and returns its work.

baton dev examples/coding_agent.py
baton run fix_bug --goal "The total of an empty cart is 0, not an error" --id fix-1

Add the command `baton mcp --agent coder` to the agent's MCP servers. The agent then lists pending tasks, accepts one,
reads its contract, and returns a patch or a report. It never sees a key, and its result is checked like any stage's.
"""

from datetime import timedelta

from baton import Exchange, Outside, Pipeline, pipeline


@pipeline(protected=["constraints"])
async def fix_bug(p: Pipeline) -> object:
    """Hand the task to the first coder that accepts it, and return the resulting state."""
    outside = Outside(Exchange(p, agent="team"))
    await outside.hand_off("coder", "Fix the bug, with a test that fails without the fix", within=timedelta(days=2))
    return p.baton.current_state
