"""The scan's benchmark: that no set is hidden, and that it says what it did not measure."""

from pathlib import Path

import pytest

from benchmarks.compare import Effort
from benchmarks.corpora import FOLDER_VARIABLE, SAMPLES, attacks
from benchmarks.scan import scan_corpora, scan_structure

QUICK = Effort(quick=True)


class TestScanCorpora:
    async def test_every_file_of_the_folder_has_its_rows(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Attacks and harmless texts of each file stand by themselves, with n and an interval."""
        rows = SAMPLES.read_text(encoding="utf-8").splitlines()
        for name in ("asb_ignore", "another"):
            (tmp_path / f"{name}.jsonl").write_text("\n".join(rows), encoding="utf-8")
        monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
        findings = await scan_corpora(None, QUICK)
        names = [row[0] for row in findings.rows]

        assert [name for name in names if name.startswith("another")] == ["another: attacks", "another: harmless"]
        assert "asb_ignore: attacks, held out" in names
        assert all("[" in row[4] for row in findings.rows)
        assert findings.values.keys() == {"scan_ms_per_kb", "scan_reject_fpr", "scan_marked_recall"}

    async def test_without_the_public_sets_it_says_so_and_leaves_their_figures_out(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A figure over our own texts alone would not be the one that the name promises."""
        monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
        findings = await scan_corpora(None, QUICK)

        assert findings.rows[-1][0].startswith("no public sets in ")
        assert findings.values.keys() == {"scan_ms_per_kb"}


class TestScanStructure:
    async def test_the_samples_stand_in_for_sets_that_are_not_there(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The structure is proved on any machine (S3-10.1-c)."""
        monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
        findings = await scan_structure(None, QUICK)

        assert findings.rows[0][0] == f"{len(attacks(tmp_path))} (samples only)"
        assert int(findings.rows[0][1]) > 100
        assert findings.values == {"fence_escapes": 0.0}
