"""The vault of personal data: a key for each data subject; to erase the subject is to destroy the key.

```
vault.py      Vault: seal, open, rewrap                        registry.py  where_is, hold, erase, reapply
subjects.py   subjects, their keys, the index of places        erasing.py   erasure, holds, the erasure list
sealing.py    keys, wrapping, ciphertext                       index.py     pseudonyms and proofs
store.py      the file that forgets                            errors.py    what is raised
```
What a message carries of it is pure: `baton.protocol.personal`.
"""

from baton.edge.vault.erasing import Erasure, ErasureRecorder
from baton.edge.vault.errors import (
    DataKeyMissingError,
    ErasureUnrecordedError,
    ForeignCiphertextError,
    SubjectErasedError,
    VaultError,
    VaultUnavailableError,
)
from baton.edge.vault.registry import VaultOptions
from baton.edge.vault.subjects import Place
from baton.edge.vault.vault import Vault

__all__ = [
    "DataKeyMissingError",
    "Erasure",
    "ErasureRecorder",
    "ErasureUnrecordedError",
    "ForeignCiphertextError",
    "Place",
    "SubjectErasedError",
    "Vault",
    "VaultError",
    "VaultOptions",
    "VaultUnavailableError",
]
