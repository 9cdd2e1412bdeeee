"""Evidence files, which an auditor verifies with a public key alone."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from baton.keys.claims import HeadSigner, HeadVerifier
from baton.ledger.chain import ChainHead, Verdict
from baton.ledger.evidence import (
    BUNDLE,
    EvidenceFile,
    Manifest,
    index_digest,
    index_line,
    pack,
    record_lines,
    verify_evidence,
)
from baton.ledger.proof import Checkpoint, Report, Trust
from baton.ledger.records import AuditRecord, EvidenceError
from baton.wire.json_values import format_digest, parse_digest
from tests.ledger import attacks
from tests.ledger import chain_attacks as chains
from tests.ledger.material import KEY, KEYS, LEDGER, NOW, TASK, Key, chain, head
from tests.ledger.proving import checkpoint_of

VALID, UNANCHORED, UNVERIFIED, INVALID = Verdict.VALID, Verdict.UNANCHORED, Verdict.UNVERIFIED, Verdict.INVALID

A, B = "task-a", "task-b"
ALL = [
    replace(record, position=10 * index)
    for index, record in enumerate(
        (record for pair in zip(chain(3, task_id=A), chain(3, task_id=B), strict=True) for record in pair), 1
    )
]
OF_A = [record for record in ALL if record.members["taskId"] == A]
CHECKPOINT = checkpoint_of(ALL)


def manifest(of: list[AuditRecord], /, **about: object) -> Manifest:
    """Return the manifest of a file with these records."""
    lines = [index_line(record.hash, record.position, record.signature) for record in of]
    result = Manifest(format=BUNDLE, ledger=LEDGER, created_at=NOW, records=len(of), index=index_digest(lines))
    return result.model_copy(update=about)


def file(records: list[AuditRecord], about: Manifest | None = None, signer: HeadSigner | None = KEY) -> list[bytes]:
    return b"".join(pack(about or manifest(records), records, signer)).removesuffix(b"\n").split(b"\n")


def of_a(signer: HeadSigner | None = KEY, **about: object) -> list[bytes]:
    """Return the lines of a bundle of task A, with its head."""
    return file(OF_A, manifest(OF_A, **{"heads": (head(OF_A),)} | about), signer)


def of_all(**about: object) -> list[bytes]:
    """Return the lines of a bundle of the whole ledger, with its checkpoint."""
    return file(ALL, manifest(ALL, **{"checkpoints": (CHECKPOINT,)} | about))


def verified(
    lines: list[bytes],
    keys: HeadVerifier | None = KEYS,
    *,
    ledger: str | None = None,
    anchors: Sequence[ChainHead] = (),
    checkpoints: Sequence[Checkpoint] = (),
) -> Report:
    return verify_evidence(lines, Trust(keys, anchors, checkpoints), ledger)


class TestVerifyEvidence:
    def test_a_bundle_of_one_task_is_valid(self) -> None:
        """Chain and head, with public keys only (P10)."""
        report = verified(of_a())

        assert (report.verdict, report.records, report.tasks, report.findings) == (UNANCHORED, 3, 1, ())
        assert (report.signed_by, report.created_at) == (KEY.key_id, NOW)

    def test_a_bundle_of_the_whole_ledger_is_valid(self) -> None:
        """Every chain, and the checkpoint over all of them."""
        report = verified(of_all())

        assert (report.verdict, report.tasks, report.checkpointed_through) == (UNANCHORED, 2, 6)

    def test_without_keys_it_is_unverified(self) -> None:
        """There is no contradiction and no proof; the keys in the file are not trusted."""
        report = verified(of_a(keys=({"kty": "OKP", "kid": KEY.key_id},)), None)

        assert (report.verdict, report.signed_by) == (UNVERIFIED, None)

    def test_an_external_checkpoint_proves_without_keys(self) -> None:
        """An external checkpoint shows that the whole ledger existed then (P5); of one task it shows nothing."""
        report = verified(of_all(), None, checkpoints=[CHECKPOINT])

        assert (report.verdict, report.compared_at) == (VALID, NOW)
        assert verified(of_a(), checkpoints=[CHECKPOINT]).verdict is UNANCHORED

    def test_heads_of_other_tasks_are_ignored(self) -> None:
        """An anchor file has heads of every task; those of other tasks do not make a bundle invalid."""
        other_head = head(chain(2, task_id="another task"))

        report = verified(of_a(), anchors=[head(OF_A), other_head])

        assert (report.verdict, report.flaws) == (VALID, 0)

    def test_an_external_anchor_is_sufficient(self) -> None:
        """The run's history holds the head, so no key is needed."""
        assert verified(of_a(), None, anchors=[head(OF_A)]).verdict is VALID
        longer = chain(4, task_id=A)
        assert verified(of_a(), anchors=[head(longer)]).verdict is INVALID

    @pytest.mark.parametrize(
        ("lines", "reason"),
        [
            pytest.param(of_a()[:-1], "truncated", id="cut within a record"),
            pytest.param(of_a()[:-3], "has 2 records, and its manifest says 3", id="a record cut off"),
            pytest.param([*of_a(), *of_a()[-3:]], "has 4 records", id="a record added"),
            pytest.param([*of_a(), b"{}"], "record 4 of the file is truncated", id="something behind the end"),
            pytest.param(
                [*of_a()[:2], of_a()[2].removesuffix(b'"}')[:-1] + b'"}', *of_a()[3:]],
                "record 1 of the file is truncated",
                id="half a byte of a signature",
            ),
            pytest.param(of_a()[:1], "it is not a 'baton.evidence", id="a manifest alone"),
            pytest.param([], "it is empty", id="nothing"),
            pytest.param([b"PK\x03\x04"], "'baton.segment/1' file: Invalid JSON", id="another file"),
            pytest.param([b"{}"], "'baton.segment/1' file: format: Field required", id="JSON of something else"),
            pytest.param([of_a()[0], b"[]", *of_a()[2:]], "it is not a 'baton.evidence", id="no signature line"),
            pytest.param([of_a()[0], b'{"keyId":"x"}', *of_a()[2:]], "not a signature", id="half a signature"),
            pytest.param(of_a(Key("somebody-else")), "unknown key", id="a manifest by an unknown key"),
            pytest.param(of_a(Key(KEY.key_id)), "does not count: bad", id="a manifest by an impostor"),
            pytest.param(of_a(records=4), "its manifest says 4", id="a manifest that counts otherwise"),
            pytest.param(of_a(index="sha256:" + "0" * 64), "not those of its manifest", id="another index"),
            pytest.param(of_a(heads=(head(OF_A[:2]),)), "does not end with the head", id="an older head"),
            pytest.param(of_a(heads=(head(OF_A), head(ALL))), f"the chain of {B!r}", id="the head of a task left out"),
            pytest.param(
                of_all(checkpoints=(CHECKPOINT.model_copy(update={"digest": "sha256:" + "0" * 64}),)),
                "does not count",
                id="a forged checkpoint",
            ),
            pytest.param(
                of_all(checkpoints=(CHECKPOINT.model_copy(update={"ledger": "other"}).signed(KEY),)),
                "is of the ledger 'other'",
                id="a checkpoint of another ledger",
            ),
        ],
    )
    def test_a_damaged_or_forged_file_is_invalid_with_a_reason(self, lines: list[bytes], reason: str) -> None:
        """The report has the reason."""
        report = verified(lines)

        assert report.verdict is INVALID
        assert reason in " ".join(map(str, report.findings))

    @pytest.mark.parametrize(
        "attack",
        [
            chains.edit_a_message,
            chains.edit_a_member,
            chains.delete_the_middle,
            chains.swap,
            chains.duplicate,
            attacks.rechain_as_an_impostor,
            chains.truncate,
            chains.empty,
        ],
    )
    def test_a_falsified_export_is_detected(self, attack: chains.Attack) -> None:
        """A new, consistent manifest does not help against signed records and a kept head (P10)."""
        genuine = chain(5)
        falsified = attack(list(genuine))
        forger = Key("exporter")
        about = manifest(falsified, heads=(head(falsified),) if falsified else ())
        lines = file(falsified, about, forger)
        keys = replace(KEYS, keys=KEYS.keys | {forger.key_id: forger.private.public_key()})

        assert verified(lines, keys, anchors=[head(genuine)]).verdict is INVALID

    def test_a_file_of_another_ledger_is_refused(self) -> None:
        """The verifier gives the ledger's name."""
        assert "not 'production'" in verified(of_a(), ledger="production").findings[0].reason

    @pytest.mark.slow
    def test_no_flipped_bit_of_a_file_is_accepted(self) -> None:
        """Any bit of any line, including the manifest and index lines (T1)."""
        lines = of_a()
        data = b"\n".join(lines)
        accepted = []
        for place in range(len(data)):
            flipped = data[:place] + bytes([data[place] ^ 1 << place % 8]) + data[place + 1 :]
            if verified(flipped.split(b"\n")).verdict is not INVALID:
                accepted.append((place, data[max(place - 20, 0) : place + 20]))

        assert accepted == []


class TestEvidenceFile:
    def test_packed_records_round_trip(self) -> None:
        """Headers and messages are unchanged lines of the file."""
        opened = EvidenceFile.open(file(ALL))

        records = list(opened.records())

        assert [
            (record.header, record.message, record.signature, record.position, record.hash) for record in records
        ] == [(record.header, record.message, record.signature, record.position, record.hash) for record in ALL]

    def test_an_absent_record_is_not_packed(self) -> None:
        """A bundle never has a placeholder that looks like a record."""
        with pytest.raises(EvidenceError, match="record 10 is missing: gone"):
            record_lines(replace(OF_A[0], absence="gone"))

    def test_an_unsigned_file_of_signed_records_is_valid(self) -> None:
        """The records have their own signatures; the file's signature only names its maker."""
        report = verified(of_a(None))

        assert (report.verdict, report.signed_by) == (UNANCHORED, None)

    @pytest.mark.parametrize(
        "spoil",
        [
            pytest.param(lambda line: line.replace(b'"records":3', b'"records":3.0'), id="a number"),
            pytest.param(lambda line: line.replace(b'"ledger"', b' "ledger"'), id="a blank"),
            pytest.param(lambda line: line.replace(b'"records":3', b'"records":3,"records":3'), id="a member twice"),
        ],
    )
    def test_a_manifest_in_another_json_spelling_is_refused(self, spoil: Callable[[bytes], bytes]) -> None:
        """The parsed manifest is the signed one (T8)."""
        first, *other_lines = of_a()

        with pytest.raises(EvidenceError, match=r"it is not a 'baton.evidence"):
            EvidenceFile.open([spoil(first), *other_lines])

    def test_index_lines_and_manifest_spell_hashes_alike(self) -> None:
        """Both use the same notation."""
        assert parse_digest(format_digest(OF_A[0].hash)) == OF_A[0].hash
        assert ChainHead.of(OF_A[0]).task_id == A != TASK
