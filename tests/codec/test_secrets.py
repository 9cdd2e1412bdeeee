"""Keys in the texts of errors: what is stored for good has none."""

import json
import logging
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from temporalio.client import Client, WorkflowFailureError
from temporalio.worker import Worker

from baton import Baton, StageContext, WorkerParts
from baton.client.faces import LocalArtifactStore
from baton.codec.secrets import WITHHELD, hold_secret, mask_secrets, mask_values
from baton.devserver import DevServer
from baton.handoff.store_safeguards import Safeguards
from baton.plugin import BatonPlugin
from baton.testing import pipeline_worker
from tests.agents.surfaces import in_history, with_marker
from tests.codec.leaking import LEAKED, LEAKS, Leaks, leak
from tests.support import start

FORMS = {
    "openai": "sk-proj-0123456789abcdef",
    "anthropic": "sk-ant-api03-0123456789_abcdef-AA",
    "stripe": "sk_live_0123456789abcdef",
    "github": "ghp_0123456789abcdefghij0123",
    "slack": "xoxb-0123456789-abcdef",
    "aws": "AKIA0123456789ABCDEF",
    "google": "AIza0123456789abcdefghijklmnopqrstuvwx",
    "token": "eyJhbGciOiJIUzI1.eyJzdWIiOiIxMjM0.c2lnbmF0dXJl",
    "private key": "-----BEGIN PRIVATE KEY-----\nMIIEvQ\n-----END PRIVATE KEY-----",
}


@pytest.mark.parametrize("secret", FORMS.values(), ids=FORMS.keys())
def test_usual_forms_are_withheld(secret: str) -> None:
    assert mask_secrets(f"401: the key '{secret}' is wrong") == f"401: the key '{WITHHELD}' is wrong"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("postgres://ann:pa55-word@db:5432/x", f"postgres://{WITHHELD}@db:5432/x"),
        ("Authorization: Bearer abcdefghijklmnop0123", f"Authorization: Bearer {WITHHELD}"),
        ("api_key=abc123def456, retry", f"api_key={WITHHELD}, retry"),
        ("OPENAI_API_KEY=abcd1234\nDB_PASSWORD='ab{2}hunter'", f"OPENAI_API_KEY={WITHHELD}\nDB_PASSWORD='{WITHHELD}'"),
        ('[{"password": 12345678}, {"x": 1}]', f'[{{"password": "{WITHHELD}"}}, {{"x": 1}}]'),
    ],
)
def test_what_is_named_a_key_is_withheld(text: str, expected: str) -> None:
    assert mask_secrets(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "unexpected token: identifier",
        "max_tokens: 12345678",
        "the password is missing",
        "sk-learn",
        "/etc/keys.json: not found",
        "task-123",
    ],
)
def test_other_words_stay(text: str) -> None:
    assert mask_secrets(text) == text


def test_members_that_are_named_a_key_are_withheld() -> None:
    """Also in a list below the name; what an agent or a program gets is another matter."""
    given = {"db_password": "a1b2{c3d4", "x_api_key": ["abc 123 def"], "note": "a1b2c3d4", "token": "'abc12345'"}

    masked = {"db_password": WITHHELD, "x_api_key": [WITHHELD], "note": "a1b2c3d4", "token": f"'{WITHHELD}'"}
    assert mask_values(given) == masked


def test_values_of_variables_are_withheld(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of those that are called keys, and of those that an agent's `environment` names."""
    monkeypatch.setenv("TEAM_TOKEN", "correct horse")
    monkeypatch.setenv("TEAM_LOGIN", "battery staple")
    monkeypatch.setenv("TEAM_KEY", "/etc/team.key")
    hold_secret("TEAM_LOGIN")

    assert mask_secrets("correct horse, battery staple, /etc/team.key") == f"{WITHHELD}, {WITHHELD}, /etc/team.key"


@pytest.fixture
async def worker(server: DevServer, safeguards: Safeguards) -> AsyncIterator[Worker]:
    parts = WorkerParts(artifacts=LocalArtifactStore(_folder(safeguards) / "artifacts"))
    client = await Client.connect(server.address, plugins=[BatonPlugin(parts, safeguards=safeguards)])
    async with pipeline_worker(client, [Leaks], [leak]) as worker:
        yield worker


@pytest.mark.parametrize("how", LEAKS)
async def test_errors_tools_and_notes_of_a_stage_leave_none_behind(
    worker: Worker, safeguards: Safeguards, caplog: pytest.LogCaptureFixture, how: str
) -> None:
    """Neither in history, ledger and artifacts, nor in the log; what went wrong is told."""
    with caplog.at_level(logging.DEBUG):
        handle = await start(worker, Leaks, how=how)
        with pytest.raises(WorkflowFailureError) as failed:
            await handle.result()

    assert with_marker(await in_history(worker.client, handle), LEAKED) == []
    assert with_marker(await in_history(worker.client, handle), WITHHELD)
    assert LEAKED not in caplog.text
    assert LEAKED not in repr(failed.value.cause)
    files = [path for path in _folder(safeguards).rglob("*") if path.is_file()]
    assert [path for path in files if LEAKED.encode() in path.read_bytes()] == []


def _folder(safeguards: Safeguards) -> Path:
    return Path(str(safeguards.ledger)).parent


async def test_a_stage_gets_what_its_tool_returned() -> None:
    """Only the record of a call is masked: JSON with the arguments, and the result."""
    context = StageContext.for_test(Baton(goal="Sell"))

    answer = await context.tools.call("crm.config", lambda **sent: sent, password="pa55-word", text='"')

    call, result = context.session.events
    assert answer == {"password": "pa55-word", "text": '"'}
    assert json.loads(call.content) == {"password": WITHHELD, "text": '"'}
    assert result.content == f"{{'password': '{WITHHELD}', 'text': '\"'}}"
