"""How long a hostile input of the maximum accepted size can block workflow code or a receiver's checks."""

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from pydantic import ValidationError
from pydantic_core import to_json
from temporalio.api.common.v1 import Payload
from temporalio.exceptions import ApplicationError

from baton.codec.conversion import BatonPayloadConverter
from baton.core.baton import Baton
from baton.core.messages import PipelineInput, StageReturn
from baton.core.questions import Answer
from baton.core.receivers import ReceiverRequirements
from baton.core.state import PipelineState
from baton.errors import HandoffError, PatchError
from baton.exchange.records import Acknowledgement
from baton.exchange.workflow_streams import Chunk
from baton.handoff.store_gate import handoff_gate
from baton.handoff.store_signing import open_sealed, seal_json
from baton.handoff.validation import check_handoff
from baton.keys.store_keyring import Keyring
from baton.wire.json_values import loads_strict
from baton.wire.text import describe_faults
from benchmarks.compare import Effort
from benchmarks.report import Findings
from benchmarks.rig import Rig

PAYLOAD_BYTES = 2 * 1024 * 1024
"""Temporal's limit for one payload."""
MESSAGE_BYTES = 4 * 1024 * 1024
"""Baton's limit for one message."""
_AT = datetime(2026, 6, 1, tzinfo=UTC)


async def worst_checks(rig: Rig | None, effort: Effort) -> Findings:
    """Measure hostile records: `worst_workflow_task_ms` and `worst_gate_ms`, each the best of several runs."""
    rounds = 1 if effort.quick else 5
    findings = Findings("Hostile inputs", ("what", "input", "ms"))
    for name, cases in (("worst_workflow_task_ms", _workflow_cases()), ("worst_gate_ms", _gate_cases())):
        times = {what: min(_measure_ms(work) for _ in range(rounds)) for what, work in cases}
        slowest = sorted(times.items(), key=lambda item: -item[1])
        findings.rows.extend((name, what, f"{milliseconds:.1f}") for what, milliseconds in slowest[:8])
        findings.values[name] = slowest[0][1]
    return findings


def _measure_ms(work: Callable[[], object]) -> float:
    """Return the milliseconds of processor time for the work, including a rejection."""
    started = time.process_time()
    with suppress(PatchError, HandoffError, ApplicationError):
        try:
            work()
        except ValidationError as error:
            describe_faults(error)
    return (time.process_time() - started) * 1_000


def _hostile_values(size: int) -> Iterator[tuple[str, Any]]:
    """Yield JSON values of about ``size`` bytes by their content; some are within the bounds on counts."""
    for count, what in ((size, "full size"), (49_000 * 3, "49,000 values"), (9_900 * 3, "9,900 values")):
        yield f"empty objects, {what}", [{}] * (count // 3)
        yield f"empty lists, {what}", [[]] * (count // 3)
        yield f"numbers, {what}", [0] * (count // 3)
        yield f"texts, {what}", ["x"] * (count // 4)
        yield f"members, {what}", {f"{number:x}": {} for number in range(count // 10)}
        yield f"objects in objects, {what}", [{"a": {"b": {}}}] * (count // 18)
    yield "one text", "x" * size
    yield "long texts", ["x" * 1_000] * (size // 1_003)
    yield "artifacts", [{"id": f"a{n}", "type": "plan", "hash": "a3f8" * 16} for n in range(min(2_400, size // 110))]


def _workflow_cases() -> Iterator[tuple[str, Callable[[], object]]]:
    """Yield the work of workflow code on one input: decode it, and apply it."""
    converter = BatonPayloadConverter()

    def decode(record_type: type[Any], members: dict[str, Any]) -> Any:
        payload = Payload(metadata={"encoding": b"json/plain"}, data=to_json(members))
        return lambda: converter.from_payloads([payload], [record_type])[0]

    def apply(decoded: Callable[[], Any]) -> Callable[[], object]:
        return lambda: PipelineState(Baton(goal="Add login")).record_stage(decoded(), _AT)

    for what, value in _hostile_values(PAYLOAD_BYTES - 200):
        for name in ("artifacts", "decision_log", "constraints", "nobody"):
            patch = {"stage": "plan", "seq": 1, "baton_patch": {name: value}}
            yield f"a patch, {name}: {what}", apply(decode(StageReturn, patch))
            start = decode(PipelineInput, {"goal": "Add login", "baton": {name: value}})
            yield f"a baton at start, {name}: {what}", lambda start=start: start().first_baton()  # type: ignore[misc]
        yield f"params: {what}", decode(PipelineInput, {"goal": "Add login", "params": {"input": value}})
        yield f"an output: {what}", apply(decode(StageReturn, {"stage": "plan", "seq": 1, "output": value}))
        yield f"turns: {what}", decode(StageReturn, {"stage": "plan", "seq": 1, "turns": value})
        members = value if isinstance(value, dict) else {"who": value}
        yield f"an answer: {what}", decode(Answer, members)
        for kind in (Acknowledgement, Chunk):
            message = dict.fromkeys(("findings", "content"), value)
            text = to_json(message)
            yield f"{kind.__name__}: {what}", lambda kind=kind, text=text: kind.from_json(text)  # type: ignore[misc]


def _gate_cases() -> Iterator[tuple[str, Callable[[], object]]]:
    """Yield the work of a receiver on one message: verify the seal, parse it, check the schema; without the scan."""
    keyring, receiver, schema = Keyring.generate(), ReceiverRequirements("risk", "1.0.0"), handoff_gate()

    def judge(raw: bytes) -> Callable[[], object]:
        return lambda: check_handoff(
            open_sealed(raw, keyring).message, receiver, lambda message: [], check_schema=schema
        )

    for what, value in _hostile_values(MESSAGE_BYTES - 300):
        for name in ("completedSubtasks", "currentState", "receiverList", "unknown"):
            message = to_json({name: value})
            with suppress(HandoffError):
                yield f"{name}: {what}", judge(seal_json(message, keyring))
            yield f"{name}, not sealed: {what}", judge(message)
            yield f"{name}, read: {what}", lambda message=message: loads_strict(message)  # type: ignore[misc]
