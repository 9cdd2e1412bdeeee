"""The registry of releases: what a release may change, and how older messages are read."""

import copy
from typing import Any

import pytest

from baton.handoff.errors import SchemaChangeError
from baton.handoff.schema import CURRENT, RELEASED, handoff_schema
from baton.handoff.store_schema import covers
from baton.wire.schema_registry import Release, SchemaRegistry, handoff_schemas
from tests.unit.handoff.material import EXAMPLE, OPTIONAL


def edited(**members: Any) -> dict[str, Any]:
    """Return the current schema with top-level members added or replaced; None takes one away."""
    schema = handoff_schema()
    for name, member in members.items():
        if member is None:
            del schema["properties"][name]
            schema["required"] = [one for one in schema["required"] if one != name]
        else:
            schema["properties"][name] = member
    return schema


def refused(version: str, schema: dict[str, Any], registry: SchemaRegistry | None = None, **more: Any) -> list[str]:
    """Return why a release is refused."""
    with pytest.raises(SchemaChangeError) as caught:
        (registry or handoff_schemas()).with_release(Release(version, schema, **more), covers)
    return caught.value.findings


class TestMinorRelease:
    """The next minor: optional members and nothing else (S3-14.3-a)."""

    def test_a_new_optional_member_is_a_minor(self) -> None:
        """It is fully compatible, and that is proved (S3-14.3-a, S3-7.1.1-c)."""
        registry = handoff_schemas().with_release(Release("2.3", edited(priority={"type": "string"})), covers)

        assert registry.versions == (*RELEASED, "2.3")
        assert registry.current == "2.3"
        assert "priority" in registry.schema("2.3")["properties"]

    def test_the_registry_before_stays_as_it_was(self) -> None:
        """Registries are values; every agent keeps the one it was started with."""
        handoff_schemas().with_release(Release("2.3", edited(priority={"type": "string"})), covers)

        assert handoff_schemas().current == CURRENT

    def test_a_wider_type_is_a_minor(self) -> None:
        """Whatever was valid is valid."""
        wider = edited(audience={"type": ["string", "null"]})

        assert handoff_schemas().with_release(Release("2.3", wider), covers).current == "2.3"

    def test_remarks_may_change(self) -> None:
        """Descriptions, examples and the mark of deprecation change nobody's message."""
        marked = edited(keyId={**handoff_schema()["properties"]["keyId"], "deprecated": True, "description": "x"})

        assert handoff_schemas().with_release(Release("2.3", marked), covers).current == "2.3"

    def test_a_required_member_needs_a_major(self) -> None:
        """Nobody who runs today sends it (S3-14.3-b)."""
        schema = edited(priority={"type": "string"})
        schema["required"].append("priority")

        assert refused("2.3", schema) == ["'priority' is required; make it optional, or release a major"]

    def test_a_member_that_becomes_required_needs_a_major(self) -> None:
        """It was optional for those who run today (S3-14.3-b)."""
        schema = handoff_schema()
        schema["required"].append("keyId")

        assert refused("2.3", schema) == ["'keyId' is required; make it optional, or release a major"]

    def test_a_removal_needs_a_major(self) -> None:
        """It is announced first (S3-14.3-c)."""
        assert refused("2.3", edited(keyId=None)) == [
            "'keyId' is gone; mark it deprecated, and remove it in the next major"
        ]

    @pytest.mark.parametrize(
        "narrower",
        [
            pytest.param({"type": "integer"}, id="another type"),
            pytest.param({"type": "string", "maxLength": 20}, id="a shorter text"),
            pytest.param({"type": "string", "pattern": "^[a-z]+$"}, id="another pattern"),
        ],
    )
    def test_a_narrower_type_needs_a_major(self, narrower: dict[str, Any]) -> None:
        """What some senders send would be refused (S3-14.3-c)."""
        assert refused("2.3", edited(contractId=narrower)) == ["'contractId' takes less than before; release a major"]

    def test_changes_inside_members_and_lists_are_seen(self) -> None:
        """The promise holds at every level."""
        schema = handoff_schema()
        schema["$defs"]["ToolCall"]["required"].append("cost")
        schema["$defs"]["ToolCall"]["properties"]["cost"] = {"type": "number"}
        schema["properties"]["constraints"]["items"]["maxLength"] = 10

        assert refused("2.3", schema) == [
            "'toolCallHistory/*/cost' is required; make it optional, or release a major",
            "'constraints/*' takes less than before; release a major",
        ]

    def test_what_cannot_be_proved_is_not_released(self) -> None:
        """An unknown answer is not a yes (S3-7.1.1-c)."""
        schema = edited(priority={"type": "string"})
        with pytest.raises(SchemaChangeError, match="not proved"):
            handoff_schemas().with_release(Release("2.3", schema), lambda new, old: False)

    @pytest.mark.parametrize("version", ["2.2", "2.4", "2.0", "3.1", "4.0"])
    def test_numbers_follow_each_other(self, version: str) -> None:
        """Two minors back means the same for everybody only without gaps (S3-11-b, S3-7.1.1-c)."""
        assert refused(version, handoff_schema()) == ["after 2.2 comes 2.3 or 3.0"]


def announced() -> SchemaRegistry:
    """Return the registry with a minor in which `contractId` is marked for removal."""
    mark = {**handoff_schema()["properties"]["contractId"], "deprecated": True}
    return handoff_schemas().with_release(Release("2.3", edited(contractId=mark)), covers)


def without_contract(message: Any) -> dict[str, Any]:
    """Upcast a message to a major that has no `contractId`."""
    return {name: value for name, value in message.items() if name != "contractId"}


class TestMajorRelease:
    """The next major: removals that were announced, and a migration (S3-14.3-b, S3-14.3-c)."""

    def test_an_announced_removal_is_a_major(self) -> None:
        """It was marked deprecated for a release, and old messages can still be read (S3-14.3-c, S3-14.3-b)."""
        registry = announced().with_release(Release("3.0", edited(contractId=None), without_contract), covers)
        message = {**EXAMPLE, "schemaVersion": "2.2", "contractId": "c"}

        assert registry.current == "3.0"
        assert registry.upcast(message) == {**EXAMPLE, "schemaVersion": "3.0"}

    def test_a_removal_that_was_not_announced_is_refused(self) -> None:
        """At least one release comes between the announcement and the end (S3-14.3-c)."""
        findings = refused("3.0", edited(contractId=None), upcast=without_contract)

        assert findings == ["'contractId' was not marked deprecated in 2.2; announce its end one release before"]

    def test_a_change_of_type_is_announced_as_well(self) -> None:
        """For its readers the old member ends (S3-14.3-c)."""
        findings = refused("3.0", edited(audience={"type": "array"}), upcast=dict)

        assert findings == ["'audience' was not marked deprecated in 2.2; announce its end one release before"]

    def test_a_new_required_member_is_a_major_with_a_migration(self) -> None:
        """Old messages get what the new release requires (S3-14.3-b)."""
        schema = edited(priority={"type": "string"})
        schema["required"].append("priority")
        release = Release("3.0", schema, lambda message: {**message, "priority": "normal"})

        assert handoff_schemas().with_release(release, covers).upcast(EXAMPLE)["priority"] == "normal"

    def test_a_major_without_a_migration_is_refused(self) -> None:
        """Messages under way and ledgers of years are still read (S3-14.3-b)."""
        assert refused("3.0", handoff_schema()) == ["there is no upcaster; say how a message of 2.2 becomes one of 3.0"]

    def test_what_is_inside_an_announced_member_ends_with_it(self) -> None:
        """Only the outermost mark is asked for."""
        schema = handoff_schema()
        schema["properties"]["trail"]["deprecated"] = True
        registry = handoff_schemas().with_release(Release("2.3", schema), covers)
        without_trail = copy.deepcopy(schema)
        del without_trail["properties"]["trail"]

        assert registry.with_release(Release("3.0", without_trail, dict), covers).current == "3.0"


class TestUpcast:
    """`SchemaRegistry.upcast`: every older message as the current release would have written it."""

    @pytest.mark.parametrize("version", ["2.0", "2.1"])
    def test_the_word_that_began_a_task_becomes_a_member(self, version: str) -> None:
        """Readers of the current release look at one place only (C-16)."""
        first = {**EXAMPLE, "schemaVersion": version, "taskDescription": "INITIAL", "parentHandoffId": None}

        assert handoff_schemas().upcast(first) == {**first, "schemaVersion": CURRENT, "initial": True}

    def test_other_messages_change_their_version_only(self) -> None:
        """Minors only add optional members, so there is nothing to add."""
        assert handoff_schemas().upcast(EXAMPLE) == {**EXAMPLE, "schemaVersion": CURRENT}

    @pytest.mark.parametrize("version", [CURRENT, "2.3", "2.9"])
    def test_a_message_that_is_as_new_or_newer_stays_as_it_is(self, version: str) -> None:
        """What it adds is unknown here and kept (S3-14.3-a)."""
        message = {**EXAMPLE, **OPTIONAL, "schemaVersion": version, "priority": "high"}

        assert handoff_schemas().upcast(message) == message

    def test_the_received_message_is_not_touched(self) -> None:
        """The signature is over what was received."""
        before = copy.deepcopy(EXAMPLE)

        handoff_schemas().upcast(EXAMPLE)["currentState"] = {}

        assert before == EXAMPLE

    @pytest.mark.parametrize("version", ["1.0", "3.0"])
    def test_a_version_that_was_never_released_cannot_be_read(self, version: str) -> None:
        """Guessing would make something up."""
        with pytest.raises(ValueError, match="never released"):
            handoff_schemas().upcast({**EXAMPLE, "schemaVersion": version})


class TestDeprecated:
    """`SchemaRegistry.deprecated`: what a sender should be told of in time."""

    def test_members_that_will_end_are_named(self) -> None:
        """The deprecation period is of use only if somebody says so (S3-14.3-c)."""
        assert announced().deprecated({**EXAMPLE, "contractId": "c"}) == ["contractId"]
        assert announced().deprecated(EXAMPLE) == []

    def test_inside_of_lists_too(self) -> None:
        """One item that has it is enough."""
        schema = handoff_schema()
        schema["$defs"]["ToolCall"]["properties"]["outputTokens"]["deprecated"] = True
        registry = handoff_schemas().with_release(Release("2.3", schema), covers)

        assert registry.deprecated(EXAMPLE) == ["toolCallHistory/*/outputTokens"]
        assert registry.deprecated({**EXAMPLE, "toolCallHistory": []}) == []
