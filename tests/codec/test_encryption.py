"""The encryption codec: confidentiality, binding to workflow and key, and missing keys."""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from temporalio.api.common.v1 import Payload
from temporalio.converter import (
    ActivitySerializationContext,
    NexusSerializationContext,
    SerializationContext,
    WorkflowSerializationContext,
)

from baton.codec.encryption import ENCODING, KEY_ID, EncryptionCodec, MissingKeyError
from baton.errors import NewerPayloadError, PayloadError
from baton.keys.store_keyring import Key, KeyFile, Keyring, KeyringError, Purpose, write_file

MARK = b"hunter2"
PLAIN = Payload(metadata={"encoding": b"json/plain", "note": MARK}, data=b'"' + MARK * 40 + b'"')
KEYS = Keyring.generate()
AT = datetime(2026, 11, 21, tzinfo=UTC)
NIGHTLY = "nightly-2026-11-21T10:00:00Z"


def workflow(workflow_id: str = "run-1", namespace: str = "default") -> WorkflowSerializationContext:
    return WorkflowSerializationContext(namespace=namespace, workflow_id=workflow_id)


def activity(workflow_id: str | None = "run-1", activity_id: str = "1") -> ActivitySerializationContext:
    return ActivitySerializationContext(
        namespace="default",
        activity_id=activity_id,
        activity_type="plan",
        activity_task_queue="baton",
        workflow_id=workflow_id,
        workflow_type="Delivery",
        is_local=False,
    )


def codec(context: SerializationContext | None = None, keys: Keyring = KEYS) -> EncryptionCodec:
    bound = EncryptionCodec(keys)
    return bound.with_context(context) if context else bound


def mutants(payload: Payload) -> list[Payload]:
    """Return every payload with one changed byte, and every truncated one."""
    data = payload.data
    flipped = [data[:n] + bytes([data[n] ^ 1]) + data[n + 1 :] for n in range(len(data))]
    return [
        Payload(metadata=payload.metadata, data=mutant) for mutant in (*flipped, *(data[:n] for n in range(len(data))))
    ]


class TestEncode:
    def test_data_and_metadata_are_encrypted(self) -> None:
        """Only the key's id is in clear."""
        secret = codec().encrypt(PLAIN)

        assert MARK not in secret.SerializeToString()
        assert secret.metadata == {"encoding": ENCODING, KEY_ID: KEYS.current(Purpose.ENCRYPT).id.encode()}

    @pytest.mark.parametrize(
        "payload",
        [
            pytest.param(Payload(), id="an empty one"),
            pytest.param(Payload(metadata={"encoding": b"binary/null"}), id="null"),
            pytest.param(Payload(metadata={"encoding": b"json/protobuf"}, data=b"{}"), id="protobuf"),
            pytest.param(PLAIN, id="JSON"),
        ],
    )
    async def test_payloads_of_every_kind_come_back_whole(self, payload: Payload) -> None:
        [secret] = await codec().encode([payload])

        assert secret.metadata["encoding"] == ENCODING
        assert await codec().decode([secret]) == [payload]

    @given(st.binary(max_size=200), st.text(max_size=40))
    def test_every_payload_round_trips_in_its_workflow(self, data: bytes, workflow_id: str) -> None:
        """For any payload and any workflow id."""
        payload = Payload(metadata={"encoding": b"binary/plain"}, data=data)

        assert codec(workflow(workflow_id)).decrypt(codec(workflow(workflow_id)).encrypt(payload)) == payload

    def test_equal_payloads_have_different_ciphertexts(self) -> None:
        """Each has its own nonce, so repetitions do not show."""
        ciphertexts = {codec().encrypt(PLAIN).data for _ in range(64)}

        assert len({data[1:13] for data in ciphertexts}) == 64

    def test_nothing_is_encrypted_twice(self) -> None:
        """An encrypted payload passes through."""
        once = codec().encrypt(PLAIN)

        assert codec().encrypt(once) is once

    def test_encrypting_without_a_key_is_an_error(self) -> None:
        """The payload is never stored in clear."""
        with pytest.raises(KeyringError, match="no current key to encrypt"):
            codec(keys=Keyring([])).encrypt(PLAIN)


class TestBinding:
    @pytest.mark.parametrize(
        ("there", "here"),
        [
            pytest.param(workflow(), workflow(), id="its own"),
            pytest.param(workflow(), activity(), id="an activity of its own"),
            pytest.param(activity(), workflow(), id="from an activity"),
            pytest.param(activity(activity_id="1"), activity(activity_id="2"), id="another activity of its own"),
            pytest.param(activity(None), activity(None), id="an activity without a workflow"),
            pytest.param(workflow("nightly"), workflow(NIGHTLY), id="the run of a schedule"),
            pytest.param(workflow(), workflow(namespace="ReplayNamespace"), id="replayed from a file"),
            pytest.param(None, workflow(), id="typed by a person, who knows no workflow"),
            pytest.param(workflow(), None, id="read by the codec server, which knows none"),
            pytest.param(NexusSerializationContext("e", "s", "o"), workflow(), id="from elsewhere"),
        ],
    )
    def test_a_payload_is_readable_in_its_context(
        self, there: SerializationContext | None, here: SerializationContext | None
    ) -> None:
        """Either side of the workflow can have written it."""
        assert codec(here).decrypt(codec(there).encrypt(PLAIN)) == PLAIN

    @pytest.mark.parametrize(
        ("there", "here"),
        [
            pytest.param(workflow("a"), workflow("b"), id="another workflow"),
            pytest.param(workflow("a"), workflow("ab"), id="one whose id begins alike"),
            pytest.param(workflow("a", "bc"), workflow("ab", "c"), id="names that join to the same text"),
            pytest.param(workflow("a", "one"), workflow("a", "two"), id="another namespace"),
            pytest.param(workflow("a"), activity("b"), id="an activity of another workflow"),
            pytest.param(activity(None, "run-1"), workflow("run-1"), id="an activity that is called alike"),
            pytest.param(workflow(NIGHTLY), workflow("nightly"), id="another than the schedule's run"),
            pytest.param(workflow(NIGHTLY), workflow("nightly-2026-11-22T10:00:00Z"), id="another night's"),
        ],
    )
    def test_a_payload_is_not_readable_in_another_context(
        self, there: SerializationContext, here: SerializationContext
    ) -> None:
        """An attacker with Temporal's store cannot move a payload to another run."""
        with pytest.raises(PayloadError, match="belongs to another workflow"):
            codec(here).decrypt(codec(there).encrypt(PLAIN))

    def test_the_binding_cannot_be_removed(self) -> None:
        """Changing the first byte does not unbind a payload."""
        secret = codec(workflow("a")).encrypt(PLAIN)
        forged = Payload(metadata=secret.metadata, data=b"\x00" + secret.data[17:])

        with pytest.raises(PayloadError, match="was changed"):
            codec(workflow("b")).decrypt(forged)


class TestDecode:
    @pytest.mark.parametrize("context", [None, workflow()], ids=["unbound", "bound"])
    def test_changed_or_truncated_payloads_are_refused(self, context: SerializationContext | None) -> None:
        """This covers format, binding, nonce, text and tag."""
        for mutant in mutants(codec(context).encrypt(PLAIN)):
            with pytest.raises(PayloadError):
                codec(context).decrypt(mutant)

    def test_a_newer_format_asks_for_an_upgrade(self) -> None:
        """It is not reported as damage."""
        with pytest.raises(NewerPayloadError, match="upgrade temporal-baton"):
            codec().decrypt(Payload(metadata={"encoding": ENCODING}, data=b"\x02" + bytes(40)))

    def test_the_key_id_cannot_be_changed(self) -> None:
        """The id is bound, even if two ids have the same secret."""
        key = KEYS.current(Purpose.ENCRYPT)
        twin = replace(key, id="twin", retired_at=AT)
        secret = codec().encrypt(PLAIN)
        relabelled = Payload(metadata={**secret.metadata, KEY_ID: b"twin"}, data=secret.data)

        with pytest.raises(PayloadError, match="was changed"):
            codec(keys=Keyring([key, twin])).decrypt(relabelled)

    def test_a_retired_key_still_decrypts(self) -> None:
        """Histories outlive keys; new payloads use the current key."""
        secret = codec().encrypt(PLAIN)
        old, new = replace(KEYS.current(Purpose.ENCRYPT), retired_at=AT), Key.generate(Purpose.ENCRYPT, AT)
        rotated = codec(keys=Keyring([old, new]))

        assert rotated.decrypt(secret) == PLAIN
        assert rotated.encrypt(PLAIN).metadata[KEY_ID] == new.id.encode()

    @pytest.mark.parametrize(
        "id",
        ["other", KEYS.current(Purpose.SEAL).id],
        ids=["unknown", "of another purpose"],
    )
    def test_the_error_for_a_missing_key_names_it(self, id: str) -> None:
        """It is not reported as damage, because the run must wait."""
        secret = codec().encrypt(PLAIN)
        foreign = Payload(metadata={**secret.metadata, KEY_ID: id.encode()}, data=secret.data)

        with pytest.raises(MissingKeyError, match=f"{id}.*resume when the key is added"):
            codec().decrypt(foreign)

    def test_a_restored_key_is_used_at_once(self, tmp_path: Path) -> None:
        """No restart is needed."""
        path = tmp_path / "keys.toml"
        old = replace(KEYS.current(Purpose.ENCRYPT), retired_at=AT)
        write_file(path, KeyFile((Key.generate(Purpose.ENCRYPT, AT),)), replace=True)
        waiting, secret = codec(keys=Keyring.from_file(path)), codec().encrypt(PLAIN)
        with pytest.raises(MissingKeyError):
            waiting.decrypt(secret)

        write_file(path, KeyFile((old, Key.generate(Purpose.ENCRYPT, AT))), replace=True)

        assert waiting.decrypt(secret) == PLAIN

    def test_unencrypted_payloads_are_readable(self) -> None:
        """Runs from before encryption continue."""
        assert codec().decrypt(PLAIN) is PLAIN
