"""`Outside`: attached to an exchange, it hands the task to agents that come and fetch their work.

The handoff waits in the workflow. The service of `baton.exchange.client_http`, or a program with
`baton.exchange.client_external`, lists it by a query and brings the agent's moves as sealed updates.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from pydantic import JsonValue, ValidationError
from temporalio import workflow
from temporalio.exceptions import ActivityError, ApplicationError

from baton.contract.validation import expiry_findings
from baton.core.messages import PipelineStatus, StageInput, StageReturn
from baton.core.patching import patch_effect
from baton.core.stages import StageSpec, step
from baton.core.verdict import HandoffStatus
from baton.errors import PatchError, StageFailedError
from baton.exchange.external import (
    ENDS,
    MOVE,
    QUERY_DONE,
    QUERY_MESSAGE,
    QUERY_OUTSIDE,
    ActionKind,
    AgentAction,
    ExternalHandoffs,
    OutsideHandoff,
    OutsideResult,
    outside_address,
)
from baton.exchange.records import Opened
from baton.exchange.workflow import Exchange
from baton.exchange.workflow_messages import LARGEST_MESSAGE, Receiver, open_message, raw_of
from baton.handoff.records import Handoff
from baton.handoff.sealed import SealedAction
from baton.handoff.workflow_attempt import OutgoingHandoff
from baton.telemetry.metrics import LATENCY, Transport, slo_breach
from baton.wire.json_values import Json, loads_strict

_NO_KEYS = "the worker has no keys to verify a move with; start it with BatonPlugin(safeguards=…)"


@dataclass
class _Waiting:
    """A handoff that waits: its message, and how to make the next one."""

    message: Handoff
    make: Callable[[int], Handoff]
    attempt: int = 1
    answered: bool = False

    def has_expired_contract(self, now: datetime) -> bool:
        """Return whether its contract has expired; without one it has not."""
        contract = (self.message.step or {}).get("contract")
        return isinstance(contract, Mapping) and bool(expiry_findings(contract, now))

    def again(self) -> Handoff:
        """Return the message made again, as another attempt."""
        self.message = self.make(self.attempt + 1)
        self.attempt += 1
        self.answered = False
        return self.message


class Outside:
    """A pipeline's handoffs to agents outside."""

    def __init__(self, exchange: Exchange) -> None:
        """Attach to an exchange, in the workflow's `__init__`."""
        self._exchange = exchange
        self._calls = exchange._calls
        self._open = ExternalHandoffs(exchange.pipeline.carried("outside"))
        exchange.pipeline.carries["outside"] = self._open.carried
        self._waiting: dict[str, _Waiting] = {}
        self._moving = 0
        workflow.set_query_handler(QUERY_OUTSIDE, self._on_list)
        workflow.set_query_handler(QUERY_DONE, self._on_done)
        workflow.set_query_handler(QUERY_MESSAGE, self._on_message)
        workflow.set_update_handler(MOVE, self._on_move, validator=self._validate)

    @step
    async def hand_off(
        self,
        agent: str,
        description: str,
        *,
        within: timedelta,
        version: str = "*",
        constraints: Sequence[str] = (),
        state: Mapping[str, Json] | None = None,
        tools: Iterable[str] = (),
    ) -> OutsideResult:
        """Hand the task to an agent outside, and wait for what it returns.

        A patch that it returns is checked by this pipeline's rules before it is taken, so that the agent can
        correct it, and is applied like that of a stage. In a pipeline with contracts it gets one, as stages do;
        one that expires before it is accepted is compiled again when an agent claims the handoff.

        Args:
            agent: The agent's name, by which its token knows it.
            description: What it is to do.
            within: How long it may take altogether.
            version: Which of its versions will do.
            constraints: Rules of the form `key:value`.
            state: What it is handed; the baton by default.
            tools: The tools that it has; its contract may allow some of them.

        Returns:
            Its answer, with the patch or the report. A refusal is not an exception.

        Raises:
            StageFailedError: Nothing came back in time; or no valid contract can be made, or the registry has no
                such agent, and nothing was handed on.
        """
        name = f"hand off to {agent} outside"[:200]

        async def act(seq: int) -> StageReturn:
            to = Receiver(outside_address(agent), agent, version)
            spec = StageSpec(agent, version=version, task=description, tools=frozenset(tools))
            id, until = str(workflow.uuid4()), workflow.now() + within

            def make(attempt: int) -> Handoff:
                step, left = self._contract(spec, seq, id), until - workflow.now()
                return self._exchange.outgoing.message(
                    to, description, constraints, state, left, named=(id, attempt), step=step
                )

            result = await self._wait(_Waiting(make(1), make), agent, within, name)
            output = result.model_dump(mode="json")
            return StageReturn(stage=name, seq=seq, baton_patch=result.patch, output=output)

        return OutsideResult.model_validate(await self._exchange.step(name, act), strict=False)

    def _contract(self, spec: StageSpec, seq: int, id: str) -> dict[str, JsonValue]:
        """Return the contract of this moment that goes with a handoff, in a pipeline with contracts."""
        pipeline = self._exchange.pipeline
        baton = pipeline.state.baton.to_json_object()
        given = StageInput(stage=spec.name, seq=seq, task_id=pipeline.task_id, baton=baton)
        contract = pipeline._handoffs.with_contract(OutgoingHandoff(spec, given, id), given, kept=False).contract
        return {} if contract is None else {"contract": contract}

    async def _wait(self, waiting: _Waiting, agent: str, within: timedelta, name: str) -> OutsideResult:
        """Let a handoff wait until it has ended."""
        id, visibility = waiting.message.handoff_id, self._exchange.pipeline._handlers.visibility
        self._waiting[id] = waiting
        self._open.put(OutsideHandoff.of(waiting.message, within))
        summary = f"answer of {agent} outside"[:200]
        try:
            with visibility.show_waiting(PipelineStatus.WAITING, name):
                await workflow.wait_condition(
                    lambda: self._end(id) is not None, timeout=within, timeout_summary=summary
                )
        except TimeoutError:
            visibility.show_rejected(name)
            reason = f"{agent!r} has returned nothing for handoff {id} within {within}"
            self._exchange.note(f"escalated: {reason}")
            raise StageFailedError(reason) from None
        finally:
            end = self._end(id)
            del self._waiting[id]
            self._open.remove(id)
        await workflow.wait_condition(lambda: not self._moving)  # a run may not end while a move is being made
        visibility.resume()
        assert end is not None  # noqa: S101 - the condition above
        return OutsideResult.of(end)

    def _end(self, handoff_id: str) -> AgentAction | None:
        one = self._open.get(handoff_id)
        return None if one is None else one.end

    def _validate(self, *given: Any) -> None:
        """Refuse what is not a sealed move before it enters the history."""
        raw = raw_of(given)
        if raw is None or len(raw) > LARGEST_MESSAGE:
            raise _refused(f"an update {MOVE!r} carries one sealed move of 4 MiB at most")
        [move] = given
        if not isinstance(move, SealedAction) or move.fault == "":
            return
        raise _refused(move.fault or _NO_KEYS)

    async def _on_move(self, *given: Any) -> OutsideHandoff:
        """Claim, answer or return a handoff: one sealed move of an agent outside."""
        raw = raw_of(given)
        assert raw is not None  # noqa: S101 - the validator
        self._moving += 1
        try:
            return self._made(await self._opened(raw, is_verified=isinstance(given[0], SealedAction)))
        except ActivityError as error:
            raise _refused(f"the move could not be verified: {error.cause or error}") from error
        finally:
            self._moving -= 1

    async def _opened(self, raw: bytes, *, is_verified: bool) -> Opened:
        """Return what a move says; `is_verified` if the validator has checked its signature."""
        if not is_verified:
            return await open_message(raw)
        said = Opened(message=loads_strict(raw))
        patch = (said.message or {}).get("patch")
        brings_artifacts = isinstance(patch, Mapping) and patch.get("artifacts")
        return await open_message(raw) if brings_artifacts else said

    def _made(self, said: Opened) -> OutsideHandoff:
        """Make a move whose seal was verified, or refuse it."""
        try:
            if said.message is None:
                raise _refused(said.fault)
            move = AgentAction.from_json_object(said.message)
        except ValidationError:
            raise _refused("this is not a move, though its seal holds") from None
        now = workflow.now()
        refusal = self._open.refusal(move, now) or self._patch_refusal(move, said.missing)
        if refusal:
            raise _refused(refusal)
        before = self._open.get(move.handoff_id)
        if before is not None:
            self._measure(move, before)
        if move.kind is ActionKind.CLAIM and before is not None:
            self._renew_contract(before, now)
        after = self._open.make(move, now)
        if move.kind in ENDS and after.end is not None and after.end.reason:
            self._exchange.note(f"{move.agent!r} outside: {move.kind.value}: {after.end.reason}")
        if after.end is None:
            return after
        return after.model_copy(update={"end": after.end.remembered()})  # who moves knows what they brought

    def _renew_contract(self, claimed: OutsideHandoff, now: datetime) -> None:
        """Make the contract of a claimed handoff again if it has expired, unless somebody works under it."""
        id, waiting = claimed.handoff_id, self._waiting[claimed.handoff_id]
        works = claimed.accepted and claimed.held_by(now) is not None
        if works or not waiting.has_expired_contract(now):
            return
        try:
            self._open.renew(waiting.again())
        except StageFailedError as error:
            raise _refused(f"the contract of handoff {id!r} has expired: {error}") from error
        self._exchange.note(
            f"the contract of the handoff to {claimed.agent!r} outside had expired; it is compiled again"
        )

    def _patch_refusal(self, move: AgentAction, missing: Sequence[str]) -> str | None:
        """Return why a patch would break a rule of the pipeline, or refers to what no stage could read; or None."""
        if move.kind is not ActionKind.PATCH:
            return None
        state = self._exchange.pipeline.state
        try:
            patch_effect(state.baton, move.patch, state.stage_rules())
        except PatchError as error:
            return f"the patch is refused: {error}"
        known = {ref.hash for ref in state.baton.artifacts}
        refs: Any = move.patch.get("artifacts") or ()
        lost = sorted(repr(ref["id"]) for ref in refs if ref["hash"] in missing and ref["hash"] not in known)
        if lost:
            return (
                f"the patch is refused: artifacts: the store of the pipeline's workers has no {', '.join(lost)}; put "
                "it there first. Where that was done, it was another store: the agent's server needs the workers' own "
                "(BATON_ARTIFACTS, --artifacts)"
            )
        return None

    def _measure(self, move: AgentAction, waiting: OutsideHandoff) -> None:
        """Count what the gate answered, once for each message; measure how long an accepted one took to get there."""
        verdict = HandoffStatus.ACCEPTED.value if move.kind is ActionKind.ACCEPT else move.code
        asked = self._waiting[move.handoff_id]
        if verdict is None or asked.answered:  # another one who claims it later is given the same answer
            return
        asked.answered = True
        handlers, sender = self._exchange.pipeline._handlers, asked.message.from_agent.agent_id
        handlers.metrics.handoff(verdict, sender, move.agent)
        if move.kind is not ActionKind.ACCEPT:
            return
        seconds = max((move.at - waiting.since).total_seconds(), 0.0)
        handlers.metrics.measure(LATENCY, seconds, Transport.QUEUE, sender, move.agent)
        breach = slo_breach(Transport.QUEUE, seconds)
        if breach:
            self._exchange.note(f"{sender!r} to {move.agent!r} outside: {breach}")

    def _on_list(self) -> list[OutsideHandoff]:
        """The handoffs that wait for agents outside, oldest first."""
        return self._open.open()

    def _on_done(self) -> list[OutsideHandoff]:
        """The handoffs that an agent outside ended, oldest first."""
        return self._open.done()

    def _on_message(self, handoff_id: str) -> Handoff | None:
        """The message of a handoff that waits for an agent outside, sealed as it leaves."""
        waiting = self._waiting.get(handoff_id)
        return None if waiting is None else waiting.message


def _refused(why: str) -> ApplicationError:
    return ApplicationError(why, type="MoveRefused", non_retryable=True)
