"""Reading a run as its events arrive: on every recorded history."""

import dataclasses
import random
from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic_core import to_jsonable_python
from temporalio.api.history.v1 import HistoryEvent

from baton import Settled
from baton.client import Answer, RunRecord, RunStatus, StepStatus, Vote, rebuild
from baton.codec.conversion import data_converter
from baton.runs.client_events import DecodedEvent, decode, find_signal, split_at_tasks
from baton.runs.client_reader import RunReader, TaskNews
from tests.replay.record import HISTORIES
from tests.replay.test_histories import history

NAMES = sorted(file.stem for file in HISTORIES.glob("*.json"))


def members(run: RunRecord) -> dict[str, Any]:
    """Return all members of a record as plain data."""
    plain = {field.name: getattr(run, field.name) for field in dataclasses.fields(run)}
    state = {**vars(run.state), "rules": None}
    return {name: to_jsonable_python(value, fallback=repr) for name, value in {**plain, "state": state}.items()}


async def decoded(name: str) -> tuple[str, list[DecodedEvent]]:
    """Return a recorded run, decoded."""
    recorded = history(HISTORIES / f"{name}.json")
    return recorded.run_id, await decode(recorded.events, data_converter())


def fed(run_id: str, parts: list[list[DecodedEvent]]) -> tuple[RunReader, list[TaskNews]]:
    """Return a reader that was given the events in parts, and its news."""
    reader = RunReader("recorded", run_id)
    return reader, [news for part in parts for news in reader.feed(part)]


class TestRunReader:
    @pytest.mark.parametrize("name", NAMES)
    async def test_committed_record_and_news_are_the_same_however_the_events_are_divided(self, name: str) -> None:
        """At any ends of workflow tasks; and what was committed before is still so afterwards."""
        run_id, events = await decoded(name)
        at_once, news = fed(run_id, [events])
        tasks, tip = split_at_tasks(events)
        assert not tip
        chance = random.Random(name)
        for likelihood in (1.0, 0.5, 0.2):
            parts: list[list[DecodedEvent]] = [[]]
            for task in tasks:
                parts[-1] += task
                if chance.random() < likelihood:
                    parts.append([])
            reader, same_news = fed(run_id, parts)

            assert same_news == news
            assert members(reader.committed) == members(at_once.committed) == members(at_once.record)

    @pytest.mark.parametrize("name", NAMES)
    async def test_between_tasks_only_the_tip_differs(self, name: str) -> None:
        """The record knows the events after the last task; the committed record and the news do not."""
        run_id, events = await decoded(name)
        tasks, _ = split_at_tasks(events)
        reader, news = RunReader("recorded", run_id), list[TaskNews]()
        outcomes = 0
        for task in tasks:
            for index, event in enumerate(task):
                if event.event.HasField("workflow_task_completed_event_attributes"):
                    news += reader.feed(task[index:])
                    break
                news += reader.feed([event])
                if event is not task[-1]:
                    assert reader.record.last_event == event.event.event_id > reader.last_event
            committed = reader.committed
            assert (reader.last_event, committed.last_event) == (task[-1].event.event_id, task[-1].event.event_id)
            assert members(reader.record) == members(committed)
            assert len(committed.state.outcomes) >= outcomes
            outcomes = len(committed.state.outcomes)

        at_once, same_news = fed(run_id, [events])
        assert news == same_news
        assert members(reader.committed) == members(at_once.committed)

    async def test_a_record_does_not_change_when_more_events_arrive(self) -> None:
        """A follower keeps the records that it was given."""
        run_id, events = await decoded("handoffs-corrected")
        tasks, _ = split_at_tasks(events)
        reader = RunReader("recorded", run_id)
        kept: list[tuple[RunRecord, dict[str, Any]]] = []
        for task in tasks:
            reader.feed(task)
            kept += [(run, members(run)) for run in (reader.committed, reader.record)]

        assert all(members(run) == then for run, then in kept)

    async def test_an_event_that_the_server_never_stored_is_replaced(self) -> None:
        """The long poll shows a workflow task that is withdrawn, then another event with its number."""
        run_id, events = await decoded("linear")
        tasks, _ = split_at_tasks(events)
        reader = RunReader("recorded", run_id)
        news = reader.feed([event for task in tasks[:2] for event in task])
        last = tasks[1][-1].event
        withdrawn = HistoryEvent(event_id=last.event_id + 1, event_time=last.event_time)
        withdrawn.workflow_task_scheduled_event_attributes.attempt = 1
        further = HistoryEvent(event_id=last.event_id + 2, event_time=last.event_time)
        further.workflow_task_started_event_attributes.scheduled_event_id = last.event_id + 1

        assert reader.feed([DecodedEvent(withdrawn, None), DecodedEvent(further, None)]) == []
        assert reader.last_event == last.event_id
        news += reader.feed([event for task in tasks[2:] for event in task])
        at_once, same_news = fed(run_id, [events])
        assert news == same_news
        assert members(reader.record) == members(at_once.record)

    @pytest.mark.parametrize("name", ["linear", "handoffs-corrected", "streamed"])
    async def test_events_that_arrive_again_are_folded_once(self, name: str) -> None:
        """After a lost connection a follower reads from the start; no bill is counted twice."""
        run_id, events = await decoded(name)
        reader, news = RunReader("recorded", run_id), list[TaskNews]()
        for index, item in enumerate(events):
            if item.event.HasField("workflow_task_started_event_attributes"):
                news += reader.feed(events[: index + 1])
                news += reader.feed(events[: index + 1])
        news += reader.feed(events)

        at_once, same_news = fed(run_id, [events])
        assert news == same_news
        assert members(reader.record) == members(at_once.record)

    async def test_a_return_that_no_task_has_processed_is_no_news(self) -> None:
        """A later command of the task decides whether it counts; the record shows it at once."""
        recorded = history(HISTORIES / "linear.json")
        completed = next(
            index
            for index, event in enumerate(recorded.events)
            if event.HasField("activity_task_completed_event_attributes")
        )
        part = recorded.events[: completed + 1]
        reader = RunReader("recorded", recorded.run_id)
        news = reader.feed(await decode(part, data_converter()))

        assert [piece.kind.value for task in news for piece in task.news] == ["run_started", "step_started"]
        assert reader.committed.steps[0].status is StepStatus.RUNNING
        assert reader.record.steps[0].status is StepStatus.DONE
        assert reader.record.status is RunStatus.RUNNING
        rebuilt = await rebuild("recorded", recorded.run_id, part, data_converter())
        assert members(rebuilt) == members(reader.record)


def test_the_signal_that_decided_is_the_last_one_of_the_last_person() -> None:
    """Their earlier ones were replaced; a top-up is booked at the event that decided."""
    top_up = Answer(choice="top_up", who="ann", question="1:x", digest="d", data={"micro_usd": 5})
    others: Any = ({"data": {"micro_usd": 7}}, {"who": "bob"}, {}, {"who": "bob"}, {"question": "2:x"})
    signals = [*enumerate([top_up, *(top_up.model_copy(update=other) for other in others)], 10)]
    at = datetime.now(UTC)
    votes = [Vote(who=who, choice="top_up", at=at, via="signal") for who in ("bob", "ann")]
    settled = Settled(
        question="1:x", title="t", choice="top_up", who="bob, ann", at=at, digest="d", via="signal", votes=votes
    )
    assert find_signal(settled, signals) == 13
