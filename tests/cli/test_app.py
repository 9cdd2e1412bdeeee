"""The command line as it is typed: help, usage errors, the options of every command."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from importlib import import_module
from inspect import getdoc
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from baton import __version__
from baton.cli.app import COMMANDS, CommandEntry, make_app
from baton.cli.session import KEYS_FOLDER
from baton.keys.store_keyring import Keyring

SCHEMAS = Path(__file__).parents[2] / "docs/schemas"
NOBODY = "127.0.0.1:1"
"""An address where no server can be."""


def baton(*words: str) -> Result:
    return CliRunner().invoke(make_app(), list(words), env={"COLUMNS": "200", "TEMPORAL_ADDRESS": NOBODY})


class TestEncoding:
    def test_characters_missing_from_the_encoding_are_escaped(self) -> None:
        """An old locale causes no traceback, and the JSON document stays the same."""
        command = [sys.executable, "-m", "baton", "schema", "baton"]
        told = {
            encoding: subprocess.run(
                command, env={**os.environ, "PYTHONIOENCODING": encoding}, capture_output=True, check=True
            ).stdout
            for encoding in ("ascii", "latin-1", "utf-8")
        }

        assert told["ascii"].isascii()
        assert not told["utf-8"].isascii()
        assert (
            json.loads(told["ascii"])
            == json.loads(told["latin-1"].decode("latin-1"))
            == json.loads(told["utf-8"].decode())
        )


class TestSchema:
    @pytest.mark.parametrize(("name", "file"), [("handoff", "handoff-2.0.json"), ("contract", "contract-1.0.json")])
    def test_it_prints_the_published_document_of_a_message(self, name: str, file: str) -> None:
        """What the file in the repository says, generated from the records (S3-7.1.1-a, S5-check-k)."""
        published = json.loads((SCHEMAS / file).read_text(encoding="utf-8"))

        assert json.loads(baton("schema", name).stdout) == published
        assert name in baton("schema").stdout.splitlines()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no full device")
class TestOutput:
    LINES = (
        pytest.param(["schema", "baton"], id="a command"),
        pytest.param(["--help"], id="help"),
        pytest.param(["--version"], id="less than fills a buffer"),
        pytest.param(["--show-completion", "bash"], id="a script"),
    )

    @pytest.mark.parametrize("buffered", [True, False], ids=["buffered", "unbuffered"])
    @pytest.mark.parametrize("line", LINES)
    def test_a_full_disk_is_one_line_and_exit_code_1(self, line: list[str], buffered: bool) -> None:
        """Also if all output was still buffered when the command ended."""
        with open("/dev/full", "w", encoding="utf-8") as full:
            process = self.run_process(line, stdout=full, environment={} if buffered else {"PYTHONUNBUFFERED": "1"})

        assert process.returncode == 1
        assert process.stderr.count("\n") == 1
        assert "No space left on device" in process.stderr

    @pytest.mark.parametrize("line", LINES)
    def test_a_closed_pipe_ends_it_silently(self, line: list[str]) -> None:
        """As in `baton list | head -1`."""
        reading, writing = os.pipe()
        os.close(reading)
        process = self.run_process(line, stdout=writing)
        os.close(writing)

        assert (process.returncode, process.stderr) == (1, "")

    @pytest.mark.parametrize("streams", [">&-", "2>&-", ">&- 2>&- <&-"])
    def test_a_stream_that_is_closed_from_the_start_is_ignored(self, streams: str) -> None:
        """Some services start programs without stdout and stderr."""
        command = ["sh", "-c", f'"$0" -m baton schema {streams}', sys.executable]

        assert subprocess.run(command, capture_output=True, check=False).returncode == 0

    @staticmethod
    def run_process(
        line: list[str], *, stdout: Any, environment: Mapping[str, str] = MappingProxyType({})
    ) -> subprocess.CompletedProcess[str]:
        """Run the command in a process, buffered unless the environment says otherwise."""
        usual = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
        # Typer looks for a shell among the processes above, and what runs the tests need not be one.
        usual["_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION"] = "1"
        command = [sys.executable, "-m", "baton", *line]
        return subprocess.run(
            command, stdout=stdout, stderr=subprocess.PIPE, env={**usual, **environment}, text=True, check=False
        )


class TestHelp:
    def test_it_names_every_command_and_every_exit_code(self) -> None:
        """Operators and scripts rely on both."""
        result = baton("--help")

        assert result.exit_code == 0
        assert [command.name for command in COMMANDS if (command.group or command.name) not in result.output] == []
        assert all(
            code in result.output
            for code in ("0 success", "1 the operation", "2 wrong usage", "3 no server", "4 unverified", "130 Ctrl-C")
        )

    def test_it_loads_neither_the_temporal_sdk_nor_pydantic(self) -> None:
        """`--help` does not wait for either to load."""
        code = (
            "import sys\nimport baton.cli\nfrom typer.testing import CliRunner\nfrom baton.cli.app import make_app\n"
            "done = CliRunner().invoke(make_app(), ['--help'])\n"
            "sys.exit(done.exit_code or bool({'temporalio', 'pydantic', 'pydantic_core'} & sys.modules.keys()))"
        )

        assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0

    @pytest.mark.parametrize("listed", COMMANDS, ids=lambda one: one.name)
    def test_a_commands_line_in_the_list_is_the_first_of_its_own_help(self, listed: CommandEntry) -> None:
        """The list reads it from the source, without importing the module."""
        function = getattr(import_module(f"baton.cli.{listed.module}"), listed.function)

        assert (getdoc(function) or "").partition("\n")[0] == listed.help

    def test_a_narrow_terminal_wraps_paragraphs_at_its_edge_only(self) -> None:
        """Not at the line breaks of the source."""
        help_text = CliRunner().invoke(make_app(), ["dev", "--help"], env={"COLUMNS": "80"}).output
        told = help_text[help_text.index("The server listens") : help_text.index("--worker")].splitlines()
        lines = [line.strip() for line in told[: told.index(next(line for line in told if not line.strip()))]]

        assert all(len(f"{line} {after.split()[0]}") > 76 for line, after in pairwise(lines))

    @pytest.mark.parametrize("listed", COMMANDS, ids=lambda one: one.name)
    def test_every_command_takes_the_common_options(self, listed: CommandEntry) -> None:
        """`--json` and the connection options may follow any command."""
        result = baton(*listed.name.split(), "--help")

        assert result.exit_code == 0
        common = ("--json", "--address", "--namespace", "--profile", "--config", "--artifacts")
        assert [option for option in common if option not in result.output] == []


class TestUsage:
    LINES = (
        pytest.param(["lst"], "Did you mean 'list'", id="a command that is none"),
        pytest.param(["show"], "Missing argument", id="no run"),
        pytest.param(["show", "r", "--nope"], "No such option", id="an option that is none"),
        pytest.param(["list", "--status", "asleep"], "asleep", id="a status that is none"),
        pytest.param(["run", "p"], "--goal", id="a run without a goal"),
        pytest.param(["run", "p", "--goal", "g", "--param", "depth"], "KEY=JSON", id="a parameter without a value"),
        pytest.param(["run", "p", "-g", "g", "-p", "a=1", "-p", "a=2"], "once", id="a parameter given twice"),
        pytest.param(["run", "p", "-g", "g", "--input", "draft"], "NAME=TEXT", id="an input without a text"),
        pytest.param(["run", "p", "-g", "g", "--input", "the draft=x"], "cannot name", id="an input with a blank"),
        pytest.param(["run", "p", "-g", "g", "--input", "draft=@none.md"], "none.md", id="a missing file"),
        pytest.param(["run", "p", "-g", "g", "--baton", "@nowhere.json"], "nowhere.json", id="a file that is none"),
        pytest.param(["run", "p", "-g", "g", "--task-id", "order-7"], "UUID", id="a task that is none"),
        pytest.param(["run", "p", "-g", "g", "--task-id", ""], "UUID", id="a task without an id"),
        pytest.param(["approve", "r"], "say why", id="a decision without a reason"),
        pytest.param(["rollback", "r", "--to", "plan"], "--why", id="a roll-back without a reason"),
        pytest.param(["schema", "nothing"], "there is no schema", id="a schema that is none"),
        pytest.param(["replay", "r"], "-m workflows.delivery", id="no module to replay with"),
        pytest.param(["replay", "r", "-m", "no.such.module"], "cannot be imported", id="a module that is none"),
        pytest.param(["replay", "r", "-m", "json"], "no @workflow.defn", id="a module without pipelines"),
        pytest.param(["list", "--artifacts", "nosuch://x"], "--artifacts", id="an artifact store that is none"),
        pytest.param(["dev", "--port", "70000"], "65535", id="a port that is none"),
    )

    @pytest.mark.parametrize(("line", "message"), LINES)
    def test_a_wrong_line_ends_with_2_and_says_why(self, line: list[str], message: str) -> None:
        """The output stays empty, so that a script never takes an error for a result."""
        result = baton(*line)

        assert (result.exit_code, result.stdout) == (2, "")
        assert message in result.stderr

    def test_a_missing_history_file_is_not_taken_for_a_run(self) -> None:
        """No server is asked, and the message says how to create the file."""
        result = baton("replay", "tests/histories/none.json", "-m", "workflows.delivery")

        assert result.exit_code == 1
        assert "there is no file 'tests/histories/none.json'; `baton export RUN" in result.stderr

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            pytest.param("[1]", "holds a list", id="a list"),
            pytest.param("{", "is not JSON", id="no JSON"),
            pytest.param('{"constraints": "none"}', "constraints", id="a member of another shape"),
            pytest.param('{"goal": ""}', "--goal", id="an empty goal"),
            pytest.param('{"goals": "x", "goal": ""}', "did you mean 'goal'?", id="a goal by another name"),
        ],
    )
    def test_an_invalid_baton_is_refused(self, tmp_path: Path, text: str, message: str) -> None:
        """In a file and written out, before a run is started."""
        file = tmp_path / "baton.json"
        file.write_text(text, encoding="utf-8")
        goal = [] if '"goal"' in text else ["--goal", "g"]

        for argument in (f"@{file}", text):
            result = baton("run", "p", *goal, "--baton", argument)

            assert result.exit_code == 2
            assert message in result.stderr

    def test_a_file_name_without_an_at_sign_gets_a_hint(self) -> None:
        """The user may not know that the option takes JSON."""
        result = baton("fork", "r", "--at", "plan", "--patch", "fix.json")

        assert result.exit_code == 2
        assert "to name a file, write @FILE" in result.stderr

    @pytest.mark.parametrize(
        "words",
        [
            pytest.param(["--goal", "caf\udce9"], id="a word in another encoding"),
            pytest.param(["--goal", "Plan", "--param", 'depth="\\ud800"'], id="half a character in a parameter"),
            pytest.param(["--goal", "Plan", "--param", "depth=NaN"], id="a number that is none"),
        ],
    )
    def test_text_that_cannot_be_sent_is_wrong_usage(self, words: list[str]) -> None:
        """One line that names the option, and no traceback."""
        result = baton("run", "project_init", *words)

        assert result.exit_code == 2
        assert f"Invalid value for {words[-2]}" in result.stderr.replace("'", "")

    @pytest.mark.parametrize(
        "content",
        [b'{"constraints": ["a"], "constraints": ["b"]}', b'{"constraints": ["\\ud800"]}', b"[" * 100_000],
        ids=["a member twice", "half a character", "nested without end"],
    )
    def test_an_ambiguous_json_file_is_wrong_usage(self, tmp_path: Path, content: bytes) -> None:
        """Of duplicate members one would be lost silently."""
        (tmp_path / "baton.json").write_bytes(content)
        result = baton("run", "project_init", "--goal", "Plan", "--baton", f"@{tmp_path / 'baton.json'}")

        assert result.exit_code == 2
        assert "is not JSON" in result.stderr

    def test_a_file_in_another_encoding_is_read(self, tmp_path: Path) -> None:
        """UTF-16 or with a byte order mark; the command gets as far as the missing server."""
        for encoding in ("utf-16", "utf-8-sig"):
            (tmp_path / "baton.json").write_text('{"constraints": ["a"]}', encoding=encoding)
            result = baton("run", "project_init", "--goal", "Plan", "--baton", f"@{tmp_path / 'baton.json'}")

            assert result.exit_code == 3


class TestUnreachable:
    LINES = (
        ["list"],
        ["show", "r"],
        ["history", "r"],
        ["diff", "r", "1", "2"],
        ["watch", "r"],
        ["run", "p", "--goal", "g"],
        ["fork", "r", "--at", "1"],
        ["approve", "r", "--why", "w"],
        ["deny", "r", "--why", "w"],
        ["rollback", "r", "--to", "1", "--why", "w"],
        ["cancel", "r", "--why", "w"],
        ["pause", "r", "--why", "w"],
        ["unpause", "r", "--why", "w"],
        ["steer", "r", "use EUR"],
        ["artifact", "list", "r"],
        ["explain", "r"],
        ["export", "r", "somewhere.json"],
    )

    @pytest.mark.parametrize("line", LINES, ids=lambda line: line[0])
    def test_they_end_with_3_and_say_how_to_get_a_server(self, line: list[str]) -> None:
        """One line on stderr and no output, with `--json` too."""
        result = baton(*line, "--json")

        assert (result.exit_code, result.stdout) == (3, "")
        assert f"no Temporal server answers at {NOBODY}" in result.stderr
        assert "baton dev" in result.stderr
        assert len(result.stderr.splitlines()) == 1

    def test_the_address_may_stand_before_or_after_the_command(self) -> None:
        """The option after the command wins."""
        before = baton("--address", "127.0.0.1:2", "list")
        both = baton("--address", "127.0.0.1:2", "list", "--address", "127.0.0.1:3")

        assert "127.0.0.1:2" in before.stderr
        assert "127.0.0.1:3" in both.stderr

    def test_an_unknown_profile_is_named(self, tmp_path: Path) -> None:
        """A typo in --profile does not connect to another server."""
        config = tmp_path / "temporal.toml"
        config.write_text('[profile.here]\naddress = "127.0.0.1:4"\n', encoding="utf-8")

        result = baton("list", "--config", str(config), "--profile", "there")

        assert result.exit_code == 3
        assert "profile" in result.stderr


class TestWithoutServer:
    def test_the_version_is_printed(self) -> None:
        """`--version` needs no command."""
        assert baton("--version").stdout == f"baton {__version__}\n"

    def test_schema_lists_and_prints_the_published_schemas(self) -> None:
        """One name per line; each name prints a JSON Schema."""
        names = baton("schema").stdout.split()

        assert names == json.loads(baton("--json", "schema").stdout)
        assert json.loads(baton("schema", names[0]).stdout)["$schema"].endswith("2020-12/schema")

    def test_doctor_reports_a_missing_server(self, tmp_path: Path) -> None:
        """It runs the checks that need no server, and ends with 3."""
        result = baton("doctor", "--json", "--artifacts", str(tmp_path))
        marks = {one["check"]: one["mark"] for one in json.loads(result.stdout)}

        assert result.exit_code == 3
        assert (marks["server"], marks["artifact store"]) == ("fail", "ok")

    @pytest.mark.parametrize(
        "setting", [("BATON_KEYS", "nofile.toml"), ("BATON_ENV", "production")], ids=lambda s: s[0]
    )
    def test_doctor_lists_its_checks_with_unusable_keys(
        self, setting: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Unusable keys are one finding among others."""
        monkeypatch.chdir(tmp_path)
        Keyring.from_environment({}, KEYS_FOLDER)
        monkeypatch.setenv(*setting)
        result = baton("doctor", "--json", "--artifacts", str(tmp_path))
        marks = {one["check"]: one["mark"] for one in json.loads(result.stdout)}

        assert result.exit_code == 1
        assert (marks["keys"], marks["artifact store"]) == ("fail", "ok")
