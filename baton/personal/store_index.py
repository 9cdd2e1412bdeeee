"""Pseudonyms of data subjects, and proofs of their erasure: both HMACs under the keyring's INDEX keys.

A bare hash of an e-mail address can be guessed; an HMAC only by who has the key. Keep INDEX keys when they are
retired: without its key, no name leads to a pseudonym any more, and its subjects can't be found to be erased.
"""

import hashlib
import hmac
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import rfc8785

from baton.keys.store_keyring import Key, Keyring, Purpose, UnknownKeyError
from baton.personal.errors import VaultError
from baton.personal.records import ErasureNotice
from baton.wire.canonical import pae

_SUBJECT, _NOTICE = "baton/vault-subject/v1", "baton/vault-erasure/v1"


@dataclass(frozen=True)
class Named:
    """A pseudonym, and the id of the INDEX key that made it."""

    pseudonym: str
    key_id: str


def pseudonyms(keyring: Keyring, subject: str, life: int) -> list[Named]:
    """Return what a subject may be called: the pseudonym under the current INDEX key, then those under retired ones."""
    if not subject.strip():
        raise ValueError("a data subject needs a name, such as a customer number; found an empty text")
    keyring.current(Purpose.INDEX)
    return [Named(_pseudonym(key, subject, life), key.id) for key in keyring.all_keys(Purpose.INDEX)]


def check_index_keys(keyring: Keyring, used: Iterable[str]) -> None:
    """Make sure that every subject of the vault can be found by name."""
    missing = sorted(one for one in set(used) if not _has(keyring, one))
    if missing:
        raise VaultError(
            f"the vault has subjects under the index key {', '.join(map(repr, missing))}, which the keyring has not, "
            "so no one can tell whether this subject is among them; put the key back into the keyring, retired"
        )


def _has(keyring: Keyring, key_id: str) -> bool:
    """Return whether a keyring has an INDEX key; one that another worker took up just now is looked for in the file."""
    try:
        keyring.find(Purpose.INDEX, key_id)
    except UnknownKeyError:
        return False
    return True


def proved(notice: ErasureNotice, keyring: Keyring) -> ErasureNotice:
    """Return an erasure notice with its proof."""
    return notice.model_copy(update={"proof": _proof(notice, keyring)})


def check_proof(notice: ErasureNotice, keyring: Keyring) -> None:
    """Make sure that an erasure notice was made by a vault of this keyring."""
    if not hmac.compare_digest(notice.proof, _proof(notice, keyring)):
        raise VaultError(
            f"the notice of the erasure {notice.erasure_id!r} does not prove it: it was changed, or is of another "
            "vault; look into who wrote it before anything is erased or taken for erased"
        )


def _proof(notice: ErasureNotice, keyring: Keyring) -> str:
    key = keyring.find(Purpose.INDEX, notice.index_key)
    return hmac.digest(key.secret, pae(_NOTICE, rfc8785.dumps(notice.statement())), hashlib.sha256).hex()


def _pseudonym(key: Key, subject: str, life: int) -> str:
    members: dict[str, Any] = {"life": life, "subject": subject}
    return "sub-" + hmac.digest(key.secret, pae(_SUBJECT, rfc8785.dumps(members)), hashlib.sha256).hex()[:32]
