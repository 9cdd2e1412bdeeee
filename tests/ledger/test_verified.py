"""Verification that goes on from the last one, and with several processes."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from baton.cli.app import make_app
from baton.client.faces import VerifiedFile
from baton.keys.store_keyring import Keyring
from baton.ledger.chain import Flaw, Verdict
from baton.ledger.proof import Report
from baton.ledger.records import LedgerError
from baton.ledger.store import Ledger, LedgerOptions
from baton.ledger.store_evidence import AnchorFile
from baton.testing import opened_past_guards
from tests.ledger.material import KEY, KEYS, Key, entry
from tests.ledger.proving import named

AUDITOR = Key("an auditor's own")


@pytest.fixture
def state(tmp_path: Path) -> VerifiedFile:
    """Return the file of an auditor, who has a key of their own."""
    return VerifiedFile(tmp_path / "auditor" / "verified.json", AUDITOR)


async def verify_new(ledger: Ledger, state: VerifiedFile, processes: int = 1) -> Report:
    return await ledger.verify_all(verifier=KEYS, verified=state, new_only=True, processes=processes)


def change(path: Path, *statements: str) -> None:
    """Change the file as its owner can, past the triggers."""
    with opened_past_guards(path) as connection:
        for statement in statements:
            connection.execute(statement)
        connection.commit()


class TestNew:
    async def test_only_new_records_and_the_chains_that_they_continue_are_read(
        self, ledger: Ledger, state: VerifiedFile
    ) -> None:
        """A chain that did not grow is not read again, one that did is read whole."""
        await ledger.append_all([entry(number, task_id=f"t-{number % 3}") for number in range(9)])
        first = await verify_new(ledger, state)
        await ledger.append_all([entry(9, task_id="t-0"), entry(10, task_id="new")])
        second = await verify_new(ledger, state)
        third = await verify_new(ledger, state)

        whole = await ledger.verify_all(verifier=KEYS)
        assert (first.verified_at, first.records, first.tasks) == (None, 9, 3)
        assert (second.verified_before, second.records, second.linked, second.tasks) == (9, 11, 11, 2)
        assert (third.verified_before, third.records, third.tasks) == (11, 11, 0)
        assert {second.digest, third.digest} == {whole.digest}
        assert {report.verdict for report in (first, second, whole)} == {Verdict.UNANCHORED}

    @pytest.mark.parametrize(
        ("statements", "flaw"),
        [
            pytest.param(
                ["UPDATE handoff_audit_content SET bytes = x'00' WHERE position = 6"], Flaw.GONE, id="changed"
            ),
            pytest.param(["UPDATE handoff_audit SET recorded_at = '2020' WHERE position = 6"], Flaw.INDEX, id="index"),
            pytest.param(
                [
                    "DELETE FROM handoff_audit_content WHERE position > 4",
                    "DELETE FROM handoff_audit WHERE position > 4",
                ],
                Flaw.TRUNCATED,
                id="cut off",
            ),
            pytest.param(
                [
                    "DELETE FROM handoff_audit_content WHERE position > 2",
                    "DELETE FROM handoff_audit WHERE position > 2",
                ],
                Flaw.CHECKPOINT,
                id="cut off before the last verification",
            ),
            pytest.param(
                [
                    "DELETE FROM handoff_audit_content WHERE position = 2",
                    "DELETE FROM handoff_audit WHERE position = 2",
                ],
                Flaw.SEQUENCE,
                id="an older record of a chain that goes on",
            ),
            pytest.param(
                ["UPDATE handoff_audit_content SET bytes = x'00' WHERE position = 1"],
                Flaw.GONE,
                id="an older record of such a chain changed",
            ),
        ],
    )
    async def test_it_finds_what_is_wrong_since_then(
        self, ledger: Ledger, path: Path, state: VerifiedFile, statements: Sequence[str], flaw: Flaw
    ) -> None:
        """Neither a flaw nor a missing end passes, and nothing behind it counts as verified."""
        heads = await ledger.append_all([entry(number) for number in range(4)])
        await verify_new(ledger, state)
        before = state.path.read_bytes()
        heads += await ledger.append_all([entry(number) for number in range(4, 8)])
        change(path, *statements)

        report = await ledger.verify_all(verifier=KEYS, anchors=heads, verified=state, new_only=True)

        assert report.verdict is Verdict.INVALID
        assert flaw in [finding.flaw for finding in report.findings]
        assert state.path.read_bytes() == before

    async def test_a_checkpoint_from_outside_is_compared_with_all_records(
        self, ledger: Ledger, tmp_path: Path, state: VerifiedFile
    ) -> None:
        """The running hash goes on too, so a witness proves the ends of the chains that grew."""
        witness = AnchorFile(tmp_path / "witness")
        await ledger.append_all([entry(0), entry(1)])
        await verify_new(ledger, state)
        await ledger.append(entry(2))
        await ledger.checkpoint(witness)

        report = await ledger.verify_all(
            verifier=KEYS, checkpoints=witness.checkpoints(), verified=state, new_only=True
        )

        assert (report.verdict, report.checkpointed_through) == (Verdict.VALID, 3)

    async def test_an_older_record_of_a_chain_that_rests_is_found_from_the_start(
        self, ledger: Ledger, path: Path, state: VerifiedFile
    ) -> None:
        """What `--new` does not read it does not prove, and `--all` does."""
        await ledger.append_all([entry(0, task_id="rests"), entry(0)])
        await verify_new(ledger, state)
        await ledger.append(entry(1))
        change(path, "UPDATE handoff_audit_content SET bytes = x'00' WHERE position = 1")

        new, whole = await verify_new(ledger, state), await ledger.verify_all(verifier=KEYS)

        assert (new.verdict, new.verified_before) == (Verdict.UNANCHORED, 2)
        assert named(whole) == (Verdict.INVALID, 1, Flaw.GONE)


class TestState:
    async def test_an_edited_state_is_refused(self, ledger: Ledger, path: Path, state: VerifiedFile) -> None:
        """Nobody but the account that verifies can move it past a forged record (T4)."""
        await ledger.append_all([entry(0), entry(1)])
        await verify_new(ledger, state)
        await ledger.append_all([entry(2), entry(3)])
        change(path, "UPDATE handoff_audit_content SET bytes = x'00' WHERE position = 3")
        checkpoint = await ledger.verify_all(verifier=KEYS)
        made = state.read("baton")
        assert made is not None
        moved = {"size": 4, "position": 4, "digest": checkpoint.digest}
        forgeries = [
            made.model_copy(update=moved),
            made.model_copy(update=moved).signed(KEY),  # with the ledger's own key, which the auditor does not take
            made.model_copy(update={**moved, "signature": None, "key_id": None}),
        ]

        for forgery in forgeries:
            state.path.write_text(forgery.model_dump_json(exclude_none=True))
            with pytest.raises(LedgerError, match="does not say how far the ledger was verified: its signature"):
                await verify_new(ledger, state)

    async def test_a_signed_checkpoint_is_not_a_state(self, ledger: Ledger, tmp_path: Path) -> None:
        """Workers make those without reading a message, also with the same key."""
        await ledger.append_all([entry(0), entry(1)])
        state = VerifiedFile(tmp_path / "verified.json", KEY)
        state.path.write_text((await ledger.checkpoint()).model_dump_json(exclude_none=True))

        with pytest.raises(LedgerError, match="its signature"):
            await verify_new(ledger, state)

    async def test_another_ledgers_state_is_refused(self, ledger: Ledger, tmp_path: Path, state: VerifiedFile) -> None:
        """It says nothing about this one, whatever its name."""
        await ledger.append(entry(0))
        async with Ledger(tmp_path / "other.db", LedgerOptions(signer=KEY, name="other")) as other:
            await other.append_all([entry(0), entry(1)])
            await verify_new(other, state)
        with pytest.raises(LedgerError, match="about the ledger 'other'"):
            await verify_new(ledger, state)
        async with Ledger(tmp_path / "twin.db", LedgerOptions(signer=KEY)) as twin:
            await twin.append_all([entry(0), entry(1)])
            await twin.verify_all(verifier=KEYS, verified=state)

        assert (await verify_new(ledger, state)).verdict is Verdict.INVALID

    async def test_verification_from_the_start_replaces_it(self, ledger: Ledger, state: VerifiedFile) -> None:
        """An unusable state costs one whole verification."""
        await ledger.append(entry(0))
        state.path.parent.mkdir()
        state.path.write_text("{")
        with pytest.raises(LedgerError, match="cannot be read"):
            await verify_new(ledger, state)

        await ledger.verify_all(verifier=KEYS, verified=state)

        assert (await verify_new(ledger, state)).verified_before == 1


class TestProcesses:
    async def test_several_processes_report_what_one_does(
        self, ledger: Ledger, path: Path, state: VerifiedFile
    ) -> None:
        """Records of both tiers, more than a page of them, flawless and not."""
        for start in range(0, 2_400, 800):
            await ledger.append_all([entry(n, task_id=f"t-{n % 40}") for n in range(start, start + 800)])
        await ledger.move_to_cold(timedelta(0), segment_records=900)
        heads = await ledger.append_all([entry(n, task_id=f"t-{n % 40}") for n in range(2_400, 2_500)])

        one = await ledger.verify_all(verifier=KEYS, anchors=heads)
        assert await ledger.verify_all(verifier=KEYS, anchors=heads, processes=2) == one
        assert (await verify_new(ledger, state, processes=2)).digest == one.digest

        change(path, "UPDATE handoff_audit_content SET bytes = x'00' WHERE position = 2450")
        flawed = await ledger.verify_all(verifier=KEYS, anchors=heads)
        assert flawed.verdict is Verdict.INVALID
        assert await ledger.verify_all(verifier=KEYS, anchors=heads, processes=2) == flawed


class TestCommand:
    async def test_an_auditor_goes_on_with_a_keyring_of_their_own(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """They have only public keys of the deployment; without a keyring of their own nothing is remembered."""
        monkeypatch.chdir(tmp_path)
        path, keyring = tmp_path / "ledger.db", Keyring.generate()
        public = tmp_path / "public.json"
        public.write_text(keyring.public().to_json(), encoding="utf-8")
        line = ["audit", "verify", "--ledger", str(path), "--keys", str(public), "--no-runs", "--allow-unanchored"]

        async def verify(*words: str, **variables: str) -> Result:
            return await asyncio.to_thread(
                CliRunner().invoke, make_app(), [*line, *words], env={"COLUMNS": "200", **variables}
            )

        async with Ledger(path, LedgerOptions(signer=keyring.signer())) as ledger:
            await ledger.append_all([entry(0), entry(1)])
            keyless = await verify("--new")
            made = await asyncio.to_thread(CliRunner().invoke, make_app(), ["keys", "new", "auditor.toml"])
            first = await verify("--new", BATON_KEYS="auditor.toml")
            await ledger.append(entry(2))
            second = await verify("--new", BATON_KEYS="auditor.toml")
            both = await verify("--new", "--all", BATON_KEYS="auditor.toml")

        assert made.exit_code == 0, made.output
        assert (keyless.exit_code, "this account has no keyring" in keyless.stderr) == (1, True)
        assert (first.exit_code, "2 records · 1 task" in first.stdout) == (0, True), first.output
        assert (second.exit_code, "1 new record · 1 task read · 2 verified on" in second.stdout) == (0, True)
        assert both.exit_code == 2
