"""A web service with the worker inside: FastAPI starts a pipeline, streams its output, and takes a person's decision.

uvicorn --app-dir examples web_service:app --port 8000
curl -X POST 'localhost:8000/summaries?document=CHANGELOG.md'   # {"run": "summary-…"}
curl -N localhost:8000/summaries/RUN/events                       # live; resumes after Last-Event-ID
curl -X POST 'localhost:8000/summaries/RUN/approval?who=ann&why=fine'
"""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated
from uuid import uuid4

from fastapi import FastAPI, Header, Request, Response
from fastapi.responses import StreamingResponse
from summary import edit, summary, write  # a module without the web framework: the workflow sandbox imports it
from temporalio.client import Client
from temporalio.worker import Worker

from baton import BatonPlugin, PipelineInput
from baton.client import Answer, connect, decide, follow


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Connect to the configured Temporal server, and work for it until the service stops."""
    app.state.client = await connect(plugins=[BatonPlugin()])
    async with Worker(app.state.client, task_queue="web", workflows=[summary], activities=[write, edit]):
        yield


app = FastAPI(lifespan=lifespan)


@app.post("/summaries")
async def start(request: Request, document: str) -> dict[str, str]:
    """Start a run."""
    client: Client = request.app.state.client
    pipeline_input = PipelineInput(goal="What is new, for users", params={"document": document})
    handle = await client.start_workflow("summary", pipeline_input, id=f"summary-{uuid4().hex[:8]}", task_queue="web")
    return {"run": handle.id}


@app.get("/summaries/{run}/events")
async def events(request: Request, run: str, last_event_id: Annotated[str | None, Header()] = None) -> Response:
    """Stream the run as server-sent events; a browser that reconnects misses nothing."""

    async def stream() -> AsyncIterator[str]:
        async for update in follow(request.app.state.client, run, cursor=last_event_id):
            for news, cursor in zip(update.news, update.cursors, strict=True):
                yield f"id: {cursor}\ndata: {json.dumps(news.to_json_object())}\n\n"

    return StreamingResponse(stream(), media_type="text/event-stream")


@app.post("/summaries/{run}/approval")
async def approve(request: Request, run: str, who: str, why: str, yes: bool = True) -> dict[str, bool]:
    """Record the editor's decision."""
    answer = Answer(question="editor", choice="approve" if yes else "deny", who=who, why=why)
    return {"approved": (await decide(request.app.state.client, run, answer)).approved}
