"""What was given to `baton audit verify` and says nothing of what is verified."""

import asyncio
import json

from baton.keys.store_keyring import Keyring
from baton.ledger.records import AuditEntry, Kind
from baton.ledger.store import Ledger, LedgerOptions
from baton.ledger.store_evidence import AnchorFile
from tests.cli.desk import Desk, entries
from tests.ledger.material import NOW, TASK


def test_what_was_kept_of_another_ledger_is_told_as_unused(baton: Desk) -> None:
    """It proved nothing without a word: who gave it could think that it was compared."""

    async def kept() -> None:
        options = LedgerOptions(name="theirs", signer=Keyring.generate().signer())
        async with Ledger(baton.folder / "theirs.db", options) as theirs:
            AnchorFile(baton.folder / "heads.jsonl").add_heads(await theirs.append_all(entries()))
            AnchorFile(baton.folder / "theirs.jsonl").add_checkpoint(await theirs.checkpoint())

    def told(target: str, anchors: str) -> list[str]:
        words = ("verify", target, "--anchors", anchors, *baton.keys())
        unused = json.loads(baton(*words, "--json").stdout).get("unused", [])
        page = " ".join(baton(*words).stdout.split())
        assert all(f"not used: {one}" in page for one in unused)
        return list(unused)

    asyncio.run(kept())
    (baton.folder / "empty.jsonl").touch()
    baton("export", TASK, "-o", "one.zst", *baton.keys())

    assert told("one.zst", "theirs.jsonl") == ["checkpoints of the ledger 'theirs' say nothing of 'baton'"]
    assert told("one.zst", "heads.jsonl") == ["heads of the ledger 'theirs' say nothing of 'baton'"]
    assert told("--all", "heads.jsonl") == ["heads of the ledger 'theirs' say nothing of 'baton'"]
    assert len(told(TASK, "theirs.jsonl")) == 1
    assert told(TASK, "empty.jsonl") == ["empty.jsonl holds neither heads nor checkpoints"]
    assert told(TASK, baton.anchors()[1]) == []


def test_a_checkpoint_that_no_proof_of_a_bundle_leads_to_is_told_as_unused(baton: Desk) -> None:
    """The bundle's own is the newest; an older one that was kept says nothing of it, the newest does."""

    async def kept() -> int:
        again = AuditEntry(
            kind=Kind.HANDOFF, task_id="other", event_id="h-2", status="ACCEPTED", timestamp=NOW, message={}
        )
        async with Ledger(baton.ledger, LedgerOptions(signer=baton.keyring.signer())) as ledger:
            AnchorFile(baton.folder / "older.jsonl").add_checkpoint(await ledger.checkpoint())
            await ledger.append(again)
            newest = await ledger.checkpoint()
        AnchorFile(baton.folder / "newest.jsonl").add_checkpoint(newest)
        return newest.size

    size = asyncio.run(kept())
    baton("export", TASK, "-o", "one.zst", *baton.keys())

    done = [baton("verify", "one.zst", "--anchors", f"{name}.jsonl", "--json") for name in ("older", "newest")]

    assert [json.loads(one.stdout).get("unused") for one in done] == [
        [f"no checkpoint that was kept counts: its proofs lead to one at {size} records"],
        None,
    ]
