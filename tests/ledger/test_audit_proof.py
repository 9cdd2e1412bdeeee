"""The proofs of a chain and of a ledger, attacked (requirements.md 6.3, security.md 2.5)."""

import copy
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from baton.ledger.chain import ChainHead, Flaw, Verdict
from baton.ledger.proof import Scope, Trust, Verification
from baton.ledger.records import AuditRecord
from tests.ledger import attacks
from tests.ledger import chain_attacks as chains
from tests.ledger.chain_attacks import MIDDLE, Attack
from tests.ledger.material import KEYS, LEDGER, NOW, TASK, Key, PublicKeys, bare, chain, entry, head, joined
from tests.ledger.proving import checkpoint_of, flaw, named, reason, verify, walked

VALID, UNANCHORED, UNVERIFIED, INVALID = Verdict.VALID, Verdict.UNANCHORED, Verdict.UNVERIFIED, Verdict.INVALID


# What each attack looks like to a verifier who has only the chain, also the public keys, also the genuine head,
# and (of a whole ledger) a checkpoint, and which record is named: invalid, unverified or (A) unanchored. The cells that
# are not "invalid" are the limits of each.
ATTACKS: dict[str, tuple[Attack, str, int]] = {
    "edit a message": (chains.edit_a_message, "IIII", MIDDLE),
    "edit a member": (chains.edit_a_member, "IIII", MIDDLE),
    "edit and recompute every hash after it": (chains.edit_and_rehash_the_rest, "UIII", MIDDLE),
    "edit a member of the last record": (chains.edit_the_last_member, "UIII", 5),
    "edit and recompute one hash": (chains.edit_and_rehash_one, "IIII", MIDDLE),
    "delete in the middle": (chains.delete_the_middle, "IIII", MIDDLE),
    "delete and repair one hash": (chains.delete_and_repair_one, "IIII", MIDDLE),
    "delete and recompute all later hashes": (attacks.delete_and_rechain, "UUII", MIDDLE),
    "rewrite a suffix, unsigned": (attacks.rechain_a_suffix, "UUII", MIDDLE),
    "an unknown key id": (attacks.rechain_with_an_own_key, "UIII", MIDDLE),
    "another key, same id": (attacks.rechain_as_an_impostor, "UIII", MIDDLE),
    "rewrite a suffix, signatures kept": (attacks.rechain_with_old_signatures, "UIII", MIDDLE),
    "truncate the tail": (chains.truncate, "UAII", MIDDLE),
    "empty the log": (chains.empty, "UUII", 1),
    "cut the beginning": (chains.cut_the_beginning, "IIII", 1),
    "swap two records": (chains.swap, "IIII", MIDDLE),
    "duplicate a record": (chains.duplicate, "IIII", MIDDLE + 1),
    "insert a forged one": (attacks.insert_a_forged_one, "IIII", MIDDLE),
    "splice from another task": (attacks.splice_from_another_task, "IIII", MIDDLE),
    "another task's valid log": (attacks.replace_by_another_task, "IIII", 1),
    "another ledger's valid log": (attacks.replace_by_another_ledger, "IIII", 1),
    "renumber a record": (chains.renumber, "IIII", MIDDLE),
    "rewrite the whole log, unsigned": (attacks.rewrite_everything, "UUII", 1),
    "take the last signature away": (chains.drop_the_signature, "IIII", 5),
    "an empty signature": (chains.empty_the_signature, "UIII", 5),
}
LETTERS = {INVALID: "I", UNVERIFIED: "U", UNANCHORED: "A", VALID: "V"}


class TestAttacks:
    def test_attacks_are_detected_with_sufficient_evidence(self) -> None:
        """The whole list of 6.3 and T2, and what a chain without keys, or without anchors, can't show.

        C-26, S3-10.3-b, S3-6.2-h, P1-P6.
        """
        genuine = chain(5)
        table = {}
        for name, (attack, _, _) in ATTACKS.items():
            attacked = attack(bare(genuine))
            results = [
                verify(attacked).verdict,
                verify(attacked, verifier=KEYS).verdict,
                verify(attacked, verifier=KEYS, anchors=[head(genuine)]).verdict,
                walked(attacked, checkpoints=[checkpoint_of(genuine)]).verdict,
            ]
            table[name] = "".join(LETTERS[verdict] for verdict in results)

        assert table == {name: verdicts for name, (_, verdicts, _) in ATTACKS.items()}

    def test_the_first_bad_record_is_named(self) -> None:
        """With an index and every head anchored, the report names the very record that was touched (P1)."""
        genuine = chain(5)
        table = {}
        for name, (attack, _, _) in ATTACKS.items():
            attacked = [
                replace(record, claimed_hash=record.claimed_hash or genuine[min(index, 4)].hash)
                for index, record in enumerate(attack(bare(genuine)))
            ]
            report = verify(attacked, verifier=KEYS, anchors=[ChainHead.of(record) for record in genuine])
            table[name] = (named(report)[1], report.verdict)

        assert table == {name: (named, INVALID) for name, (_, _, named) in ATTACKS.items()}

    def test_an_unchanged_chain_is_valid(self) -> None:
        """No flaw is reported (S3-10.3-b)."""
        records = chain(5)

        report = verify(records, verifier=KEYS, anchors=[head(records[:2])], expected_head=head(records))

        assert (report.verdict, report.records, report.signed_through, report.anchored_through) == (VALID, 5, 5, 5)
        assert report.head == head(records)
        assert report

    @pytest.mark.parametrize("length", range(5))
    def test_a_truncation_below_the_anchor_is_detected(self, length: int) -> None:
        """For a cut of any length the first missing record is named (P2, T2)."""
        records = chain(5)

        report = verify(records[:length], verifier=KEYS, anchors=[head(records)])

        assert named(report) == (INVALID, length + 1, Flaw.TRUNCATED)

    def test_records_after_the_last_anchor_are_reported(self) -> None:
        """A cut after the last anchor goes unnoticed, and the report says where that starts (P2)."""
        records = chain(5)

        report = verify(records, verifier=KEYS, anchors=[head(records[:3])])

        assert (report.verdict, report.anchored_through, report.signed_through) == (UNANCHORED, 3, 5)

    @pytest.mark.parametrize("damage", ["delete", "swap", "duplicate"])
    def test_the_attack_is_detected_at_every_place(self, damage: str) -> None:
        """At each record of a chain of 50 (T2)."""
        records = bare(chain(50))
        for index in range(49):
            mutant = {
                "delete": records[:index] + records[index + 1 :],
                "swap": [*records[:index], records[index + 1], records[index], *records[index + 2 :]],
                "duplicate": [*records[: index + 1], records[index], *records[index + 1 :]],
            }[damage]
            report = verify(mutant, verifier=KEYS)
            assert named(report)[:2] == (INVALID, index + 1 + (damage == "duplicate")), index


class TestMutation:
    @staticmethod
    def parts(record: AuditRecord) -> list[tuple[bytes, Callable[[bytes], AuditRecord]]]:
        """Return the stored bytes of a record, and functions to replace them."""
        return [
            (record.header, lambda data: AuditRecord(data, record.message, record.signature)),
            (record.message, lambda data: AuditRecord(record.header, data, record.signature)),
            (record.signature or b"", lambda data: AuditRecord(record.header, record.message, data)),
        ]

    @pytest.mark.slow
    def test_no_flipped_bit_of_a_chain_is_accepted(self) -> None:
        """Every bit of every byte of header, message and signature, in each of three records (T1, P1)."""
        records = bare(chain(3))
        accepted = []
        tried = 0
        for index, record in enumerate(records):
            for data, put in self.parts(record):
                for place in range(len(data)):
                    for bit in range(8):
                        flipped = data[:place] + bytes([data[place] ^ 1 << bit]) + data[place + 1 :]
                        mutant = [*records[:index], put(flipped), *records[index + 1 :]]
                        tried += 1
                        if verify(mutant, verifier=KEYS).verdict is not INVALID:
                            accepted.append((index, place, bit))

        assert tried > 15_000
        assert accepted == []

    @pytest.mark.slow
    def test_no_flipped_byte_of_a_long_chain_is_accepted(self) -> None:
        """Every byte of a chain of 50; the report names that record or the next one (T1, P1)."""
        records = bare(chain(50))
        prefix = Verification(Trust(KEYS), Scope(LEDGER, TASK))  # of the records before the changed one
        wrong = []
        for index, record in enumerate(records):
            for data, put in self.parts(record)[:2]:
                for place in range(len(data)):
                    walk = copy.deepcopy(prefix, {id(KEYS): KEYS})
                    walk.feed([put(data[:place] + bytes([data[place] ^ 1 << place % 8]) + data[place + 1 :])])
                    walk.feed(records[index + 1 : index + 2])
                    verdict, sequence, _ = named(walk.report())
                    if verdict is not INVALID or sequence not in (index + 1, index + 2):
                        wrong.append((index, place))
            prefix.feed([record])
            assert prefix.report().verdict is UNANCHORED

        assert wrong == []

    @given(length=st.integers(1, 8), data=st.data())
    def test_no_other_selection_of_records_verifies(self, length: int, data: st.DataObject) -> None:
        """No other selection of the records, in any order, is valid with the expected head (T9)."""
        records = chain(length)
        indexes = data.draw(st.lists(st.integers(0, length - 1), max_size=10))

        report = verify([records[index] for index in indexes], verifier=KEYS, expected_head=head(records))

        assert bool(report) is (indexes == list(range(length)))


class TestHeads:
    def test_one_head_reveals_a_fork(self) -> None:
        """Two heads of one length cannot both be right (P4, T3)."""
        records, fork = chain(5), chain(5, entries=[entry(number, details="other") for number in range(5)])

        assert flaw(verify(fork, verifier=KEYS, anchors=[head(records)])) is Flaw.ANCHOR

    def test_contradicting_anchors_match_no_chain(self) -> None:
        """They show that somebody saw another chain (P4)."""
        records, fork = chain(3), chain(3, entries=[entry(number, details="other") for number in range(3)])

        for branch in (records, fork):
            assert verify(branch, verifier=KEYS, anchors=[head(records), head(fork)]).verdict is INVALID

    def test_an_anchor_is_compared_by_hash(self) -> None:
        """A suffix of the same length does not pass for the genuine one (T3, ai-memory #1873)."""
        records = chain(5)
        forged = attacks.rechain_a_suffix(bare(records))

        assert len(forged) == len(records)
        assert flaw(verify(forged, anchors=[head(records)])) is Flaw.ANCHOR

    def test_records_after_the_expected_head_are_reported(self) -> None:
        """More records than expected are invalid (C-26)."""
        records = chain(5)

        report = verify(records, verifier=KEYS, expected_head=head(records[:3]))

        assert named(report) == (INVALID, 4, Flaw.EXTRA)

    def test_the_expected_head_alone_proves_an_unsigned_chain(self) -> None:
        """The run's history is sufficient (design.md 4, C-25b)."""
        records = chain(5, signer=None)

        assert verify(records).verdict is UNVERIFIED
        assert verify(records, expected_head=head(records)).verdict is VALID

    def test_an_expected_head_of_another_task_is_an_error(self) -> None:
        """A caller that confuses tasks gets no verdict."""
        with pytest.raises(ValueError, match="another task"):
            verify(chain(2), expected_head=head(chain(2, task_id="another task")))

    def test_anchors_do_not_cover_a_chain_of_another_ledger(self) -> None:
        """The verifier gives the name, so renaming evades no anchor (T3, CVE-2022-36111's advisory)."""
        records = chain(5)
        renamed = chain(5, ledger="baton-2")

        report = verify(renamed, verifier=KEYS, anchors=[head(records)])

        assert (report.verdict, flaw(report)) == (INVALID, Flaw.PLACE)

    def test_a_short_anchor_proves_the_same_as_a_head(self) -> None:
        """A history stores 75 characters instead of a whole head."""
        records = chain(5)
        short = ChainHead.from_anchor(LEDGER, TASK, head(records).anchor)

        assert flaw(verify(records[:4], verifier=KEYS, anchors=[short])) is Flaw.TRUNCATED
        assert verify(records, anchors=[short]).verdict is VALID


class TestKeys:
    def test_records_of_a_previous_key_stay_valid(self) -> None:
        """A rotation does not affect older signatures (6.3 "previous key", P7)."""
        old, new = Key("2025"), Key("2026")
        first = chain(3, signer=old)
        records = [*first, joined(entry(9), first[-1].link, new, NOW + timedelta(days=1))]
        keys = PublicKeys.of(old, new, retired={"2025": NOW + timedelta(hours=1)})

        assert verify(records, verifier=keys).verdict is UNANCHORED
        assert verify(records[:3], verifier=keys).verdict is UNANCHORED

    def test_a_retired_key_cannot_sign_later_records(self) -> None:
        """A retired key cannot extend a chain (P7, T4)."""
        old = Key("2025")
        first = chain(3, signer=old)
        records = [*first, joined(entry(9), first[-1].link, old, NOW + timedelta(days=1))]

        report = verify(records, verifier=PublicKeys.of(old, retired={"2025": NOW + timedelta(hours=1)}))

        assert named(report) == (INVALID, 4, Flaw.KEY)
        assert "2026-11-22T" in reason(report)

    def test_a_retired_key_cannot_backdate_records(self) -> None:
        """A time older than the previous record's shows a later insertion (P7)."""
        old, new = Key("2025"), Key("2026")
        first = chain(1, signer=new)
        late = joined(entry(9), replace(first[-1].link, recorded_at=""), old, NOW - timedelta(days=1))

        report = verify([*first, late], verifier=PublicKeys.of(old, new, retired={"2025": NOW - timedelta(hours=1)}))

        assert named(report)[1:] == (2, Flaw.TIME)

    def test_an_unknown_key_fails_closed(self) -> None:
        """A signature that cannot be checked is invalid (6.3 "unknown key id", T4)."""
        report = verify(chain(3), verifier=PublicKeys())

        assert (report.verdict, flaw(report)) == (INVALID, Flaw.KEY)
        assert "get the public keys again" in (reason(report)), "an auditor whose keys are of before a rotation"

    def test_a_signature_without_a_key_id_is_invalid(self) -> None:
        """The signed bytes include the key id (T4)."""
        unsigned = chain(1, signer=None)[0]

        report = verify([replace(unsigned, signature=b"x" * 64)], verifier=KEYS)

        assert (report.verdict, flaw(report)) == (INVALID, Flaw.KEY)

    def test_a_signature_is_valid_for_one_head_only(self) -> None:
        """A signature binds ledger, task, number and hash (P6)."""
        records, other_records = chain(3), chain(3, task_id="another task")
        swapped = [
            replace(ours, signature=theirs.signature) for ours, theirs in zip(records, other_records, strict=True)
        ]

        assert flaw(verify(swapped, verifier=KEYS)) is Flaw.SIGNATURE

    def test_without_keys_and_anchors_nothing_is_proved(self) -> None:
        """The verdict is unverified, not valid (C-26)."""
        report = verify(chain(3))

        assert (named(report), report.linked) == ((UNVERIFIED, 1, Flaw.UNSIGNED), 3)
        assert not report

    def test_every_signature_is_verified(self) -> None:
        """A good signature of the last record does not hide a bad one before it."""
        records = chain(5)
        records[1] = replace(records[1], signature=b"x" * 64)

        report = verify(records, verifier=KEYS, anchors=[head(records)])

        assert (named(report), report.linked) == ((INVALID, 2, Flaw.SIGNATURE), 1)


class TestEvents:
    def test_a_repeated_event_is_reported(self) -> None:
        """A second acceptance of the same attempt is invalid even with the ledger's key (C-25)."""
        records = chain(entries=[entry(0), entry(1), entry(0, details="again")])

        report = verify(records, verifier=KEYS)

        assert named(report) == (INVALID, 3, Flaw.REPEATED)

    def test_another_attempt_is_another_event(self) -> None:
        """A retry has the same handoff id and another number (C-20)."""
        records = chain(entries=[entry(0, status="REJECTED"), entry(0), entry(0, attempt=2)])

        assert verify(records, verifier=KEYS, anchors=[head(records)])
