"""The versions of the published schemas: each keeps what its number promises, and the rules detect violations.

`python -m tests.handoff.test_compatibility` writes the documents of versions that have none yet.
"""

import copy
import json
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

from baton.contract.records import CONTRACT_RELEASED
from baton.contract.validation import contract_schema
from baton.core.receivers import RELEASED
from baton.handoff.records import handoff_schema
from tests.handoff.compatibility import covers, faults

DOCUMENTS = Path(__file__).parents[2] / "docs/schemas"
SCHEMAS: Mapping[str, tuple[tuple[str, ...], dict[str, Any]]] = {
    "handoff": (RELEASED, handoff_schema()),
    "contract": (CONTRACT_RELEASED, contract_schema()),
}


def published(name: str, version: str) -> Any:
    return json.loads((DOCUMENTS / f"{name}-{version}.json").read_text(encoding="utf-8"))


def edited(**members: Any) -> dict[str, Any]:
    """Return the handoff's schema with top-level members added or replaced; None removes one."""
    schema = handoff_schema()
    for name, member in members.items():
        schema["properties"][name] = member
        if member is None:
            del schema["properties"][name]
    return schema


class TestDocuments:
    def test_every_version_is_published_and_nothing_else(self) -> None:
        """Messages are validated by the published documents (S3-7.1.1-a, S3-14.3-d, S5-check-k, S5-fm-a)."""
        there = {path.name for path in DOCUMENTS.iterdir()}

        assert there == {f"{name}-{version}.json" for name, (versions, _) in SCHEMAS.items() for version in versions}

    def test_the_newest_is_what_the_code_checks(self) -> None:
        """A change of validity is a new version (S3-7.1.1-a, S5-fm-a, S5-check-k)."""
        for name, (versions, schema) in SCHEMAS.items():
            assert published(name, versions[-1]) == schema, f"add a version of the {name} schema"

    def test_each_version_keeps_what_its_number_promises(self) -> None:
        """Proved for every pair of neighbours (S3-7.1.1-c, S3-14.3-a, S3-11-b, S5-check-o)."""
        for name, (versions, _) in SCHEMAS.items():
            for last, version in pairwise(versions):
                assert faults(version, published(name, version), last, published(name, last)) == []


class TestMinor:
    """The next minor: optional members and nothing else (S3-14.3-a)."""

    def test_what_only_adds_is_a_minor(self) -> None:
        """Optional members, wider types and descriptions break no message (S3-14.3-a, S3-7.1.1-c, S5-check-o)."""
        own = handoff_schema()["properties"]["keyId"]
        for new in (
            edited(priority={"type": "string"}),
            edited(audience={"type": ["string", "null"]}),
            edited(keyId={**own, "deprecated": True, "description": "x"}),
        ):
            assert faults("2.1", new, "2.0", handoff_schema()) == []
            assert covers(new, handoff_schema())

    def test_a_required_member_needs_a_major(self) -> None:
        """Current senders do not send it (S3-14.3-b)."""
        new = edited(priority={"type": "string"})
        new["required"] += ["priority", "keyId"]
        inside = handoff_schema()
        inside["$defs"]["ToolCall"]["required"].append("cost")
        inside["$defs"]["ToolCall"]["properties"]["cost"] = {"type": "number"}

        assert faults("2.1", new, "2.0", handoff_schema()) == ["required: keyId", "required: priority"]
        assert faults("2.1", inside, "2.0", handoff_schema()) == ["required: toolCallHistory/*/cost"]

    def test_a_removal_or_a_narrower_type_needs_a_major(self) -> None:
        """Some senders' messages would be refused (S3-14.3-c, S5-fm-a, S5-check-o)."""
        assert faults("2.1", edited(keyId=None), "2.0", handoff_schema()) == ["gone: keyId"]
        for narrower in ({"type": "integer"}, {"type": "string", "maxLength": 20}):
            assert faults("2.1", edited(keyId=narrower), "2.0", handoff_schema()) == ["narrower: keyId"]

    def test_a_renamed_field_of_a_contract_is_not_a_minor(self) -> None:
        """The release that would drift is refused (S5-fm-a, S5-check-o)."""
        new = contract_schema()
        new["properties"]["allowed"] = new["properties"].pop("allowedTools")
        new["required"] = [name if name != "allowedTools" else "allowed" for name in new["required"]]

        assert faults("1.1", new, "1.0", contract_schema()) == [
            "gone: allowedTools",
            "gone: allowedTools/*",
            "required: allowed",
        ]


class TestMajor:
    """The next major: removals that were announced, and a migration (S3-14.3-b, S3-14.3-c)."""

    def test_a_removal_was_announced_one_version_before(self) -> None:
        """At least one release comes between the announcement and the end (S3-14.3-c)."""
        marked = handoff_schema()
        marked["properties"]["trail"]["deprecated"] = True
        gone = copy.deepcopy(marked)
        del gone["properties"]["trail"]

        assert faults("3.0", gone, "2.1", marked, migrates=True) == []
        unannounced = faults(
            "3.0", edited(keyId=None, audience={"type": "array"}), "2.0", handoff_schema(), migrates=True
        )
        assert unannounced == ["not announced: keyId", "not announced: audience"]

    def test_it_comes_with_a_migration(self) -> None:
        """Messages in transit and old ledgers can still be read (S3-14.3-b)."""
        new = edited(priority={"type": "string"})
        new["required"].append("priority")

        assert faults("3.0", new, "2.0", handoff_schema()) == ["no migration"]
        assert faults("3.0", new, "2.0", handoff_schema(), migrates=True) == []

    def test_numbers_follow_each_other(self) -> None:
        """A gap would be a version that nobody published (S3-11-b, S3-7.1.1-c)."""
        for version in ("2.0", "2.2", "3.1", "4.0"):
            assert faults(version, handoff_schema(), "2.0", handoff_schema(), migrates=True) == ["number"]


def write_missing() -> None:
    """Write the missing documents of the newest versions."""
    for name, (versions, schema) in SCHEMAS.items():
        path = DOCUMENTS / f"{name}-{versions[-1]}.json"
        if not path.exists():
            path.write_text(json.dumps(schema, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    write_missing()
