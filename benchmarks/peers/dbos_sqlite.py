"""DBOS in one process: a durable workflow of four steps, in an SQLite file, and no server."""

from pathlib import Path
from typing import Any

from dbos import DBOS

from benchmarks.peers.job import AGENTS, Answer, State, answers, merge
from benchmarks.peers.pipes import take_jobs


@DBOS.step()  # type: ignore[untyped-decorator]
async def agent(name: str, state: dict[str, Any]) -> dict[str, Any]:
    """Answer from the script."""
    return answers()[name]


@DBOS.workflow()  # type: ignore[untyped-decorator]
async def deliver(given: dict[str, Any]) -> dict[str, Any]:
    """Four steps, one after the other."""
    state = State.model_validate(given)
    for name in AGENTS:
        state = merge(state, Answer.model_validate(await agent(name, state.model_dump())))
    return state.model_dump()


async def serve(address: str, queue: str, folder: Path) -> None:
    """Work until standard input ends; there is no server, so address and queue mean nothing."""
    database = f"sqlite:///{folder / 'dbos.db'}"
    DBOS(config={"name": "delivery", "system_database_url": database, "log_level": "ERROR"})
    DBOS.launch()
    try:
        await take_jobs(deliver)
    finally:
        DBOS.destroy()
