"""Makes cases of recorded runs, from the event history: what was given, what it came to, and the tool calls.

What a pipeline came to in the lab is read from its history in the same way.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pydantic import JsonValue
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from baton.artifacts.store import ArtifactStore
from baton.core.history import Spend, StepKind
from baton.core.lab import STAGE_CALL, LabPath, RecordedCall, work_digest
from baton.core.questions import BY_DEADLINE, Settled
from baton.errors import BatonError, LabEndedError
from baton.lab.records import Case, Cohort, Judging, LabError, Outcome, Source, Terms
from baton.runs.client_attempts import StageAttempt
from baton.runs.client_calls import read_calls
from baton.runs.client_executions import history
from baton.runs.client_fork import forked_input
from baton.runs.client_reader import rebuild
from baton.runs.client_record import RunRecord
from baton.wire.text import quantity

_MAX_CHAIN = 100  # runs that continued as new
_MIN_TIMEOUT, _PATIENCE = 600.0, 10.0  # of a pipeline in the lab: seconds, and so many times what its stages took
_ENDED = f"{LabEndedError.__name__}: "

_Try = tuple[StageAttempt, Terms]


async def read_cases(
    client: Client, workflow_id: str, stage: str | None = None, *, run_id: str | None = None, store: ArtifactStore
) -> list[Case]:
    """Return a case for each stage of a run that asked a model, for the stage that is named, or for several in a row.

    Args:
        client: A connected client.
        workflow_id: The run's workflow.
        stage: The stage's name, its step's name or number; `FIRST..LAST` for one case of several steps, where either
            may be left out.
        run_id: The run; the newest by default.
        store: The workers' artifact store, which has long results of tools.

    Raises:
        HistoryError: The workflow is not a pipeline.
        LabError: The run has no such stage, or its stages asked no model.
    """
    record, queue, tries = await _read(client, workflow_id, run_id)
    if stage is not None and ".." in stage:
        return [await _make_path(record, queue, tries, stage, store)]
    steps: dict[tuple[int, str], list[_Try]] = {}
    for attempt, terms in tries:
        steps.setdefault((attempt.sent.seq, attempt.sent.title), []).append((attempt, terms))
    chosen = [tried for tried in steps.values() if _is_chosen([attempt for attempt, _ in tried], stage)]
    if not chosen:
        names = ", ".join(dict.fromkeys(title for _, title in steps)) or "none"
        what = f"no stage {stage!r} that ended" if stage else "no stage that asked a model; name one (`--stage`)"
        raise LabError(f"run {workflow_id!r} has {what}; its stages: {names}")
    cases = [await _make_case(record, tried, stage, store) for tried in chosen]
    return Cohort(name="cases").with_cases(cases).cases


async def make_cohort(
    client: Client,
    name: str,
    runs: Iterable[tuple[str, str | None]],
    stage: str | None,
    judging: Judging,
    store: ArtifactStore,
) -> tuple[Cohort, list[str]]:
    """Return the cohort of some runs, by workflow and run, and why others have no such case or cannot be read.

    Raises:
        LabError: None has.
        temporalio.service.RPCError: The server does not answer.
    """
    cohort, skipped = Cohort(name=name, judging=judging), list[str]()
    for workflow_id, run_id in runs:
        try:
            cohort = cohort.with_cases(await read_cases(client, workflow_id, stage, run_id=run_id, store=store))
        except (BatonError, RPCError) as error:
            if isinstance(error, RPCError) and error.status is not RPCStatusCode.NOT_FOUND:
                raise
            skipped.append(f"{workflow_id}: {error}")
    if not cohort.cases:
        raise LabError(f"none of {quantity(len(skipped), 'run')} has such a stage. {skipped[0] if skipped else ''}")
    return cohort, skipped


async def read_outcome(client: Client, workflow_id: str, case: Case) -> Outcome:
    """Return what the pipeline of a case of several stages came to in the lab."""
    record, _, tries = await _read(client, workflow_id)
    return _path_outcome(record, [attempt for attempt, _ in tries], case.source.seq, case.path.partition("..")[2])


async def _read(client: Client, workflow_id: str, run_id: str | None = None) -> tuple[RunRecord, str, list[_Try]]:
    """Return a run, its task queue, and the attempts of its stages that ended, of the whole chain."""
    run_id, events = await history(client, workflow_id, run_id)
    newest = record = await rebuild(workflow_id, run_id, events, client.data_converter)
    queue, tries = events[0].workflow_execution_started_event_attributes.task_queue.name, list[_Try]()
    for _ in range(_MAX_CHAIN):
        ended = {event: attempt for event, attempt in record.attempts.items() if attempt.ended}
        tries = [*((ended[event.event_id], _terms(event)) for event in events if event.event_id in ended), *tries]
        if record.previous_run_id is None:
            break
        run_id, events = await history(client, workflow_id, record.previous_run_id)
        record = await rebuild(workflow_id, run_id, events, client.data_converter)
    return newest, queue, tries


def _source(record: RunRecord) -> Source:
    members: dict[str, Any] = {"workflow_id": record.workflow_id, "run_id": record.run_id}
    return Source(**members, pipeline=record.pipeline, seq=1, at=record.read_at, task_id=record.task_id or "")


def _seq(answer: Settled) -> int:
    return int(answer.question.partition(":")[0])


def _approved(record: RunRecord, after: int) -> bool | None:
    """Return how people decided the first approval after a step."""
    people = [one for one in record.answers if one.handoff_id is None and one.via != BY_DEADLINE and _seq(one) > after]
    return people[0].approved if people else None


def _personal_data(
    sealed: Mapping[str, JsonValue], attempts: Sequence[StageAttempt]
) -> tuple[dict[str, JsonValue], list[str]]:
    """Return what a case keeps of personal data, sealed, and what it drops: where a stage keeps no transcript, all."""
    kept = any(attempt.sent.personal_data and attempt.returned and attempt.returned.journal for attempt in attempts)
    if kept or not sealed:
        return dict(sealed), []
    return {}, ["personal data, because its stage keeps no transcript"]


async def _make_path(record: RunRecord, queue: str, tries: Sequence[_Try], path: str, store: ArtifactStore) -> Case:
    """Return the case of a run from a step to another."""
    first, _, last = path.partition("..")
    if record.ended is None or not record.steps:
        raise LabError(f"run {record.workflow_id!r} has not ended, or has no step: nobody knows what it comes to")
    begin, end = (record.step(first) if first else record.steps[0]), record.step(last).name if last else ""
    start = forked_input(record, begin, patch=None, by="", why="")
    settled = [answer for answer in record.answers if _seq(answer) >= begin.seq]
    handoffs: Any = start.carried.get("handoffs", {})
    carried = {"handoffs": {**handoffs, "relay": None}, "contracts": start.carried.get("contracts", {})}
    attempts = [attempt for attempt, _ in tries if attempt.sent.seq >= begin.seq]
    personal, dropped = _personal_data(start.personal_data, attempts)
    own: dict[str, Any] = {
        **dict.fromkeys(("task_id", "origin", "traceparent", "follows", "parent_handoff", "priority", "fairness_key")),
        **{"personal_data": personal, "lab": LabPath(settled=settled, last=end or None)},
        "carried": {name: state for name, state in carried.items() if start.carried.get(name)},
    }
    recorded = _path_outcome(record, attempts, begin.seq, end)
    calls, answers = list[RecordedCall](), dict[tuple[int, str, str], RecordedCall]()
    for attempt in attempts:
        given, returned = attempt.sent, attempt.returned
        if returned is None:
            continue
        found = await read_calls([returned], store, dropped)
        calls += [call.model_copy(update={"stage": given.stage}) for call in found]
        if not attempt.findings:  # of the same work the last one: the pipeline may have refused the others
            work = work_digest(given.baton, given.params, given.inputs)
            result: JsonValue = {"baton_patch": returned.baton_patch, "output": returned.output}
            answer = RecordedCall(tool=STAGE_CALL, arguments=work, result=result, stage=given.stage)
            answers[given.seq, given.title, work] = answer
    return Case(
        id=record.workflow_id[:200],
        source=_source(record).model_copy(update={"seq": begin.seq, "at": begin.began or record.read_at}),
        stage=record.pipeline,
        given=start.model_copy(update=own).to_json_object(),
        terms=Terms.nearest(queue, timeout=_MIN_TIMEOUT + _PATIENCE * recorded.milliseconds / 1000),
        recorded=recorded,
        tool_calls=[*calls, *answers.values()],
        dropped=[*dict.fromkeys(dropped)],
        approved=_approved(record, begin.seq - 1),
        path=f"{begin.name}..{end}",
    )


def _path_outcome(record: RunRecord, attempts: Sequence[StageAttempt], first: int, last: str) -> Outcome:
    """Return what a run came to from a step on, until the first one of a name."""
    steps = [step for step in record.state.outcomes if step.seq >= first and step.kind is not StepKind.EDIT]
    end = next((step for step in steps if step.name == last and step.failure is None), None) if last else None
    attempts = [attempt for attempt in attempts if first <= attempt.sent.seq <= (end or attempt.sent).seq]
    steps = [step for step in steps if end is None or step.order <= end.order]
    changes = [entry.effective.get("decision_log") for step in steps for entry in step.entries]
    decided = [text for texts in changes if isinstance(texts, list) for text in texts]
    reports = [(f"{one.sent.title}, step {one.sent.seq}", one.lab) for one in attempts if one.lab]
    is_done = end is not None if last else record.result is not None
    why = (record.failure or record.suspended or f"it ended without the step {last!r}").removeprefix(_ENDED)
    return _outcome(
        attempts,
        baton_patch={"decision_log": decided} if decided else {},
        output=end.value if end else record.result.output if record.result else None,
        failure="" if is_done else why,
        calls=[call for _, report in reports for call in report.calls],
        prompts={step: report.prompt for step, report in reports if report.prompt},
    )


def _outcome(attempts: Sequence[StageAttempt], **members: Any) -> Outcome:
    return Outcome(
        spend=sum((attempt.spend for attempt in attempts), start=Spend()),
        milliseconds=round(1000 * sum(attempt.seconds for attempt in attempts)),
        attempts=max(len(attempts), 1),
        findings=[finding for attempt in attempts for finding in attempt.findings],
        **members,
    )


def _is_chosen(tried: Sequence[StageAttempt], stage: str | None) -> bool:
    given = tried[0].sent
    return stage in (given.stage, given.title, str(given.seq)) if stage else any(map(_asks_model, tried))


def _asks_model(attempt: StageAttempt) -> bool:
    returned = attempt.returned
    return bool(attempt.spend.prompt_tokens or (returned and (returned.prompt or returned.tokens_read)))


async def _make_case(record: RunRecord, tries: Sequence[_Try], stage: str | None, store: ArtifactStore) -> Case:
    tried = [attempt for attempt, _ in tries]
    first, last = tried[0], tried[-1]
    verdict = last.returned.verdict if last.returned else None
    personal, dropped = _personal_data(first.sent.personal_data, tried)
    own: dict[str, Any] = {"personal_data": personal, "findings": [], "attempt": 1, "stream": False, "handoff_id": ""}
    given = first.sent.model_copy(update=own)
    calls = await read_calls([attempt.returned for attempt in tried if attempt.returned], store, dropped)
    return Case(
        id=record.workflow_id[:200] if stage else f"{record.workflow_id}.{given.title}"[-200:],
        source=_source(record).model_copy(update={"seq": given.seq, "at": first.began or first.scheduled}),
        stage=given.stage,
        given=given.to_json_object(),
        terms=tries[0][1],
        recorded=_outcome(
            tried,
            baton_patch=last.returned.baton_patch if last.returned else {},
            output=last.returned.output if last.returned else None,
            refused="" if verdict is None else str(verdict.reason),
            failure=last.failure,
        ),
        tool_calls=calls,
        dropped=dropped,
        approved=_approved(record, given.seq),
    )


def _terms(scheduled: HistoryEvent) -> Terms:
    """Return how a stage was scheduled."""
    attributes = scheduled.activity_task_scheduled_event_attributes
    retries = attributes.retry_policy
    return Terms.nearest(
        attributes.task_queue.name,
        timeout=attributes.start_to_close_timeout.ToTimedelta().total_seconds(),
        heartbeat=attributes.heartbeat_timeout.ToTimedelta().total_seconds(),
        tries=retries.maximum_attempts,
        first=retries.initial_interval.ToTimedelta().total_seconds(),
        factor=retries.backoff_coefficient,
        longest=retries.maximum_interval.ToTimedelta().total_seconds(),
    )
