"""`baton replay` of a history that is a file."""

import asyncio
from pathlib import Path

import pytest
from temporalio.api.common.v1 import Payloads
from temporalio.api.history.v1 import History
from temporalio.client import WorkflowHistory
from typer.testing import CliRunner

from baton.cli.app import make_app
from baton.codec.conversion import data_converter
from baton.core.messages import PipelineInput
from baton.keys.store_keyring import Keyring

ROOT = Path(__file__).parents[2]


class TestReplay:
    def test_a_missing_key_is_not_blamed_on_the_code(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """The message names the key, without a traceback."""
        monkeypatch.chdir(tmp_path)
        keyring = Keyring.development(tmp_path / "theirs")
        converter = data_converter(keyring=keyring, encrypt=True)
        sent = asyncio.run(converter.encode([PipelineInput(goal="Add login")]))
        history = History()
        started = history.events.add(event_id=1, event_type="EVENT_TYPE_WORKFLOW_EXECUTION_STARTED")
        started.workflow_execution_started_event_attributes.workflow_type.name = "delivery"
        started.workflow_execution_started_event_attributes.input.CopyFrom(Payloads(payloads=sent))
        Path("run.json").write_text(WorkflowHistory("run", list(history.events)).to_json(), encoding="utf-8")
        words = ["replay", "run.json", "-m", "workflows.delivery", "--path", str(ROOT)]
        result = CliRunner().invoke(
            make_app(), words, env={"BATON_KEYS": None, "BATON_ENCRYPT": None, "COLUMNS": "300"}
        )

        assert (result.exit_code, result.stderr) == (1, "")
        assert "it cannot be replayed: the payload of event 1 cannot be decoded" in result.stdout
        assert "BATON_KEYS" in result.stdout
