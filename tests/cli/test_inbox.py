"""How handoffs that wait for a person are shown and named, and command lines that cannot be understood."""

import io
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console, RenderableType
from typer.testing import CliRunner, Result

from baton.cli.app import make_app
from baton.cli.decide import render_outcome
from baton.cli.inbox_pages import deadline_text, handoff_page, inbox_table, reason_label
from baton.cli.options import GlobalOptions
from baton.cli.session import Session
from baton.client import PendingHandoff, Question, Settled, WaitingQuestion
from baton.client.faces import select_questions, text_at
from baton.core.questions import handoff_choices, handoff_title
from baton.core.verdict import Code, Disposition, Finding

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
HOSTILE = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202e[red]x[/red]\nrun-2  9  forged → line"
IDS = ("7c9e6679-7425-40de-944b-e07fc1f90ae7", "7c9e6680-0000-40de-944b-e07fc1f90ae7")


def pending(**members: Any) -> PendingHandoff:
    usual: dict[str, Any] = {
        "handoff_id": IDS[0],
        "seq": 2,
        "sender": "extract",
        "receiver": "score",
        "reason": Code.SAFETY_VIOLATION,
        "fate": Disposition.DEAD_LETTER,
        "details": "Injection pattern detected in context",
    }
    return PendingHandoff(**{**usual, **members})


def question(handoff: PendingHandoff) -> Question:
    return Question(
        id="2:a",
        seq=handoff.seq,
        title=handoff_title(handoff),
        since=NOW - timedelta(hours=3),
        until=NOW + timedelta(days=7),
        choices=handoff_choices(handoff),
        handoff=handoff,
    )


def of_run(handoff: PendingHandoff | None, **members: Any) -> WaitingQuestion:
    return WaitingQuestion("run-1", "r", "Delivery", "t", question(handoff) if handoff else None, **members)


def shown(row: RenderableType, columns: int = 100) -> str:
    """Return what a terminal of so many columns would show."""
    file = io.StringIO()
    Console(file=file, width=columns, highlight=False, markup=False, emoji=False).print(row)
    return file.getvalue()


def baton(*words: str) -> Result:
    """Call the command in this process, where no server is."""
    return CliRunner().invoke(make_app(), list(words), env={"COLUMNS": "200", "TEMPORAL_ADDRESS": "127.0.0.1:1"})


class TestGroup:
    @pytest.mark.parametrize(
        "line",
        [
            pytest.param(["inbox"], id="alone"),
            pytest.param(["inbox", "--json"], id="with an option of list"),
            pytest.param(["--json", "inbox"], id="with an option before it"),
            pytest.param(["inbox", "list"], id="by name"),
            pytest.param(["inbox", "show", "r"], id="another command"),
            pytest.param(["inbox", "top-up", "r", "--usd", "$5.00", "--why", "w"], id="a name with a hyphen"),
        ],
    )
    def test_it_asks_the_server(self, line: list[str]) -> None:
        """The command exists; without a server it ends with 3."""
        result = baton(*line)

        assert (result.exit_code, result.stdout) == (3, "")
        assert "no Temporal server answers" in result.stderr

    def test_its_help_names_the_commands(self) -> None:
        """`--help` is about the group, though without a command it lists."""
        result = baton("inbox", "--help")

        assert result.exit_code == 0
        names = ("list", "show", "release", "requeue", "edit", "top-up", "abandon")
        assert [name for name in names if f" {name} " not in result.output] == []

    @pytest.mark.parametrize(
        ("line", "message"),
        [
            pytest.param(["inbox", "lst"], "No such command", id="a command that is none"),
            pytest.param(["inbox", "--nope"], "No such option", id="an option that is none"),
            pytest.param(["inbox", "release", "r"], "say why", id="no reason"),
            pytest.param(["inbox", "release", "r", "--why", " "], "say why", id="a blank reason"),
            pytest.param(["inbox", "edit", "r", "--why", "w"], "--patch", id="an edit without a patch"),
            pytest.param(["inbox", "top-up", "r", "--why", "w"], "--usd", id="a top-up without an amount"),
            *(
                pytest.param(["inbox", "top-up", "r", "--why", "w", "--usd", amount], "--usd", id=what)
                for amount, what in [
                    ("0", "no money"),
                    ("-1", "money that is taken"),
                    ("0.0000001", "less than a millionth"),
                    ("NaN", "no number"),
                    ("1e99", "too much money"),
                    ("five", "a word"),
                ]
            ),
        ],
    )
    def test_a_wrong_line_ends_with_2(self, line: list[str], message: str) -> None:
        """It says why, before any server is asked."""
        result = baton(*line)

        assert (result.exit_code, result.stdout) == (2, "")
        assert message in result.stderr

    def test_a_patch_must_be_an_object(self, tmp_path: Path) -> None:
        """Before any server is asked."""
        file = tmp_path / "patch.json"
        file.write_text(json.dumps([1]), encoding="utf-8")

        result = baton("inbox", "edit", "r", "--patch", f"@{file}", "--why", "w")
        assert result.exit_code == 2
        assert "holds a list" in result.stderr


class TestChosen:
    BOTH = (question(pending()), question(pending(handoff_id=IDS[1])))

    @pytest.mark.parametrize(
        ("named", "expected"),
        [
            pytest.param(None, [*IDS], id="none named"),
            pytest.param(IDS[1], [IDS[1]], id="the whole id"),
            pytest.param(IDS[0][:8], [IDS[0]], id="its first eight signs"),
            pytest.param(IDS[0][:5], [], id="too few signs"),
            pytest.param("f47ac10b", [], id="another one"),
        ],
    )
    def test_an_id_or_a_prefix_selects_one(self, named: str | None, expected: list[str]) -> None:
        """A very short prefix could match by chance."""
        selected = select_questions(self.BOTH, "abandon", named)
        assert [asked.handoff and asked.handoff.handoff_id for asked in selected] == expected


class TestReason:
    def test_it_is_the_code_or_the_event(self) -> None:
        """A receiver that failed has no code."""
        assert reason_label(pending()) == "SAFETY_VIOLATION"
        assert reason_label(pending(reason=None, fate=Disposition.ESCALATE)) == "receiver failed"


class TestTextAt:
    MESSAGE: dict[str, Any] = {"currentState": {"log": ["a", "b"], "a/b": "c", "!": {"x": 1}}}  # noqa: RUF012

    @pytest.mark.parametrize(
        ("pointer", "text"),
        [
            pytest.param("/currentState/log/1", "b", id="an item"),
            pytest.param("/currentState/a~1b", "c", id="an escaped key"),
            pytest.param("/currentState/{2}", '!: {"x":1}', id="a key by its position"),
            pytest.param("/currentState/{7}", None, id="a position that is none"),
            pytest.param("/currentState/log/2", None, id="an item that is none"),
            pytest.param("/nowhere", None, id="a member that is none"),
        ],
    )
    def test_it_is_found_by_its_pointer(self, pointer: str, text: str | None) -> None:
        """Or not at all."""
        assert text_at(self.MESSAGE, pointer) == text


class TestPages:
    def test_untrusted_text_stays_on_its_line(self) -> None:
        """In every member that another agent may have written."""
        finding = Finding(code=Code.SAFETY_VIOLATION, text=HOSTILE, at="/currentState/note", rule=HOSTILE)
        handoff = pending(sender=HOSTILE, receiver=HOSTILE, details=HOSTILE, findings=[finding])
        decided = Settled(
            question="2:a", title="x", choice="release", who="ann", why=HOSTILE, at=NOW, digest="", via="update"
        )
        message = {"currentState": {"note": HOSTILE}}
        pages = (
            shown(inbox_table([of_run(handoff)], NOW)),
            shown(handoff_page(of_run(handoff), question(handoff), message, {})),
            shown(handoff_page(of_run(handoff), question(handoff), None, message)),
            shown(render_outcome(decided)),
        )

        for page in pages:
            assert [sign for sign in page if not sign.isprintable() and sign != "\n"] == []
        assert [line for line in pages[0].splitlines() if line.startswith("run-2")] == []
        assert [line for line in pages[3].splitlines() if line.startswith("run-2")] == []
        assert "[red]x[/red]" in pages[1]

    def test_an_unreadable_handoff_has_a_line(self) -> None:
        """Its run and stage are known."""
        page = shown(inbox_table([of_run(None, stage="score", has_worker=False, trouble="no key")], NOW))

        assert page.splitlines()[1].split() == ["run-1", "?", "?", "→", "score,", "unreadable"]

    def test_the_list_has_start_and_deadline(self) -> None:
        """One line for each handoff."""
        handoff = pending()
        [_, line] = shown(inbox_table([of_run(handoff)], NOW)).splitlines()

        cells = [cell.strip() for cell in line.split("  ") if cell]
        assert cells == ["run-1", "2", "3 h ago", "in 7 d", "extract → score, SAFETY_VIOLATION"]

    @pytest.mark.parametrize(
        ("left", "words", "is_red"),
        [
            pytest.param(timedelta(hours=3), "in 3 h", False, id="later"),
            pytest.param(timedelta(minutes=59), "in 59 min", True, id="within the hour"),
            pytest.param(timedelta(minutes=-5), "5 min ago", True, id="over"),
        ],
    )
    def test_a_deadline_is_red_within_the_hour(self, left: timedelta, words: str, is_red: bool) -> None:
        """And says how long there is, not when."""
        text = deadline_text(NOW + left, NOW)
        assert (text.plain, "red" in str(text.style)) == (words, is_red)

    def test_a_page_says_what_it_costs(self) -> None:
        """Nothing where nothing is known."""
        handoff = pending()
        costs = ["$0.10 so far", "lacks $0.20"]
        assert "cost: $0.10 so far, lacks $0.20" in shown(
            handoff_page(of_run(handoff), question(handoff), None, {}, costs)
        )
        assert "cost" not in shown(handoff_page(of_run(handoff), question(handoff), None, {}))

    def test_a_terminal_of_80_columns_has_every_name_whole(self) -> None:
        """A broken code or agent name is misread."""
        waiting = [of_run(pending(sender="project_init", receiver="detect-tech-stack"))]
        page = shown(inbox_table(waiting, NOW), columns=80)

        assert [word for word in ("run-1", "detect-tech-stack,", "SAFETY_VIOLATION") if word not in page.split()] == []

    @pytest.mark.parametrize("terminal", [True, False])
    def test_commands_are_complete_on_a_narrow_terminal(self, terminal: bool) -> None:
        """A command that is cut cannot be copied."""
        page, letter = io.StringIO(), pending()
        console = Console(file=page, width=40, color_system=None, force_terminal=terminal)
        Session(GlobalOptions(), out=console).show(handoff_page(of_run(letter), question(letter), None, {}))

        assert f"    baton inbox edit run-1 {IDS[0][:8]} --patch @fix.json --why '…'" in page.getvalue().splitlines()
