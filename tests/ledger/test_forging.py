"""The attacks on a ledger's file that anyone can run, and the table of verdicts in the docs."""

from pathlib import Path

import pytest

from baton.keys.store_keyring import Keyring
from baton.ledger.store import Ledger, LedgerOptions
from baton.testing.ledger_attacks import LEDGER_ATTACKS, table, verdicts
from tests.ledger.material import TASK, entry

DOCS = Path(__file__).parents[2] / "docs" / "testing.md"
CUTS = {"cut_the_last_record", "cut_the_task"}


@pytest.fixture
async def attacked(path: Path) -> tuple[Path, Keyring]:
    """Return the file of a ledger with two tasks, and the keys that signed it."""
    keyring = Keyring.generate()
    async with Ledger(path, LedgerOptions(signer=keyring.signer())) as ledger:
        for number in range(3):
            await ledger.append_all([entry(number, task_id="other"), entry(number)])
    return path, keyring


async def test_no_forged_record_is_valid_for_any_command(attacked: tuple[Path, Keyring]) -> None:
    """A forger without a key, or the database's owner, never gets a valid verdict (C-26, S3-10.3-b)."""
    for name, attack in LEDGER_ATTACKS.items():
        results = await verdicts(*attacked, attack, task_id=TASK)
        expected = "valid, completeness not checked" if name in CUTS else None
        assert "valid" not in results.values(), name
        assert results["verify --all --anchors"] in ("invalid", "unverified"), name
        if name in CUTS:
            assert results["verify --all"] == expected, (
                "without anchors that cannot be seen, and is not called complete"
            )
        else:
            assert expected not in (results["verify --all"], results["bundle"]), name
            assert results["checkpoint"] == "refused", name


async def test_a_writer_extends_only_chains_with_a_verified_end(attacked: tuple[Path, Keyring]) -> None:
    """A forged end is not extended, and a forged record is not returned for its event (C-25, C-26)."""
    for name, attack in LEDGER_ATTACKS.items():
        if not name.startswith(("forge_a_task", "cut", "edit_a_message")):
            assert (await verdicts(*attacked, attack, task_id=TASK))["append"] == "refused", name


async def test_the_docs_have_the_table(attacked: tuple[Path, Keyring]) -> None:
    """It is what `python -m baton.testing.ledger_attacks` prints."""
    assert await table(*attacked) in DOCS.read_text(encoding="utf-8")
