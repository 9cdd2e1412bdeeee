"""Personal data on the wire: ciphertext or the mark of an erasure, and nothing else."""

import copy
from typing import Any

import pytest

from baton.ledger.entries import in_clear
from baton.personal.records import (
    SEALED_ONLY,
    PersonalDataError,
    commit_unsealed,
    is_payload,
    read_payload,
    write_payload,
)

ONE, TWO = "sub-" + "0" * 32, "sub-" + "1" * 32
FIELD = {"kid": "dk-" + "a" * 16, "n": "AAAAAAAAAAAAAAAA", "ct": "A" * 64}
SEALED = {"v": 1, "fields": {"email": FIELD}}
ERASED = {"v": 1, "erased": {"erasureId": "request-7", "at": "2026-11-21T10:00:00Z"}}
PAYLOAD: dict[str, Any] = {ONE: SEALED, TWO: ERASED}


def spoilt(*path: str, value: Any) -> dict[str, Any]:
    """Return the payload with another value at a place."""
    made: dict[str, Any] = copy.deepcopy(PAYLOAD)
    holder = made
    for name in path[:-1]:
        holder = holder[name]
    holder[path[-1]] = value
    return made


CLEAR = [
    pytest.param({"Jane Doe": SEALED}, id="a name in place of a pseudonym"),
    pytest.param(spoilt(ONE, "fields", "email", value="jane@example.org"), id="a value in clear"),
    pytest.param(spoilt(ONE, "fields", "e-mail of Jane", value=FIELD), id="a field with a name that tells"),
    pytest.param(spoilt(ONE, "fields", "email", "ct", value="jane@example.org"), id="a value in place of ciphertext"),
    pytest.param(spoilt(ONE, "fields", "email", "ct", value="SmFuZQ=="), id="a value in base64"),
    pytest.param(spoilt(ONE, "fields", "email", "ct", value="A" * 63 + "\n"), id="a line break in the ciphertext"),
    pytest.param(spoilt(ONE, "fields", "email", "ct", value="A" * 24), id="a ciphertext of less than a block"),
    pytest.param(spoilt(ONE, "fields", "email", "n", value="AAAA"), id="a short nonce"),
    pytest.param(spoilt(ONE, "fields", "email", "kid", value="jane"), id="a name in place of a key's"),
    pytest.param(spoilt(ONE, "fields", "email", "note", value="Jane"), id="a member more"),
    pytest.param(spoilt(ONE, "note", value="Jane"), id="a member more beside the fields"),
    pytest.param(spoilt(ONE, "v", value=2), id="another version"),
    pytest.param(spoilt(ONE, "fields", value={}), id="no fields"),
    pytest.param(spoilt(TWO, "erased", "at", value="yesterday"), id="an erasure without a time"),
    pytest.param([SEALED], id="a list"),
    pytest.param("jane@example.org", id="a text"),
]


class TestReadPayload:
    def test_both_forms_survive_the_wire(self) -> None:
        """A payload is written as it was read (S3-12.3-b)."""
        assert write_payload(read_payload(PAYLOAD)) == PAYLOAD

    @pytest.mark.parametrize("payload", CLEAR)
    def test_plaintext_is_refused_and_not_quoted(self, payload: Any) -> None:
        """A `personalDataPayload` is encrypted (S3-12.3-b, C-24)."""
        with pytest.raises(PersonalDataError, match="in 1 place: seal personal data") as caught:
            read_payload(payload)

        assert "ane" not in str(caught.value)
        assert not is_payload(payload)

    def test_an_absent_member_is_the_empty_payload(self) -> None:
        """Most messages have no personal data (S3-5.2-y)."""
        assert (read_payload(None), list(read_payload(PAYLOAD))) == ({}, [ONE, TWO])


class TestSealedOnly:
    def test_a_payload_of_the_vault_may_be_recorded(self) -> None:
        """The chain's hashes cover the ciphertext (C-24, S3-12.3-d)."""
        assert in_clear({"personalDataPayload": PAYLOAD}, SEALED_ONLY) == []

    @pytest.mark.parametrize("payload", CLEAR)
    def test_plaintext_may_not_be_recorded(self, payload: Any) -> None:
        """The ledger cannot forget (C-24)."""
        assert in_clear({"personalDataPayload": payload}, SEALED_ONLY)


class TestCommitUnsealed:
    @pytest.mark.parametrize("payload", CLEAR)
    def test_a_plaintext_payload_becomes_one_commitment(self, payload: Any) -> None:
        """A rejected message is recorded without anything that may have to be erased (C-24)."""
        message = {"handoffId": "h", "personalDataPayload": payload}
        recorded = commit_unsealed(message, lambda: b"s" * 16)

        assert in_clear(recorded, SEALED_ONLY) == []
        assert "ane" not in str(recorded)
        assert commit_unsealed(recorded, lambda: b"t" * 16) == recorded
        assert commit_unsealed(message, lambda: b"t" * 16) != recorded

    def test_what_the_vault_sealed_stays(self) -> None:
        """The ciphertext is part of the evidence (C-24)."""
        message = {"handoffId": "h", "personalDataPayload": PAYLOAD}

        assert commit_unsealed(message, lambda: b"s" * 16) == message
        assert commit_unsealed({"handoffId": "h"}, lambda: b"s" * 16) == {"handoffId": "h"}
