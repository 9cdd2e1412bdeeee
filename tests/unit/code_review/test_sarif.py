"""The SARIF log has the members that the standard requires, and what code hosts read from it."""

import json
from pathlib import Path
from typing import Any

import pytest

from activities.code_review.analysers import ANALYSERS, review_of
from activities.code_review.records import Snapshot
from activities.code_review.sarif import to_sarif
from activities.code_review.sources import read_tree, snapshot_of_project
from tests.unit.code_review.material import FILES, WEAK, write

Json = dict[str, Any]


async def log_of(folder: Path, files: dict[str, str]) -> Json:
    """Return the log of a review of these files."""
    snapshot = snapshot_of_project(read_tree(write(folder, files), lambda _: None))
    reviews = [
        review_of(concern, snapshot, [await analyse(snapshot) for analyse in analysers.values()])
        for concern, analysers in ANALYSERS.items()
    ]
    log: Json = json.loads(to_sarif(snapshot, reviews))
    return log


@pytest.fixture(scope="module")
async def log(tmp_path_factory: pytest.TempPathFactory) -> Json:
    """Return the log of a small project."""
    return await log_of(tmp_path_factory.mktemp("project"), FILES)


class TestToSarif:
    """SARIF 2.1.0, section 3."""

    def test_has_every_member_that_the_standard_requires(self, log: Json) -> None:
        """Of a log, a run, a tool, a rule, a result and a location (§3.13, §3.14, §3.18, §3.19, §3.27, §3.49)."""
        assert log["version"] == "2.1.0"
        assert log["$schema"].endswith("sarif-schema-2.1.0.json")
        assert len(log["runs"]) == 2
        for run in log["runs"]:
            driver = run["tool"]["driver"]
            assert driver["name"]
            assert all(component["name"] for component in run["tool"]["extensions"])
            assert len({rule["id"] for rule in driver["rules"]}) == len(driver["rules"])
            assert run["invocations"][0]["executionSuccessful"] is True
            for result in run["results"]:
                assert result["message"]["text"]
                assert driver["rules"][result["ruleIndex"]]["id"] == result["ruleId"]
                assert result["level"] in ("error", "warning", "note")
                assert 0 <= result["rank"] <= 100
                [location] = result["locations"]
                place = location["physicalLocation"]
                named = run["artifacts"][place["artifactLocation"]["index"]]["location"]
                assert place["artifactLocation"]["uri"] == named["uri"]
                assert place["artifactLocation"]["uriBaseId"] in run["originalUriBaseIds"]
                region = place["region"]
                assert 1 <= region["startLine"] <= region["endLine"]
                assert region["startColumn"] >= 1

    def test_marks_what_the_source_suppresses(self, log: Json) -> None:
        """Code hosts close such results instead of losing them (§3.35)."""
        results = log["runs"][0]["results"]
        hushed = [result for result in results if "suppressions" in result]
        assert [result["ruleId"] for result in hushed] == ["B301"]
        assert hushed[0]["suppressions"] == [{"kind": "inSource"}]

    def test_names_the_weakness_and_its_grade(self, log: Json) -> None:
        """What code hosts sort security results by."""
        rules = {rule["id"]: rule for rule in log["runs"][0]["tool"]["driver"]["rules"]}
        assert rules["B602"]["properties"]["security-severity"] == "8.0"
        assert "external/cwe/cwe-078" in rules["B602"]["properties"]["tags"]
        assert rules["B602"]["helpUri"].startswith("https://")

    def test_says_what_was_not_analysed(self, log: Json) -> None:
        """As notifications of the run (§3.20.21)."""
        said = [one["message"]["text"] for one in log["runs"][0]["invocations"][0]["toolExecutionNotifications"]]
        assert "Not analysed: 1 × written in Shell, which these analysers do not read" in said
        assert "Not analysed: 1 × no program, but prose" in said

    async def test_knows_a_finding_again_when_lines_move(self, tmp_path: Path) -> None:
        """Equal lines are told apart by their order, and a name with a blank is a proper URI."""
        twice = WEAK + '\n\ndef again(folder):\n    subprocess.call("ls " + folder, shell=True)\n'

        def marks(log: Json) -> list[str]:
            results = log["runs"][0]["results"]
            return [one["partialFingerprints"]["batonCode/v1"] for one in results if one["ruleId"] == "B602"]

        before = await log_of(tmp_path / "one", {"my app.py": twice})
        after = await log_of(tmp_path / "two", {"my app.py": "# moved\n\n" + twice})
        assert marks(before) == marks(after)
        assert len(set(marks(before))) == 2
        assert before["runs"][0]["artifacts"][0]["location"]["uri"] == "my%20app.py"

    def test_of_nothing_is_a_log_all_the_same(self) -> None:
        """A tool that reads it need not ask whether it is there."""
        snapshot = Snapshot(name="empty", files=())
        log = json.loads(to_sarif(snapshot, [review_of("security", snapshot, [])]))
        assert log["runs"][0]["results"] == []
