"""The kinds of values in a message: each accepts the same in Python and in the published schema."""

from functools import cache
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from baton.wire.records import (
    AgentVersion,
    Digest,
    Instant,
    KeyValue,
    Receivers,
    SchemaVersion,
    Signature,
    Traceparent,
    Uuid4,
    VersionRange,
)

# Flags that are not all zeros, ids that are, versions that end and that go on: after W3C Trace Context §3.2.2.
_ID, _PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
KINDS: dict[str, Any] = {
    "SchemaVersion": SchemaVersion,
    "Uuid4": Uuid4,
    "Instant": Instant,
    "Digest": Digest,
    "AgentVersion": AgentVersion,
    "VersionRange": VersionRange,
    "KeyValue": KeyValue,
    "Traceparent": Traceparent,
    "Signature": Signature,
    "Receivers": Receivers,
}
GOOD: dict[str, list[Any]] = {
    "SchemaVersion": ["2.0", "2.1", "2.17"],
    "Uuid4": ["7c9e6679-7425-40de-944b-e07fc1f90ae7", "00000000-0000-4000-8000-000000000000"],
    "Instant": [
        "2026-06-12T09:30:00Z",
        "2026-06-12T09:30:00.123456789+05:30",
        "0001-01-01T00:00:00Z",
        "9999-12-31T23:59:59-23:59",
        "2024-02-29T00:00:00Z",
    ],
    "Digest": ["sha256:" + "0f" * 32],
    "AgentVersion": ["2.1.0", "0.0.0", "1.0.0-rc.1", "1.0.0-x-y.7+build.001"],
    "VersionRange": [">=1.5.0", "1.x", "*", "^1.2 || ~2.0.1", "1.0 - 2.0", ">=1.2, <3"],
    "KeyValue": ["returnJSON:true", "note: with a blank", "a.b-c_d:x:y", "k:\n"],
    "Traceparent": [
        f"00-{_ID}-{_PARENT}-01",
        f"00-{_ID}-{_PARENT}-00",
        f"00-{'0' * 31}1-{'0' * 15}1-ff",
        f"01-{_ID}-{_PARENT}-01",
        f"cc-{_ID}-{_PARENT}-01-what-the-future-will-be-like",
    ],
    "Signature": ["hmac-sha256:" + "0f" * 32, "ed25519:ab_-+/=="],
    "Receivers": [["a"], ["a", "b"]],
}
BAD: dict[str, list[Any]] = {
    "SchemaVersion": ["2", "2.", "2.01", "1.0", "3.0", "2.0.0", "2.0\n", " 2.0", "٢.0", 2.0],
    "Uuid4": [
        "7C9E6679-7425-40DE-944B-E07FC1F90AE7",
        "7c9e6679-7425-10de-944b-e07fc1f90ae7",
        "7c9e6679-7425-40de-c44b-e07fc1f90ae7",
        "7c9e6679742540de944be07fc1f90ae7",
        "{7c9e6679-7425-40de-944b-e07fc1f90ae7}",
        "7c9e6679-7425-40de-944b-e07fc1f90ae7\n",
        "",
    ],
    "Instant": [
        "2026-06-12T09:30:00",
        "2026-06-12 09:30:00Z",
        "2026-06-12",
        "2026-02-30T09:30:00Z",
        "2023-02-29T00:00:00Z",
        "2026-06-12T24:00:00Z",
        "2026-06-12T09:30:60Z",
        "0000-01-01T00:00:00Z",
        "2026-06-12T09:30:00+24:00",
        "2026-06-12T09:30:00z",
        "1781256600",
        1781256600,
    ],
    "Digest": ["sha256:" + "0F" * 32, "sha256:" + "0f" * 31, "md5:" + "0f" * 32, "0f" * 32],
    "AgentVersion": ["2.1", "v2.1.0", "2.1.0-", "02.1.0", "2.1.0-01", "2.1.0+", "latest", "1.0.0-" + "a" * 200],
    "VersionRange": ["latest", "", ">=", ">1.*.2", "1.2.3.4", "<*", ">=1.5.0 ||", "=>1.0", "~x", "1 -2", " 1.0"],
    "KeyValue": ["returnJSON", ":true", "return JSON:true", "k:", "k: ", "1k:v", ""],
    "Traceparent": [
        f"ff-{_ID}-{_PARENT}-01",
        f"00-{'0' * 32}-{_PARENT}-01",
        f"00-{_ID}-{'0' * 16}-01",
        f"00-{_ID}-{_PARENT}-01-x",
        f"00-{_ID}-{_PARENT}-1",
        f"00-{_ID.upper()}-{_PARENT}-01",
        f"00-{_ID[:-1]}-{_PARENT}-01",
        f"0-{_ID}-{_PARENT}-01",
        f"01-{_ID}-{_PARENT}-01x",
        f"00-{_ID}-{_PARENT}-01\n",
        "",
    ],
    "Signature": ["hmac-sha256:", ":ab", "HMAC:ab", "hmac-sha256 ab", "hmac-sha256:a b"],
    "Receivers": [[], ["a", "a"], [""], ["n" * 201], "a", [7]],
}
NO_DAYS = ("2026-02-30T09:30:00Z", "2023-02-29T00:00:00Z")


@cache
def readers(name: str) -> tuple[TypeAdapter[Any], jsonschema_rs.Draft202012Validator]:
    """Return a kind's reader in Python, and its compiled schema."""
    adapter: TypeAdapter[Any] = TypeAdapter(KINDS[name])
    return adapter, jsonschema_rs.Draft202012Validator(
        adapter.json_schema(), validate_formats=True, offline=True, pattern_options=jsonschema_rs.RegexOptions()
    )


def both(name: str, value: Any) -> tuple[bool, bool]:
    """Return whether Python and the published schema accept a value."""
    adapter, schema = readers(name)
    try:
        adapter.validate_python(value, strict=True)
    except ValidationError:
        return False, schema.is_valid(value)
    return True, schema.is_valid(value)


class TestKinds:
    def test_valid_values_are_accepted(self) -> None:
        """Patterns refuse nothing that the standards allow (C-49, S3-6.1-b, S3-5.2-j)."""
        rows = [(name, value) for name, good in GOOD.items() for value in good]
        assert [(name, value) for name, value in rows if both(name, value) != (True, True)] == []

    def test_invalid_values_are_refused(self) -> None:
        """Times without an offset, identifiers of other versions, sums without their algorithm (C-49)."""
        rows = [(name, value) for name, bad in BAD.items() for value in bad]
        assert [(name, value) for name, value in rows if both(name, value) != (False, False)] == []

    def test_a_validator_that_ignores_formats_refuses_them_too(self) -> None:
        """Most do, so the published pattern says it; which days a month has, no pattern can say (C-49)."""
        for name in ("Uuid4", "Instant"):
            schema = readers(name)[0].json_schema()
            plain = jsonschema_rs.Draft202012Validator(schema, validate_formats=False, offline=True)
            assert [value for value in BAD[name] if plain.is_valid(value) is not (value in NO_DAYS)] == []

    @pytest.mark.parametrize("name", GOOD)
    @given(data=st.data())
    def test_python_and_the_schema_agree_on_nearly_valid_values(self, name: str, data: st.DataObject) -> None:
        """One sign more, less or other: whatever the answer is, both give the same one (S3-6.1-b)."""
        text = data.draw(st.sampled_from([value for value in GOOD[name] if isinstance(value, str)] or ["a"]))
        place = data.draw(st.integers(0, len(text)))
        sign = data.draw(st.sampled_from([*"019aAfgxXzZ-+:. *~^<>=|,_/\n\t é٣", ""]))
        rest = text[place + data.draw(st.integers(0, 1)) :]

        python, schema = both(name, text[:place] + sign + rest)

        assert python is schema
