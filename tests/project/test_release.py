"""What a release publishes, and who may publish it."""

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
WORKFLOW: dict[Any, Any] = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text(encoding="utf-8"))
BUILD = "import sys, hatchling.build as b; print(getattr(b, 'build_' + sys.argv[1])(sys.argv[2]))"


def built(what: str, source: Path, folder: Path) -> Path:
    """Build an sdist or a wheel from a folder of sources."""
    command = [sys.executable, "-c", BUILD, what, str(folder)]
    done = subprocess.run(command, cwd=source, capture_output=True, text=True, encoding="utf-8", check=True)
    return folder / done.stdout.split()[-1]


class TestSdist:
    """What others build from."""

    def test_the_wheel_of_the_sdist_is_the_wheel_of_the_checkout(self, tmp_path: Path) -> None:
        """Whoever builds from the published sources gets the same files, the shipped pipelines among them."""
        with tarfile.open(built("sdist", ROOT, tmp_path)) as archive:
            archive.extractall(tmp_path / "sources", filter="data")
        [source] = (tmp_path / "sources").iterdir()
        for name in ("again", "here"):
            (tmp_path / name).mkdir()
        with (
            zipfile.ZipFile(built("wheel", source, tmp_path / "again")) as again,
            zipfile.ZipFile(built("wheel", ROOT, tmp_path / "here")) as here,
        ):
            assert {one.filename: one.CRC for one in again.infolist()} == {
                one.filename: one.CRC for one in here.infolist()
            }


class TestWorkflow:
    """.github/workflows/release.yml."""

    def test_only_a_tag_releases(self) -> None:
        """YAML reads the word `on` as a yes."""
        assert WORKFLOW[True] == {"push": {"tags": ["v*"]}}

    def test_only_the_last_job_can_publish_and_it_waits_for_the_others(self) -> None:
        """It alone is known to the index; it runs nothing of ours, and no token is kept."""
        jobs = WORKFLOW["jobs"]
        trusted = [
            name
            for name, job in jobs.items()
            if "id-token" in {**WORKFLOW["permissions"], **job.get("permissions", {})}
        ]

        assert trusted == ["publish"]
        assert {*jobs["publish"]["needs"]} == {*jobs} - {"publish"}
        assert [step for step in jobs["publish"]["steps"] if "run" in step] == []
        assert "secrets." not in (ROOT / ".github" / "workflows" / "release.yml").read_text(encoding="utf-8")
