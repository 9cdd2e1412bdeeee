"""What the vault raises, in one tree below `BatonError`."""

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
