"""A workflow that calls every function of the protocol, and one that does what the sandbox forbids.

`baton` is imported here like any other module: a worker that does not pass it through loads it anew inside the
sandbox, where the guard stands on every clock, random number, setting and file it might reach for.
"""

import contextlib
import doctest
import importlib
import io
import os
import pkgutil
import random
import time
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from temporalio import workflow
from temporalio.worker.workflow_sandbox import RestrictedWorkflowAccessError

import baton
from baton import (
    ArtifactRef,
    Baton,
    BatonPatch,
    Budget,
    HandoffTerms,
    MergeStrategy,
    Outcome,
    PatchRules,
    PipelineResult,
    Settled,
    Spend,
    StepKind,
    apply_patch,
    estimate_tokens,
    fence,
    merge_patch,
    render,
    snapshots,
)
from baton.artifacts.activity import select_artifacts
from baton.contract.compiler import compile_contract
from baton.contract.draft import ContractRequest, render_contract
from baton.contract.records import EventType, SessionEvent, verdict_log_fields
from baton.contract.validation import validate_contract
from baton.core.baton import AnyBaton
from baton.core.history import apply_change
from baton.core.messages import PipelineInput, StageInput, StageReturn
from baton.core.patching import difference, patch_effect, same_json, undeclared_writes, unknown_decisions, without_echo
from baton.core.stages import StageSpec, field_set
from baton.core.state import PipelineState, merge_branches
from baton.core.verdict import Code, Finding
from baton.errors import PatchError
from baton.handoff.relay import Relay, hop_of
from baton.safety.scan import unsafe_digests
from baton.wire import names
from baton.wire.json_values import digest
from baton.wire.text import single_line

ROOMS = (
    *("artifacts", "budget", "compression", "contract", "core", "exchange", "handoff", "ledger", "personal"),
    *("report", "safety", "wire"),
)
SIDES = ("workflow", "activity", "store", "client", "cli")
MODULES = sorted(
    f"baton.{room}.{module_info.name}"
    for room in ROOMS
    for module_info in pkgutil.iter_modules([f"{baton.__path__[0]}/{room}"])
    if module_info.name.partition("_")[0] not in SIDES
)
"""Every plain module: the records and rules that workflow code may call."""
for _module in MODULES:  # now, for the sandbox forbids it once the workflow runs
    importlib.import_module(_module)

AT = datetime(2026, 11, 21, 8, 30, tzinfo=UTC)
PLAN = ArtifactRef(id="plan", type="plan", hash="0" * 64, path="src/plan.md")
BATON = Baton(
    goal="Add login",
    current_state=["Planned", "Naïve\n## idea", "x" * 9_000],
    decision_log=[f"Decision {number}" for number in range(30)],
    artifacts=[PLAN],
    work_scope=["src/*"],
)


def refused_findings() -> list[str]:
    """Return the findings for a patch with many faults."""
    try:
        apply_patch(BATON, {"goal": None, "desicion_log": [], "constraints": "x"}, PatchRules(frozenset({"goal"})))
    except PatchError as error:
        return error.findings
    return []


def run_pipeline() -> dict[str, Any]:
    """Return the end of a pipeline with every kind of step, and of a resumed one."""
    state = PipelineState(
        PipelineInput(goal="Add login").first_baton(), PatchRules(protected=frozenset({"constraints"}))
    )
    plan_result = StageReturn(stage="plan", seq=1, baton_patch={"decision_log": ["a"]}, spend=Spend(micro_usd=5))
    test_result = StageReturn(stage="test", seq=2, baton_patch={"work_scope": ["src"], "decision_log": ["b"]})
    state.record_stage(plan_result, AT, base=state.initial)
    state.record_fan_out(2, "plan+test", [plan_result, test_result], AT)
    state.record_decision(
        3, Settled(title="x", question="3:x", choice="approve", who="ann", at=AT, digest="d", via="update")
    )
    result = PipelineResult(task_id="t", baton={"goal": "x"}, steps=1)
    state.record_child(4, "child", result, {"decision_log": ["c"]}, AT)
    state.record_edit({"open_questions": ["Why?"]}, AT, "ann", "because")
    state.record_failure(5, "late", StepKind.STAGE, "it broke")
    resumed = PipelineState(result.final_baton())
    resumed.restore(Outcome.model_validate_json(state.outcomes[0].model_dump_json()))
    return {
        "baton": state.baton.to_json_object(),
        "outcomes": [outcome.model_dump(mode="json") for outcome in state.outcomes],
        "snapshots": [baton.digest for _, baton in snapshots(state.initial, state.entries)],
        "known": dict(state.stage_rules().known_artifacts),
        "other": resumed.baton.digest,
    }


def relay_twice() -> dict[str, Any]:
    """Return the second handoff of a pipeline, and the digests for a person's release."""
    task, first, second = (f"7c9e6679-7425-40de-944b-e07fc1f90ae{number}" for number in range(3))
    relay = Relay("Delivery", task, first, HandoffTerms(constraints=("returnJSON:true",)))
    plan, test = StageSpec("plan"), StageSpec("test")
    relay.complete_stage(plan, StageReturn(stage="plan", seq=1, baton_patch={"decision_log": ["Use JWT"]}), first, AT)
    stage_input = StageInput(stage="test", seq=2, task_id=task, baton=BATON.to_json_object())
    cost = Budget(initial_micro_usd=400_000).cost_tracking()
    message = relay.message(test, stage_input, cost, handoff_id=second, now=AT).to_json_object()
    finding = Finding(code=Code.SAFETY_VIOLATION, text="Injection", at="/currentState/decision_log/3")
    hop = hop_of("plan", "test", message["currentState"], [])
    return {"message": message, "released": unsafe_digests(message, [finding]), "hop": hop.to_json_object()}


def compile_and_validate() -> dict[str, Any]:
    """Return the contract of a session with every type of event, its verdict, and the verdict on junk."""
    events = [
        SessionEvent(id=f"e{number}", type=kind, timestamp=AT, content="Naïve\n## idea", tool_name="t", success=True)
        for number, kind in enumerate(EventType)
    ]
    tools = frozenset({"t"})
    request = ContractRequest("h", "Reviewer", "Review it.", "t-1", AT, tools, granted=tools, max_tokens=200)
    compiled = compile_contract(events, request)
    verdict = validate_contract(compiled.contract, now=AT, report=compiled.report, events=events, max_tokens=200)
    return {
        "contract": compiled.contract.to_json_object(),
        "report": compiled.report.model_dump(mode="json"),
        "prompt": render_contract(compiled.contract),
        "verdict": dict(verdict_log_fields(verdict)),
        "junk": validate_contract({"facts": [{}]}, now=AT).model_dump(mode="json"),
    }


PROBES: dict[str, Callable[[], Any]] = {
    "apply_patch": lambda: apply_patch(BATON, BatonPatch(constraints=["No new service"])).to_json_object(),
    "apply_patch, refused": refused_findings,
    "patch_effect": lambda: patch_effect(BATON, {"decision_log": ["Decision 29", "New"], "goal": "Other"}).change,
    "unknown_decisions": lambda: unknown_decisions(["a"], ["a", "b"]),
    "without_echo": lambda: without_echo(["a"], {"decision_log": ["a", "b"]}),
    "undeclared_writes": lambda: undeclared_writes({"goal": "x"}, frozenset({"work_scope", "artifacts"})),
    "merge_patch": lambda: merge_patch({"a": {"b": 1}}, {"a": {"b": None, "c": [1]}}),
    "difference": lambda: difference({"a": {"b": 1}, "z": 1}, {"a": {"c": 1}, "y": 1}),
    "same_json": lambda: same_json({"a": [1]}, {"a": [True]}),
    "merge_branches": lambda: merge_branches(
        [("a", {"x": [1, 2]}), ("b", {"x": [2, 3], "y": 1})], {"x": MergeStrategy.UNION}
    )[0],
    "digest": lambda: [digest({"b": 1.5, "a": "é"}), BATON.digest],
    "render": lambda: [render(BATON), render(BATON, max_tokens=128, earlier_decisions=5), render(AnyBaton(goal="g"))],
    "fence": lambda: fence(render(BATON) + "[END OF CONTEXT FROM PREVIOUS AGENT]", "f00d"),
    "single_line": lambda: single_line("a\u2028b\u202e"),
    "select_artifacts": lambda: [
        verdict.model_dump(mode="json") for verdict in select_artifacts([PLAN], BATON.work_scope, 9, {"plan": 5})
    ],
    "snapshots": lambda: run_pipeline()["snapshots"],
    "apply_change": lambda: apply_change(BATON, {"current_state": []}).to_json_object(),
    "field_set": lambda: sorted(field_set(["goal"], Baton, "reads") or ()),
    "estimate_tokens": lambda: estimate_tokens("日本語 and English"),
    "PipelineState": run_pipeline,
    "compile_contract": compile_and_validate,
    "Relay": relay_twice,
    "StageSpec": lambda: StageSpec("review", reads=frozenset({"decision_log"})).restrict(BATON)[0].to_json_object(),
}
"""A call of every function of the protocol; what it returns is JSON and the same on every call."""

FORBIDDEN: dict[str, Callable[[], Any]] = {
    "a random id": lambda: str(uuid.uuid4()),
    "the time of day": lambda: str(datetime.now(UTC)),
    "seconds since the epoch": lambda: time.time(),
    "a stop watch": lambda: time.monotonic(),
    "a random number": lambda: random.random(),
    "the environment": lambda: os.environ.get("PATH"),
    "random bytes": lambda: os.urandom(4).hex(),
    "a file": lambda: open(__file__, encoding="utf-8").read(1),  # noqa: SIM115 - the mistake itself
}
"""What no function of the protocol does."""


@workflow.defn
class Probing:
    """Calls functions of the protocol inside the sandbox."""

    @workflow.run
    async def run(self, selected: list[str]) -> dict[str, Any]:
        """Return what each function answered, and a name as this copy of the protocol has it."""
        return {"ANSWER": names.ANSWER, **{name: PROBES[name]() for name in selected}}


@workflow.defn
class Trespassing:
    """Does what the sandbox forbids."""

    @workflow.run
    async def run(self, selected: list[str]) -> list[str]:
        return [name for name in selected if _is_stopped(FORBIDDEN[name])]


def _is_stopped(call: Callable[[], Any]) -> bool:
    try:
        call()
    except RestrictedWorkflowAccessError:
        return True
    return False


def examples(module: str) -> list[str]:
    """Run the examples in a module's docstrings; return the names of what they are about, failed ones marked.

    What `doctest` runs them with reaches for a debugger, which the sandbox stops; so they are run by hand.
    """
    results: list[str] = []
    for test in doctest.DocTestFinder(exclude_empty=True).find(importlib.import_module(module)):
        if test.examples:
            failed = [example.source for example in test.examples if not _matches(example, test.globs)]
            results.append(f"{test.name}: FAILED at {failed[0]}" if failed else test.name)
    return results


def _matches(example: doctest.Example, names: dict[str, Any]) -> bool:
    """Return whether an example gives the output in its docstring."""
    output = io.StringIO()
    try:
        with contextlib.redirect_stdout(output):
            exec(compile(example.source, "<example>", "single"), names)
    except Exception as error:
        if isinstance(error, RestrictedWorkflowAccessError) or example.exc_msg is None:
            return False
        return type(error).__name__ == example.exc_msg.partition(":")[0].rpartition(".")[2]
    return doctest.OutputChecker().check_output(example.want, output.getvalue(), 0)


@workflow.defn
class Exemplifying:
    """Runs the examples of modules in one sandbox: loading the protocol takes longer than running them."""

    @workflow.run
    async def run(self, modules: list[str]) -> dict[str, list[str]]:
        """Return what `examples` returns for each, each in a separate task, so that none takes too long."""
        results = {}
        for module in modules:
            results[module] = examples(module)
            await workflow.sleep(0.001)
        return results
