"""Long texts that speak of several people: readable only while none of them was erased.

A text is encrypted once, under a key of its own. The key is split into as many shares as there are people, all of which
are needed, and each share is sealed in the vault as personal data of one of them.
"""

import base64
import functools
import secrets
from collections.abc import Collection

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from pydantic import JsonValue

from baton.core.transcript import SealedText
from baton.personal.records import Erased, ForeignCiphertextError
from baton.personal.store import Vault
from baton.wire.json_values import pae

SHARE = "transcript"
"""The field of personal data that holds a share, as the vault's index and the ledger name it."""

_TEXT, _NONCE_BYTES, _KEY_BYTES = "baton/vault-text/v1", 12, 32


def _xor(left: bytes, right: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(left, right, strict=True))


async def seal_text(vault: Vault, task_id: str, people: Collection[str], text: str) -> SealedText:
    """Encrypt a text that may speak of people.

    Args:
        vault: The deployment's vault.
        task_id: The task.
        people: Their pseudonyms; with none, the task itself is the subject, `task ID`, which can be erased too.
        text: The text.

    Raises:
        VaultError: It cannot be sealed.
    """
    key, nonce = secrets.token_bytes(_KEY_BYTES), secrets.token_bytes(_NONCE_BYTES)
    known = sorted(people)
    shares = [secrets.token_bytes(_KEY_BYTES) for _ in known[1:]]
    shares.append(functools.reduce(_xor, shares, key))
    payload: dict[str, JsonValue] = {}
    for pseudonym, share in zip(known or [""], shares, strict=True):
        fields: dict[str, JsonValue] = {SHARE: base64.b64encode(share).decode()}
        if pseudonym:
            payload = await vault.seal_known(pseudonym, task_id, fields, onto=payload)
        else:
            payload = await vault.seal(f"task {task_id}", task_id, fields)
    sealed = AESGCM(key).encrypt(nonce, text.encode(), pae(_TEXT, task_id.encode()))
    return SealedText(
        payload=payload, nonce=base64.b64encode(nonce).decode(), ciphertext=base64.b64encode(sealed).decode()
    )


async def open_text(vault: Vault, task_id: str, sealed: SealedText) -> str | Erased:
    """Decrypt a text; return the erasure of a person of whom it may speak, if there was one.

    Raises:
        VaultError: It cannot be opened.
    """
    opened = await vault.open(sealed.payload, task_id, [SHARE])
    key = bytes(_KEY_BYTES)
    for shares in opened.values():
        if isinstance(shares, Erased):
            return shares
        key = _xor(key, base64.b64decode(str(shares[SHARE])))
    try:
        nonce, ciphertext = base64.b64decode(sealed.nonce), base64.b64decode(sealed.ciphertext)
        return AESGCM(key).decrypt(nonce, ciphertext, pae(_TEXT, task_id.encode())).decode()
    except InvalidTag:
        raise ForeignCiphertextError(
            f"a sealed text does not belong to task {task_id!r}: it was changed, or moved from another task"
        ) from None
