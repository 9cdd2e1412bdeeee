"""The conformance kit of A2A (a2aproject/a2a-tck, branch 1.0-dev) against a pipeline.

The kit is not on a package registry, and the project does not contain it: the test runs where `BATON_A2A_TCK` names its
folder, with the kit's own environment in `.venv` there. CI has neither; docs/a2a.md has the counts of the last run.
"""

import asyncio
import os
import re
import xml.etree.ElementTree as ElementTree
from collections import Counter
from pathlib import Path
from urllib.parse import urlsplit
from uuid import uuid4

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from temporalio.worker import Worker

from baton import Keyring
from baton.client import Access, Caller, Offer, ServiceParts, Tokens, serve_service, service
from baton.client.faces import ArtifactStore, Rate
from baton.devserver.processes import held_port
from tests.doors.conftest import token_of

KIT = os.environ.get("BATON_A2A_TCK", "")
COMMIT = "357c4a87afa2818731590647cccbea31c31733a2"
BINDINGS = ("jsonrpc", "http_json")
EXPECTED = {
    # Asks for the refusal, and takes it for a failed call: the requirement names no expected error.
    *(f"test_requirements::test_must_requirement[CORE-SEND-003-{binding}]" for binding in BINDINGS),
    # Asks for `application/json`; the specification that it carries (11.1) says `application/a2a+json`.
    "TestRestFormat::test_response_content_type",
    # An answer without a task, and a file by reference: here each message is a durable run, and files are sent whole.
    *(f"TestMessageResponse::test_returns_message_with_text_part[{binding}]" for binding in BINDINGS),
    *(f"TestFileUrlArtifact::test_task_has_file_url_artifact[{binding}]" for binding in BINDINGS),
}
"""What fails, and why; docs/a2a.md says it too."""


def adapted(app: ASGIApp) -> ASGIApp:
    """Return an application that adds the token, as a proxy may, and makes each message's id unique.

    The kit does not authenticate, and it gives the messages of different tests the same id: here, a message with the id
    of an earlier one is that message sent again.
    """

    async def proxied(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            added = (b"authorization", f"Bearer {token_of('ann')}".encode())
            scope = {**scope, "headers": [*(pair for pair in scope["headers"] if pair[0] != b"content-length"), added]}
            body = await Request(scope, receive).body()
            unique = re.sub(rb'("messageId": ?"[^"]*)', lambda match: match[1] + f"-{uuid4()}".encode(), body)
            sent = iter([{"type": "http.request", "body": unique, "more_body": False}])

            async def replay() -> Message:
                return next(sent, None) or await receive()

            await app(scope, replay, send)
        else:
            await app(scope, receive, send)

    return proxied


@pytest.mark.skipif(not KIT, reason="BATON_A2A_TCK does not name the folder of the kit")
async def test_the_conformance_kit(
    doors_worker: Worker, store: ArtifactStore, keyring: Keyring, tmp_path: Path
) -> None:
    with held_port() as port:
        url = f"http://localhost:{port}"
    access = Access(tokens=Tokens({Caller("ann"): token_of("ann")}), rate=Rate(10_000, 10_000))
    offers = {"conformance": Offer("conformance", doors_worker.task_queue)}
    hooks = ["http://localhost:*", "https://example.com"]
    app = service(ServiceParts(doors_worker.client, offers, access, url, store, keyring=keyring, push_to=hooks))
    outer = Starlette(lifespan=app.router.lifespan_context)
    outer.mount("/", adapted(app))
    junit = tmp_path / "junit.xml"
    arguments = [
        *("-m", "pytest", "tests/compatibility", "-q", "-p", "no:cacheprovider", f"--sut-host={url}"),
        *("--transport=jsonrpc,http_json", f"--compatibility-report={tmp_path / 'report'}", f"--junitxml={junit}"),
    ]
    async with serve_service(outer, port=urlsplit(url).port or 0):
        python = Path(KIT, ".venv", "bin", "python")
        process = await asyncio.create_subprocess_exec(python, *arguments, cwd=KIT)
        await process.wait()
    counts, failed = Counter[str](), set[str]()
    for case in ElementTree.parse(junit).getroot().iter("testcase"):
        name = f"{case.get('classname', '').rpartition('.')[2]}::{case.get('name')}"
        outcome = next((child.tag for child in case if child.tag in ("failure", "error", "skipped")), "passed")
        is_expected_failure = outcome == "skipped" and any(child.get("type") == "pytest.xfail" for child in case)
        counts["expected to fail" if is_expected_failure else outcome] += 1
        if outcome in ("failure", "error"):
            failed.add(name)
    print(dict(counts))
    assert failed == EXPECTED
