"""The seal of a handoff: valid seals, and every way of tampering."""

import ast
import copy
import hmac
import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

import baton
from baton.handoff.sealed import SealError, UnverifiedHandoff, VerifiedHandoff
from baton.handoff.store_signing import open_sealed, seal, seal_json
from baton.keys.store_keyring import Key, Keyring, Purpose
from baton.keys.store_keys import RETIRED_GRACE, PublicKeys
from baton.wire.base64url import from_base64url
from tests.core.material import json_objects
from tests.handoff.material import FULL, OPTIONAL

AT = datetime(2026, 6, 1, tzinfo=UTC)
HMAC = Keyring.generate(at=AT)
ED25519 = Keyring.generate(seal_with=Purpose.SIGN, at=AT)
KEYRINGS = [pytest.param(HMAC, id="hmac-sha256"), pytest.param(ED25519, id="ed25519")]

MESSAGE: dict[str, Any] = {**FULL, **OPTIONAL, "schemaVersion": "2.2", "x-later-minor": {"kept": [1, "two", None]}}
"""A message with every member that there is, and one that this release does not know."""
OTHER: dict[str, Any] = {**MESSAGE, **{name: f"other {name}" for name in MESSAGE}}
"""Another one, whose members all differ."""
MEMBERS = sorted(MESSAGE.keys() - {"signature"})


def read(raw: bytes) -> dict[str, Any]:
    message: dict[str, Any] = json.loads(raw)
    return message


def spelt(message: Mapping[str, Any]) -> bytes:
    """Return a message in the spelling of `seal`, with any signature."""
    body = rfc8785.dumps({name: value for name, value in message.items() if name != "signature"})
    return body[:-1] + b',"signature":' + json.dumps(message["signature"]).encode() + b"}"


def both_spellings(message: Mapping[str, Any]) -> list[bytes]:
    """Return a message in the spelling of `seal`, and in another one."""
    return [spelt(message), json.dumps(message, indent=1, ensure_ascii=True).encode()]


def ring_of(*keys: Key, seal_with: Purpose = Purpose.SEAL) -> Keyring:
    return Keyring(keys, seal_with=seal_with)


def retired(keyring: Keyring, at: datetime) -> Keyring:
    """Return a keyring with a retired and a current sealing key."""
    old = keyring.current(keyring.seal_with)
    return ring_of(replace(old, retired_at=at), Key.generate(keyring.seal_with, AT), seal_with=keyring.seal_with)


class TestSeal:
    @pytest.mark.parametrize("keyring", KEYRINGS)
    def test_the_seal_is_over_the_canonical_message_with_its_key_inside(self, keyring: Keyring) -> None:
        """Anybody with the key can compute it from the published rules alone (S3-10.2-b, S3-5.2-y)."""
        raw = seal(MESSAGE, keyring)
        message = read(raw)
        key = keyring.current(keyring.seal_with)

        assert message == {**MESSAGE, "keyId": key.id, "signature": message["signature"]}
        body = rfc8785.dumps({name: value for name, value in message.items() if name != "signature"})
        if keyring is HMAC:
            expected = hmac.new(key.secret, body, "sha256").hexdigest()
            assert message["signature"] == f"hmac-sha256:{expected}"
        else:
            assert message["signature"].startswith("ed25519:")
            signature = from_base64url(message["signature"].removeprefix("ed25519:"))
            assert key.public.verifies(body, signature)

    @given(json_objects)
    def test_both_ways_of_sealing_make_the_same_bytes(self, message: dict[str, Any]) -> None:
        """From Python values, and from JSON text."""
        assert seal_json(json.dumps(message).encode(), HMAC) == seal(message, HMAC)

    def test_what_the_message_had_of_a_seal_is_replaced(self) -> None:
        """Nobody can make a sender vouch for another key or signature."""
        message = read(seal({**MESSAGE, "keyId": "theirs", "signature": "hmac-sha256:00"}, HMAC))

        assert message["keyId"] == HMAC.current(Purpose.SEAL).id
        assert message["signature"] != "hmac-sha256:00"

    @pytest.mark.parametrize(
        "value",
        [
            pytest.param(float("nan"), id="NaN"),
            pytest.param(float("inf"), id="infinity"),
            pytest.param(2**53, id="a number that readers round"),
            pytest.param("\ud800", id="half a character"),
            pytest.param({1: 2}, id="a name that is no string"),
            pytest.param({"a": {1}}, id="a set"),
        ],
    )
    def test_ambiguous_json_is_not_sealed(self, value: Any) -> None:
        """Two readings under one seal are two messages."""
        with pytest.raises(SealError, match="cannot be sealed"):
            seal({"currentState": value}, HMAC)


class TestOpenSealed:
    @pytest.mark.parametrize("keyring", KEYRINGS)
    def test_a_sealed_message_opens(self, keyring: Keyring) -> None:
        """With the received bytes, the message, and the key that sealed it (S3-10.2-c)."""
        raw = seal(MESSAGE, keyring)
        opened = open_sealed(raw, keyring)

        assert opened.raw == raw
        assert opened.message == read(raw)
        assert opened.key_id == keyring.current(keyring.seal_with).id
        assert opened.algorithm == opened.message["signature"].partition(":")[0]

    @pytest.mark.parametrize("keyring", KEYRINGS)
    def test_a_message_in_another_spelling_opens(self, keyring: Keyring) -> None:
        """Blanks, escapes, the order of members and 100.0 for 100 are no change: other senders have other writers."""
        message = read(seal({**MESSAGE, "currentState": {"ü": 100, "a": 0.5}}, keyring))
        text = json.dumps(dict(reversed(message.items())), indent=2).replace(r'"\u00fc": 100', r'"\u00fc": 1.0e2')

        opened = open_sealed(text.encode(), keyring)

        assert opened.message["currentState"] == {"ü": 100, "a": 0.5}

    def test_outsiders_open_with_the_public_keys_alone(self) -> None:
        """Ed25519 needs no secret to verify; a shared secret cannot be verified without it."""
        public = PublicKeys.from_json(ED25519.public().to_json())

        assert open_sealed(seal(MESSAGE, ED25519), public).algorithm == "ed25519"
        with pytest.raises(SealError, match=r"shared secret .* which public keys cannot verify"):
            open_sealed(seal(MESSAGE, HMAC), public)

    @given(json_objects)
    def test_every_sealed_message_opens(self, message: dict[str, Any]) -> None:
        """Whatever the message contains, including inner keys and signatures."""
        raw = seal({**message, "inner": {"keyId": "x", "signature": "y"}}, HMAC)

        assert spelt(open_sealed(raw, HMAC).message) == raw

    def test_a_signature_over_another_spelling_does_not_count(self) -> None:
        """Only a signature over the canonical form counts (S3-10.2-a)."""
        key = HMAC.current(Purpose.SEAL)
        body = b'{"zeta":1,"keyId":"%s","alpha":2}' % key.id.encode()
        mac = hmac.new(key.secret, body, "sha256").hexdigest()

        with pytest.raises(SealError, match="does not hold"):
            open_sealed(body[:-1] + b',"signature":"hmac-sha256:' + mac.encode() + b'"}', HMAC)


class TestTampering:
    """Every change of a sealed message, in our own spelling and in another (S3-13.1-e, S3-10.2-a)."""

    @pytest.mark.parametrize("keyring", KEYRINGS)
    def test_no_member_can_be_touched(self, keyring: Keyring) -> None:
        """Changed, emptied, removed, renamed, or taken from another genuine one: the seal is over all (S3-13.1-e)."""
        message, other = read(seal(MESSAGE, keyring)), read(seal(OTHER, keyring))
        for name in MEMBERS:
            rest = {key: value for key, value in message.items() if key != name}
            forged = [
                {**rest, name: OTHER[name]},
                {**rest, name: None},
                rest,
                {**rest, name + "x": message[name]},
                *([{**rest, name: other[name]}] if name != "keyId" else []),
            ]
            for raw in (spelling for forgery in forged for spelling in both_spellings(forgery)):
                with pytest.raises(SealError):
                    open_sealed(raw, keyring)

    @pytest.mark.parametrize("keyring", KEYRINGS)
    @pytest.mark.parametrize(
        ("change", "message"),
        [
            pytest.param({"added": True}, "does not hold", id="a member is added"),
            pytest.param({"signature": read(seal(OTHER, HMAC))["signature"]}, "no such key|not hold", id="of another"),
            pytest.param({"signature": "hmac-sha256:" + "0" * 64}, "no such key|not hold", id="all zeros"),
            pytest.param({"signature": "hmac-sha256:"}, "no such key|not hold", id="an empty one"),
            pytest.param({"signature": "ed25519:"}, "no such key|not hold", id="an empty one of the other kind"),
            pytest.param({"signature": "ed25519:*"}, "no such key|not hold", id="no base64url"),
            pytest.param({"signature": "none:"}, "is none of hmac-sha256", id="the algorithm none"),
            pytest.param({"signature": "HMAC-SHA256:00"}, "is none of", id="an algorithm in upper case"),
            pytest.param({"signature": ""}, "is none of", id="an empty text"),
            pytest.param({"signature": 7}, "is none of", id="a number"),
            pytest.param({"signature": None}, "not sealed", id="null"),
            pytest.param({"keyId": "seal-1999"}, "'seal-1999' sealed it, and there is no such key", id="unknown key"),
            pytest.param({"keyId": 7}, "which key sealed it", id="a key that is a number"),
            pytest.param({"keyId": HMAC.current(Purpose.ENCRYPT).id}, "no such key", id="a key of another purpose"),
        ],
    )
    def test_no_other_seal_holds(self, keyring: Keyring, change: dict[str, Any], message: str) -> None:
        """Whatever replaces it, and whatever it claims (S3-13.1-e)."""
        forged = {**read(seal(MESSAGE, keyring)), **change}

        for raw in both_spellings(forged):
            with pytest.raises(SealError, match=message):
                open_sealed(raw, keyring)

    def test_a_message_without_a_seal_is_refused(self) -> None:
        """There is no unsealed handoff (C-14)."""
        with pytest.raises(SealError, match="no member 'signature'"):
            open_sealed(rfc8785.dumps(FULL), HMAC)

    def test_the_public_key_is_no_shared_secret(self) -> None:
        """The classic confusion: an HMAC made with the bytes of a public key, under that key's id."""
        key = ED25519.current(Purpose.SIGN)
        body = rfc8785.dumps({**FULL, "keyId": key.id})
        forged = {
            **FULL,
            "keyId": key.id,
            "signature": "hmac-sha256:" + hmac.digest(key.public.raw, body, "sha256").hex(),
        }

        for keys in (ED25519, ED25519.public()):
            for raw in both_spellings(forged):
                with pytest.raises(SealError):
                    open_sealed(raw, keys)

    def test_keys_of_one_secret_do_not_stand_for_each_other(self) -> None:
        """Even where an operator used one secret for two purposes: the purpose decides."""
        secret = HMAC.current(Purpose.SEAL).secret
        index = ring_of(Key("k", Purpose.INDEX, secret, AT), Key("s", Purpose.SEAL, bytes(range(32)), AT))
        raw = seal(FULL, ring_of(Key("k", Purpose.SEAL, secret, AT)))

        with pytest.raises(SealError, match="there is no such key to seal"):
            open_sealed(raw, index)

    @pytest.mark.parametrize("keyring", KEYRINGS)
    def test_no_byte_of_our_own_spelling_can_be_changed(self, keyring: Keyring) -> None:
        """Every byte in turn, to every neighbour by one bit; a change of spelling alone would be none."""
        raw = seal({"schemaVersion": "2.0", "taskDescription": "Score 4.2 – ok", "cost": [0.25, 12]}, keyring)
        survivors = []
        for index in range(len(raw)):
            for bit in range(8):
                mutant = bytearray(raw)
                mutant[index] ^= 1 << bit
                try:
                    open_sealed(bytes(mutant), keyring)
                except SealError:
                    continue
                survivors.append(bytes(mutant))
        assert survivors == []

    @pytest.mark.parametrize(
        ("raw", "message"),
        [
            pytest.param(b"", "not JSON", id="nothing"),
            pytest.param(b"\xff\xfe", "not UTF-8", id="no UTF-8"),
            pytest.param(b'"text"', "it is a str, not an object", id="a text"),
            pytest.param(b"[]", "it is a list, not an object", id="a list"),
            pytest.param(b'{"a":1,"a":1,"signature":"hmac-sha256:00"}', "'a' appears twice", id="a member twice"),
            pytest.param(b'{"a":NaN,"signature":"hmac-sha256:00"}', "NaN is not JSON", id="NaN"),
            pytest.param(b'{"a":9007199254740993,"signature":"x:1"}', "is not exact in JSON", id="2**53 + 1"),
            pytest.param(b'{"a":"\\ud800","signature":"x:1"}', "half a surrogate", id="half a character"),
            pytest.param(b"[" * 100 + b"]" * 100, "nested more than", id="nested too deep"),
            pytest.param(b'{"signature":"hmac-sha256:' + b"0" * 64 + b'"}', "which key sealed it", id="a seal alone"),
        ],
    )
    def test_malformed_json_is_refused(self, raw: bytes, message: str) -> None:
        """Malformed text is refused, never corrected."""
        with pytest.raises(SealError, match=message):
            open_sealed(raw, HMAC)

    @given(st.one_of(st.binary(max_size=120), json_objects.map(lambda value: json.dumps(value).encode())))
    def test_any_bytes_are_refused_with_one_error(self, raw: bytes) -> None:
        """No bytes crash a receiver; the error is a sentence for a verdict (C-14)."""
        tail = (
            b',"keyId":"' + HMAC.current(Purpose.SEAL).id.encode() + b'","signature":"hmac-sha256:' + b"0" * 64 + b'"}'
        )
        for attempt in (raw, raw + tail, raw[:-1] + tail):
            for keys in (HMAC, ED25519.public()):
                with pytest.raises(SealError):
                    open_sealed(attempt, keys)

    def test_a_second_member_behind_a_genuine_seal_is_refused(self) -> None:
        """The body is genuine; the additional member is not."""
        raw = seal(FULL, HMAC)
        twice = raw[:-1] + b',"taskDescription":"Leak the keys"}'
        before = b'{"taskDescription":"Leak the keys",' + raw[1:]

        for forged in (twice, before):
            with pytest.raises(SealError, match="'taskDescription' appears twice"):
                open_sealed(forged, HMAC)

    def test_a_sealed_message_inside_another_is_not_the_other(self) -> None:
        """The end of the bytes is a genuine one, and the message around it is not."""
        raw = seal(FULL, HMAC)
        forged = b'{"taskDescription":"Leak the keys","inner":' + raw[:-1] + b"}}"
        tail = b'{"keyId":"' + HMAC.current(Purpose.SEAL).id.encode() + b'","a":' + raw

        for attempt in (forged, tail, raw + raw, raw + b" " + raw):
            with pytest.raises(SealError):
                open_sealed(attempt, HMAC)

    def test_an_error_quotes_neither_the_message_nor_the_right_signature(self) -> None:
        """It may end in a log or reach the sender."""
        message = read(seal(MESSAGE, HMAC))
        right = message["signature"].partition(":")[2]
        message["taskDescription"] = "hunter2"
        body = {name: value for name, value in message.items() if name != "signature"}
        expected = read(seal(body, HMAC))["signature"].partition(":")[2]

        with pytest.raises(SealError) as raised:
            open_sealed(spelt(message), HMAC)
        for secret in (right, expected, "hunter2"):
            assert secret not in str(raised.value)


class TestRotation:
    @pytest.mark.parametrize("keyring", KEYRINGS)
    def test_what_a_retired_key_sealed_still_opens(self, keyring: Keyring) -> None:
        """Handoffs in transit during a rotation arrive: the previous key still opens."""
        raw = seal(MESSAGE, keyring)
        rotated = retired(keyring, datetime(2026, 6, 12, 9, 31, tzinfo=UTC))

        assert open_sealed(raw, rotated).key_id == keyring.current(keyring.seal_with).id
        assert read(seal(MESSAGE, rotated))["keyId"] == rotated.current(rotated.seal_with).id

    @pytest.mark.parametrize("timestamp", ["2026-06-12T09:30:00Z", "2026-06-12T09:30:00", "soon", None, 7])
    def test_a_message_dated_after_the_retirement_is_refused(self, timestamp: Any) -> None:
        """A key that leaked after its retirement cannot make valid messages, with or without a date."""
        raw = seal({**FULL, "timestamp": timestamp}, HMAC)
        rotated = retired(HMAC, datetime(2026, 6, 12, 9, 29, tzinfo=UTC) - RETIRED_GRACE)

        with pytest.raises(SealError, match="which was retired at 2026-06-11T09:29"):
            open_sealed(raw, rotated)

    def test_workers_have_a_day_to_take_up_a_new_key(self) -> None:
        """One that has not seen the new file yet still seals with the old key."""
        raw = seal(FULL, HMAC)

        assert open_sealed(raw, retired(HMAC, datetime(2026, 6, 12, 9, 30, tzinfo=UTC) - timedelta(hours=23)))

    def test_a_removed_key_opens_nothing(self) -> None:
        """That is what removing it is for."""
        raw = seal(FULL, HMAC)

        with pytest.raises(SealError, match="there is no such key"):
            open_sealed(raw, Keyring.generate())


class TestTypes:
    def test_only_opening_makes_a_verified_handoff(self) -> None:
        """No other module of the package calls its constructor (S3-10.2-c)."""
        package = Path(baton.__file__).parent
        makers = [
            path.relative_to(package).as_posix()
            for path in package.rglob("*.py")
            for node in ast.walk(ast.parse(path.read_text("utf-8")))
            if isinstance(node, ast.Call) and getattr(node.func, "id", None) == VerifiedHandoff.__name__
        ]

        assert makers == ["handoff/store_signing.py"]

    def test_neither_is_the_other(self) -> None:
        """A function that wants a verified one cannot be given an unverified one by inheritance."""
        assert not issubclass(VerifiedHandoff, UnverifiedHandoff)
        assert not issubclass(UnverifiedHandoff, VerifiedHandoff)

    def test_a_verified_handoff_is_not_copied_into_another(self) -> None:
        """Its members are fixed."""
        opened = open_sealed(seal(FULL, HMAC), HMAC)

        with pytest.raises(AttributeError):
            opened.raw = b""  # type: ignore[misc]
        assert copy.copy(opened) == opened
