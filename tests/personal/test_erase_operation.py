"""Erasing a person as an operation: only what was shown is destroyed."""

import os
from pathlib import Path

import pytest

from baton import Keyring, OutdatedError
from baton.client import Erase, Ledger, LedgerOptions, Vault
from baton.keys.store_keyring import DEVELOPMENT_FILE
from baton.personal.records import SEALED_ONLY
from tests.acceptance.operating import Operator
from tests.personal.material import SUBJECT


async def filled(vault: Vault, *tasks: str) -> None:
    """Seal data of the person in these tasks."""
    for task in tasks:
        await vault.seal(SUBJECT, task, {"email": SUBJECT, "phone": "1"})


async def test_it_destroys_what_was_shown(vault: Vault) -> None:
    """The preview has no name in it: it may be logged."""
    await filled(vault, "t-1", "t-2")
    operation = Erase(vault, SUBJECT, "request-1")
    shown = await operation.preview()

    report = await operation.commit(shown.mark, by="dpo")

    assert "4 fields in 2 tasks are destroyed" in shown.facts[0].text
    assert SUBJECT not in str([shown.title, shown.facts, shown.mark])
    assert (report.status, report.removed["places"]) == ("ERASED", 4)


async def test_it_does_nothing_if_more_was_sealed(vault: Vault) -> None:
    """A run that is under way seals more while the question stands."""
    await filled(vault, "t-1")
    operation = Erase(vault, SUBJECT, "request-1")
    shown = await operation.preview()
    await filled(vault, "t-2")

    with pytest.raises(OutdatedError, match=r"nothing was erased: .* 4 fields in 2 tasks now, and held 2 in 1"):
        await operation.commit(shown.mark, by="dpo")
    assert len(await vault.where_is(SUBJECT)) == 4

    await operation.commit(by="dpo")
    with pytest.raises(OutdatedError, match="the person was erased meanwhile"):
        await operation.commit(shown.mark, by="dpo")
    with pytest.raises(OutdatedError, match="this is about sub-"):
        await Erase(vault, "somebody else", "request-2").commit(shown.mark, by="dpo")


async def test_the_command_erases_only_what_it_showed(tmp_path: Path) -> None:
    """At a terminal; the vault has as much as before."""
    keyring = Keyring.development(tmp_path)
    variables = {
        "BATON_KEYS": str(tmp_path / DEVELOPMENT_FILE),
        "BATON_VAULT": str(tmp_path / "vault.db"),
        "BATON_LEDGER": str(tmp_path / "ledger.db"),
        "NO_COLOR": "1",
    }
    async with (
        Ledger(tmp_path / "ledger.db", LedgerOptions(signer=keyring.signer(), policy=SEALED_ONLY)),
        Vault(tmp_path / "vault.db", keyring) as vault,
    ):
        await filled(vault, "t-1")
        async with Operator(tmp_path, variables).at_a_terminal("erase", SUBJECT) as screen:
            await screen.until("cannot be undone")
            await filled(vault, "t-2")
            screen.type("y" + os.linesep)
            assert await screen.code() == 1
        assert "nothing was erased" in " ".join(screen.written.split())
        assert len(await vault.where_is(SUBJECT)) == 4
