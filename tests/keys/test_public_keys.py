"""Public keys for verifiers."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from baton.client import Answer
from baton.keys.store_keyring import Key, Keyring, Purpose
from baton.keys.store_keys import Deciders, KeyringError, PublicKey, PublicKeys, PublicKeysError, decider_entry
from baton.wire.base64url import to_base64url

AT = datetime(2026, 11, 21, 10, tzinfo=UTC)
SECRET = bytes(range(32))
ENTRY = decider_entry("ann", PublicKey("k", bytes(32), AT))
VECTORS = Path(__file__).parents[1] / "data/wycheproof/ed25519.json"


def test_the_export_contains_no_secret() -> None:
    """It has no byte of a secret."""
    ring = Keyring.generate()
    text = ring.public().to_json()

    assert all(
        to_base64url(secret_key.secret) not in text and secret_key.secret.hex() not in text
        for secret_key in ring.all_keys()
    )
    assert [jwk["kty"] for jwk in json.loads(text)["keys"]] == ["OKP"]


def test_it_verifies_exactly_what_the_published_vectors_verify() -> None:
    """151 signatures, most of them hostile: other encodings, points of other curves, S beyond the order."""
    rows = json.loads(VECTORS.read_text())
    wrong = [
        row["tcId"]
        for row in rows
        if PublicKey("k", bytes.fromhex(row["pk"]), AT).verifies(bytes.fromhex(row["msg"]), bytes.fromhex(row["sig"]))
        != (row["result"] == "valid")
    ]

    assert len(rows) == 151
    assert wrong == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("[]", "not a JWK Set", id="a list"),
        pytest.param("{", "not a JWK Set", id="no JSON"),
        pytest.param("[" * 100_000, "not a JWK Set", id="nested without end"),
        pytest.param('{"keys":[{"kty":"oct","crv":"","kid":"k"}]}', "'k' is not an Ed25519 key", id="a shared secret"),
        pytest.param('{"keys":[{"kid":"k","d":"x"}]}', "includes its private half", id="a private key"),
        pytest.param('{"keys":[{"kty":"OKP","crv":"Ed25519","kid":"k"}]}', "x: Field required", id="no bytes"),
        pytest.param(
            '{"keys":[{"kty":"OKP","crv":"Ed25519","kid":"k","x":"AAEC","createdAt":"2026-11-21T10:00:00Z"}]}',
            "x: Data should have at least 32 bytes",
            id="too few bytes",
        ),
    ],
)
def test_malformed_public_keys_are_refused(text: str, message: str) -> None:
    """Another kind of file never verifies anything."""
    with pytest.raises(PublicKeysError, match=message):
        PublicKeys.from_json(text)


def test_two_keys_with_the_same_id_are_refused() -> None:
    """Signatures would be ambiguous."""
    public_key = Key.generate(Purpose.SIGN, AT).public

    with pytest.raises(PublicKeysError, match="two public keys have the same id"):
        PublicKeys([public_key, public_key])


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        pytest.param(
            "groups = { leads = 'ann' }", "groups.leads: Input should be a valid list", id="a group of one text"
        ),
        pytest.param("groups = { leads = [1] }", "is malformed", id="a person who is a number"),
        pytest.param("groups = ['ann']", "is malformed", id="a group without a name"),
        pytest.param("decider = ['ann']", "is malformed", id="a decider without a key"),
        pytest.param("people = ['ann']", "people: Extra inputs", id="an unknown member"),
        pytest.param("#" * 1_048_577, "is larger than 1,048,576 bytes", id="too large"),
        pytest.param(ENTRY + ENTRY, "two keys have the same id", id="a key twice"),
    ],
)
def test_a_malformed_file_of_deciders_is_refused(tmp_path: Path, text: str, wrong: str) -> None:
    """For example, a string in place of a list of people."""
    file = tmp_path / "deciders.toml"
    file.write_text(text)

    with pytest.raises(KeyringError, match=wrong):
        Deciders.from_file(file)


def test_a_group_that_the_file_lacks_has_no_members(tmp_path: Path) -> None:
    """The run may ask for it, but the workers decide who is in it; names are compared as people write them."""
    file = tmp_path / "deciders.toml"
    file.write_text("groups = { leads = ['Ann'] }")
    deciders = Deciders.from_file(file)

    def refusal(who: str, *allowed: str) -> str | None:
        return deciders.refusal(Answer(choice="approve", who=who), "budget", [*allowed], proof=False)

    assert refusal("ann", "group:board") == "the workers' file of deciders has no group 'board'"
    assert refusal("eve", "group:leads", "bob") == "'eve' may not decide about 'budget'; group:leads, bob may"
    assert [refusal("ann", "group:leads"), refusal("Bob", "group:leads", "bob"), refusal("eve")] == [None] * 3
