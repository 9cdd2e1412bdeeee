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

NOBODY = "127.0.0.1:1"
"""An address where no server can be."""


def baton(*words: str) -> Result:
    return CliRunner().invoke(make_app(), list(words), env={"COLUMNS": "200", "TEMPORAL_ADDRESS": NOBODY})


class TestEncoding:
    def test_what_an_encoding_lacks_is_escaped_and_json_stays_the_same_document(self) -> None:
        """A locale of yesteryear must not end a command with a traceback, nor change what it told."""
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
    def test_what_has_no_room_is_said_in_a_line_and_by_the_exit_code(self, line: list[str], buffered: bool) -> None:
        """Where all of it was still in the buffer, it was success."""
        with open("/dev/full", "w", encoding="utf-8") as full:
            ended = self.called(line, stdout=full, environment={} if buffered else {"PYTHONUNBUFFERED": "1"})

        assert ended.returncode == 1
        assert ended.stderr.count("\n") == 1
        assert "No space left on device" in ended.stderr

    @pytest.mark.parametrize("line", LINES)
    def test_a_reader_that_is_gone_ends_it_without_a_word(self, line: list[str]) -> None:
        """As in `baton list | head -1`."""
        reading, writing = os.pipe()
        os.close(reading)
        ended = self.called(line, stdout=writing)
        os.close(writing)

        assert (ended.returncode, ended.stderr) == (1, "")

    @pytest.mark.parametrize("streams", [">&-", "2>&-", ">&- 2>&- <&-"])
    def test_a_stream_that_is_closed_from_the_start_is_written_to_in_vain(self, streams: str) -> None:
        """As some services start what they start: it was a traceback."""
        command = ["sh", "-c", f'"$0" -m baton schema {streams}', sys.executable]

        assert subprocess.run(command, capture_output=True, check=False).returncode == 0

    @staticmethod
    def called(
        line: list[str], *, stdout: Any, environment: Mapping[str, str] = MappingProxyType({})
    ) -> subprocess.CompletedProcess[str]:
        """Call the command in a process that is buffered unless the environment says otherwise."""
        usual = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
        # Typer looks for a shell among the processes above, and what runs the tests need not be one.
        usual["_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION"] = "1"
        command = [sys.executable, "-m", "baton", *line]
        return subprocess.run(
            command, stdout=stdout, stderr=subprocess.PIPE, env={**usual, **environment}, text=True, check=False
        )


class TestHelp:
    def test_it_names_every_command_and_every_exit_code(self) -> None:
        """An operator learns from it what there is, and what a script may rely on."""
        shown = baton("--help")

        assert shown.exit_code == 0
        assert [one.name for one in COMMANDS if (one.group or one.name) not in shown.output] == []
        assert all(
            code in shown.output
            for code in ("0 success", "1 the operation", "2 wrong usage", "3 no server", "4 unverified", "130 Ctrl-C")
        )

    def test_it_loads_no_temporal_sdk(self) -> None:
        """Whoever only asks for help does not wait for the SDK to load."""
        code = (
            "import sys\nfrom typer.testing import CliRunner\nfrom baton.cli.app import make_app\n"
            "done = CliRunner().invoke(make_app(), ['--help'])\n"
            "sys.exit(done.exit_code or 'temporalio' in sys.modules)"
        )

        assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0

    @pytest.mark.parametrize("listed", COMMANDS, ids=lambda one: one.name)
    def test_the_list_says_of_a_command_what_its_own_help_says_first(self, listed: CommandEntry) -> None:
        """The map of the commands is written apart from them, and may not say something else."""
        function = getattr(import_module(f"baton.{listed.module}"), listed.function)

        assert (getdoc(function) or "").partition("\n")[0] == listed.help

    def test_a_narrow_terminal_breaks_its_sentences_only_where_a_line_is_full(self) -> None:
        """Not also where the source does."""
        shown = CliRunner().invoke(make_app(), ["dev", "--help"], env={"COLUMNS": "80"}).output
        told = shown[shown.index("The server listens") : shown.index("--worker")].splitlines()
        lines = [line.strip() for line in told[: told.index(next(line for line in told if not line.strip()))]]

        assert all(len(f"{line} {after.split()[0]}") > 76 for line, after in pairwise(lines))

    @pytest.mark.parametrize("listed", COMMANDS, ids=lambda one: one.name)
    def test_every_command_takes_the_common_options(self, listed: CommandEntry) -> None:
        """`--json` and the connection can stand behind any command."""
        shown = baton(*listed.name.split(), "--help")

        assert shown.exit_code == 0
        common = ("--json", "--address", "--namespace", "--profile", "--config", "--artifacts")
        assert [option for option in common if option not in shown.output] == []


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

    @pytest.mark.parametrize(("line", "said"), LINES)
    def test_a_wrong_line_ends_with_2_and_says_why(self, line: list[str], said: str) -> None:
        """The output stays empty, so that a script never takes an error for a result."""
        done = baton(*line)

        assert (done.exit_code, done.stdout) == (2, "")
        assert said in done.stderr

    def test_a_file_of_a_history_that_is_not_there_is_no_run(self) -> None:
        """No server is asked for it, and what makes one is said."""
        done = baton("replay", "tests/histories/none.json", "-m", "workflows.delivery")

        assert done.exit_code == 1
        assert "there is no file 'tests/histories/none.json'; `baton export RUN" in done.stderr

    @pytest.mark.parametrize(
        ("text", "said"),
        [
            pytest.param("[1]", "holds a list", id="a list"),
            pytest.param("{", "is not JSON", id="no JSON"),
            pytest.param('{"constraints": "none"}', "constraints", id="a member of another shape"),
            pytest.param('{"goal": ""}', "--goal", id="an empty goal"),
            pytest.param('{"goals": "x", "goal": ""}', "did you mean 'goal'?", id="a goal by another name"),
        ],
    )
    def test_a_baton_file_that_holds_no_baton_is_refused(self, tmp_path: Path, text: str, said: str) -> None:
        """What is wrong is said before a run is started, of a file as of JSON that is written out."""
        file = tmp_path / "baton.json"
        file.write_text(text, encoding="utf-8")
        goal = [] if '"goal"' in text else ["--goal", "g"]

        for given in (f"@{file}", text):
            done = baton("run", "p", *goal, "--baton", given)

            assert done.exit_code == 2
            assert said in done.stderr

    def test_a_file_without_an_at_sign_is_told_of_it(self) -> None:
        """As it is typed by somebody who does not know that JSON may stand there."""
        done = baton("fork", "r", "--at", "plan", "--patch", "fix.json")

        assert done.exit_code == 2
        assert "to name a file, write @FILE" in done.stderr

    @pytest.mark.parametrize(
        "words",
        [
            pytest.param(["--goal", "caf\udce9"], id="a word in another encoding"),
            pytest.param(["--goal", "Plan", "--param", 'depth="\\ud800"'], id="half a character in a parameter"),
            pytest.param(["--goal", "Plan", "--param", "depth=NaN"], id="a number that is none"),
        ],
    )
    def test_what_cannot_be_sent_is_wrong_usage(self, words: list[str]) -> None:
        """One line that names the option, and no traceback."""
        done = baton("run", "project_init", *words)

        assert done.exit_code == 2
        assert f"Invalid value for {words[-2]}" in done.stderr.replace("'", "")

    @pytest.mark.parametrize(
        "content",
        [b'{"constraints": ["a"], "constraints": ["b"]}', b'{"constraints": ["\\ud800"]}', b"[" * 100_000],
        ids=["a member twice", "half a character", "nested without end"],
    )
    def test_a_file_that_could_be_read_in_two_ways_is_wrong_usage(self, tmp_path: Path, content: bytes) -> None:
        """Of two members of one name one would be lost, and nobody told."""
        (tmp_path / "baton.json").write_bytes(content)
        done = baton("run", "project_init", "--goal", "Plan", "--baton", f"@{tmp_path / 'baton.json'}")

        assert done.exit_code == 2
        assert "is not JSON" in done.stderr

    def test_a_file_as_other_shells_write_it_is_read(self, tmp_path: Path) -> None:
        """In UTF-16 or with a byte order mark; it gets as far as the server that is not there."""
        for encoding in ("utf-16", "utf-8-sig"):
            (tmp_path / "baton.json").write_text('{"constraints": ["a"]}', encoding=encoding)
            done = baton("run", "project_init", "--goal", "Plan", "--baton", f"@{tmp_path / 'baton.json'}")

            assert done.exit_code == 3


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
        ["artifact", "list", "r"],
        ["explain", "r"],
        ["export", "r", "somewhere.json"],
    )

    @pytest.mark.parametrize("line", LINES, ids=lambda line: line[0])
    def test_they_end_with_3_and_say_how_to_get_a_server(self, line: list[str]) -> None:
        """One line on stderr, and nothing on the output, also where JSON was asked for."""
        done = baton(*line, "--json")

        assert (done.exit_code, done.stdout) == (3, "")
        assert f"no Temporal server answers at {NOBODY}" in done.stderr
        assert "baton dev" in done.stderr
        assert len(done.stderr.splitlines()) == 1

    def test_the_address_counts_before_and_behind_the_command(self) -> None:
        """What stands nearer to the command wins."""
        before = baton("--address", "127.0.0.1:2", "list")
        both = baton("--address", "127.0.0.1:2", "list", "--address", "127.0.0.1:3")

        assert "127.0.0.1:2" in before.stderr
        assert "127.0.0.1:3" in both.stderr

    def test_a_profile_that_is_none_is_named(self, tmp_path: Path) -> None:
        """A typing mistake in --profile does not lead to another server."""
        config = tmp_path / "temporal.toml"
        config.write_text('[profile.here]\naddress = "127.0.0.1:4"\n', encoding="utf-8")

        done = baton("list", "--config", str(config), "--profile", "there")

        assert done.exit_code == 3
        assert "profile" in done.stderr


class TestWithoutServer:
    def test_the_version_can_be_asked_for_as_everywhere(self) -> None:
        """`--version` needs no command."""
        assert baton("--version").stdout == f"baton {__version__}\n"

    def test_schema_lists_and_prints_what_is_published(self) -> None:
        """The list is one name a line; each name prints a JSON Schema."""
        names = baton("schema").stdout.split()

        assert names == json.loads(baton("--json", "schema").stdout)
        assert json.loads(baton("schema", names[0]).stdout)["$schema"].endswith("2020-12/schema")

    def test_doctor_says_that_there_is_no_server(self, tmp_path: Path) -> None:
        """It tells all that can be told without one, and ends with 3."""
        done = baton("doctor", "--json", "--artifacts", str(tmp_path))
        marks = {one["check"]: one["mark"] for one in json.loads(done.stdout)}

        assert done.exit_code == 3
        assert (marks["server"], marks["artifact store"]) == ("fail", "ok")

    @pytest.mark.parametrize(
        "setting", [("BATON_KEYS", "nofile.toml"), ("BATON_ENV", "production")], ids=lambda s: s[0]
    )
    def test_doctor_lists_its_checks_where_the_keys_cannot_be_used(
        self, setting: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """What is wrong with the keys is one finding among the others, and does not end the command."""
        monkeypatch.chdir(tmp_path)
        Keyring.from_environment({}, KEYS_FOLDER)
        monkeypatch.setenv(*setting)
        done = baton("doctor", "--json", "--artifacts", str(tmp_path))
        marks = {one["check"]: one["mark"] for one in json.loads(done.stdout)}

        assert done.exit_code == 1
        assert (marks["keys"], marks["artifact store"]) == ("fail", "ok")
