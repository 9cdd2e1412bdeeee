"""The conformance suite of MCP against the service: what a revision requires, and what of it does not apply.

The suite calls tools, prompts and resources of its own reference server (`test_simple_text`, `test://static-text`, …),
which a service of pipelines does not have: such a scenario is left out, and its failure has to say so. All others pass.
"""

import json
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from starlette.types import ASGIApp, Receive, Scope, Send

from baton.client import ServiceParts, service
from baton.codec.server import serving
from tests.doors.clients.conftest import TOKENS
from tests.doors.clients.npm import installed, output_of

PACKAGES = ("@modelcontextprotocol/conformance@0.2.0-alpha.12", "node@22.22.0")
_OWN = {
    "tools-call-image": "a tool that returns an image",
    "tools-call-audio": "a tool that returns audio",
    "tools-call-embedded-resource": "a tool that returns a resource",
    "tools-call-mixed-content": "a tool that returns several kinds of content",
    "tools-call-with-progress": "test_tool_with_progress; tests/doors/clients/test_mcp_runs.py has ours",
    "completion-complete": "completions, which the service does not have",
    "resources-read-text": "a resource, of which the service has none",
    "resources-read-binary": "a resource",
    "resources-templates-read": "a resource template",
    "prompts-get-simple": "a prompt, of which the service has none",
    "prompts-get-with-args": "a prompt",
    "prompts-get-embedded-resource": "a prompt",
    "prompts-get-with-image": "a prompt",
    "json-schema-2020-12": "json_schema_2020_12_tool",
}
_ASKS = "a tool that asks; tests/doors/clients/test_mcp_runs.py has ours"
_TASKS = "a tool that becomes a task; tests/doors/clients/test_mcp_runs.py has ours"
LEFT_OUT: Mapping[str, Mapping[str, str]] = {
    "2025-11-25": {
        **_OWN,
        "tools-call-with-logging": "logging, which is deprecated",
        "logging-set-level": "logging, which is deprecated",
        "tools-call-sampling": "a tool that samples, as no pipeline does",
        "tools-call-elicitation": _ASKS,
        "elicitation-sep1034-defaults": _ASKS,
        "elicitation-sep1330-enums": _ASKS,
        "resources-subscribe": "a resource",
        "resources-unsubscribe": "a resource",
        "server-sse-polling": "a tool that closes its stream; pending in the suite itself",
    },
    "2026-07-28": {
        **_OWN,
        "server-stateless": "test_missing_capability, for two of its 28 checks",
        "input-required-result-basic-elicitation": _ASKS,
        "input-required-result-basic-sampling": "a tool that samples, as no pipeline does",
        "input-required-result-basic-list-roots": "a tool that lists roots, as no pipeline does",
        "input-required-result-request-state": _ASKS,
        "input-required-result-multiple-input-requests": _ASKS,
        "input-required-result-multi-round": _ASKS,
        "input-required-result-non-tool-request": "a prompt that asks",
        "input-required-result-result-type": _ASKS,
        "input-required-result-tampered-state": _ASKS,
        "input-required-result-capability-check": "a tool that samples, as no pipeline does",
        "tasks-lifecycle": _TASKS,
        "tasks-capability-negotiation": _TASKS,
        "tasks-wire-fields": _TASKS,
        "tasks-request-state-removal": _TASKS,
        "tasks-mrtr-input": _TASKS,
        "tasks-request-headers": _TASKS,
        "tasks-dispatch-and-envelope": _TASKS,
        "tasks-required-task-error": "a tool that is nothing but a task; ours are both",
        "tasks-mrtr-composition": _TASKS,
        "http-custom-header-server-validation": "a tool with annotations for headers",
    },
}
"""By revision, the scenarios that need what only the suite's reference server has, and what that is."""
PASSED = {"2025-11-25": 10, "2026-07-28": 15}
"""How many scenarios pass, as docs/mcp.md has it."""


def with_token(app: ASGIApp) -> ASGIApp:
    """Return the service as Ann's own proxy would reach it: the suite has no token."""
    token = f"Bearer {TOKENS['ann']}".encode()

    async def served(scope: Scope, receive: Receive, send: Send) -> None:
        await app({**scope, "headers": [*scope.get("headers", []), (b"authorization", token)]}, receive, send)

    return served


@asynccontextmanager
async def served(parts: ServiceParts) -> AsyncIterator[str]:
    app = service(parts)
    async with app.router.lifespan_context(app), serving(with_token(app), "the service") as url:
        yield url


def checks_in(folder: Path) -> dict[str, list[Any]]:
    """Return the checks of each scenario."""
    found = {}
    for file in folder.glob("*/checks.json"):
        name = re.sub(r"-\d{4}-\d\d-\d\dT.*", "", file.parent.name).removeprefix("server-")
        found[name] = json.loads(file.read_text(encoding="utf-8"))
    return found


@pytest.fixture(scope="module")
async def suite(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Return the program that runs the suite, and the suite."""
    folder = tmp_path_factory.mktemp("npm")
    commands = await installed(folder, *PACKAGES)
    return commands / "node", folder / "node_modules" / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"


@pytest.mark.parametrize("revision", PASSED)
async def test_the_service_conforms(
    revision: str, parts: ServiceParts, suite: tuple[Path, Path], tmp_path: Path
) -> None:
    """What fails is what is left out, and nothing is left out that passes."""
    async with served(parts) as url:
        options = ("--url", f"{url}/mcp", "--requirements", revision, "-o", tmp_path)
        _, said = await output_of(*suite, "server", *options, folder=tmp_path)
    found = checks_in(tmp_path)
    failed = {name for name, checks in found.items() if any(check["status"] == "FAILURE" for check in checks)}
    assert sorted(failed) == sorted(LEFT_OUT[revision]), said
    assert len(found) - len(failed) == PASSED[revision]
