"""`baton audit` as it is typed, on real ledgers and with real keys."""

import asyncio
import json
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from securesystemslib.dsse import Envelope
from securesystemslib.signer import SSlibKey  # type: ignore[attr-defined]

from baton.cli.audit import trace_page
from baton.cli.output import format_time
from baton.client.faces import parse_anchors
from baton.core.verdict import HandoffStatus
from baton.errors import UnreadableRunError
from baton.keys.store_keyring import KeyFile, Keyring, write_file
from baton.ledger.chain import Verdict
from baton.ledger.entries import Trace, handoff_entry
from baton.ledger.store import Ledger, LedgerOptions
from baton.ledger.store_evidence import AnchorFile
from baton.wire.base64url import from_base64url
from tests.cli.desk import Desk, entries
from tests.ledger.material import KEYS, NOW, TASK, chain, completion_entry, message
from tests.ledger.proving import verify

ROOT = Path(__file__).parents[2]


class TestTrace:
    def test_it_shows_all_that_happened_to_a_task(self, baton: Desk) -> None:
        """Who handed what to whom in which order, what was refused, the cost, the output (S3-12.1-a, S3-8.2-a)."""
        result = baton("trace", TASK, *baton.keys())

        assert result.exit_code == 0, result.output
        assert "VALID" in result.stdout
        for part in ("SCHEMA_INVALID", "agent-0 → agent-1", "agent-1 → agent-2", "$0.05", 'Output: {"risk":"low"}'):
            assert part in result.stdout
        assert "\x1b" not in result.stdout

    @pytest.mark.parametrize("columns", [60, 80])
    def test_names_stay_whole_in_a_narrow_terminal(self, columns: int) -> None:
        """Broken names cannot be searched for; the date is shown once, above the times."""
        hop = {"fromAgent": {"agentId": "take-snapshot"}, "toAgent": {"agentType": "review-performance"}}
        refused = handoff_entry(
            message(0, **hop), task_id=TASK, status=HandoffStatus.REJECTED, reason="SCHEMA_INVALID", timestamp=NOW
        )
        records = chain(entries=[refused, *entries()[-1:]])
        trace = Trace(TASK, tuple(records), verify(records, verifier=KEYS))
        page = StringIO()
        Console(file=page, width=columns, color_system=None, force_terminal=True).print(trace_page(trace))

        time = format_time(NOW)[11:]
        for part in ("take-snapshot →", "review-performance", "SCHEMA_INVALID", "$0.01", "handoff", time):
            assert part in page.getvalue()
        assert page.getvalue().count(format_time(NOW)[:10]) == 1

    @pytest.mark.parametrize(
        ("answer", "lines"),
        [
            pytest.param({"output": "# Relay\nPass it.", "baton_patch": {}}, ["│ # Relay", "│ Pass it."], id="a text"),
            pytest.param({"output": {"risk": "low"}, "findings": []}, ['│ {"risk":"low"}'], id="a value"),
            pytest.param(
                {"output": None, "baton_patch": {"current_state": ["x"]}}, ["wrote current_state"], id="a patch alone"
            ),
            pytest.param({"output": "x" * 2_007}, ["and 7 characters more", f"{TASK} --json"], id="a long one"),
        ],
    )
    def test_the_output_is_what_the_last_agent_answered(self, answer: dict[str, Any], lines: list[str]) -> None:
        """As people read it, without the record that the ledger made of it (S3-12.1-a)."""
        records = chain(entries=[completion_entry(answer, agent="agent-2")])
        page = StringIO()
        Console(file=page, width=200).print(trace_page(Trace(TASK, tuple(records), verify(records, verifier=KEYS))))
        shown = page.getvalue().partition("Output: ")[2]

        assert [line for line in lines if line not in shown] == []
        assert [member for member in ("baton_patch", "findings") if member in shown] == []

    def test_json_has_every_record_with_its_message(self, baton: Desk) -> None:
        """A program gets the reasoning and the data behind a decision (S3-6.2-c, S3-6.2-f)."""
        results = json.loads(baton("trace", TASK, *baton.keys(), "--json").stdout)

        assert [record["sequence"] for record in results["records"]] == [1, 2, 3, 4]
        assert results["records"][2]["message"] == message(1)
        assert (results["report"]["verdict"], results["cost"]["microUsd"]) == (Verdict.UNANCHORED, 50_000)

    def test_a_broken_chain_is_shown_up_to_the_break(self, baton: Desk) -> None:
        """The changed record is named."""
        baton.change("UPDATE handoff_audit SET message_hash = randomblob(32) WHERE position = 3")

        result = baton("trace", TASK, *baton.keys())

        assert result.exit_code == 1
        assert "INVALID" in result.stdout
        assert "record 3:" in result.stdout
        assert "agent-1 → agent-2" not in result.stdout

    def test_an_unknown_task_is_reported(self, baton: Desk) -> None:
        """An unknown name might be a run's, but no server answers."""
        result = baton("trace", "typo")

        assert (result.exit_code, result.stdout) == (1, "")
        assert "no records of task 'typo'" in result.stderr

    def test_reading_does_not_create_a_ledger(self, baton: Desk) -> None:
        """A mistyped path is an error, not an empty ledger."""
        nowhere = baton.folder / "typo.db"

        result = baton("trace", TASK, ledger=nowhere)

        assert result.exit_code == 1
        assert "there is no ledger at" in result.stderr
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
    def test_an_intact_ledger_is_valid_only_with_proof(
        self, baton: Desk, options: Callable[[Desk], tuple[str, ...]], code: int, verdict: str, target: str
    ) -> None:
        """Without a key a chain is not called valid; without an anchor it is not called complete (C-26, S3-10.3-b)."""
        if target == "--all" and options is Desk.anchors:
            code, verdict = 4, "unverified"  # nothing proves the other task

        result = baton("verify", target, *options(baton), "--json")

        assert (result.exit_code, json.loads(result.stdout)["verdict"]) == (code, verdict)
        allowed = baton("verify", target, *options(baton), "--allow-unanchored")
        assert allowed.exit_code == (4 if verdict == "unverified" else 0)

    def test_a_cut_ledger_is_not_called_complete(self, baton: Desk) -> None:
        """Keys alone cannot show that the last record or a whole task was deleted, and the page says so."""
        cut(baton)
        baton.change("DELETE FROM handoff_audit WHERE task_id = 'other'")
        baton.change("DELETE FROM handoff_audit_checkpoint")

        result = baton("verify", "--all", *baton.keys())

        assert (result.exit_code, result.stdout.splitlines()[0].partition("  ")[0]) == (
            4,
            "VALID, completeness not checked",
        )

    @pytest.mark.parametrize(
        ("attack", "named"),
        [pytest.param(edit, 2, id="edited"), pytest.param(cut, 3, id="cut off"), pytest.param(empty, 1, id="emptied")],
    )
    def test_a_changed_ledger_is_invalid(self, baton: Desk, attack: Callable[[Desk], None], named: int) -> None:
        """An edit, a truncation and an emptying end with 1 and the first bad record (C-26)."""
        attack(baton)

        single = baton("verify", TASK, *baton.keys(), *baton.anchors())
        all_tasks = baton("verify", "--all", *baton.keys(), *baton.anchors(), "--json")

        assert single.exit_code == all_tasks.exit_code == 1
        assert f"record {named}:" in single.stdout
        assert [found.get("sequence", named) for found in json.loads(all_tasks.stdout)["findings"]][-1] == named

    def test_whether_the_run_completed_is_not_guessed_from_the_last_record(self, baton: Desk) -> None:
        """The last record may be a completion while the run waits, or a decision after its last step."""
        results = baton("verify", TASK, *baton.keys()).stdout

        assert results.splitlines()[1].strip() == "4 records · signed through 4"

    def test_a_bundle_verifies_with_public_keys_alone(self, baton: Desk) -> None:
        """One file, no ledger, no server: S3-12.1-a can be shown to a third party (P10, C-25b)."""
        exported = baton("export", TASK, "-o", "evidence.zst", "--json", *baton.keys())
        assert json.loads(exported.stdout)["records"] == 4
        baton.ledger.unlink()

        result = baton("verify", "evidence.zst", *baton.keys(), *baton.anchors())
        unproved = baton("verify", "evidence.zst")

        assert exported.exit_code == 0, exported.output
        assert (result.exit_code, unproved.exit_code) == (0, 4)

    def test_a_bundle_names_its_task(self, baton: Desk) -> None:
        """The genuine bundle of another task is valid, whatever its file name."""
        for at, tasks in enumerate((["other"], [TASK, "other"])):
            baton("export", *tasks, "-o", f"{at}.zst")
        (baton.folder / "0.zst").rename(baton.folder / f"{TASK}.zst")

        single, both = (baton("verify", file, *baton.keys()).stdout for file in (f"{TASK}.zst", "1.zst"))

        assert single.splitlines()[0] == f"VALID, completeness not checked  ledger baton in {TASK}.zst"
        assert "  tasks: other" in single.splitlines()
        assert f"  tasks: {TASK}, other" in both.splitlines()
        assert json.loads(baton("verify", "1.zst", "--json").stdout)["taskIds"] == [TASK, "other"]

    def test_an_unsealed_bundle_is_reported_with_what_that_leaves_open(self, baton: Desk) -> None:
        """Anyone who passes it on can cut it off and rewrite its manifest, and every record still verifies."""

        async def sealed() -> None:
            async with Ledger(baton.ledger, LedgerOptions(signer=baton.keyring.signer())) as ledger:
                await ledger.export(baton.folder / "sealed.zst", [TASK])

        asyncio.run(sealed())
        baton("export", TASK, "-o", "evidence.zst", *baton.keys())
        results = {name: baton("verify", name, *baton.keys()) for name in ("evidence.zst", "sealed.zst")}

        assert [result.exit_code for result in results.values()] == [4, 4]
        assert "the bundle is not signed" in results["evidence.zst"].stdout
        assert "signed by key" in results["sealed.zst"].stdout
        assert "the bundle is not signed" not in results["sealed.zst"].stdout

    def test_a_bundle_is_overwritten_only_with_force(self, baton: Desk) -> None:
        """An export never destroys evidence that an auditor got."""
        file = baton.folder / "evidence.zst"
        file.write_text("what an auditor was given", encoding="utf-8")

        refused = baton("export", TASK, "-o", "evidence.zst")
        original = file.read_bytes()
        result = baton("export", TASK, "-o", "evidence.zst", "--force")

        assert (refused.exit_code, original, result.exit_code) == (2, b"what an auditor was given", 0)
        assert "--force overwrites it" in refused.stderr
        assert baton("verify", "evidence.zst", *baton.keys(), *baton.anchors()).exit_code == 0

    def test_a_changed_bundle_is_invalid(self, baton: Desk) -> None:
        """One flipped bit is found."""
        baton("export", TASK, "-o", "evidence.zst")
        file = baton.folder / "evidence.zst"
        data = bytearray(file.read_bytes())
        data[len(data) // 2] ^= 1
        file.write_bytes(data)

        assert baton("verify", "evidence.zst", *baton.keys()).exit_code == 1

    def test_other_keys_prove_nothing(self, baton: Desk) -> None:
        """An unknown key fails closed (P7)."""
        file = baton.folder / "other.jwks"
        file.write_text(Keyring.generate().public().to_json(), encoding="utf-8")

        result = baton("verify", TASK, "--keys", str(file))

        assert result.exit_code == 1
        assert "unknown key" in result.stdout

    def test_a_file_without_keys_is_reported(self, baton: Desk) -> None:
        """A wrong file gets no verdict."""
        (baton.folder / "keys.json").write_text("{}", encoding="utf-8")

        result = baton("verify", TASK, "--keys", "keys.json")

        assert (result.exit_code, result.stdout) == (1, "")
        assert "JWK Set" in result.stderr

    def test_the_machines_keyring_is_used_and_never_created(self, baton: Desk) -> None:
        """Without --keys the operator's own keyring verifies; reading a ledger creates no keys."""
        baton("verify", TASK)
        assert not (baton.folder / ".baton").exists()

        Keyring.development(baton.folder / ".baton", {})

        assert "unknown key" in baton("verify", TASK).stdout

    @pytest.mark.parametrize("line", [["verify"], ["verify", TASK, "--all"], ["export"], ["export", TASK, "--all"]])
    def test_a_target_or_all_is_required(self, baton: Desk, line: list[str]) -> None:
        """Neither or both is wrong usage."""
        assert baton(*line).exit_code == 2

    def test_a_missing_bundle_is_reported(self, baton: Desk) -> None:
        """It is not taken for a task."""
        assert "there is no bundle" in baton("verify", "nowhere.zst").stderr

    def test_another_ledgers_records_do_not_pass(self, baton: Desk) -> None:
        """A test's ledger does not verify as production's (P6)."""
        baton("export", TASK, "-o", "evidence.zst")

        bundle = baton("verify", "evidence.zst", "--ledger-name", "production", *baton.keys())
        ledger = baton("verify", TASK, "--ledger-name", "production")

        assert bundle.exit_code == ledger.exit_code == 1
        assert "is named 'baton', not 'production'" in ledger.stderr


class TestHeadsOf:
    def test_a_runs_anchors_reveal_a_truncation(self, baton: Desk) -> None:
        """The receipts of stages are chain heads kept outside the ledger (C-26, C-25b)."""
        heads = parse_anchors("baton", TASK, [head.anchor for head in baton.heads])
        cut(baton)

        assert [(head.sequence, head.record_hash) for head in heads] == [
            (head.sequence, head.record_hash) for head in baton.heads
        ]
        AnchorFile(baton.folder / "history.jsonl").add_heads(heads)
        assert baton("verify", TASK, "--anchors", "history.jsonl", *baton.keys()).exit_code == 1

    @pytest.mark.parametrize("text", ["", "x", "1:md5:00", "one:sha256:" + "0" * 64])
    def test_an_invalid_anchor_is_reported(self, text: str) -> None:
        """A tampered history gives no verdict."""
        with pytest.raises(UnreadableRunError, match="is malformed; expected N:sha256"):
            parse_anchors("baton", TASK, [text])

    def test_without_a_server_there_is_no_cross_check(self, baton: Desk) -> None:
        """It ends with 3, not with a verdict that ignores the history."""
        result = baton("verify", TASK, "--run", "contract-7")

        assert (result.exit_code, result.stdout) == (3, "")


class TestAttestations:
    def test_it_writes_what_others_verify(self, baton: Desk) -> None:
        """`baton audit export --format in-toto`, signed with a key of `baton keys public`."""
        write_file(baton.folder / ".baton" / "keys.toml", KeyFile(tuple(baton.keyring.all_keys())), replace=False)
        result = baton("export", TASK, "--format", "in-toto")

        assert result.exit_code == 0, result.output
        [key] = json.loads(baton.keyring.public().to_json())["keys"]
        public = from_base64url(key["x"]).hex()
        trusted = SSlibKey(key["kid"], "ed25519", "ed25519", {"public": public})
        envelopes = map(json.loads, (baton.folder / "evidence.jsonl").read_bytes().splitlines())
        for number, envelope in enumerate(map(Envelope.from_dict, envelopes), 1):
            envelope.verify([trusted], 1)
            assert json.loads(envelope.payload)["predicate"]["header"]["sequence"] == number
        assert number == 4

    def test_changed_records_are_not_attested(self, baton: Desk) -> None:
        """The key would sign a forger's words."""
        write_file(baton.folder / ".baton" / "keys.toml", KeyFile(tuple(baton.keyring.all_keys())), replace=False)
        baton.change("UPDATE handoff_audit SET recorded_at = '2020-01-01T00:00:00.000000Z' WHERE sequence = 2")

        assert baton("export", TASK, "--format", "in-toto").exit_code == 1
        assert not (baton.folder / "evidence.jsonl").exists()

    def test_without_a_key_nothing_is_attested(self, baton: Desk) -> None:
        """An unsigned envelope proves nothing."""
        result = baton("export", TASK, "--format", "in-toto", *baton.keys())

        assert (result.exit_code, "BATON_KEYS" in result.output) == (1, True)
