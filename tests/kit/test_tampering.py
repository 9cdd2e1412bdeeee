"""Attacks on handoffs: each is refused by who has the keys, and changes what it says that it changes."""

import json
from typing import Any

import pytest

from baton.handoff.sealed import SealError
from baton.handoff.store_signing import open_sealed, seal
from baton.keys.store_keyring import Keyring, Purpose
from tests.handoff.material import FULL
from tests.support.tampering import flips, handoff_attacks, truncations

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
        """The signature covers every member and needs the key (S3-13.1-e, S3-10.2-a)."""
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
