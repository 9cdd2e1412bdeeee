"""A coding agent over MCP: the pipeline waits until the agent has fetched the task and returned its work.

baton dev examples/coding_agent.py
baton run fix_bug --goal "The total of an empty cart is 0, not an error" --id fix-1

The agent's list of MCP servers then has the command `baton mcp --agent coder`: it lists what waits, accepts it, reads
its contract and returns a patch or a report. It never sees a key, and what it returns is checked like any stage's.
"""

from datetime import timedelta

from baton import Exchange, Outside, Pipeline, pipeline


@pipeline(protected=["constraints"])
async def fix_bug(p: Pipeline) -> object:
    """Hand the task to whichever coder comes first, and show what it did."""
    outside = Outside(Exchange(p, agent="team"))
    await outside.hand_off("coder", "Fix the bug, with a test that fails without the fix", within=timedelta(days=2))
    return p.baton.current_state
