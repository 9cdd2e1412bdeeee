"""Bundles as files."""

from pathlib import Path

import pytest

from baton.ledger.chain import Verdict
from baton.ledger.evidence import BUNDLE, Manifest, index_digest, index_line, pack
from baton.ledger.records import EvidenceError, LedgerUnavailableError
from baton.ledger.store_evidence import MAX_LINE_BYTES, bundle_lines, new_bundle, verify_bundle
from tests.ledger.material import KEY, KEYS, LEDGER, NOW, chain, head

RECORDS = chain(5)
MANIFEST = Manifest(
    format=BUNDLE,
    ledger=LEDGER,
    created_at=NOW,
    records=5,
    index=index_digest(index_line(record.hash, record.position, record.signature) for record in RECORDS),
)


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    path = tmp_path / "evidence.zst"
    with new_bundle(path) as file:
        file.writelines(pack(MANIFEST, RECORDS, KEY))
    return path


class TestVerifyBundle:
    def test_a_compressed_bundle_verifies(self, bundle: Path) -> None:
        """With the public key only (P10)."""
        assert verify_bundle(bundle, verifier=KEYS, anchors=[head(RECORDS)])
        assert bundle.stat().st_size < sum(len(record.header) + len(record.message) for record in RECORDS)

    def test_an_uncompressed_bundle_verifies(self, tmp_path: Path) -> None:
        """A bundle can be decompressed for reading and still be verified."""
        path = tmp_path / "evidence.jsonl"
        path.write_bytes(b"".join(pack(MANIFEST, RECORDS, KEY)))

        assert verify_bundle(path, verifier=KEYS, anchors=[head(RECORDS)])

    def test_a_truncated_file_is_invalid(self, bundle: Path) -> None:
        """The reason says that it is truncated (T5)."""
        data = bundle.read_bytes()
        for length in range(0, len(data), 7):
            bundle.write_bytes(data[:length])
            assert verify_bundle(bundle, verifier=KEYS).verdict is Verdict.INVALID

    @pytest.mark.slow
    def test_no_flipped_bit_changes_the_lines_of_a_valid_file(self, bundle: Path) -> None:
        """It is invalid or has the same lines, because some bits of the compression have no effect (T1)."""
        data = bundle.read_bytes()
        with bundle_lines(bundle) as lines:
            genuine = list(lines)
        for place in range(len(data)):
            bundle.write_bytes(data[:place] + bytes([data[place] ^ 1 << place % 8]) + data[place + 1 :])
            if verify_bundle(bundle, verifier=KEYS):
                with bundle_lines(bundle) as lines:
                    assert list(lines) == genuine

    def test_a_missing_file_is_an_error(self, tmp_path: Path) -> None:
        """A wrong path is no verdict."""
        with pytest.raises(LedgerUnavailableError, match="No such file"):
            verify_bundle(tmp_path / "typo.zst")

    @pytest.mark.slow
    def test_a_decompression_bomb_is_refused(self, tmp_path: Path) -> None:
        """A line of unlimited length is not read to its end."""
        path = tmp_path / "bomb.zst"
        with new_bundle(path) as file:
            file.writelines(b"x" * 1_000_000 for _ in range(MAX_LINE_BYTES // 1_000_000 + 2))

        with pytest.raises(EvidenceError, match="a line is longer than"), bundle_lines(path) as lines:
            list(lines)

    @pytest.mark.parametrize(
        ("message", "times", "reason"),
        [
            pytest.param(b"{}", 1_000, "it unpacks to more records than a file of its size can hold", id="many"),
            pytest.param(b"x" * 99_999, 3, "it unpacks to more than 1,000 times its size", id="long"),
        ],
    )
    def test_a_file_that_unpacks_to_endless_records_is_not_read_to_its_end(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, message: bytes, times: int, reason: str
    ) -> None:
        """It says that it has this many, and each has the form of a record."""
        monkeypatch.setattr("baton.ledger.store_evidence.MAX_LINE_BYTES", 100_000)
        path = tmp_path / "bomb.zst"
        lines = index_line(bytes(32), 1, None) + b"\n{}\n%s\n" % message
        with new_bundle(path) as file:
            file.writelines(pack(MANIFEST.model_copy(update={"records": 2**50}), []))
            for _ in range(100):
                file.write(lines * times)

        report = verify_bundle(path)

        assert report.verdict is Verdict.INVALID
        assert reason in [finding.reason for finding in report.findings]
        assert report.records < 10_000


class TestNewBundle:
    def test_a_bundle_is_written_atomically(self, bundle: Path) -> None:
        """An interruption leaves the old file, and no temporary one."""
        data = bundle.read_bytes()

        def break_off() -> None:
            with new_bundle(bundle) as file:
                file.writelines([b"half"])
                raise EvidenceError("a record is missing")

        with pytest.raises(EvidenceError):
            break_off()

        assert bundle.read_bytes() == data
        assert list(bundle.parent.iterdir()) == [bundle]

    @pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no full device")
    def test_a_full_disk_is_an_error(self, tmp_path: Path) -> None:
        """The file does not exist afterwards (F13)."""
        path = tmp_path / "evidence.zst"
        (tmp_path / ".new-evidence.zst").symlink_to("/dev/full")

        with pytest.raises(LedgerUnavailableError, match="No space left"), new_bundle(path) as file:
            file.writelines(pack(MANIFEST, RECORDS, KEY))

        assert not path.exists()
