"""A data subject under legal hold: nothing of them is erased, and that is on record."""

from baton.keys.store_keyring import Keyring
from baton.ledger.chain import Verdict
from baton.ledger.store import Ledger
from baton.personal.store import Vault
from tests.personal.material import MARKER, SUBJECT, TASK


class TestHold:
    async def test_a_held_subject_is_not_erased_and_the_refusal_is_recorded(
        self, vault: Vault, ledger: Ledger, keyring: Keyring
    ) -> None:
        """The refusal is reported, recorded in each task, and ends with the hold (S3-12.3-a)."""
        payload = await vault.seal(SUBJECT, TASK, {"email": MARKER})
        await vault.hold(SUBJECT, "case 12/2026", "counsel")
        refused = await vault.erase(SUBJECT, "r-1", "dpo")

        assert (bool(refused), refused.status, refused.why, refused.task_ids) == (
            False,
            "REFUSED",
            "case 12/2026",
            (TASK,),
        )
        assert list((await vault.open(payload, TASK)).values()) == [{"email": MARKER}]
        await vault.erase(SUBJECT, "r-1", "dpo")
        assert await vault.release_hold(SUBJECT, "settled", "counsel")
        assert not await vault.release_hold(SUBJECT, "settled", "counsel")
        assert (await vault.erase(SUBJECT, "r-1", "dpo")).status == "ERASED"

        trace = await ledger.trace(TASK, verifier=keyring.public())
        assert [record.fields.status for record in trace.records] == ["REFUSED", "ERASED"]
        assert trace.records[0].fields.reason == "LEGAL_HOLD"
        assert trace.report.verdict is Verdict.UNANCHORED
        assert all(b"12/2026" not in record.message for record in trace.records)

    async def test_the_journal_names_actors(self, vault: Vault) -> None:
        """Of holds, refusals and erasures (S3-12.3-a)."""
        await vault.hold(SUBJECT, "case", "counsel")
        await vault.erase(SUBJECT, "r-1", "dpo")
        await vault.release_hold(SUBJECT, "settled", "counsel")
        await vault.erase(SUBJECT, "r-2", "dpo")

        rows = await vault._file.read(
            lambda connection: list(connection.execute("SELECT event, actor, request_id, why FROM journal"))
        )
        assert rows == [
            ("HELD", "counsel", None, "case"),
            ("REFUSED", "dpo", "r-1", None),
            ("RELEASED", "counsel", None, "settled"),
            ("ERASED", "dpo", "r-2", None),
        ]
