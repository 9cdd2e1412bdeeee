"""Personal data never enters the ledger in clear, and erasing it changes no byte of it (§12.3; C-24)."""

import hashlib
import json
import os
from typing import Any

import pytest

from baton.ledger.chain import Verdict
from baton.ledger.entries import (
    PERSONAL_DATA,
    RedactionPolicy,
    commitment,
    erasure_entry,
    in_clear,
    is_commitment,
    redact,
)
from tests.ledger.material import KEYS, NOW, TASK, chain, entry
from tests.ledger.proving import verify

POLICY = RedactionPolicy()


def salt(pointer: str) -> bytes:
    """Return a deterministic salt for a pointer."""
    return hashlib.sha256(pointer.encode()).digest()


class TestRedact:
    def test_each_member_of_the_payload_becomes_a_commitment(self) -> None:
        """`personalDataPayload` is redacted by member, so each can have its own data subject (S3-12.3-b)."""
        original = {"taskDescription": "x", "personalDataPayload": {"email": "a@b.c", "phone": 1}}
        redacted = redact(original, POLICY, salt)

        assert redacted["taskDescription"] == "x"
        assert all(map(is_commitment, redacted["personalDataPayload"].values()))
        assert original["personalDataPayload"] == {"email": "a@b.c", "phone": 1}
        assert in_clear(redacted, POLICY) == []

    @pytest.mark.parametrize(
        ("fields", "message", "pointers"),
        [
            pytest.param({"/a"}, {"a": "x"}, ["/a"], id="a text"),
            pytest.param({"/a"}, {"a": {"b": {"c": 1}, "d": [2]}}, ["/a/b", "/a/d"], id="an object, member by member"),
            pytest.param({"/a/*/e"}, {"a": [{"e": 1}, {"f": 2}, {"e": 3}]}, ["/a/0/e", "/a/2/e"], id="in every item"),
            pytest.param({"/*/e"}, {"a": {"e": 1}, "b": 2}, ["/a/e"], id="in every member"),
            pytest.param({"/a/1"}, {"a": ["x", "y"]}, ["/a/1"], id="an item"),
            pytest.param({"/a~1b/c~0d"}, {"a/b": {"c~d": 1}}, ["/a~1b/c~0d"], id="escaped names"),
            pytest.param({"/a", "/b"}, {"a": 1}, ["/a"], id="a field that is not there"),
            pytest.param({"/a"}, {"a": None}, [], id="nothing to hide"),
            pytest.param({"/a/b"}, {"a": "text"}, [], id="a way that ends"),
            pytest.param({"/a"}, {"a": {"commitment": "a@b.c"}}, ["/a/commitment"], id="a fake commitment"),
            pytest.param(
                {"/a"},
                {"a": {"commitment": "sha256:" + "0" * 64, "b": 1}},
                ["/a/b", "/a/commitment"],
                id="a commitment and more",
            ),
        ],
    )
    def test_the_policy_names_the_redacted_members(
        self, fields: set[str], message: dict[str, Any], pointers: list[str]
    ) -> None:
        """PII fields are redacted per data policy (S3-6.2-b)."""
        policy = RedactionPolicy(frozenset(fields))

        assert sorted(in_clear(message, policy)) == pointers
        assert in_clear(redact(message, policy, salt), policy) == []

    def test_ciphertext_and_commitments_stay(self) -> None:
        """The vault's ciphertext may be recorded, and redaction is idempotent."""
        policy = RedactionPolicy(is_sealed=lambda value: isinstance(value, dict) and "ciphertext" in value)
        once = redact({"personalDataPayload": {"a": {"ciphertext": "…"}, "b": "x"}}, policy, salt)

        assert is_commitment(once["personalDataPayload"]["b"])
        assert redact(once, policy, salt) == once

    def test_a_short_salt_is_refused(self) -> None:
        """A short salt can be found by brute force."""
        with pytest.raises(ValueError, match="16 random"):
            redact({"personalDataPayload": {"a": "x"}}, POLICY, lambda pointer: b"short")


class TestCommitment:
    def test_without_the_salt_a_guess_cannot_be_tested(self) -> None:
        """The record has no hash that could be computed from a guess (C-24: low-entropy data)."""
        value = "a@b.c"
        recorded = commitment("/personalDataPayload/email", os.urandom(32), value)

        assert recorded != "sha256:" + hashlib.sha256(json.dumps(value).encode()).hexdigest()
        assert recorded != commitment("/personalDataPayload/email", os.urandom(32), value)


class TestErasure:
    def test_erasing_salts_changes_no_hash(self) -> None:
        """The chain verifies as before, with the same head, once the erasure is on record (T10, P8, S3-12.3-d)."""
        vault = {"salts": {f"{PERSONAL_DATA}/email": os.urandom(32)}}
        message = {"personalDataPayload": {"email": "maria@example.com"}}
        redacted = redact(message, POLICY, vault["salts"].__getitem__)
        records = chain(entries=[entry(0, message=redacted), entry(1)])

        vault.clear()
        restored = [
            *records,
            *chain(
                entries=[
                    entry(0, message=redacted),
                    entry(1),
                    erasure_entry("e-1", task_id=TASK, subject="s-93f1", removed={"salts": 1}, timestamp=NOW),
                ]
            )[2:],
        ]

        report = verify(restored, verifier=KEYS)
        assert (report.verdict, report.records) == (Verdict.UNANCHORED, 3)
        assert all(b"maria" not in record.message for record in restored)
