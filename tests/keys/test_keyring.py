"""The keyring: one purpose per key, private files, rotation without a restart, no weak keys."""

import copy
import os
import pickle
import stat
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from baton.keys import store_keyring as module
from baton.keys.claims import Claim, SignatureCheck
from baton.keys.store_keyring import (
    Key,
    KeyFile,
    Keyring,
    KeyringError,
    Purpose,
    UnknownKeyError,
    lock_file,
    read_file,
    write_file,
)
from baton.keys.store_keys import RETIRED_GRACE, PublicKeys
from baton.wire.base64url import to_base64url

AT = datetime(2026, 11, 21, 10, tzinfo=UTC)
LATER = AT + timedelta(days=30)
SECRET = bytes(range(32))
TEXT = to_base64url(SECRET)


def key(name: str = "k", purpose: Purpose = Purpose.SEAL, **members: Any) -> Key:
    about: dict[str, Any] = {"id": name, "purpose": purpose, "secret": SECRET, "created_at": AT}
    return Key(**(about | members))


def written(path: Path, *keys: Key, **members: Any) -> Path:
    """Write a key file, and return its path."""
    write_file(path, KeyFile(keys, **members), replace=True)
    return path


class TestKey:
    @pytest.mark.parametrize(
        ("members", "message"),
        [
            pytest.param({"secret": SECRET[:31]}, "has 31 bytes, but a key to seal needs at least 32", id="too short"),
            pytest.param({"secret": b""}, "has 0 bytes", id="no secret at all"),
            pytest.param({"secret": b"\0" * 32}, "is not random", id="all zeros"),
            pytest.param({"secret": b"password" * 4}, "is not random", id="a word, repeated"),
            pytest.param(
                {"purpose": Purpose.ENCRYPT, "secret": SECRET + b"x"}, "exactly 32", id="a cipher's key that is longer"
            ),
            pytest.param({"name": "a b"}, "the key id 'a b' is invalid", id="a name with a blank"),
            pytest.param({"name": ""}, "the key id '' is invalid", id="no name"),
            pytest.param({"created_at": datetime(2026, 1, 1)}, "no UTC offset", id="a time without offset"),  # noqa: DTZ001
        ],
    )
    def test_a_weak_or_nameless_key_is_refused(self, members: dict[str, Any], message: str) -> None:
        """A secret must not be guessable."""
        with pytest.raises(KeyringError, match=message):
            key(**({"name": "k"} | members))

    def test_the_repr_hides_the_secret(self) -> None:
        """It does not appear in tracebacks or logs."""
        assert "secret" not in repr(key("k"))
        assert str(SECRET) not in repr(key("k"))

    @pytest.mark.parametrize("write", [pickle.dumps, copy.deepcopy])
    def test_a_key_cannot_be_pickled(self, write: Callable[[object], object]) -> None:
        """The secret would be in a cache, a task queue or another process."""
        with pytest.raises(TypeError, match="the key 'k' cannot be pickled"):
            write(key("k"))

    @pytest.mark.parametrize("purpose", [kind for kind in Purpose if kind is not Purpose.SIGN])
    def test_only_a_signing_key_signs(self, purpose: Purpose) -> None:
        """A shared secret is not a private key."""
        with pytest.raises(KeyringError, match=f"is to {purpose.value}, not to sign"):
            _ = key("k", purpose).private

    @pytest.mark.parametrize("purpose", [kind for kind in Purpose if kind is not Purpose.ENCRYPT])
    def test_only_an_encryption_key_encrypts(self, purpose: Purpose) -> None:
        """A key has one algorithm."""
        with pytest.raises(KeyringError, match=f"is to {purpose.value}, not to encrypt"):
            _ = key("k", purpose).cipher


class TestKeyring:
    def test_retired_keys_are_found_and_never_current(self) -> None:
        """They verify, but do not seal."""
        old, new = key("old", retired_at=LATER), key("new")
        ring = Keyring([old, new])

        assert ring.current(Purpose.SEAL) is new
        assert ring.find(Purpose.SEAL, "old") is old
        assert ring.all_keys(Purpose.SEAL) == [new, old]

    def test_a_retired_key_alone_cannot_seal(self) -> None:
        """The error names the command that makes a current key."""
        with pytest.raises(KeyringError, match=r"no current key to seal; make one with `baton keys rotate seal`"):
            Keyring([key("old", retired_at=LATER)]).current(Purpose.SEAL)

    def test_a_key_is_found_by_purpose_and_id(self) -> None:
        """A sender that names a key cannot choose its purpose."""
        ring = Keyring([key("k", Purpose.ENCRYPT)])

        with pytest.raises(UnknownKeyError, match="no key 'k' to seal"):
            ring.find(Purpose.SEAL, "k")

    @pytest.mark.parametrize(
        ("keys", "message"),
        [
            pytest.param([key("k"), key("k", retired_at=LATER)], "two keys have the id 'k'", id="one id twice"),
            pytest.param([key("k"), key("k", Purpose.INDEX)], "two keys have the id 'k'", id="one id, two purposes"),
            pytest.param([key("a"), key("b")], "'a' and 'b' are both current to seal", id="two current keys"),
        ],
    )
    def test_ambiguous_keys_are_refused(self, keys: list[Key], message: str) -> None:
        """Each id must identify one key."""
        with pytest.raises(KeyringError, match=message):
            Keyring(keys)

    def test_only_seal_and_sign_keys_can_seal_handoffs(self) -> None:
        """No other purpose can seal."""
        with pytest.raises(KeyringError, match="not with 'encrypt'"):
            Keyring([], seal_with=Purpose.ENCRYPT)

    def test_the_public_keys_verify_the_signer(self) -> None:
        """The exported keys verify the ledger's signatures; a retired key signs nothing."""
        ring = Keyring.generate(at=AT)
        signer, public = ring.signer(), PublicKeys.from_json(ring.public().to_json())
        signature = signer.sign(b"head")

        assert public.check([Claim(signer.key_id, b"head", signature, LATER)]) == [SignatureCheck.GOOD]
        assert public.check([Claim(signer.key_id, b"tail", signature, LATER)]) == [SignatureCheck.BAD]
        assert public.check([Claim(signer.key_id, b"head", signature[:-1], LATER)]) == [SignatureCheck.BAD]
        assert public.check([Claim("another", b"head", signature, LATER)]) == [SignatureCheck.UNKNOWN_KEY]

    def test_a_retired_key_is_accepted_for_one_more_day(self) -> None:
        """Workers reload keys one by one, so a signature by the old key stays valid for a day."""
        retired = replace(Key.generate(Purpose.SIGN, AT), retired_at=LATER)
        public, signature = PublicKeys([retired.public]), retired.private.sign(b"head")
        last = LATER + RETIRED_GRACE

        second = timedelta(seconds=1)
        claims = [Claim(retired.id, b"head", signature, moment) for moment in (LATER + second, last, last + second)]
        assert public.check(claims) == [SignatureCheck.GOOD, SignatureCheck.GOOD, SignatureCheck.RETIRED_KEY]


class TestFile:
    def test_a_keyring_round_trips_through_its_file(self, tmp_path: Path) -> None:
        """Keys, times and the algorithm are read as written."""
        keys = (key("old", retired_at=LATER), key("new"), *(Key.generate(purpose, AT) for purpose in list(Purpose)[1:]))
        ring = Keyring.from_file(written(tmp_path / "keys.toml", *keys, seal_with=Purpose.SIGN))

        assert {key.id: key for key in ring.all_keys()} == {key.id: key for key in keys}
        assert ring.seal_with is Purpose.SIGN
        assert not ring.is_development

    @pytest.mark.skipif(os.name != "posix", reason="modes are POSIX")
    @pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o777])
    def test_a_file_readable_by_others_is_refused(self, tmp_path: Path, mode: int) -> None:
        """The error has the remedy."""
        path = written(tmp_path / "keys.toml", key("k"))
        path.chmod(mode)

        with pytest.raises(KeyringError, match=f"mode {mode:o}.*chmod 600"):
            Keyring.from_file(path)

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            pytest.param("", "key: Field required", id="an empty file"),
            pytest.param("[[key", "are not TOML", id="no TOML"),
            pytest.param(f"a = {'[' * 5000}", "are not TOML", id="TOML nested without end"),
            pytest.param(f"a = {'9' * 5000}", "are not TOML", id="TOML with an endless number"),
            pytest.param(
                '[[key]]\nid="k"\npurpose="seal"',
                r"secret: Field required.*created_at: Field required",
                id="members missing",
            ),
            pytest.param(
                f'[[key]]\nid="k"\npurpose="seal"\nretired=1\nsecret="x"\ncreated_at={AT.isoformat()}',
                r"key\.0\.retired: Extra inputs",
                id="a misspelt member, which would leave a key current",
            ),
            pytest.param(
                f'[[key]]\nid="k"\npurpose="login"\nsecret="x"\ncreated_at={AT.isoformat()}',
                r"key\.0\.purpose: Input should be 'seal'",
                id="an unknown purpose",
            ),
            pytest.param(
                f'[[key]]\nid="k"\npurpose="seal"\nsecret="hunter2!"\ncreated_at={AT.isoformat()}',
                r"key\.0\.secret: Value error",
                id="a secret that is no base64url",
            ),
            pytest.param('development="false"\nkey=[]', "development: Input should be a valid boolean", id="a text"),
            pytest.param('seal_with="none"\nkey=[]', "seal_with: Input should be 'hmac-sha256'", id="alg none"),
        ],
    )
    def test_a_malformed_file_is_an_error_without_its_secrets(self, tmp_path: Path, text: str, message: str) -> None:
        """The error names the member, and never quotes a secret."""
        path = tmp_path / "keys.toml"
        path.write_text(text)
        path.chmod(0o600)

        with pytest.raises(KeyringError, match=message) as raised:
            Keyring.from_file(path)
        assert "hunter2" not in str(raised.value)

    def test_the_error_for_a_missing_file_names_the_command(self, tmp_path: Path) -> None:
        """The message has the command."""
        with pytest.raises(KeyringError, match="baton keys new"):
            Keyring.from_file(tmp_path / "keys.toml")

    def test_the_error_for_an_unreadable_file_does_not_suggest_a_new_one(self, tmp_path: Path) -> None:
        """A new file would replace existing keys that only have the wrong owner or path."""
        with pytest.raises(KeyringError, match="name a file that this user can read") as refused:
            Keyring.from_file(tmp_path)

        assert "keys new" not in str(refused.value)

    def test_an_existing_file_is_never_overwritten(self, tmp_path: Path) -> None:
        """Lost keys are lost data."""
        path = written(tmp_path / "keys.toml", key("k"))
        content = path.read_bytes()

        with pytest.raises(KeyringError, match="already has keys"):
            write_file(path, KeyFile((key("other"),)), replace=False)
        assert path.read_bytes() == content
        assert [file.name for file in tmp_path.iterdir()] == ["keys.toml"]

    def test_a_restored_key_is_found_without_a_restart(self, tmp_path: Path) -> None:
        """A worker that waits for a key continues when the file has it."""
        path = written(tmp_path / "keys.toml", key("new"))
        ring = Keyring.from_file(path)
        with pytest.raises(UnknownKeyError):
            ring.find(Purpose.SEAL, "old")

        written(path, key("old", retired_at=LATER), key("new"))

        assert ring.find(Purpose.SEAL, "old").id == "old"

    def test_a_rotation_is_loaded_without_a_restart(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """The file is checked every second."""
        path = written(tmp_path / "keys.toml", key("old"))
        ring = Keyring.from_file(path)
        assert ring.current(Purpose.SEAL).id == "old"
        written(path, key("old", retired_at=LATER), key("new"))

        monkeypatch.setattr(module, "_RELOAD_SECONDS", -1.0)

        assert ring.current(Purpose.SEAL).id == "new"

    def test_an_open_ledger_signs_with_the_new_key(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """It does not sign with a retired key, and id and signature always match."""
        old, new = Key.generate(Purpose.SIGN, AT), Key.generate(Purpose.SIGN, LATER)
        path = written(tmp_path / "keys.toml", old)
        signer = Keyring.from_file(path).signer()
        monkeypatch.setattr(module, "_RELOAD_SECONDS", -1.0)
        first = signer.key_id
        written(path, replace(old, retired_at=LATER), new)

        assert (first, old.public.verifies(b"head", signer.sign(b"head"))) == (old.id, True)
        assert (signer.key_id, new.public.verifies(b"head", signer.sign(b"head"))) == (new.id, True)

    @pytest.mark.skipif(os.name != "posix", reason="there is no such lock on Windows")
    def test_concurrent_changes_of_a_file_lose_no_key(self, tmp_path: Path) -> None:
        """A lost key could be one that a worker has already used."""
        path = written(tmp_path / "keys.toml", key("first"))

        def add(number: int) -> None:
            with lock_file(path):
                content = read_file(path)
                time.sleep(0.01)
                write_file(
                    path, replace(content, keys=(*content.keys, key(f"k{number}", retired_at=LATER))), replace=True
                )

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(add, range(8)))

        assert len(read_file(path).keys) == 9

    def test_a_symbolic_link_to_a_file_is_kept(self, tmp_path: Path) -> None:
        """The file behind the link is rotated."""
        (tmp_path / "there").mkdir()
        target = written(tmp_path / "there/keys.toml", key("old"))
        (tmp_path / "keys.toml").symlink_to(target)

        written(tmp_path / "keys.toml", key("new"))

        assert (tmp_path / "keys.toml").is_symlink()
        assert Keyring.from_file(target).current(Purpose.SEAL).id == "new"

    def test_a_file_that_becomes_invalid_is_ignored(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        """The worker keeps its keys, and logs the error."""
        path = written(tmp_path / "keys.toml", key("k"))
        ring = Keyring.from_file(path)
        path.write_text("[[key")

        with pytest.raises(UnknownKeyError):
            ring.find(Purpose.SEAL, "another")

        assert ring.current(Purpose.SEAL).id == "k"
        assert "the keys were not reloaded" in caplog.text

    @pytest.mark.skipif(os.name != "posix", reason="a file's rights are POSIX's")
    def test_a_file_with_corrected_rights_is_loaded(self, tmp_path: Path) -> None:
        """`chmod 600` changes neither the file's mtime nor its size."""
        path = written(tmp_path / "keys.toml", key("old"))
        ring = Keyring.from_file(path)
        written(path, key("old", retired_at=LATER), key("new"))
        path.chmod(0o644)
        with pytest.raises(UnknownKeyError):
            ring.find(Purpose.SEAL, "new")
        path.chmod(0o600)

        assert ring.find(Purpose.SEAL, "new").id == "new"


class TestDevelopment:
    def test_development_keys_are_created_once_for_their_owner(self, tmp_path: Path) -> None:
        """The second call finds the same keys of every purpose."""
        first = Keyring.development(tmp_path / ".baton", {})
        second = Keyring.development(tmp_path / ".baton", {})

        assert first.is_development
        assert {item.purpose for item in first.all_keys()} == set(Purpose)
        assert [item.secret for item in first.all_keys()] == [item.secret for item in second.all_keys()]
        if os.name == "posix":
            assert stat.S_IMODE((tmp_path / ".baton/keys.toml").stat().st_mode) == 0o600

    def test_concurrent_processes_share_the_development_keys(self, tmp_path: Path) -> None:
        """One of them creates the file, the others read it."""
        with ThreadPoolExecutor(8) as pool:
            rings = list(pool.map(lambda _: Keyring.development(tmp_path, {}), range(16)))

        assert len({ring.current(Purpose.SEAL).secret for ring in rings}) == 1

    def test_production_refuses_development_keys(self, tmp_path: Path) -> None:
        """They are neither created nor used, and the error has the remedy."""
        with pytest.raises(KeyringError, match=r"BATON_ENV is production: make keys with `baton keys new FILE`"):
            Keyring.development(tmp_path, {"BATON_ENV": "production"})
        assert not (tmp_path / "keys.toml").exists()

        keyring = Keyring.development(tmp_path, {})
        with pytest.raises(KeyringError, match="these are development keys"):
            keyring.require_production()
        with pytest.raises(KeyringError, match="these are development keys"):
            Keyring.from_environment({"BATON_ENV": "production", "BATON_KEYS": str(tmp_path / "keys.toml")})
        Keyring.generate().require_production()

    def test_development_keys_do_not_replace_given_keys(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        """A worker with real keys keeps them."""
        path = written(tmp_path / "keys.toml", key("k"))
        ring = Keyring.from_file(path)
        keyring = Keyring.development(tmp_path / "theirs", {})
        os.replace(tmp_path / "theirs/keys.toml", path)

        with pytest.raises(UnknownKeyError):
            ring.find(Purpose.SEAL, keyring.current(Purpose.SEAL).id)

        assert (ring.current(Purpose.SEAL).id, ring.is_development) == ("k", False)
        assert "became development keys" in caplog.text


class TestFindOut:
    def test_a_path_is_read(self, tmp_path: Path) -> None:
        path = written(tmp_path / "k.toml", key("k"))

        assert Keyring.from_environment({"BATON_KEYS": str(path)}).current(Purpose.SEAL).id == "k"

    def test_development_keys_are_the_default(self, tmp_path: Path) -> None:
        """They are created in the given folder."""
        assert Keyring.from_environment({}, tmp_path).is_development

    @pytest.mark.parametrize(
        ("environment", "message"),
        [
            pytest.param({"BATON_ENV": "production"}, "BATON_ENV is production", id="no keys in production"),
            pytest.param({"BATON_ENV": " Production"}, "BATON_ENV is production", id="in another spelling"),
            pytest.param({"BATON_ENV": "prod"}, "BATON_ENV is 'prod'; expected production", id="a slip"),
        ],
    )
    def test_an_invalid_environment_is_an_error(
        self, environment: dict[str, str], message: str, tmp_path: Path
    ) -> None:
        """The variable is named."""
        with pytest.raises(KeyringError, match=message):
            Keyring.from_environment(environment, tmp_path)
