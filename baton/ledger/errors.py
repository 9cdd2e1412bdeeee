"""What the ledger raises, in one tree below `BatonError`."""

from baton.errors import BatonError


class LedgerError(BatonError):
    """The ledger did not do what was asked; a handoff whose record is refused must not be executed."""


class LedgerUnavailableError(LedgerError):
    """The ledger cannot be reached, read or written right now; appending again later is safe."""


class LedgerConflictError(LedgerError):
    """The same event is already on record with another message; appending again will not help."""


class LedgerSchemaError(LedgerError):
    """The tables of a ledger are not those that this version of Baton works with."""


class LedgerKeysError(LedgerError):
    """The keyring of this process knows none of the keys that signed the newest records of the ledger."""


class EvidenceError(LedgerError):
    """A bundle or a cold segment cannot be read: torn, of an unknown format, or of another ledger."""
