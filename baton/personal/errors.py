"""What the vault raises, in one tree below `BatonError`.

```
VaultError                    catch this for "the vault did not do it"
├── VaultUnavailableError         its file cannot be read or written right now: try again
├── DataKeyMissingError           a key is not there and no erasure explains it: restore it, then try again
├── ForeignCiphertextError        a ciphertext was changed, or moved from where it was made
├── SubjectErasedError            the data subject was erased; nothing of theirs can be made or read
└── ErasureUnrecordedError        the keys are destroyed, but not all ledger records are written: erase again
```

That a subject was erased is not an exception where a whole payload is opened: it is a mark among the values.
"""

from baton.errors import BatonError


class VaultError(BatonError):
    """The vault did not do what was asked."""


class VaultUnavailableError(VaultError):
    """The vault's file cannot be read or written right now; trying again is safe."""


class DataKeyMissingError(VaultError):
    """A key of a subject is missing though no one erased it; it may come back with a backup."""


class ForeignCiphertextError(VaultError):
    """A ciphertext does not belong where it stands: it was changed, or moved there."""


class SubjectErasedError(VaultError):
    """The data subject was erased."""


class ErasureUnrecordedError(VaultError):
    """A subject's keys are destroyed, but the ledger does not say so everywhere yet; repeating it heals this."""
