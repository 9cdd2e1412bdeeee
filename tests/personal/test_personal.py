"""Where a stage reads and writes personal data, if it declared that it does."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from baton.errors import ConfigurationError
from baton.keys.store_keyring import Keyring
from baton.personal.activity import PersonalDataAccess, UndeclaredPersonalDataError
from baton.personal.records import Erased, SubjectErasedError
from baton.personal.store import Vault

TASK = "t-1"


@pytest.fixture
async def vault(tmp_path: Path) -> AsyncIterator[Vault]:
    async with Vault(tmp_path / "vault.db", Keyring.generate()) as opened:
        yield opened


class TestPersonalDataAccess:
    async def test_a_stage_gets_the_fields_that_it_declared(self, vault: Vault) -> None:
        """And no others, also if it names none (S3-12.3-b)."""
        payload = await vault.seal("ann", TASK, {"email": "ann@x", "salary": 9})
        desk = PersonalDataAccess(vault, "greet", {"email", "phone"}, TASK, payload)

        assert list((await desk.read()).values()) == [{"email": "ann@x"}]
        assert list((await desk.read("email")).values()) == [{"email": "ann@x"}]
        assert list((await desk.read("phone")).values()) == [{}]

    async def test_undeclared_fields_are_refused_with_a_remedy(self, vault: Vault) -> None:
        """A stage gets only the personal data that it declares (S3-12.3-b)."""
        payload = await vault.seal("ann", TASK, {"email": "ann@x"})
        none = PersonalDataAccess(vault, "score", (), TASK, payload)
        access = PersonalDataAccess(vault, "score", ["email"], TASK, payload)

        remedy = r"declares none; .*@stage\(personal_data=\['email'\]\)"
        with pytest.raises(UndeclaredPersonalDataError, match=remedy):
            await none.read()
        for wanting in (access.read("email", "salary"), access.write("ann", {"salary": 9})):
            with pytest.raises(UndeclaredPersonalDataError, match=r"'salary': it declares 'email'.*'email', 'salary'"):
                await wanting
        assert access.payload == payload

    async def test_what_it_writes_is_handed_on(self, vault: Vault) -> None:
        """The payload has the received and the written data, all sealed (S3-12.3-b)."""
        desk = PersonalDataAccess(vault, "ask", ["email", "phone"], TASK)
        await desk.write("ann", {"email": "ann@x"})
        handed = await desk.write("ann", {"phone": "1"})

        assert handed == desk.payload
        assert "ann" not in str(handed)
        assert list((await vault.open(handed, TASK)).values()) == [{"email": "ann@x", "phone": "1"}]

    async def test_parallel_writes_are_all_handed_on(self, vault: Vault) -> None:
        """Each write extends the payload of the one before it."""
        desk = PersonalDataAccess(vault, "ask", ["email"], TASK)
        await asyncio.gather(*(desk.write(one, {"email": f"{one}@x"}) for one in ("ann", "bob", "eve")))

        values = (await vault.open(desk.payload, TASK)).values()
        assert sorted(str(one) for one in values) == [f"{{'email': '{one}@x'}}" for one in ("ann", "bob", "eve")]

    async def test_it_gets_a_mark_for_an_erased_subject(self, vault: Vault) -> None:
        """A stage after an erasure continues, and cannot restore anything (C-24)."""
        desk = PersonalDataAccess(vault, "greet", ["email"], TASK, await vault.seal("ann", TASK, {"email": "ann@x"}))
        await vault.erase("ann", "r-1")

        assert [type(value) for value in (await desk.read()).values()] == [Erased]
        with pytest.raises(SubjectErasedError):
            await desk.write("ann", {"email": "ann@x"})

    async def test_a_worker_without_a_vault_says_so(self) -> None:
        """The message has the remedy (S3-12.3-b)."""
        with pytest.raises(ConfigurationError, match="this worker has no vault; pass one"):
            await PersonalDataAccess(None, "greet", ["email"], TASK).read()
