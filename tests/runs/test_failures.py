"""Encrypted failures in a history, decoded with the keys."""

import pytest
from temporalio.api.failure.v1 import Failure
from temporalio.api.history.v1 import HistoryEvent
from temporalio.converter import DataConverter
from temporalio.exceptions import ApplicationError

from baton.codec.conversion import data_converter
from baton.codec.encryption import MissingKeyError
from baton.keys.store_keyring import Keyring
from baton.runs.client_events import decode_failures

KEYS = Keyring.generate()
SECRET = data_converter(keyring=KEYS, encrypt=True)


async def failed_history(converter: DataConverter) -> list[HistoryEvent]:
    """Return a history of an activity that failed twice, and of a failed workflow."""
    failure = Failure()
    try:
        raise ApplicationError("hunter2", type="Refused") from ValueError("the cause")
    except ApplicationError as error:
        await converter.encode_failure(error, failure)
    history = [HistoryEvent(event_id=number) for number in (1, 2, 3)]
    history[0].activity_task_started_event_attributes.last_failure.CopyFrom(failure)
    history[1].workflow_execution_failed_event_attributes.failure.CopyFrom(failure)
    history[2].workflow_task_scheduled_event_attributes.attempt = 1
    return history


class TestDecodeFailures:
    """`decode_failures`."""

    async def test_messages_causes_and_traces_are_decoded(self) -> None:
        """As they would be without encryption."""
        stored = await failed_history(SECRET)
        started, ended, other = await decode_failures(stored, SECRET)

        for failure in (
            started.activity_task_started_event_attributes.last_failure,
            ended.workflow_execution_failed_event_attributes.failure,
        ):
            assert (failure.message, failure.cause.message) == ("hunter2", "the cause")
            assert "test_failures.py" in failure.stack_trace
            assert failure.application_failure_info.type == "Refused"
        assert other is stored[2]

    async def test_the_original_events_stay_encrypted(self) -> None:
        """An export of the same history has no secret."""
        stored = await failed_history(SECRET)
        await decode_failures(stored, SECRET)

        assert all(b"hunter2" not in event.SerializeToString() for event in stored)

    async def test_unencrypted_events_are_returned_as_they_are(self) -> None:
        """The same objects come back."""
        stored = await failed_history(data_converter())

        assert all(
            decoded is original for decoded, original in zip(stored, await decode_failures(stored, SECRET), strict=True)
        )

    async def test_a_missing_key_is_named(self) -> None:
        """No placeholder is shown as the message."""
        with pytest.raises(MissingKeyError, match=r"has no key 'encrypt-"):
            await decode_failures(await failed_history(SECRET), data_converter(keyring=Keyring.generate()))
