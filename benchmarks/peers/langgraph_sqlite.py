"""LangGraph in one process: its asynchronous SQLite checkpointer, in a file, and no server."""

from pathlib import Path
from typing import Any
from uuid import uuid4

from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

from benchmarks.peers.graph import delivery
from benchmarks.peers.pipes import take_jobs


async def serve(address: str, queue: str, folder: Path) -> None:
    """Work until standard input ends; there is no server, so address and queue mean nothing."""
    async with AsyncSqliteSaver.from_conn_string(str(folder / "langgraph.db")) as saver:
        graph = delivery().compile(checkpointer=saver)

        async def job(state: dict[str, Any]) -> dict[str, Any]:
            done: dict[str, Any] = await graph.ainvoke(state, {"configurable": {"thread_id": uuid4().hex}})
            return done

        await take_jobs(job)
