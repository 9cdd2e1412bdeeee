"""Where a client's keys come from: a keyring that it was given, or one that is found once something needs it.

A service that only starts runs needs no keys, so making its client makes none.
"""

import os

from baton.keys.store_keyring import Keyring, is_production


class KeySource:
    """The keys of a client and its workers.

    Args:
        keyring: The keys, if they are given.
        finds: Whether to look for keys where none are given: those of the environment, or this machine's.

    Raises:
        KeyringError: Production was given development keys.
    """

    def __init__(self, keyring: Keyring | None = None, *, finds: bool = False) -> None:
        if keyring is not None and is_production(os.environ):
            keyring.require_production()
        self._keyring = keyring
        self._finds = finds

    @property
    def has_keys(self) -> bool:
        """Whether `needed` has keys to return."""
        return self._finds or self._keyring is not None

    def at_hand(self) -> Keyring | None:
        """Return the keys if there are any; none are made.

        Raises:
            KeyringError: The keys that the environment names cannot be used.
        """
        if self._keyring is None and self._finds and Keyring.is_at_hand(os.environ):
            self._keyring = Keyring.find_out(os.environ)
        return self._keyring

    def needed(self) -> Keyring:
        """Return the keys; on a developer's machine without any they are made.

        Raises:
            KeyringError: As for `at_hand`, or this is production and there are none.
        """
        if self._keyring is None:
            self._keyring = Keyring.find_out(os.environ)
        return self._keyring
