"""What a release publishes, and who may publish it."""

import os
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.metadata import Metadata

from tests.wheels import install

ROOT = Path(__file__).parents[2]
WORKFLOW: dict[Any, Any] = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text(encoding="utf-8"))
BUILD = "import sys, hatchling.build as b; print(getattr(b, 'build_' + sys.argv[1])(sys.argv[2]))"


def committed() -> list[Path]:
    """Return the files that git holds, or would take."""
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    return [path for name in listing.stdout.decode().split("\0") if name and (path := ROOT / name).is_file()]


def commands(job: str) -> list[str]:
    """Return the commands of a job of the workflow."""
    return [step["run"] for step in WORKFLOW["jobs"][job]["steps"] if "run" in step]


def bash(line: str, folder: Path, variables: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a command as the workflow's shell does."""
    return subprocess.run(
        ["bash", "-eo", "pipefail", "-c", line],
        cwd=folder,
        env=variables,
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
    )


def built(what: str, source: Path, folder: Path) -> Path:
    """Build an sdist or a wheel from a folder of sources."""
    command = [sys.executable, "-c", BUILD, what, str(folder)]
    result = subprocess.run(command, cwd=source, capture_output=True, text=True, encoding="utf-8", check=True)
    return folder / result.stdout.split()[-1]


class TestSdist:
    """What others build from."""

    def test_the_wheel_of_the_sdist_is_the_wheel_of_the_checkout(self, tmp_path: Path) -> None:
        """Whoever builds from the published sources gets the same files, the shipped pipelines among them."""
        with tarfile.open(built("sdist", ROOT, tmp_path)) as archive:
            archive.extractall(tmp_path / "sources")
        [source] = (tmp_path / "sources").iterdir()
        for name in ("again", "here"):
            (tmp_path / name).mkdir()
        with (
            zipfile.ZipFile(built("wheel", source, tmp_path / "again")) as rebuilt,
            zipfile.ZipFile(built("wheel", ROOT, tmp_path / "here")) as own_wheel,
        ):
            assert {member.filename: member.CRC for member in rebuilt.infolist()} == {
                member.filename: member.CRC for member in own_wheel.infolist()
            }


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a fresh checkout of what git would hold, with the environment that the first step makes."""
    folder = tmp_path_factory.mktemp("checkout")
    for file in committed():
        (folder / file.relative_to(ROOT)).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, folder / file.relative_to(ROOT))
    (folder / ".venv").symlink_to(sys.prefix)
    return folder


@pytest.fixture(scope="module")
def dist(checkout: Path) -> Path:
    """Return the folder of what is published, made by the steps of the job that builds it."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    [checks, *rest] = commands("build")
    assert checks == ".ci/run"
    for tag, fits in ((f"v{version}", True), ("v999.0", False)):
        ended = bash(rest[0], checkout, {**os.environ, "GITHUB_REF_NAME": tag})
        assert (ended.returncode == 0) is fits, ended.stderr
    for line in rest[1:]:
        ended = bash(line, checkout, os.environ)
        assert ended.returncode == 0, ended.stderr
    return checkout / "dist"


class TestSteps:
    """The commands of the workflow, typed as they stand there; `.ci/run` is what runs this test."""

    def test_the_index_takes_what_is_built(self, dist: Path) -> None:
        """One sdist and one wheel, whose metadata is valid; the description is Markdown."""
        [sdist] = dist.glob("*.tar.gz")
        [wheel] = dist.glob("*.whl")
        with zipfile.ZipFile(wheel) as archive, tarfile.open(sdist) as sources:
            [of_wheel] = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
            [of_sdist] = [
                member
                for member in sources.getmembers()
                if member.name.count("/") == 1 and member.name.endswith("PKG-INFO")
            ]
            texts = [archive.read(of_wheel), sources.extractfile(of_sdist).read()]  # type: ignore[union-attr]
        for text in texts:
            metadata = Metadata.from_email(text, validate=True)
            assert metadata.description_content_type == "text/markdown"
            assert metadata.license_expression == "MIT"

    @pytest.mark.slow
    def test_a_project_made_with_the_wheel_passes_on_each_system(self, dist: Path, tmp_path: Path) -> None:
        """The steps that try it, with the selection of each system; the packages are those of the tests."""
        wheel = install(tmp_path / "environment", next(dist.glob("*.whl")))
        [pip, new, test] = commands("try")
        assert pip == 'python -m pip install "$(ls dist/*.whl)[new]"'
        assert bash(new, tmp_path, wheel.variables).returncode == 0
        systems = WORKFLOW["jobs"]["try"]["strategy"]["matrix"]["include"]
        for selection in sorted({system["tests"] for system in systems}):
            line = test.replace("${{ matrix.tests }}", selection)
            ended = bash(f"{line} -p no:langsmith_plugin", tmp_path, wheel.variables)
            assert ended.returncode == 0, ended.stdout
            assert " passed" in ended.stdout


class TestWorkflow:
    """.github/workflows/release.yml."""

    def test_it_is_a_valid_workflow(self) -> None:
        """By the schema of workflows."""
        check = Path(sys.executable).with_name("check-jsonschema")
        file = ROOT / ".github" / "workflows" / "release.yml"
        subprocess.run([check, "--builtin-schema", "vendor.github-workflows", file], capture_output=True, check=True)

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
