"""Registries filled from code, files and installed packages: real files, and a real package on the path."""

import json
from pathlib import Path

import pytest

from baton.contract.records import OutputSchemaRef, RegistryError
from baton.contract.registry import AgentEntry, OutputSchema
from baton.contract.store import load_registries
from baton.wire.money import Usage

TOML = """
[[agents]]
name = "ComplianceReviewAgent"
version = "1.2.0"
capability = ["compliance.review"]
window = 200_000
price = { input = 3.0, output = 15.0 }
requires = ["policy"]
tools = ["policy.search"]

[[output_schemas]]
name = "ComplianceDecisionV1"
version = "1.2"
file = "decision.json"
"""
DECISION = {"type": "object", "required": ["approved"]}
PACKAGE = """
from baton.contract.registry import AgentEntry
from baton.contract.registry import OutputSchema
from baton.wire.money import Usage

def agents():
    return [AgentEntry(name="Packaged", version="1.0.0")]

schema = OutputSchema("Packaged", "1.0", {"type": "object"})
broken = 5
numbers = [1, 2]

def raises():
    raise KeyError("no model")
"""


def written(folder: Path, name: str, text: str) -> Path:
    """Return a file with a text in it."""
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the file of the entry points of a package that is on the path, without any yet."""
    written(tmp_path, "packaged_agents.py", PACKAGE)
    info = tmp_path / "packaged_agents-1.0.dist-info"
    info.mkdir()
    written(info, "METADATA", "Metadata-Version: 2.1\nName: packaged-agents\nVersion: 1.0\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    return info / "entry_points.txt"


class TestFiles:
    def test_a_toml_file(self, tmp_path: Path) -> None:
        """Agents with all that is known of them, and schemas in files of their own (S5-check-m, S5-check-n)."""
        written(tmp_path, "decision.json", json.dumps(DECISION))
        made = load_registries(files=[written(tmp_path, "baton.toml", TOML)])
        entry = made.agents.find("ComplianceReviewAgent", "1.2.0")

        assert (entry.capability, entry.window, entry.requires, entry.tools) == (
            frozenset({"compliance.review"}),
            200_000,
            frozenset({"policy"}),
            frozenset({"policy.search"}),
        )
        assert entry.price.micro_usd(Usage(input=1_000, output=100)) == 4_500
        assert made.schemas.find(OutputSchemaRef.parse("ComplianceDecisionV1@1.2")) == DECISION

    def test_a_json_file(self, tmp_path: Path) -> None:
        """The same tables (S5-check-m)."""
        tables = {"output_schemas": [{"name": "A", "version": "1", "schema": DECISION}], "agents": []}
        made = load_registries(files=[str(written(tmp_path, "baton.json", json.dumps(tables)))])

        assert made.schemas.ref("A").version == "1"

    @pytest.mark.parametrize(
        ("name", "text", "message"),
        [
            pytest.param("x.toml", "agents = [", "not TOML", id="no TOML"),
            pytest.param("x.toml", f"a = {'[' * 5000}", "not TOML", id="TOML nested without end"),
            pytest.param("x.toml", f"a = {'9' * 5000}", "not TOML", id="TOML with an endless number"),
            pytest.param("x.json", "{", "not JSON", id="no JSON"),
            pytest.param("x.json", "[]", "expected `agents` and `output_schemas`, found no object", id="a list"),
            pytest.param("x.toml", "[[agent]]", r"found \['agent'\]", id="a table that is misspelled"),
            pytest.param("x.toml", "agents = 5", r"write \[\[agents\]\] before each", id="no tables"),
            pytest.param("x.toml", "[[agents]]\nname = 'A'", r"agents\[0\]: version: Field required", id="no version"),
            pytest.param(
                "x.toml", "[[agents]]\nname='A'\nversion='1.0.0'\ntool=[]", r"agents\[0\]: tool: Extra", id="a typo"
            ),
            pytest.param("x.toml", "[[output_schemas]]\nname = 'A'", "`name` and `version`", id="a schema, no version"),
            pytest.param(
                "x.toml", "[[output_schemas]]\nname='A'\nversion='1'", "either `schema` or `file`", id="no schema"
            ),
            pytest.param(
                "x.toml",
                "[[output_schemas]]\nname='A'\nversion='1'\nfile='none.json'",
                "none.json: the file cannot be read",
                id="a schema that is not there",
            ),
            pytest.param(
                "x.toml",
                "[[output_schemas]]\nname='A'\nversion='1'\nschema=5",
                "the schema of 'A' 1 must be an object",
                id="a schema that is a number",
            ),
            pytest.param(
                "x.toml",
                "[[output_schemas]]\nname='A'\nversion='1'\nschema={type='thing'}",
                "'A' 1 is no JSON Schema",
                id="a schema that is none",
            ),
            pytest.param(
                "x.json",
                '{"output_schemas": [{"name": "A", "version": "1", "schema": {"$ref": "https://x.example/a.json"}}]}',
                "'A' 1 is no JSON Schema",
                id="a schema that would be fetched",
            ),
        ],
    )
    def test_what_cannot_be_used_is_refused_with_its_place(
        self, tmp_path: Path, name: str, text: str, message: str
    ) -> None:
        """When a worker starts, and not at the first handoff (S5-valid-g, S5-fm-e)."""
        with pytest.raises(RegistryError, match=message) as caught:
            load_registries(files=[written(tmp_path, name, text)])

        assert str(tmp_path) in str(caught.value)

    def test_a_file_that_is_not_there(self, tmp_path: Path) -> None:
        with pytest.raises(RegistryError, match=r"nowhere\.toml: the file cannot be read"):
            load_registries(files=[tmp_path / "nowhere.toml"])


class TestSources:
    def test_they_add_up(self, tmp_path: Path) -> None:
        """Code and files (S5-check-n)."""
        path = written(tmp_path, "x.toml", "[[agents]]\nname='B'\nversion='1.0.0'")
        made = load_registries(agents=[AgentEntry(name="A", version="1.0.0")], files=[path])

        assert [one.name for one in made.agents.entries] == ["A", "B"]

    def test_two_sources_of_one_name_and_version_are_named(self, tmp_path: Path) -> None:
        """Which of them counts would be a matter of order (C-46)."""
        path = written(tmp_path, "x.toml", "[[agents]]\nname='A'\nversion='1.0.0'")
        with pytest.raises(RegistryError, match=r"agent 'A' 1.0.0 is registered by code and by .*x.toml"):
            load_registries(agents=[AgentEntry(name="A", version="1.0.0")], files=[path])

    def test_the_newest_by_policy(self) -> None:
        """The same policy for agents and schemas (C-46)."""
        made = load_registries(
            agents=[AgentEntry(name="A", version=version) for version in ("1.0.0", "1.1.0")],
            schemas=[OutputSchema("S", version, {}) for version in ("1", "2")],
            latest=True,
        )

        assert (made.agents.find("A").version, made.schemas.ref("S").version) == ("1.1.0", "2")


class TestInstalled:
    def test_what_a_package_brings(self, package: Path) -> None:
        """Entries, or a function that returns them (S5-check-m, S5-check-n)."""
        package.write_text(
            "[baton.agents]\nall = packaged_agents:agents\n[baton.output_schemas]\nmine = packaged_agents:schema\n",
            encoding="utf-8",
        )
        made = load_registries(installed=True)

        assert made.agents.find("Packaged").version == "1.0.0"
        assert made.schemas.ref("Packaged").version == "1.0"

    def test_nobody_is_asked_unless_wanted(self, package: Path) -> None:
        """It runs code of theirs."""
        package.write_text("[baton.agents]\nall = packaged_agents:raises\n", encoding="utf-8")

        assert load_registries().agents.entries == []

    @pytest.mark.parametrize(
        ("target", "message"),
        [
            pytest.param("packaged_agents:broken", "cannot be loaded: TypeError", id="a number"),
            pytest.param("packaged_agents:raises", "cannot be loaded: KeyError", id="a function that raises"),
            pytest.param("packaged_agents:nothing", "cannot be loaded: AttributeError", id="nothing"),
            pytest.param("packaged_agents:numbers", "expected AgentEntry, found int", id="a list of numbers"),
            pytest.param("packaged_agents:schema", "cannot be loaded: TypeError", id="a schema among agents"),
        ],
    )
    def test_what_cannot_be_loaded_is_named(self, package: Path, target: str, message: str) -> None:
        """With the package it is from (S5-check-n)."""
        package.write_text(f"[baton.agents]\nwrong = {target}\n", encoding="utf-8")

        with pytest.raises(RegistryError, match=f"the entry point 'wrong' of packaged-agents .*{message}"):
            load_registries(installed=True)
