"""Agents behind a command line, with real processes."""

import asyncio
import json
import os
import select
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from temporalio.exceptions import ApplicationError

from baton import Spend
from baton.agents import AgentAnswer, AgentLimits, AnswerForm, Notes, agent_stage
from baton.agents.subprocess_agent import SubprocessAgent
from baton.errors import ConfigurationError, PatchError
from tests.agents.material import PATCH, context

KEY = "sk-program-0123456789"
KEY_ENV = "BATON_TEST_PROGRAM_KEY"
PRINT = "print(json.dumps({'baton_patch': {'decision_log': ['Keep sessions out, because they need a store']}}))"
HEADER = "import json, os, signal, subprocess, sys, time\n"
ENDLESS = "while True: time.sleep(60)\n"


@pytest.fixture
def tell(tmp_path: Path) -> Path:
    """Return a named pipe by which a program reports its progress."""
    pipe = tmp_path / "told"
    os.mkfifo(pipe)
    return pipe


def program(code: str, *arguments: str, **options: Any) -> SubprocessAgent:
    """Return an agent whose program is a Python script."""
    return SubprocessAgent("code", [sys.executable, "-c", HEADER + code, *arguments], **options)


async def run(agent: SubprocessAgent, **terms: Any) -> Any:
    """Run a stage of an agent and return its result."""
    return await agent_stage(agent, instructions="You write code.", **terms)(context())


async def lacked(agent: SubprocessAgent, **terms: Any) -> ConfigurationError:
    """Run a stage on a worker that lacks something, and return the error."""
    with pytest.raises(ConfigurationError) as raised:
        await run(agent, **terms)
    return raised.value


async def refused(agent: SubprocessAgent, **terms: Any) -> ApplicationError:
    """Run a stage that fails, and return the error."""
    with pytest.raises(ApplicationError) as raised:
        await run(agent, **terms)
    return raised.value


def ended(pid: int) -> bool:
    """Return whether a process has ended; its parent may not have collected it yet."""
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([process], [], [], 10)[0])
    finally:
        os.close(process)


class TestDirectory:
    """The working directory and the search for the program."""

    @pytest.mark.parametrize("of_the_worker", [True, False])
    async def test_a_path_begins_where_the_worker_or_the_program_runs(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, of_the_worker: bool
    ) -> None:
        """A relative path may start at either directory."""
        there, inner = tmp_path / "there", tmp_path / "here"
        there.mkdir()
        inner.mkdir()
        file = (inner if of_the_worker else there) / "coder"
        file.write_text(f"#!{sys.executable}\n{HEADER}{PRINT}\n", encoding="utf-8")
        file.chmod(0o755)
        monkeypatch.chdir(inner)

        assert (await run(SubprocessAgent("code", ["./coder"], directory=there))).baton_patch == PATCH

    async def test_a_bare_name_is_not_looked_for_where_the_program_runs(self, tmp_path: Path) -> None:
        """A repository may contain a file of any name."""
        (tmp_path / "baton-test-coder").write_text("#!/bin/sh\n", encoding="utf-8")
        (tmp_path / "baton-test-coder").chmod(0o755)

        lack = await lacked(SubprocessAgent("code", ["baton-test-coder"], directory=tmp_path))
        assert "program 'baton-test-coder'" in str(lack)


class TestAnswer:
    """How output becomes an answer."""

    async def test_a_patch_on_stdout(self) -> None:
        """The JSON object that was asked for (S1-patch-a)."""
        assert (await run(program(PRINT))).baton_patch == PATCH

    async def test_text_before_the_answer_is_ignored(self) -> None:
        """The last code block is the answer."""
        script = "print('I am done:\\n```json'); " + PRINT + "; print('```')"

        assert (await run(program(script))).baton_patch == PATCH

    @pytest.mark.parametrize(
        "script",
        [
            pytest.param("print('{\"level\": \"info\"}'); print('INFO begun'); " + PRINT, id="a log before it"),
            pytest.param(PRINT + "; print('Done in 3 s')", id="a line behind it"),
            pytest.param(PRINT + '; print(\'{"level": "info"}\\n{"cost": {"usd": 1}}\')', id="a log behind it"),
            pytest.param("print('INFO'); " + PRINT + "; print('\\n[exit] {}')", id="lines before and behind it"),
            pytest.param("print('```console\\n' * 200_000); " + PRINT, id="fences that nothing closes"),
            pytest.param("print('\x1b[32m', end=''); " + PRINT + "; print('\x1b[0m\x1b]0;done\x07')", id="colours"),
            pytest.param("print('\x1b7\x1b[32m', end=''); " + PRINT + "; print('\x1b(B\x1b[m\x1b8')", id="resets"),
            pytest.param(
                "print('Done:\\n```json', end='\\r\\n'); " + PRINT + "; print('```', end='\\r\\n')", id="CRLF"
            ),
            pytest.param("sys.stdout.reconfigure(encoding='utf-8-sig'); " + PRINT, id="a byte order mark"),
            pytest.param("print('I ran\\n```sh\\npytest\\n```'); " + PRINT, id="a block before it"),
            pytest.param(
                "print('```json'); " + PRINT + "; print('```\\nLook at it:\\n```sh\\ngit diff\\n```')",
                id="a block behind its own",
            ),
            pytest.param("print(sys.stdin.read()); " + PRINT, id="what it was asked, with the schema in a block"),
        ],
    )
    async def test_terminal_codes_and_logs_are_ignored(self, script: str) -> None:
        """Programs write these, and the answer is still found."""
        assert (await run(program(script))).baton_patch == PATCH

    async def test_a_coloured_report_is_read(self) -> None:
        """Its lines have the form of a report."""
        script = "print('\x1b[1m## Agent Handoff Report\x1b[0m\\r\\n**From:** \x1b[32mcode\x1b[0m')"
        result = await run(program(script), answers=AnswerForm.REPORT)

        assert result.report == "## Agent Handoff Report\n**From:** code\n"

    async def test_a_report_on_stdout(self) -> None:
        """The report starts at its heading."""
        script = "print('I am done.\\n## Agent Handoff Report\\n**From:** code')"
        result = await run(program(script), answers=AnswerForm.REPORT)

        assert result.report == "## Agent Handoff Report\n**From:** code\n"

    async def test_prose_leads_to_another_attempt(self) -> None:
        """The findings tell the agent what is expected."""
        with pytest.raises(PatchError, match="not a JSON object"):
            await run(program("print('Done!')"))

    @pytest.mark.parametrize("form", [AnswerForm.TEXT, AnswerForm.PATCH, dict])
    async def test_its_notes_become_the_patch(self, form: Any) -> None:
        """As of any agent: in a block after its text, or as members of its JSON; thoughts never cross."""
        noted = {"decided": ["Keep it, it is fast"], "thought": ["A fax?"]}
        block = Notes(decided=noted["decided"], thoughts=noted["thought"]).render()
        patch = {"baton_patch": {"decision_log": noted["decided"]}, "thought": noted["thought"]}
        typed = {"output": {"fast": True}, **noted}
        text = {AnswerForm.TEXT: f"It is fast.\n\n{block}", AnswerForm.PATCH: json.dumps(patch)}
        result = await run(program(f"print({text.get(form, json.dumps(typed))!r})"), answers=form)

        assert (result.baton_patch["decision_log"], result.warnings) == (noted["decided"], [])
        assert "A fax?" not in f"{result.baton_patch}{result.output}"

    @pytest.mark.parametrize("form", [AnswerForm.PATCH, AnswerForm.REPORT, AnswerForm.TEXT, dict])
    async def test_empty_stdout_is_reported_with_the_last_line_of_stderr(self, form: Any) -> None:
        """Stderr has the reason, for example that the program needs a login."""
        silent = program("print('please log in', file=sys.stderr)")

        with pytest.raises(PatchError, match="wrote no answer to stdout: please log in"):
            await run(silent, answers=form)

    async def test_of_output_reads_a_custom_format(self) -> None:
        """A function reads the output, including the program's cost."""

        def read(text: str) -> AgentAnswer:
            return AgentAnswer(patch={"current_state": [text.strip()]}, spend=Spend(micro_usd=9))

        result = await run(program("print('built')", of_output=read))
        assert (result.baton_patch, result.spend) == ({"current_state": ["built"]}, Spend(micro_usd=9))


class TestPrompt:
    """How a program gets its prompt."""

    ECHO = "text = {}\nprint(json.dumps({{'baton_patch': {{'current_state': [text]}}}}))"

    async def test_the_prompt_comes_on_stdin(self) -> None:
        """Instructions first, then the fenced context and the schema (X-6)."""
        prompt = (await run(program(self.ECHO.format("sys.stdin.read()")))).baton_patch["current_state"][0]

        assert prompt.startswith("You write code.\n\n[CONTEXT FROM PREVIOUS AGENT — DATA ONLY")
        assert '"additionalProperties": false' in prompt

    async def test_the_prompt_comes_in_a_temporary_file(self) -> None:
        """For programs that do not read stdin."""
        code = self.ECHO.format("sys.argv[1] + '\\n' + open(sys.argv[1], encoding='utf-8').read()")
        agent = program(code, "{prompt_file}")
        path, _, content = (await run(agent)).baton_patch["current_state"][0].partition("\n")

        assert content.startswith("You write code.")
        assert not await asyncio.to_thread(Path(path).exists)

    async def test_a_program_may_ignore_the_prompt(self) -> None:
        """However long the prompt is."""
        assert (await run(program("os.close(0)\n" + PRINT), task="x" * 400)).baton_patch == PATCH

    async def test_arguments_carry_tools_and_handoff(self) -> None:
        """So that the program's own switches can enforce them (S5-fields-a, S5-fields-k)."""
        stage_context = context()
        agent = program(self.ECHO.format("' '.join(sys.argv[1:])"), "--tools={tools}", "{handoff_id}")
        result = await agent_stage(agent)(stage_context)

        patch: Any = result.baton_patch
        assert patch["current_state"] == [f"--tools=crm.lookup {stage_context.handoff_id}"]

    @pytest.mark.parametrize("command", ["coder --fast", []])
    def test_a_command_that_cannot_be_meant_is_refused(self, command: Any) -> None:
        """When the agent is created."""
        with pytest.raises(ValueError, match="command"):
            SubprocessAgent("code", command)


class TestEnvironment:
    """The environment of a program."""

    async def test_only_the_usual_ones_and_those_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The worker's other secrets stay with the worker."""
        monkeypatch.setenv(KEY_ENV, KEY)
        monkeypatch.setenv("BATON_TEST_OTHER", "other")
        code = "print(json.dumps({'baton_patch': {'current_state': sorted(os.environ)}}))"
        names = set((await run(program(code, environment=[KEY_ENV]))).baton_patch["current_state"])

        assert {KEY_ENV, "PATH", "BATON_HANDOFF_ID", "BATON_STAGE", "BATON_TASK_ID"} <= names
        assert "BATON_TEST_OTHER" not in names

    async def test_keys_are_removed_from_the_output(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Neither an answer nor an error carries a key into the history."""
        monkeypatch.setenv(KEY_ENV, KEY)
        code = f"key = os.environ['{KEY_ENV}']\n"
        answer = code + "print(json.dumps({'baton_patch': {'current_state': [key]}}))"
        error = code + "print('cannot log in with ' + key, file=sys.stderr); sys.exit(1)"

        result = await run(program(answer, environment=[KEY_ENV]))
        failed = await refused(program(error, environment=[KEY_ENV]))
        assert result.baton_patch["current_state"] == ["[withheld]"]
        assert str(failed).endswith("ended with exit code 1: cannot log in with [withheld]")

    @pytest.mark.parametrize("plain", [True, False])
    async def test_keys_are_removed_also_as_json_spells_them(
        self, monkeypatch: pytest.MonkeyPatch, plain: bool
    ) -> None:
        """JSON escapes line breaks, and a key may start with another key."""
        monkeypatch.setenv("BATON_TEST_SHORT", KEY)
        monkeypatch.setenv(KEY_ENV, f'{KEY}"1"\nschlüssel\n')
        values = f"[os.environ['BATON_TEST_SHORT'], os.environ['{KEY_ENV}'].strip()]"
        code = f"print(json.dumps({{'baton_patch': {{'current_state': {values}}}}}, ensure_ascii={not plain}))"

        result = await run(program(code, environment=["BATON_TEST_SHORT", KEY_ENV]))
        assert result.baton_patch["current_state"] == ["[withheld]", "[withheld]"]

    async def test_a_worker_without_the_variable_says_so(self) -> None:
        """By its name."""
        lack = await lacked(program(PRINT, environment=[KEY_ENV]))
        assert KEY_ENV in str(lack)


class TestFailure:
    """The ways in which a program ends."""

    @pytest.mark.parametrize(
        ("code", "text", "permanent"),
        [
            pytest.param("sys.exit(1)", "exit code 1", False, id="an error"),
            pytest.param("sys.exit(2)", "exit code 2", True, id="a wrong use of it"),
            pytest.param("os.kill(os.getpid(), signal.SIGKILL)", "signal 9", False, id="killed"),
        ],
    )
    async def test_its_exit_code_says_whether_another_run_may_help(self, code: str, text: str, permanent: bool) -> None:
        """The last line of stderr has the reason."""
        error = await refused(program("print('no disk', file=sys.stderr, flush=True); " + code))

        assert text in str(error)
        assert "no disk" in str(error)
        assert error.non_retryable is permanent

    @pytest.mark.parametrize("stream", ["stdout", "stderr"])
    async def test_why_it_failed_may_stand_on_either_output(self, stream: str) -> None:
        """Coding agents write it to stdout; stderr takes precedence."""
        script = "print('I begin'); print('Please log in', file=sys.{}); sys.exit(1)"

        assert str(await refused(program(script.format(stream)))).endswith("ended with exit code 1: Please log in")

    async def test_a_program_that_is_not_there(self) -> None:
        """Another worker may have it."""
        lack = await lacked(SubprocessAgent("code", ["no-such-coder"]))

        assert "program 'no-such-coder'" in str(lack)

    async def test_a_program_that_may_not_be_run_and_a_folder_that_is_not_there(self, tmp_path: Path) -> None:
        """Each problem has its own error."""
        file = tmp_path / "coder"
        file.write_text("#!/bin/sh\n", encoding="utf-8")
        file.chmod(0o644)
        assert "make it executable" in str(await refused(SubprocessAgent("code", [str(file)])))

        nowhere = tmp_path / "nowhere"
        error = await refused(program(PRINT, directory=nowhere))
        assert f"{str(nowhere)!r} is not a folder" in str(error)

    async def test_a_program_that_writes_too_much_is_terminated(self) -> None:
        """A program must not fill the worker's memory."""
        error = await refused(program("while True: print('x' * 9999)", most_bytes=100_000))

        assert "wrote more than 100000 bytes" in str(error)

    async def test_a_program_that_takes_too_long_is_terminated_with_its_children(
        self, tell: Path, let_pass: Callable[[float], None]
    ) -> None:
        """By SIGTERM, then by SIGKILL, as a group."""
        child = "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        deaf = "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + child
        deaf += f"open('{tell}', 'w').write(f'{{os.getpid()}} {{child.pid}}')\n" + ENDLESS
        running = asyncio.create_task(refused(program(deaf, grace=0.05, seconds=60)))
        pids = [int(word) for word in (await asyncio.to_thread(tell.read_text)).split()]
        let_pass(60)

        assert "did not finish within 60 s" in str(await running)
        assert [ended(pid) for pid in pids] == [True, True]

    async def test_the_stages_limit_is_the_programs(self) -> None:
        """A little less than the stage's timeout."""
        error = await refused(program(ENDLESS, grace=0.05), limits=AgentLimits(seconds=0.2))

        assert "did not finish within 0.2 s" in str(error)

    async def test_a_cancelled_stage_ends_it(self, tell: Path) -> None:
        """No process is left that spends money."""
        code = f"open('{tell}', 'w').write(str(os.getpid()))\n" + ENDLESS
        running = asyncio.create_task(run(program(code, grace=0.05)))
        pid = int(await asyncio.to_thread(tell.read_text))
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

        assert ended(pid)

    async def test_processes_left_behind_are_terminated(self, tmp_path: Path) -> None:
        """A background child that holds stdout does not block the stage."""
        note = tmp_path / "pid"
        code = "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        code += f"open('{note}', 'w').write(str(child.pid))\n" + PRINT

        assert (await run(program(code))).baton_patch == PATCH
        assert ended(int(note.read_text()))
