"""Verification of a whole ledger: chains, checkpoints, anchors."""

from dataclasses import replace
from datetime import timedelta

import pytest

from baton.ledger.chain import Flaw, Verdict
from baton.ledger.records import AuditRecord
from tests.ledger.material import KEY, NOW, Key, PublicKeys, bare, chain, head
from tests.ledger.proving import checkpoint_of, named, reason, walked

VALID, UNANCHORED, UNVERIFIED, INVALID = Verdict.VALID, Verdict.UNANCHORED, Verdict.UNVERIFIED, Verdict.INVALID


class TestVerify:
    @staticmethod
    def ledger(tasks: int = 3, length: int = 3, signer: Key | None = KEY) -> list[AuditRecord]:
        """Return the interleaved records of several tasks."""
        chains = [chain(length, task_id=f"task-{number}", signer=signer) for number in range(tasks)]
        return [records[index] for index in range(length) for records in chains]

    def test_it_verifies_every_chain_by_its_signature(self) -> None:
        """Without a checkpoint each chain needs its own signatures."""
        report = walked(self.ledger())

        assert (report.verdict, report.records, report.tasks, report.checkpointed_through) == (UNANCHORED, 9, 3, 0)

    def test_a_checkpoint_proves_every_chain_it_covers(self) -> None:
        """One signature replaces those of the chains."""
        records = self.ledger(signer=None)

        assert walked(records).verdict is UNVERIFIED
        report = walked(records, claimed=[checkpoint_of(records)])
        assert (report.verdict, report.checkpointed_through) == (UNANCHORED, 9)

    def test_a_checkpoint_reveals_a_missing_chain(self) -> None:
        """Deleting all records of a task breaks no other chain, but changes the digest (P3)."""
        records = self.ledger()
        remaining = [record for record in records if record.members["taskId"] != "task-1"]

        assert walked(remaining).verdict is UNANCHORED
        report = walked(remaining, claimed=[checkpoint_of(records)])
        assert report.verdict is INVALID
        assert "covers 9 records, but there are 6: 3 or more are gone" in report.findings[0].reason
        assert len(report.findings) == 1, "what is left is not called unproved because its checkpoint does not fit"

    def test_an_anchor_reveals_a_missing_chain(self) -> None:
        """An anchor of a missing task is evidence that it existed (P3)."""
        records = self.ledger()
        remaining = [record for record in records if record.members["taskId"] != "task-1"]

        report = walked(remaining, anchors=[head(records[:8])])

        assert (named(report), report.findings[0].task_id) == ((INVALID, 1, Flaw.TRUNCATED), "task-1")
        assert report.findings[0].reason == "an anchor covers 3 records, but the chain has no records"

    def test_an_empty_ledger_is_not_valid(self) -> None:
        """Deleting everything is not valid (P3)."""
        assert walked([]).verdict is UNVERIFIED
        assert walked([], checkpoints=[checkpoint_of(self.ledger(), None)]).verdict is INVALID

    def test_a_checkpoint_reveals_reordering_across_tasks(self) -> None:
        """Each chain is intact, but the order of the ledger has changed (P1)."""
        records = self.ledger()
        swapped = [records[1], records[0], *records[2:]]

        assert walked(swapped).verdict is UNANCHORED
        assert "not those of the checkpoint at 9" in reason(walked(swapped, claimed=[checkpoint_of(records)]))

    def test_an_external_checkpoint_reveals_a_rollback(self) -> None:
        """An older ledger with its own older checkpoint is consistent in itself (P5, T3)."""
        records = self.ledger()
        old = records[:6]

        assert walked(old, claimed=[checkpoint_of(old)]).verdict is UNANCHORED
        assert walked(old, claimed=[checkpoint_of(old)], checkpoints=[checkpoint_of(records)]).verdict is INVALID

    def test_a_forged_checkpoint_is_reported(self) -> None:
        """A checkpoint by an unknown key proves nothing, and is reported (T4)."""
        records = self.ledger()

        for signer in (Key("somebody-else"), Key(KEY.key_id), None):
            assert walked(records, claimed=[checkpoint_of(records, signer)]).verdict is INVALID

    def test_an_external_checkpoint_may_be_unsigned_but_not_badly_signed(self) -> None:
        """It is evidence because it was stored outside."""
        records = self.ledger(signer=None)

        assert walked(records, checkpoints=[checkpoint_of(records, None)]).verdict is VALID
        assert walked(records, checkpoints=[checkpoint_of(records, Key("somebody-else"))]).verdict is INVALID

    def test_contradicting_checkpoints_are_reported(self) -> None:
        """Two digests of the same size show that somebody saw another ledger (P4)."""
        records = self.ledger()
        conflicting = checkpoint_of(records, None).model_copy(update={"digest": "sha256:" + "0" * 64})

        assert walked(records, checkpoints=[checkpoint_of(records, None), conflicting]).verdict is INVALID

    def test_a_checkpoint_of_another_ledger_is_not_accepted(self) -> None:
        """An external one is ignored; one in the ledger is reported."""
        records = self.ledger()
        foreign = checkpoint_of(records).model_copy(update={"ledger": "test"})

        assert walked(records, checkpoints=[foreign]).verdict is UNANCHORED
        assert "is of the ledger 'test'" in walked(records, claimed=[foreign]).findings[0].reason

    def test_a_changed_signature_under_a_checkpoint_is_detected(self) -> None:
        """The digest includes signatures, so a replaced one is detected like any other change."""
        records = self.ledger()
        changed = [*records[:4], replace(records[4], signature=b"x" * 64), *records[5:]]

        assert walked(changed, claimed=[checkpoint_of(records)]).verdict is INVALID
        assert walked(changed, checkpoints=[checkpoint_of(changed, None)]).verdict is INVALID

    def test_records_after_an_external_checkpoint_are_unanchored(self) -> None:
        """Tasks with later records are counted, and an external head of each completes the comparison (P5)."""
        records = self.ledger()
        checkpoints = [checkpoint_of(records[:7])]

        report = walked(records, checkpoints=checkpoints)

        assert (report.verdict, report.unanchored) == (UNANCHORED, 2)
        heads = [head(records[:8]), head(records)]
        assert walked(records, checkpoints=checkpoints, anchors=heads).verdict is VALID

    @pytest.mark.parametrize("at", ["2026-11-21", "yesterday"], ids=["a time that was not signed", "no time"])
    def test_an_edited_checkpoint_is_invalid(self, at: str) -> None:
        """Time and size are signed with the digest."""
        records = self.ledger()
        edited = checkpoint_of(records).model_copy(update={"at": at})

        assert walked(records, claimed=[edited]).verdict is INVALID

    def test_a_retired_key_cannot_add_to_the_past(self) -> None:
        """A record behind a checkpoint is not older than it, nor is a later checkpoint (T4)."""
        old, new = Key("2025"), Key("2026")
        genuine, forged = chain(2, signer=new), chain(1, task_id="forged", signer=old)
        keys = PublicKeys.of(old, new, retired={"2025": NOW + timedelta(days=1)})
        month_later = checkpoint_of(genuine, new, NOW + timedelta(days=30))
        backdated = checkpoint_of([*genuine, *forged], old, NOW)

        for checkpoints, claimed in (([month_later], []), ([], [month_later]), ([], [month_later, backdated])):
            report = walked([*genuine, *forged], checkpoints=checkpoints, claimed=claimed, verifier=keys)
            assert report.verdict is INVALID
        assert walked([*forged, *genuine], verifier=keys).verdict is UNANCHORED, "a genuine old record stays valid"

    def test_an_unreadable_record_is_reported_by_position(self) -> None:
        """An unreadable header in a bundle has no task."""
        records = [*bare(self.ledger()), AuditRecord(b"{}", b"{}")]

        assert "record 10 cannot be read" in walked(records).findings[0].reason

    def test_it_counts_all_flawed_chains_and_lists_the_worst_first(self) -> None:
        """The report stays readable with many flaws."""
        records = [record for number in range(120) for record in chain(1, task_id=f"t-{number}", signer=None)]
        records[110] = replace(records[110], message=b"{}")

        report = walked(records)

        assert (report.verdict, report.flaws, len(report.findings)) == (INVALID, 120, 100)
        assert (report.findings[0].task_id, report.findings[0].flaw) == ("t-110", Flaw.MESSAGE)
