"""Any order of sealing, erasing, rotating and restoring, checked against what was said to it."""

import asyncio
import shutil
import tempfile
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from baton.keys.store_keyring import Keyring, Purpose
from baton.personal.records import Erased, SubjectErasedError
from baton.personal.store import Vault
from tests.personal.material import everything_in, rotated

T = TypeVar("T")
SUBJECTS = st.sampled_from(["ann", "bob", "cem"])


class Vaults(RuleBasedStateMachine):
    """A vault and what one may expect of it."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.folder = Path(tempfile.mkdtemp())
        self.keyring = Keyring.generate()
        self.vault = Vault(self.folder / "vault.db", self.keyring)
        self.payloads: list[tuple[str, dict[str, Any], str]] = []
        self.erased: set[str] = set()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the machine's own loop."""
        return self.loop.run_until_complete(work)

    @initialize()
    def open_it(self) -> None:
        """Open the vault."""
        self.run(self.vault.__aenter__())

    @rule(subject=SUBJECTS, number=st.integers(0, 99))
    def seal(self, subject: str, number: int) -> None:
        """Seal; refused if and only if the subject is erased."""
        text = f"secret-{subject}-{number}-of-this-subject"
        try:
            payload = self.run(self.vault.seal(subject, "t", {"text": text}))
        except SubjectErasedError:
            assert subject in self.erased
            return
        assert subject not in self.erased
        self.payloads.append((subject, payload, text))

    @rule(subject=SUBJECTS)
    def erase(self, subject: str) -> None:
        """Erase, again or for the first time."""
        report = self.run(self.vault.erase(subject, "r"))
        if report.status == "ERASED":
            assert report.repeated is (subject in self.erased)
            self.erased.add(subject)

    @rule(purpose=st.sampled_from([Purpose.WRAP, Purpose.INDEX]), rewrap=st.booleans())
    def rotate(self, purpose: Purpose, rewrap: bool) -> None:
        """Rotate a key, and open the vault with the new keyring."""
        self.run(self.vault.__aexit__())
        self.keyring = rotated(self.keyring, purpose)
        self.vault = Vault(self.folder / "vault.db", self.keyring)
        self.run(self.vault.__aenter__())
        if rewrap:
            self.run(self.vault.rewrap())

    @rule(subject=SUBJECTS)
    def restore(self, subject: str) -> None:
        """Erase a subject, and restore the vault of right before that."""
        if subject in self.erased:
            return
        shutil.copy(self.folder / "vault.db", self.folder / "backup")
        self.erase(subject)
        self.run(self.vault.__aexit__())
        shutil.move(self.folder / "backup", self.folder / "vault.db")
        self.vault = Vault(self.folder / "vault.db", self.keyring)
        self.run(self.vault.__aenter__())

    @invariant()
    def only_what_is_there_opens(self) -> None:
        """A payload opens if and only if its subject was not erased since."""
        for subject, payload, text in self.payloads:
            (found,) = self.run(self.vault.open(payload, "t")).values()
            assert isinstance(found, Erased) if subject in self.erased else found == {"text": text}

    @invariant()
    def no_file_tells(self) -> None:
        """No file holds a value in clear."""
        assert b"secret-" not in everything_in(self.folder)

    def teardown(self) -> None:
        self.run(self.vault.__aexit__())
        self.loop.close()
        shutil.rmtree(self.folder)


TestVaults = Vaults.TestCase
TestVaults.settings = settings(max_examples=25, stateful_step_count=20, deadline=None)
