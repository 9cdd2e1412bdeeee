"""Encrypted failures of a history, read by those who have the keys."""

import pytest
from temporalio.api.failure.v1 import Failure
from temporalio.api.history.v1 import HistoryEvent
from temporalio.converter import DataConverter
from temporalio.exceptions import ApplicationError

from baton.codec.conversion import data_converter
from baton.codec.encryption import MissingKeyError
from baton.keys.store_keyring import Keyring
from baton.runs.client_events import with_failures

KEYS = Keyring.generate()
SECRET = data_converter(keyring=KEYS, encrypt=True)


async def failed(converter: DataConverter) -> list[HistoryEvent]:
    """Return a history of an activity that failed twice, and of a workflow that did."""
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


class TestWithFailures:
    """`with_failures`."""

    async def test_messages_causes_and_traces_are_in_clear(self) -> None:
        """As they would be without encryption."""
        stored = await failed(SECRET)
        started, ended, other = await with_failures(stored, SECRET)

        for failure in (
            started.activity_task_started_event_attributes.last_failure,
            ended.workflow_execution_failed_event_attributes.failure,
        ):
            assert (failure.message, failure.cause.message) == ("hunter2", "the cause")
            assert "test_failures.py" in failure.stack_trace
            assert failure.application_failure_info.type == "Refused"
        assert other is stored[2]

    async def test_what_was_stored_stays_secret(self) -> None:
        """An export of the same history holds no more than before."""
        stored = await failed(SECRET)
        await with_failures(stored, SECRET)

        assert all(b"hunter2" not in event.SerializeToString() for event in stored)

    async def test_failures_in_clear_are_left_alone(self) -> None:
        """The very same events come back."""
        stored = await failed(data_converter())

        assert all(one is other for one, other in zip(stored, await with_failures(stored, SECRET), strict=True))

    async def test_without_the_key_it_says_which(self) -> None:
        """And shows no placeholder as if it were the message."""
        with pytest.raises(MissingKeyError, match=r"has no key 'encrypt-"):
            await with_failures(await failed(SECRET), data_converter(keyring=Keyring.generate()))
