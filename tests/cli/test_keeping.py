"""`baton keys`: made for their owner only, rotated without losing one, and never shown."""

import asyncio
import json
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer
from temporalio.client import Client
from typer.testing import CliRunner, Result

from baton.cli import keys as keeping
from baton.cli.dev import make_evidence
from baton.cli.options import GlobalOptions
from baton.cli.session import Session
from baton.console.sources import Sources
from baton.handoff.store_signing import open_sealed, seal
from baton.keys.store_keyring import Keyring, Purpose
from baton.keys.store_keys import PublicKeys
from baton.ledger.chain import Verdict
from baton.ledger.store import Ledger, LedgerOptions
from baton.wire.base64url import to_base64url
from tests.ledger.material import TASK, entry


def baton(function: Callable[..., None], *words: str, columns: int = 200, **environment: str) -> Result:
    """Call one command in this process, in a terminal of so many columns."""
    app = typer.Typer()
    app.command()(function)
    return CliRunner().invoke(app, list(words), env={"COLUMNS": str(columns), **environment})


async def _no_client() -> Client:
    raise AssertionError("a trace of the ledger needs no server")


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a file of keys, in a folder of its own that is the working directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("BATON_KEYS", raising=False)
    created = baton(keeping.new, "keys.toml", "--json")
    assert created.exit_code == 0, created.output
    return tmp_path / "keys.toml"


def listed(*words: str) -> list[dict[str, Any]]:
    """Return what `baton keys list --json` says of the keys."""
    output = baton(keeping.list_, "--json", *words)
    assert output.exit_code == 0, output.output
    keys: list[dict[str, Any]] = json.loads(output.stdout)["keys"]
    return keys


class TestNew:
    def test_it_creates_a_key_for_every_purpose_readable_by_its_owner_only(self, file: Path) -> None:
        ring = Keyring.from_file(file)

        ring.require_production()
        assert [key.purpose for key in ring.all_keys()] == list(Purpose)
        if os.name == "posix":
            assert stat.S_IMODE(file.stat().st_mode) == 0o600

    def test_it_never_overwrites_keys(self, file: Path) -> None:
        """What they sealed would be lost."""
        before = file.read_bytes()

        assert baton(keeping.new, "keys.toml").exit_code != 0
        assert file.read_bytes() == before

    def test_the_algorithm_can_be_chosen(self, file: Path) -> None:
        """With Ed25519 outsiders can verify; an unknown algorithm is a usage error."""
        assert baton(keeping.new, "open.toml", "--seal-with", "ed25519").exit_code == 0
        assert baton(keeping.new, "none.toml", "--seal-with", "none").exit_code == 2

        assert Keyring.from_file(file.with_name("open.toml")).seal_with is Purpose.SIGN


class TestList:
    def test_it_shows_every_key_and_no_secret(self, file: Path) -> None:
        """As a table and as JSON."""
        secrets = [to_base64url(key.secret) for key in Keyring.from_file(file).all_keys()]
        shown = [baton(keeping.list_, "--keys", str(file), *more).output for more in ([], ["--json"])]

        for output in shown:
            assert all(key["id"] in output for key in listed("--keys", str(file)))
            assert not any(secret in output for secret in secrets)

    def test_a_key_is_named_in_one_line_in_a_terminal_of_80_columns(self, file: Path) -> None:
        """A broken name cannot be copied."""
        assert baton(keeping.rotate, "--keys", str(file)).exit_code == 0

        output = baton(keeping.list_, "--keys", str(file), columns=80, FORCE_COLOR="1").stdout
        assert all(key["id"] in output for key in listed("--keys", str(file)))
        assert len(output.splitlines()) == 1 + len(listed("--keys", str(file)))  # nothing else is broken either

    def test_it_finds_the_file_in_the_environment(self, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("BATON_KEYS", str(file))

        assert len(listed()) == len(Purpose)

    def test_without_any_keys_it_says_how_to_make_them(self, file: Path) -> None:
        """It creates none."""
        output = baton(keeping.list_)

        assert output.exit_code == 1
        assert "baton keys new FILE" in output.output
        assert not (file.parent / ".baton").exists()


async def test_a_running_console_verifies_with_the_keys_of_now(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was started before the first worker made them, and stays open while they are rotated."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("BATON_KEYS", raising=False)
    session = Session(GlobalOptions(artifacts="memory:"))
    evidence = make_evidence(session)
    sources = Sources(_no_client, session.artifacts, evidence=evidence)
    keyring = Keyring.development(tmp_path / ".baton", {})
    async with Ledger(Path(".baton/ledger.db"), LedgerOptions(signer=keyring.signer())) as ledger:
        await ledger.append(entry(0))
        assert (await sources.trace(TASK)).report.signed_through == 1
        rotated = await asyncio.to_thread(baton, keeping.rotate)
        assert rotated.exit_code == 0, rotated.output
        keyring = Keyring.development(tmp_path / ".baton", {})
    async with Ledger(Path(".baton/ledger.db"), LedgerOptions(signer=keyring.signer())) as ledger:
        await ledger.append(entry(1))

    report = (await sources.trace(TASK)).report
    await sources.close()

    assert (report.verdict, report.signed_through) == (Verdict.UNANCHORED, 2)


class TestRotate:
    def test_the_old_keys_are_retired_and_open_what_they_sealed(self, file: Path) -> None:
        """A worker that shares the file uses the new ones."""
        worker = Keyring.from_file(file)
        raw = seal({"timestamp": "2026-01-01T00:00:00Z"}, worker)

        assert baton(keeping.rotate, "--keys", str(file)).exit_code == 0

        rotated = Keyring.from_file(file)
        assert open_sealed(raw, rotated).key_id != rotated.current(Purpose.SEAL).id
        assert open_sealed(seal({"a": 1}, rotated), worker).key_id == rotated.current(Purpose.SEAL).id

    def test_the_vaults_keys_are_rotated_by_name_only(self, file: Path) -> None:
        """Rotating them also concerns the vault."""
        before = Keyring.from_file(file)
        baton(keeping.rotate, "--keys", str(file))
        after = Keyring.from_file(file)

        same = {one for one in Purpose if before.current(one) == after.current(one)}
        assert same == {Purpose.WRAP, Purpose.INDEX}
        assert baton(keeping.rotate, "wrap", "--keys", str(file)).exit_code == 0
        assert len(Keyring.from_file(file).all_keys(Purpose.WRAP)) == 2

    def test_an_unknown_purpose_is_named(self, file: Path) -> None:
        """Nothing changes."""
        output = baton(keeping.rotate, "login", "--keys", str(file))

        assert output.exit_code == 2
        assert "unknown purpose 'login'" in output.output


class TestPublic:
    def test_what_it_prints_verifies_what_was_signed(self, file: Path) -> None:
        """Also with keys that were retired since."""
        signer = Keyring.from_file(file).signer()
        baton(keeping.rotate, "sign", "--keys", str(file))

        printed = baton(keeping.public, "--keys", str(file)).stdout
        baton(keeping.public, "--keys", str(file), "-o", "public.json")

        assert (file.parent / "public.json").read_text() == printed
        public = PublicKeys.from_json(printed)
        key = public.get(signer.key_id)
        assert key is not None
        assert key.verifies(b"head", signer.sign(b"head"))
        assert len(public) == 2
