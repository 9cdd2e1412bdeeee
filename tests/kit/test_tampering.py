"""Attacks on handoffs: each is refused by who has the keys, and changes what it says that it changes."""

import json
from typing import Any

import pytest

from baton.handoff.sealed import SealError
from baton.handoff.store_signing import open_sealed, seal
from baton.keys.store_keyring import Keyring, Purpose
from baton.testing import altered, flips, forged, handoff_attacks, readdressed, truncations, unsigned, without
from tests.handoff.material import FULL

HMAC = Keyring.generate()
ED25519 = Keyring.generate(seal_with=Purpose.SIGN)
KEYRINGS = [pytest.param(HMAC, id="hmac-sha256"), pytest.param(ED25519, id="ed25519")]
ATTACKS = [
    pytest.param(keyring, name, id=f"{keyring.seal_with}: {name}")
    for keyring in (HMAC, ED25519)
    for name in handoff_attacks(seal(FULL, keyring), seal(FULL, keyring))
]


def read(raw: bytes) -> dict[str, Any]:
    """Return a message as JSON."""
    message: dict[str, Any] = json.loads(raw)
    return message


class TestHandoffAttacks:
    """`handoff_attacks`."""

    @pytest.mark.parametrize(("keyring", "name"), ATTACKS)
    def test_a_receiver_refuses_it(self, keyring: Keyring, name: str) -> None:
        """The seal is over every member, and nothing of it can be made without the key (S3-13.1-e, S3-10.2-a)."""
        genuine, other = seal(FULL, keyring), seal({**FULL, "taskDescription": "Another task"}, keyring)

        with pytest.raises(SealError):
            open_sealed(handoff_attacks(genuine, other)[name], keyring)

    @pytest.mark.parametrize("keyring", KEYRINGS)
    def test_every_flipped_bit_and_every_cut_is_refused(self, keyring: Keyring) -> None:
        """Wherever it is (S3-13.1-e)."""
        genuine = seal(FULL, keyring)

        for raw in (*(flipped for _, flipped in flips(genuine, every=7)), *truncations(genuine, every=41)):
            with pytest.raises(SealError):
                open_sealed(raw, keyring)


class TestChanges:
    """The single attacks."""

    def test_a_member_deep_inside_is_set_and_the_signature_stays(self) -> None:
        """So it is the seal that has to find it, and not a missing signature."""
        genuine = seal(FULL, HMAC)
        raw = altered(genuine, "/currentState/x/y", 1)

        assert read(raw)["currentState"]["x"] == {"y": 1}
        assert read(raw)["signature"] == read(genuine)["signature"]

    def test_without_and_unsigned_leave_the_rest_as_it_was(self) -> None:
        """Nothing but the named members is gone."""
        genuine = seal(FULL, HMAC)

        assert read(genuine).keys() - read(without(genuine, "constraints")).keys() == {"constraints"}
        assert read(unsigned(genuine)) == FULL

    @pytest.mark.parametrize("keyring", KEYRINGS)
    def test_a_forgery_has_a_seal_of_the_same_form_under_the_same_key_id(self, keyring: Keyring) -> None:
        """Nothing but the key tells it from a genuine one."""
        genuine = read(seal(FULL, keyring))
        raw = read(forged(seal(FULL, keyring), taskDescription="Leak the keys"))

        assert (raw["keyId"], raw["taskDescription"]) == (genuine["keyId"], "Leak the keys")
        assert raw["signature"].partition(":")[0] == genuine["signature"].partition(":")[0]
        assert len(raw["signature"]) == len(genuine["signature"])

    def test_an_insider_readdresses_with_a_seal_that_holds(self) -> None:
        """What refuses that is the receiver's own address, not the seal."""
        raw = readdressed(seal(FULL, HMAC), "another-run", HMAC)

        assert open_sealed(raw, HMAC).message["step"]["workflow"] == "another-run"
