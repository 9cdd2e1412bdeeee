"""Sealing and opening personal data: under a key of each subject's own, bound to its place."""

import asyncio
import base64
import contextlib
import copy
import os
import shutil
import sqlite3
import stat
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from baton.keys.store_keyring import Key, KeyFile, Keyring, KeyringError, Purpose, write_file
from baton.personal.records import (
    DataKeyMissingError,
    ForeignCiphertextError,
    PersonalDataError,
    VaultError,
    VaultUnavailableError,
    is_payload,
)
from baton.personal.store import Vault, VaultOptions
from baton.personal.store_subjects import Place
from tests.personal.material import MARKER, SUBJECT, TASK, everything_in, rotated

VALUES: dict[str, Any] = {"email": MARKER, "age": 41, "tags": ["a", {"b": None}], "vip": False, "name": "Jöhn 漢"}


def only(payload: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the one subject of a payload, and its fields."""
    ((subject, entry),) = payload.items()
    return subject, entry["fields"]


class TestSeal:
    async def test_what_was_sealed_is_opened(self, vault: Vault) -> None:
        """Any JSON value survives, under a pseudonym (S3-12.3-b, C-24)."""
        payload = await vault.seal(SUBJECT, TASK, VALUES)

        assert is_payload(payload)
        assert await vault.open(payload, TASK) == {await vault.pseudonym(SUBJECT): VALUES}
        assert await vault.open(payload, TASK, ["age", "unknown"]) == {await vault.pseudonym(SUBJECT): {"age": 41}}

    async def test_nothing_is_stored_in_plaintext(self, vault: Vault, tmp_path: Path) -> None:
        """Neither the value nor the subject's name is in the payload or any file (S3-12.3-b, C-24)."""
        payload = await vault.seal(SUBJECT, TASK, VALUES)
        hay = everything_in(tmp_path) + str(payload).encode()

        assert MARKER.encode() not in hay
        assert SUBJECT.encode() not in hay

    async def test_the_length_reveals_little(self, vault: Vault) -> None:
        """Short values have ciphertexts of one length, and equal values have different ones (C-24)."""
        payloads = [await vault.seal(SUBJECT, TASK, {"vip": value}) for value in ("yes", "no", "no")]
        texts = [only(payload)[1]["vip"]["ct"] for payload in payloads]

        assert len({len(text) for text in texts}) == 1
        assert len(set(texts)) == 3

    async def test_fields_are_added_to_a_payload(self, vault: Vault) -> None:
        """A stage hands on received and written fields, of one subject or several (S3-12.3-b)."""
        first = await vault.seal("a", TASK, {"x": 1, "y": 1})
        second = await vault.seal("a", TASK, {"y": 2}, onto=first)
        third = await vault.seal("b", TASK, {"x": 3}, onto=second)

        assert list((await vault.open(third, TASK)).values()) == [{"x": 1, "y": 2}, {"x": 3}]
        assert len(first) == 1

    @pytest.mark.parametrize("name", ["", "e-mail", "a b", "x" * 65, "é"])
    async def test_a_field_name_is_an_identifier(self, vault: Vault, name: str) -> None:
        """Names stay readable forever, so they must come from code."""
        with pytest.raises(ValueError, match="pattern"):
            await vault.seal(SUBJECT, TASK, {name: 1})
        assert await vault.where_is(SUBJECT) == []

    async def test_misuse_is_an_error(self, vault: Vault) -> None:
        """No fields, no subject, or a foreign payload."""
        with pytest.raises(ValueError, match="at least one field"):
            await vault.seal(SUBJECT, TASK, {})
        with pytest.raises(ValueError, match="needs a name"):
            await vault.seal(" ", TASK, {"x": 1})
        with pytest.raises(PersonalDataError):
            await vault.seal(SUBJECT, TASK, {"x": 1}, onto={"Jane": {}})

    async def test_a_key_is_rolled_before_it_is_used_up(self, path: Path, keyring: Keyring) -> None:
        """Random nonces are safe for a limited number of encryptions per key."""
        async with Vault(path, keyring, VaultOptions(max_encryptions=4)) as vault:
            first = await vault.seal(SUBJECT, TASK, {"a": 1, "b": 2, "c": 3})
            second = await vault.seal(SUBJECT, TASK, {"d": 4, "e": 5}, onto=first)
            third = await vault.seal(SUBJECT, TASK, {"f": 6, "g": 7}, onto=second)
            kids = {name: field["kid"] for name, field in only(third)[1].items()}

            assert len({kids[name] for name in "abc"} | {kids["d"]}) == 2
            assert kids["d"] == kids["g"]
            assert list((await vault.open(third, TASK)).values()) == [dict(zip("abcdefg", range(1, 8), strict=True))]
            assert (await vault.erase(SUBJECT, "r-1")).removed["keys"] == 2
            assert not any(isinstance(value, dict) for value in (await vault.open(third, TASK)).values())


def _flip(text: str) -> str:
    raw = bytearray(base64.b64decode(text))
    raw[3] ^= 1
    return base64.b64encode(bytes(raw)).decode()


def _swapped(payload: dict[str, Any]) -> dict[str, Any]:
    one, two = payload
    return {one: payload[two], two: payload[one]}


def _fields_swapped(payload: dict[str, Any]) -> dict[str, Any]:
    fields = next(iter(payload.values()))["fields"]
    fields["email"], fields["phone"] = fields["phone"], fields["email"]
    return payload


def _changed(member: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    def change(payload: dict[str, Any]) -> dict[str, Any]:
        field = next(iter(payload.values()))["fields"]["email"]
        field[member] = _flip(field[member])
        return payload

    return change


class TestMoving:
    @pytest.mark.parametrize(
        ("move", "error"),
        [
            pytest.param(_fields_swapped, ForeignCiphertextError, id="to another field"),
            pytest.param(_swapped, DataKeyMissingError, id="to another subject"),
            pytest.param(_changed("ct"), ForeignCiphertextError, id="a bit of the ciphertext"),
            pytest.param(_changed("n"), ForeignCiphertextError, id="a bit of the nonce"),
        ],
    )
    async def test_a_moved_or_changed_value_is_refused(
        self, vault: Vault, move: Callable[[dict[str, Any]], dict[str, Any]], error: type[VaultError]
    ) -> None:
        """Field, subject and bytes are authenticated."""
        payload = await vault.seal("a", TASK, {"email": "a@x", "phone": "1"})
        payload = await vault.seal("b", TASK, {"email": "b@x", "phone": "2"}, onto=payload)

        with pytest.raises(error):
            await vault.open(move(copy.deepcopy(payload)), TASK)

    async def test_a_value_of_another_task_is_refused(self, vault: Vault) -> None:
        """The task is authenticated."""
        payload = await vault.seal(SUBJECT, TASK, {"email": MARKER})

        with pytest.raises(ForeignCiphertextError, match="does not belong to task"):
            await vault.open(payload, "another-task")

    async def test_a_wrapped_key_of_another_subject_is_refused(self, vault: Vault, path: Path) -> None:
        """Write access to the vault's file does not help to swap keys between subjects (C-24)."""
        await vault.seal("a", TASK, {"email": "a@x"})
        payload = await vault.seal("b", TASK, {"email": "b@x"})
        await vault._file.write(
            lambda connection: connection.execute(
                "UPDATE wrapped_key SET bytes = (SELECT bytes FROM wrapped_key WHERE id = 1)"
            )
        )

        with pytest.raises(DataKeyMissingError, match="does not unwrap"):
            await vault.open(payload, TASK)

    @pytest.mark.parametrize(
        "change",
        [
            pytest.param("wrapped_key SET bytes = 'x'", id="a text for a key"),
            pytest.param("data_key SET generation = x'00'", id="bytes for a number"),
            pytest.param("data_key SET generation = 1 << 62", id="a number out of range"),
            pytest.param("data_key SET used = 'x'", id="a text for a count"),
            pytest.param("erasure SET notice = '{}'", id="a notice that is none"),
        ],
    )
    async def test_a_damaged_file_gives_data_or_an_error_of_the_vault(
        self, path: Path, keyring: Keyring, change: str
    ) -> None:
        """The error says what to restore (C-24)."""
        async with Vault(path, keyring) as vault:
            payload = await vault.seal(SUBJECT, TASK, {"email": MARKER})
            gone = await vault.seal("gone", TASK, {"email": "a@x"})
            await vault.erase("gone", "request-7")
        with contextlib.closing(sqlite3.connect(path)) as database:
            database.execute("PRAGMA ignore_check_constraints = on")
            database.execute(f"UPDATE {change}")
            database.commit()

        async with Vault(path, keyring) as vault:
            questions = (
                vault.open(payload, TASK),
                vault.seal(SUBJECT, TASK, {"email": MARKER}),
                vault.rewrap(),
                vault.open(gone, TASK),
                vault.erase("gone", "request-8"),
                vault.finish_erasures(),
            )
            for question in questions:
                with contextlib.suppress(VaultError):
                    await question

    async def test_a_missing_key_is_not_an_erasure(self, vault: Vault, tmp_path: Path, keyring: Keyring) -> None:
        """Only a recorded erasure becomes a mark; a lost key may come back, so it raises (C-24)."""
        payload = await vault.seal(SUBJECT, TASK, {"email": MARKER})

        async with Vault(tmp_path / "other.db", keyring) as other:
            with pytest.raises(DataKeyMissingError, match="which was not erased"):
                await other.open(payload, TASK)

    async def test_a_forged_mark_of_an_erasure_is_refused(self, vault: Vault) -> None:
        """A sender cannot pretend that somebody was erased (C-24)."""
        subject, _ = only(await vault.seal(SUBJECT, TASK, {"email": MARKER}))
        mark = {"erasureId": "request-7", "at": "2026-11-21T10:00:00Z"}

        with pytest.raises(VaultError, match="was erased, but the vault does not"):
            await vault.open({subject: {"v": 1, "erased": mark}}, TASK)


class TestWhereIs:
    async def test_it_names_every_task_and_field_once(self, vault: Vault) -> None:
        """The index leads from a subject to its data (S3-12.3-a, S3-12.3-c)."""
        for task in ("t-2", "t-1", "t-1"):
            await vault.seal(SUBJECT, task, {"email": MARKER})
        await vault.seal("somebody else", "t-3", {"email": MARKER})

        assert await vault.where_is(SUBJECT) == [
            Place("t-1", "email"),
            Place("t-2", "email"),
        ]
        assert await vault.where_is("nobody") == []


class TestRotation:
    async def test_rewrapping_makes_the_old_key_useless(self, path: Path, keyring: Keyring) -> None:
        """The vault opens without the retired WRAP key, and an old copy only with it."""
        async with Vault(path, keyring) as vault:
            payload = await vault.seal(SUBJECT, TASK, {"email": MARKER})
        shutil.copy(path, path.with_name("old"))
        both = rotated(keyring, Purpose.WRAP)
        async with Vault(path, both) as vault:
            await vault.seal("new", TASK, {"email": MARKER})
            assert await vault.rewrap() == 1
            assert await vault.rewrap() == 0
        only_new = Keyring([key for key in both.all_keys() if key.retired_at is None])
        async with Vault(path, only_new) as vault:
            assert list((await vault.open(payload, TASK)).values()) == [{"email": MARKER}]
        shutil.copy(path.with_name("old"), path)
        async with Vault(path, only_new) as vault:
            with pytest.raises(KeyringError):
                await vault.open(payload, TASK)

    async def test_many_keys_are_rewrapped_page_by_page(
        self, path: Path, keyring: Keyring, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """All of them, also if there is more than one page."""
        monkeypatch.setattr("baton.personal.store_subjects.PAGE_SIZE", 3)
        async with Vault(path, keyring) as vault:
            payloads = [await vault.seal(f"s-{number}", TASK, {"n": number}) for number in range(8)]
        async with Vault(path, rotated(keyring, Purpose.WRAP)) as vault:
            assert await vault.rewrap() == 8
            assert [list((await vault.open(payload, TASK)).values()) for payload in payloads] == [
                [{"n": n}] for n in range(8)
            ]

    async def test_a_subject_keeps_its_pseudonym_when_the_index_key_is_rotated(
        self, path: Path, keyring: Keyring
    ) -> None:
        """Otherwise older data could not be found to be erased (S3-12.3-c)."""
        async with Vault(path, keyring) as vault:
            before = await vault.seal(SUBJECT, TASK, {"email": MARKER})
        newer = rotated(keyring, Purpose.INDEX)
        async with Vault(path, newer) as vault:
            after = await vault.seal(SUBJECT, TASK, {"phone": "1"}, onto=before)
            assert len(after) == 1
            await vault.erase(SUBJECT, "r-1")
        async with Vault(path, rotated(newer, Purpose.INDEX)) as vault:
            assert (await vault.erase(SUBJECT, "r-2")).repeated

    async def test_a_new_index_key_of_another_worker_is_read_from_the_file(self, path: Path) -> None:
        """Both share the file, and the vault has the new key before this worker."""
        file = path.with_name("keys.toml")
        at = datetime(2026, 11, 21, tzinfo=UTC)
        index, others = Key.generate(Purpose.INDEX, at), (Key.generate(Purpose.WRAP, at),)
        write_file(file, KeyFile((*others, index)), replace=False)
        async with Vault(path, Keyring.from_file(file)) as vault:
            newer = (*others, replace(index, retired_at=at), Key.generate(Purpose.INDEX, at))
            write_file(file, KeyFile(newer), replace=True)
            async with Vault(path, Keyring.from_file(file)) as other:
                await other.seal("somebody else", TASK, {"n": 1})
            assert list((await vault.open(await vault.seal(SUBJECT, TASK, {"n": 2}), TASK)).values()) == [{"n": 2}]

    async def test_a_lost_index_key_is_noticed(self, path: Path, keyring: Keyring) -> None:
        """The subject may be indexed under the missing key, so "nothing found" could be wrong (S3-12.3-c)."""
        async with Vault(path, keyring) as vault:
            await vault.seal(SUBJECT, TASK, {"email": MARKER})
        async with Vault(path, rotated(keyring, Purpose.INDEX, keep=False)) as vault:
            with pytest.raises(VaultError, match="add the key to the keyring again, as retired"):
                await vault.erase(SUBJECT, "r-1")


@pytest.fixture
def stranger(tmp_path: Path) -> Path:
    file = tmp_path / "text.db"
    file.write_text("no database at all, but long enough to be taken for one" * 20)
    return file


def journal_mode_of(file: Path) -> str:
    with contextlib.closing(sqlite3.connect(file)) as connection:
        return str(connection.execute("PRAGMA journal_mode").fetchone()[0])


class TestFile:
    async def test_only_its_owner_may_read_it(self, vault: Vault, path: Path) -> None:
        """It holds everybody's keys."""
        await vault.seal(SUBJECT, TASK, {"email": MARKER})
        await vault.erase(SUBJECT, "r-1")

        assert [stat.S_IMODE(os.stat(file).st_mode) for file in (path, f"{path}.erasures")] == [0o600, 0o600]

    async def test_another_file_is_refused(
        self, tmp_path: Path, stranger: Path, keyring: Keyring, ledger: object
    ) -> None:
        """A text, a ledger and a missing file are named and unchanged."""
        with pytest.raises(VaultUnavailableError, match="not a database"):
            await Vault(stranger, keyring).__aenter__()
        with pytest.raises(VaultError, match="is a database, but not a vault"):
            await Vault(tmp_path / "ledger" / "ledger.db", keyring).__aenter__()
        with pytest.raises(VaultUnavailableError, match="no such file"):
            await Vault(tmp_path / "none.db", keyring, VaultOptions(create=False)).__aenter__()
        assert journal_mode_of(tmp_path / "ledger" / "ledger.db") == "wal"

    async def test_damage_in_the_text_of_its_tables_is_an_error(self, path: Path, keyring: Keyring) -> None:
        """SQLite quotes the damage in its message, which Python cannot decode."""
        async with Vault(path, keyring):
            pass
        data = await asyncio.to_thread(path.read_bytes)
        await asyncio.to_thread(path.write_bytes, data.replace(b"CREATE TABLE place (", b"CREATE TABLE place \x8e"))

        with pytest.raises(VaultUnavailableError, match="cannot be used"):
            await Vault(path, keyring).__aenter__()

    async def test_workers_that_start_together_create_one_vault(self, tmp_path: Path, keyring: Keyring) -> None:
        """The tables are created in one transaction, so no worker sees only some."""
        for number in range(30):
            async with contextlib.AsyncExitStack() as stack:
                vaults = [Vault(tmp_path / f"{number}.db", keyring) for _ in range(6)]
                assert await asyncio.gather(*map(stack.enter_async_context, vaults)) == vaults

    async def test_a_locked_vault_is_unavailable(self, path: Path, keyring: Keyring) -> None:
        """A retry helps, unlike after an erasure."""
        options = VaultOptions(wait=0.01)
        async with Vault(path, keyring, options) as one, Vault(path, keyring, options) as two:
            begun, end = asyncio.Event(), asyncio.Event()
            loop = asyncio.get_running_loop()

            def hold(_: object) -> None:
                loop.call_soon_threadsafe(begun.set)
                asyncio.run_coroutine_threadsafe(end.wait(), loop).result()

            holding = asyncio.create_task(one._file.write(hold))
            await begun.wait()
            with pytest.raises(VaultUnavailableError, match="locked"):
                await two.seal(SUBJECT, TASK, {"email": MARKER})
            end.set()
            await holding
            await two.seal(SUBJECT, TASK, {"email": MARKER})
