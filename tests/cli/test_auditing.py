"""`baton audit` as it is typed, on real ledgers and with real keys."""

import asyncio
import json
from collections.abc import Callable
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from baton.cli.output import format_time
from baton.core.verdict import HandoffStatus
from baton.keys.store_keyring import Keyring
from baton.ledger.chain import Verdict
from baton.ledger.cli import trace_page
from baton.ledger.cli_sources import parse_anchors
from baton.ledger.entries import Trace, handoff_entry
from baton.ledger.proof import verify_chain
from baton.ledger.records import LedgerError
from baton.ledger.store import Ledger, LedgerOptions
from baton.ledger.store_evidence import AnchorFile
from tests.cli.desk import Desk, entries
from tests.ledger.material import KEYS, LEDGER, NOW, TASK, chain, message

ROOT = Path(__file__).parents[2]


class TestTrace:
    def test_it_tells_all_that_happened_to_a_task(self, baton: Desk) -> None:
        """Who handed what to whom in which order, what was refused, the cost, the output (S3-12.1-a, S3-8.2-a)."""
        done = baton("trace", TASK, *baton.keys())

        assert done.exit_code == 0, done.output
        assert "VALID" in done.stdout
        for part in ("SCHEMA_INVALID", "agent-0 → agent-1", "agent-1 → agent-2", "$0.05", 'Output: {"risk":"low"}'):
            assert part in done.stdout
        assert "\x1b" not in done.stdout

    @pytest.mark.parametrize("columns", [60, 80])
    def test_names_stay_whole_in_a_narrow_terminal(self, columns: int) -> None:
        """A name that is broken in two cannot be searched for; the day is told once, above the records' times."""
        hop = {"fromAgent": {"agentId": "take-snapshot"}, "toAgent": {"agentType": "review-performance"}}
        refused = handoff_entry(
            message(0, **hop), task_id=TASK, status=HandoffStatus.REJECTED, reason="SCHEMA_INVALID", timestamp=NOW
        )
        records = chain(entries=[refused, *entries()[-1:]])
        trace = Trace(TASK, tuple(records), verify_chain(records, ledger=LEDGER, task_id=TASK, verifier=KEYS))
        page = StringIO()
        Console(file=page, width=columns, color_system=None, force_terminal=True).print(trace_page(trace))

        time = format_time(NOW)[11:]
        for part in ("take-snapshot →", "review-performance", "SCHEMA_INVALID", "$0.01", "handoff", time):
            assert part in page.getvalue()
        assert page.getvalue().count(format_time(NOW)[:10]) == 1

    def test_as_json_every_record_comes_with_its_message(self, baton: Desk) -> None:
        """The reasoning and the data behind a decision are there for a program, too (S3-6.2-c, S3-6.2-f)."""
        told = json.loads(baton("trace", TASK, *baton.keys(), "--json").stdout)

        assert [one["sequence"] for one in told["records"]] == [1, 2, 3, 4]
        assert told["records"][2]["message"] == message(1)
        assert (told["report"]["verdict"], told["cost"]["microUsd"]) == (Verdict.UNANCHORED, 50_000)

    def test_a_broken_chain_is_told_up_to_the_break(self, baton: Desk) -> None:
        """Which record carries what was changed is said."""
        baton.change("UPDATE handoff_audit SET message_hash = randomblob(32) WHERE position = 3")

        done = baton("trace", TASK, *baton.keys())

        assert done.exit_code == 1
        assert "INVALID" in done.stdout
        assert "record 3:" in done.stdout
        assert "agent-1 → agent-2" not in done.stdout

    def test_a_task_that_nobody_knows_is_said(self, baton: Desk) -> None:
        """A name that the ledger does not know might be a run's, but no server answers."""
        done = baton("trace", "typo")

        assert (done.exit_code, done.stdout) == (1, "")
        assert "no records of task 'typo'" in done.stderr

    def test_a_ledger_that_is_not_there_is_not_made_by_looking(self, baton: Desk) -> None:
        """A mistyped path is an error, and not an empty ledger."""
        nowhere = baton.folder / "typo.db"

        done = baton("trace", TASK, ledger=nowhere)

        assert done.exit_code == 1
        assert "there is no ledger at" in done.stderr
        assert not nowhere.exists()


def edit(desk: Desk) -> None:
    desk.change("UPDATE handoff_audit SET event_key = 'x' WHERE position = 2")


def cut(desk: Desk) -> None:
    desk.change("DELETE FROM handoff_audit WHERE task_id <> 'other' AND sequence > 2")


def empty(desk: Desk) -> None:
    desk.change("DELETE FROM handoff_audit WHERE task_id <> 'other'")


class TestVerify:
    @pytest.mark.parametrize(
        ("options", "code", "verdict"),
        [
            pytest.param(Desk.keys, 4, "valid, completeness not checked", id="with the public keys"),
            pytest.param(Desk.anchors, 0, "valid", id="with anchors"),
            pytest.param(lambda desk: (), 4, "unverified", id="with nothing"),
        ],
    )
    @pytest.mark.parametrize("target", [TASK, "--all"])
    def test_what_is_whole_is_valid_if_something_proves_it(
        self, baton: Desk, options: Callable[[Desk], tuple[str, ...]], code: int, verdict: str, target: str
    ) -> None:
        """Without a key a chain is not called valid; without an anchor it is not called complete (C-26, S3-10.3-b)."""
        if target == "--all" and options is Desk.anchors:
            code, verdict = 4, "unverified"  # nothing proves the other task

        done = baton("verify", target, *options(baton), "--json")

        assert (done.exit_code, json.loads(done.stdout)["verdict"]) == (code, verdict)
        allowed = baton("verify", target, *options(baton), "--allow-unanchored")
        assert allowed.exit_code == (4 if verdict == "unverified" else 0)

    def test_a_cut_ledger_is_not_called_complete(self, baton: Desk) -> None:
        """Its last record, or a whole task, is deleted: with keys alone that cannot be seen, and the page says so."""
        cut(baton)
        baton.change("DELETE FROM handoff_audit WHERE task_id = 'other'")
        baton.change("DELETE FROM handoff_audit_checkpoint")

        done = baton("verify", "--all", *baton.keys())

        assert (done.exit_code, done.stdout.splitlines()[0].partition("  ")[0]) == (
            4,
            "VALID, completeness not checked",
        )

    @pytest.mark.parametrize(
        ("attack", "named"),
        [pytest.param(edit, 2, id="edited"), pytest.param(cut, 3, id="cut off"), pytest.param(empty, 1, id="emptied")],
    )
    def test_what_was_changed_is_invalid_and_named(
        self, baton: Desk, attack: Callable[[Desk], None], named: int
    ) -> None:
        """An edit, a truncation and an emptying end with 1 and the first bad record (C-26)."""
        attack(baton)

        one = baton("verify", TASK, *baton.keys(), *baton.anchors())
        whole = baton("verify", "--all", *baton.keys(), *baton.anchors(), "--json")

        assert one.exit_code == whole.exit_code == 1
        assert f"record {named}:" in one.stdout
        assert json.loads(whole.stdout)["flawed"][0]["sequence"] == named

    def test_whether_the_run_completed_is_not_guessed_from_the_last_record(self, baton: Desk) -> None:
        """That is a completion while a run waits for a person, and a decision where an approval was its last step."""
        told = baton("verify", TASK, *baton.keys()).stdout

        assert told.splitlines()[1].strip() == "4 records · signed through 4"

    def test_a_bundle_is_checked_with_the_public_keys_alone(self, baton: Desk) -> None:
        """One file, no ledger, no server: S3-12.1-a can be shown to a third party (P10, C-25b)."""
        exported = baton("export", TASK, "-o", "evidence.zst", *baton.keys())
        baton.ledger.unlink()

        done = baton("verify", "evidence.zst", *baton.keys(), *baton.anchors())
        unproved = baton("verify", "evidence.zst")

        assert exported.exit_code == 0, exported.output
        assert (done.exit_code, unproved.exit_code) == (0, 4)
        assert "1 task covered by a checkpoint" in done.stdout

    def test_a_bundle_tells_whose_records_it_has(self, baton: Desk) -> None:
        """The genuine bundle of another task is valid, under whatever name it is handed in."""
        for at, tasks in enumerate((["other"], [TASK, "other"])):
            baton("export", *tasks, "-o", f"{at}.zst")
        (baton.folder / "0.zst").rename(baton.folder / f"{TASK}.zst")

        one, both = (baton("verify", file, *baton.keys()).stdout for file in (f"{TASK}.zst", "1.zst"))

        assert one.splitlines()[0] == f"VALID, completeness not checked  ledger baton in {TASK}.zst"
        assert "  tasks: other" in one.splitlines()
        assert f"  tasks: {TASK}, other" in both.splitlines()
        assert json.loads(baton("verify", "1.zst", "--json").stdout)["taskIds"] == [TASK, "other"]

    def test_it_is_said_of_a_bundle_that_nobody_sealed_what_that_leaves_open(self, baton: Desk) -> None:
        """Whoever passes one on can cut it off before a decision, and make its manifest anew: every record holds."""

        async def sealed() -> None:
            async with Ledger(baton.ledger, LedgerOptions(signer=baton.keyring.signer())) as ledger:
                await ledger.export(baton.folder / "sealed.zst", [TASK])

        asyncio.run(sealed())
        baton("export", TASK, "-o", "evidence.zst", *baton.keys())
        told = {name: baton("verify", name, *baton.keys()) for name in ("evidence.zst", "sealed.zst")}

        assert [done.exit_code for done in told.values()] == [4, 4]
        assert "the bundle is not signed" in told["evidence.zst"].stdout
        assert "signed by key" in told["sealed.zst"].stdout
        assert "the bundle is not signed" not in told["sealed.zst"].stdout

    def test_a_bundle_that_is_there_is_written_over_if_that_is_said(self, baton: Desk) -> None:
        """What was given to an auditor is not lost by the next export."""
        file = baton.folder / "evidence.zst"
        file.write_text("what an auditor was given", encoding="utf-8")

        refused = baton("export", TASK, "-o", "evidence.zst")
        kept = file.read_bytes()
        done = baton("export", TASK, "-o", "evidence.zst", "--force")

        assert (refused.exit_code, kept, done.exit_code) == (2, b"what an auditor was given", 0)
        assert "--force overwrites it" in refused.stderr
        assert baton("verify", "evidence.zst", *baton.keys(), *baton.anchors()).exit_code == 0

    def test_a_changed_bundle_is_invalid(self, baton: Desk) -> None:
        """A byte that was flipped in the file is found."""
        baton("export", TASK, "-o", "evidence.zst")
        file = baton.folder / "evidence.zst"
        data = bytearray(file.read_bytes())
        data[len(data) // 2] ^= 1
        file.write_bytes(data)

        assert baton("verify", "evidence.zst", *baton.keys()).exit_code == 1

    def test_keys_of_somebody_else_prove_nothing(self, baton: Desk) -> None:
        """An unknown key fails closed (P7)."""
        file = baton.folder / "other.jwks"
        file.write_text(Keyring.generate().public().to_json(), encoding="utf-8")

        done = baton("verify", TASK, "--keys", str(file))

        assert done.exit_code == 1
        assert "unknown key" in done.stdout

    def test_a_file_without_keys_is_said(self, baton: Desk) -> None:
        """Whoever mistakes one file for another is told, and gets no verdict."""
        (baton.folder / "keys.json").write_text("{}", encoding="utf-8")

        done = baton("verify", TASK, "--keys", "keys.json")

        assert (done.exit_code, done.stdout) == (1, "")
        assert "JWK Set" in done.stderr

    def test_the_keyring_of_this_machine_is_used_and_never_made(self, baton: Desk) -> None:
        """Without --keys an operator's own keyring verifies; looking at a ledger makes no keys."""
        baton("verify", TASK)
        assert not (baton.folder / ".baton").exists()

        Keyring.development(baton.folder / ".baton", {})

        assert "unknown key" in baton("verify", TASK).stdout

    @pytest.mark.parametrize("line", [["verify"], ["verify", TASK, "--all"], ["export"], ["export", TASK, "--all"]])
    def test_one_of_both_has_to_be_said(self, baton: Desk, line: list[str]) -> None:
        """Neither a target nor --all, or both, is wrong usage."""
        assert baton(*line).exit_code == 2

    def test_a_bundle_that_is_not_there_is_said(self, baton: Desk) -> None:
        """And not taken for a task."""
        assert "there is no bundle" in baton("verify", "nowhere.zst").stderr

    def test_another_ledgers_records_do_not_pass(self, baton: Desk) -> None:
        """Whoever expects production's ledger is not shown that of a test (P6)."""
        baton("export", TASK, "-o", "evidence.zst")

        bundle = baton("verify", "evidence.zst", "--ledger-name", "production", *baton.keys())
        ledger = baton("verify", TASK, "--ledger-name", "production")

        assert bundle.exit_code == ledger.exit_code == 1
        assert "is named 'baton', not 'production'" in ledger.stderr


class TestHeadsOf:
    def test_the_anchors_of_a_run_show_a_truncation(self, baton: Desk) -> None:
        """The short texts that stages bring back are heads again: a witness apart from the ledger (C-26, C-25b)."""
        heads = parse_anchors("baton", TASK, [head.anchor for head in baton.heads])
        cut(baton)

        assert [(head.sequence, head.record_hash) for head in heads] == [
            (head.sequence, head.record_hash) for head in baton.heads
        ]
        AnchorFile(baton.folder / "history.jsonl").add_heads(heads)
        assert baton("verify", TASK, "--anchors", "history.jsonl", *baton.keys()).exit_code == 1

    @pytest.mark.parametrize("text", ["", "x", "1:md5:00", "one:sha256:" + "0" * 64])
    def test_what_is_no_anchor_is_said(self, text: str) -> None:
        """A history that was tampered with gives no verdict."""
        with pytest.raises(LedgerError, match="is malformed; expected N:sha256"):
            parse_anchors("baton", TASK, [text])

    def test_without_a_server_there_is_no_cross_check(self, baton: Desk) -> None:
        """It ends with 3, and not with a verdict that left the history out."""
        done = baton("verify", TASK, "--run", "contract-7")

        assert (done.exit_code, done.stdout) == (3, "")
