"""`Pipeline`: attached to a workflow in its `__init__`, it runs the stages and keeps the baton."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from typing import Any, Unpack

from pydantic import BaseModel, JsonValue
from temporalio import workflow

from baton.budget.workflow import BudgetAccount
from baton.contract.workflow import ContractIssuer, ContractTerms, trace_of
from baton.core.baton import Baton
from baton.core.history import Outcome, StepKind
from baton.core.inputs import Input, decode_inputs, encode_inputs
from baton.core.messages import (
    Decided,
    PipelineInput,
    PipelineResult,
    PipelineStatus,
    StageInput,
    StageResult,
    StageReturn,
)
from baton.core.patching import PatchRules, patch_effect, shorten_findings
from baton.core.stages import Calls, HasSpec, StageSpec, name_set, spec_of, step
from baton.core.state import DEFAULT_STRATEGIES, MergeStrategy, PipelineState
from baton.errors import ApprovalDeniedError, PatchError, PipelineError, StageFailedError
from baton.handoff.pending import HandoffDecision, PendingHandoff
from baton.handoff.relay import HandoffTerms
from baton.handoff.workflow_attempt import OutgoingHandoff
from baton.handoff.workflow_coordinator import HandoffCoordinator
from baton.pipelines.workflow_approvals import ApprovalTerms, Asking, Then
from baton.pipelines.workflow_dispatch import Takes, TaskRoom, child_patch, refund_on_failure, run_child, run_stage
from baton.pipelines.workflow_handlers import RunHandlers
from baton.pipelines.workflow_steps import (
    LONG_ENOUGH,
    ContinueAfter,
    RecordedOutcomes,
    RunInput,
    Steps,
    publish,
    publish_fields,
    results_of,
    workflow_type,
)
from baton.wire.json_values import Json, find_unwritable

CHAIN = "chain"
"""Under what name `Pipeline.carries` has how the task came here: through which handoffs between pipelines."""


class Pipeline:
    """A pipeline: the baton, the steps that change it, and what people may ask and tell it.

    It is constructed in the workflow's `@workflow.init` and registers its own handlers: the queries `baton`,
    `history`, `status`, `waiting`, `check_patch` and `baton_details`, and the update and signal `decide`.
    Control flow stays the workflow's own Python: ifs, loops and gathers.

    Attributes:
        state: The baton, its history and the recorded outcomes.
        task_id: The task's id; the same across continued and forked runs.
        carries: What else the next run is to know when this one continues as new, by name.
    """

    def __init__(
        self,
        start: PipelineInput,
        *,
        baton_type: type[Baton] = Baton,
        freeze_goal: bool = False,
        protected: Sequence[str] = (),
        merge: Mapping[str, MergeStrategy] | None = None,
        continue_after: ContinueAfter | None = None,
        handoffs: HandoffTerms | None = None,
        contracts: ContractTerms | None = None,
    ) -> None:
        """Begin a pipeline.

        Args:
            start: The workflow's argument.
            baton_type: The pipeline's type of baton, derived from `Baton`.
            freeze_goal: Refuse patches that change the goal.
            protected: Fields whose entries no stage may remove, for example `["constraints"]`.
            merge: Further or other strategies for the fields of a fan-out.
            continue_after: When to continue as new.
            handoffs: How it hands on from stage to stage; the usual terms by default.
            contracts: With them every stage gets a contract: what it may see and do, compiled from all that
                happened; without, stages see the baton alone.
        """
        self._run_input = RunInput(start)
        self._start = start = self._run_input.start
        rules = PatchRules(freeze_goal=freeze_goal, protected=name_set(protected, "protected"))
        self.state = PipelineState(self._run_input.baton(baton_type), rules)
        self.task_id = self._run_input.task_id()
        self._strategies = {**DEFAULT_STRATEGIES, **(merge or {})}
        limits = continue_after or ContinueAfter()
        publish_fields(self.state.initial)
        self._account = BudgetAccount(start)
        self._handlers = RunHandlers(self.state, self.task_id, self._account)
        self._handlers.visibility.is_task(self.task_id)
        terms = handoffs or HandoffTerms()
        contracting = (
            None
            if contracts is None
            else ContractIssuer(contracts, self.state, trace_of(start, self.task_id), self._handlers.metrics)
        )
        self._handoffs = HandoffCoordinator(
            self._handlers,
            self.state,
            self._account,
            self._run_input.relay(self.task_id, terms),
            terms,
            publish,
            contracting,
        )
        self.carries: dict[str, Callable[[], JsonValue]] = {
            "operators": self._handlers.carried,
            "handoffs": self._handoffs.carried,
            CHAIN: partial(self.carried, CHAIN),
        }
        self._recorded = RecordedOutcomes(start, self.state, self._account)
        continue_if_long = partial(self._recorded.continue_if_long, limits, self.task_id, self.carries)
        self._calls = Calls()
        self._room = TaskRoom()
        self._origins: dict[str, str] = {}
        self._steps = Steps(
            self._run_input,
            self._handlers,
            self.state,
            self._recorded,
            continue_if_long,
            partial(self._handoffs.escalation.record_interventions, self.task_id),
        )
        self._handlers.restore(start)
        self._handoffs.restore(self.carried("handoffs"))

    @property
    def baton(self) -> Baton:
        """The baton now, as a copy: only a step's patch changes the pipeline's own, so that the history tells of it."""
        return self.state.baton.model_copy(deep=True)

    @property
    def params(self) -> dict[str, Json]:
        """The parameters the pipeline was started with."""
        return self._start.params

    @property
    def inputs(self) -> dict[str, Input]:
        """The inputs the pipeline was started with; a stage gets those that it is given: `inputs=p.inputs`."""
        return decode_inputs(self._start.inputs)

    @step
    async def stage(
        self,
        stage: HasSpec,
        *,
        inputs: Mapping[str, Any] | None = None,
        params: Mapping[str, Json] | None = None,
        task_queue: str | None = None,
        stream: bool = False,
    ) -> StageResult:
        """Run a stage and apply its patch.

        Args:
            stage: What `@stage` made.
            inputs: What it works on, by name: the `StageResult` of another stage (its output counts), JSON, a text, an
                `ArtifactRef` or a pydantic model. An agent finds each in its prompt, in full, under its name.
            params: What the stage finds in its context; the pipeline's own by default.
            task_queue: Where its workers listen; the pipeline's own by default.
            stream: Show people what it says while it works: tokens and tool calls in `baton watch` and `follow`.

        Returns:
            The patch that was applied, and the stage's output.

        Raises:
            StageFailedError: It raised as often as its retries allow, or its patch was refused as often as
                its attempts allow. The baton is as it was before the stage.
            InputError: An input has no usable name, or cannot be handed on.
            OutcomeMismatchError: A recorded outcome belongs to another step.

        Example:
            ```python
            drafted = await p.stage(write)
            await p.stage(edit, inputs={"draft": drafted, "style": "plain"})
            ```
        """
        spec, given = self._spec_of(stage), encode_inputs(inputs)
        self._check_approved([spec], params, given)
        seq, past = await self._steps.begin(spec.name, StepKind.STAGE)
        if past is not None:
            return results_of(past)[0]

        outgoing = self._outgoing_handoff(spec, seq, params, given, stream=stream)

        def accept(returned: StageReturn, base: Baton) -> Outcome:
            self._handlers.visibility.ran(returned.seconds)
            outcome = self.state.record_stage(returned, workflow.now(), base=base)
            self._handoffs.complete_stage(outgoing, returned)
            return outcome

        with self._steps.under_way(StepKind.STAGE, spec.name, seq):
            outcome = await run_stage(outgoing, self._handoffs, self._base, accept, task_queue, self._room)
        return results_of(outcome)[0]

    @step
    async def fan_out(
        self,
        *stages: HasSpec,
        merge: Mapping[str, MergeStrategy] | None = None,
        inputs: Mapping[str, Any] | None = None,
        params: Mapping[str, Json] | None = None,
        task_queue: str | None = None,
    ) -> list[StageResult]:
        """Run several stages at once on the same baton, and merge their patches into one change.

        Each field merges as declared; what the branches disagreed about is kept in the history as conflicts.
        All branches are waited for, also when one fails.

        Args:
            stages: The branches, at least one, each with its own name.
            merge: Strategies of this fan-out, over the pipeline's.
            inputs: What every branch works on, as of `stage`.
            params: What the stages find in their contexts; the pipeline's own by default.
            task_queue: Where their workers listen.

        Returns:
            What each branch returned, in the order of ``stages``.

        Raises:
            ValueError: No stage, or the same one twice.
            StageFailedError: A branch failed, or the patches cannot be merged. Nothing was applied.
            InputError: An input has no usable name, or cannot be handed on.
            ApprovalDeniedError: A person approved a branch with other params or inputs.
        """
        given = encode_inputs(inputs)
        specs = [self._spec_of(stage) for stage in stages]
        names = [spec.name for spec in specs]
        if not names or len(set(names)) < len(names):
            raise ValueError(f"fan_out needs at least one stage, each once; got {names}")
        self._check_approved(specs, params, given)
        name = "+".join(names)[:200]
        seq, past = await self._steps.begin(name, StepKind.MERGE)
        if past is not None:
            return results_of(past)

        def accept(returned: StageReturn, base: Baton) -> StageReturn:
            patch_effect(base, returned.baton_patch, self.state.stage_rules())
            return returned

        outgoing_handoffs = [self._outgoing_handoff(spec, seq, params, given, names) for spec in specs]

        def run(outgoing: OutgoingHandoff) -> Coroutine[Any, Any, StageReturn]:
            return run_stage(outgoing, self._handoffs, self._base, accept, task_queue, self._room)

        with self._steps.under_way(StepKind.MERGE, name, seq):
            ended = await asyncio.gather(*(run(outgoing) for outgoing in outgoing_handoffs), return_exceptions=True)
            faults = [one for one in ended if isinstance(one, BaseException)]
            if faults:
                raise StageFailedError("; ".join(str(fault) for fault in faults)) from faults[0]
            branches = [one for one in ended if isinstance(one, StageReturn)]
            self._handlers.visibility.ran(max(branch.seconds for branch in branches))
            strategies = {**self._strategies, **(merge or {})}
            try:
                outcome = self.state.record_fan_out(seq, name, branches, workflow.now(), strategies=strategies)
            except PatchError as error:
                raise StageFailedError(f"the branches of {name!r} cannot be merged: {error}") from error
            self._handoffs.complete_branches(name, outgoing_handoffs, branches)
        publish(outcome)
        return results_of(outcome)

    @step
    async def approve(
        self,
        approval: str,
        *,
        within: timedelta,
        asks: str | None = None,
        shows: Mapping[str, Any] | Sequence[Any] = (),
        then: Then | None = None,
        answer: type[BaseModel] | None = None,
        **terms: Unpack[ApprovalTerms],
    ) -> Decided:
        """Wait until people say yes to one question; silence until the deadline means no.

        They decide with `baton approve` and `baton deny`, or by the update or the signal `decide`. A decision counts
        once, for this question, and for what was shown: the baton, `asks`, `shows` and `then`. One no is enough.
        The wait survives workers and servers.

        Args:
            approval: The title, for example whose approval it is: `"release manager"`.
            within: How long to wait.
            asks: What the person is asked, at most 2,000 characters.
            shows: What they are shown, at most 20 things, by name or in order: results of stages, artifacts, texts,
                JSON, records, `Exhibit.diff(…)`, `Exhibit.amount(…)`; 256 KiB of text in all.
            then: A stage, its parameters and, if it has any, its inputs, that a yes is also about: the next run of
                that stage takes no others.
            answer: A pydantic model: who approves fills it in, and `Decided.answer_as` returns it.
            **terms: `needs`, so many different people have to approve (1); `who` may decide: names, and `"group:leads"`
                for a group in the workers' file of deciders; `proof`, count only decisions that are signed with the
                key of a decider in that file, for without it a name is only what the sender says; `default`, what
                silence means (False, deny).

        Returns:
            Who approved, when and why, and the answer.

        Raises:
            ApprovalDeniedError: A person, or the deadline, said no.
            ValueError: An approval with that title is open already, what it asks or shows is too large, or the title
                has not 1 to 200 characters.
        """
        asking = Asking(approval, within, asks, shows, then, answer, **terms)
        seq, past = await self._steps.begin(approval, StepKind.APPROVAL)
        if past is not None:
            decided = Decided.model_validate(past.value, strict=False)
            self._handlers.approvals.close(decided)
        else:
            handlers = self._handlers
            question = handlers.approvals.open(asking, seq)
            waiting = handlers.visibility.waiting(PipelineStatus.WAITING, approval)
            try:
                with waiting, self._steps.recorded(StepKind.APPROVAL, approval, seq):
                    decided = await handlers.approvals.wait(question, asking, seq)
                    await self._handoffs.escalation.record_approval(decided, seq, self.task_id)
            finally:
                if not handlers.approvals.titles():
                    handlers.visibility.goes_on(approval)
            publish(self.state.record_decision(seq, decided))
        if not decided.approved:
            reason = f": {decided.why}" if decided.why else ""
            raise ApprovalDeniedError(f"{approval!r} was denied by {decided.who}{reason}")
        self._handlers.approvals.bind(asking)
        return decided

    @step
    async def sleep(self, duration: timedelta, *, name: str = "sleep") -> None:
        """Wait for a time; a step like any other, so a run that continues as new or is forked does not wait again.

        The wait survives workers and servers. (`workflow.sleep` between steps is not a step: it waits again.)

        Args:
            duration: How long; not less than nothing.
            name: The step's name, for example what the wait is for.

        Raises:
            ValueError: The duration is negative, or the name has not 1 to 200 characters.
        """
        if duration < timedelta(0):
            raise ValueError(f"a pipeline sleeps for no time or longer; got {duration}")
        self._handlers.visibility.ran(LONG_ENOUGH)  # it is shown, and so is the step after it
        seq, past = await self._steps.begin(name, StepKind.SLEEP)
        if past is not None:
            return
        with self._steps.under_way(StepKind.SLEEP, name, seq, until=workflow.now() + duration):
            await workflow.sleep(duration, summary=f"step {seq}: sleeps: {name}"[:200])
            self._handlers.visibility.ran(LONG_ENOUGH)
        publish(self.state.record_sleep(seq, name, workflow.now()))

    @step
    async def child(
        self,
        pipeline: Callable[..., Any] | str,
        goal: str,
        *,
        name: str | None = None,
        inputs: Mapping[str, Any] | None = None,
        params: Mapping[str, Json] | None = None,
        takes: Takes = child_patch,
        task_queue: str | None = None,
    ) -> PipelineResult:
        """Run another pipeline as a child, and take over what it brings back.

        The child starts from this baton with a goal of its own. When it ends, its new decisions are appended
        here and its artifacts and work scope are added, unless ``takes`` says otherwise.

        Args:
            pipeline: The child's `run` method, or the name of its workflow type.
            goal: The child's goal.
            name: The step's name; the child's type by default.
            inputs: The child's inputs, as of `stage`; its code has them as `Pipeline.inputs`.
            params: The child's parameters.
            takes: Makes the patch for this baton out of this baton and the child's result.
            task_queue: Where the child's workers listen; this pipeline's by default.

        Returns:
            What the child returned.

        Raises:
            StageFailedError: The child failed, or what it brought back breaks a rule here.
            ValueError: The step's name has not 1 to 200 characters.
            InputError: An input has no usable name, or cannot be handed on.
        """
        handed = encode_inputs(inputs)
        kind = pipeline if isinstance(pipeline, str) else workflow_type(pipeline)
        step = name or kind
        seq, past = await self._steps.begin(step, StepKind.CHILD)
        if past is not None:
            return self._handoffs.merge_personal_data(PipelineResult.model_validate(past.value))
        with self._steps.under_way(StepKind.CHILD, step, seq):
            given = PipelineInput(
                goal=goal,
                baton={key: value for key, value in self.state.baton.to_json_object().items() if key != "goal"},
                params=dict(params or {}),
                inputs=handed,
                task_id=self.task_id,
                budget=self._account.for_child(seq, step),
                traceparent=self._start.traceparent,
                carried={CHAIN: chain} if (chain := self.carries[CHAIN]()) else {},
                **self._handoffs.for_child(),
            )
            with refund_on_failure(self._account, seq, step):
                await self._room.take(given)
                result = await run_child(
                    kind, seq, step, given, task_queue, searchable=self._handlers.visibility.enabled
                )
            self._account.child_returned(seq, step, result)
            self._handlers.visibility.ran(LONG_ENOUGH)
            try:
                patch = takes(self.state.baton, result)
                outcome = self.state.record_child(seq, step, result, patch, workflow.now())
            except PatchError as error:
                raise StageFailedError(f"what the child {step!r} brought back is refused: {error}") from error
        publish(outcome)
        return self._handoffs.merge_personal_data(result)

    def carried(self, name: str) -> dict[str, Any]:
        """Return what ``carries[name]`` told in the run that this one continues; nothing in a first run."""
        told = self._start.carried.get(name)
        return told if isinstance(told, dict) else {}

    @contextmanager
    def defer_continue_as_new(self) -> Iterator[None]:
        """Keep the run from continuing as new in the block: what its code does between two steps is in no outcome."""
        self._handlers.defer_continue_as_new += 1
        try:
            yield
        finally:
            self._handlers.defer_continue_as_new -= 1

    def is_recorded(self, name: str) -> bool:
        """Return whether the next step has this name and an outcome, as in a run that was forked or continued as new.

        What the code does before it only for its sake, and outside of steps, can then be left out.

        Args:
            name: The step's name, as a stage's.
        """
        return self._recorded.knows(self._handlers.steps + 1, name)

    async def ask(self, pending: PendingHandoff, within: timedelta) -> HandoffDecision:
        """Put a handoff into the pipeline's inbox, and wait until a person decides about it (`baton inbox`).

        A run that continues this one hears again what was decided; no person is asked twice.

        Args:
            pending: The handoff.
            within: How long a decision may take; then the handoff counts as abandoned.
        """
        return await self._handoffs.escalation.ask(pending, within, self.task_id)

    def note(self, text: str) -> None:
        """Keep a note for the operators; it is shown in the status and in the run's details."""
        self._handlers.note(text)

    def result(self, output: Json = None) -> PipelineResult:
        """Return what the pipeline's `run` is to return.

        Args:
            output: Anything further, as JSON.

        Raises:
            PipelineError: The pipeline was started with an input it cannot use, a step of it was never awaited, or
                the output is not exact in JSON: a whole number of 2**53 or beyond, or half a surrogate pair.
        """
        self._run_input.check()
        self._calls.check()
        self._steps.apply_edit()
        result = PipelineResult(
            task_id=self.task_id,
            baton=self.state.baton.to_json_object(),
            steps=self._handlers.steps,
            spend=self.state.spend,
            billed=self._account.billed(self.state.spend),
            topped_up_micro_usd=self._account.budget.topped_up_micro_usd,
            output=output,
            personal_data=self._handoffs.personal_data_for_parent(self._start.personal_data),
        )
        if faults := find_unwritable(result.output, "output"):
            raise PipelineError(f"what the pipeline returns is refused: {'; '.join(shorten_findings(faults))}")
        self._handlers.visibility.became(PipelineStatus.COMPLETED)
        return result

    def _spec_of(self, stage: HasSpec) -> StageSpec:
        """Return a stage's spec."""
        spec = spec_of(stage)
        origin: str | None = getattr(stage, "origin", None)
        if origin is not None and (first := self._origins.setdefault(spec.name, origin)) != origin:
            raise ValueError(
                f"two stages are named {spec.name!r}, {first} and {origin}, and a worker has one of them only: "
                "give one another name, @stage(name=…)"
            )
        return spec

    def _base(self) -> tuple[Baton, int]:
        """Return the baton now, and how many steps have ended."""
        return self.state.baton, len(self.state.outcomes)

    def _check_approved(
        self, specs: Sequence[StageSpec], params: Mapping[str, Json] | None, inputs: Mapping[str, JsonValue]
    ) -> None:
        """Check that stages run with what people approved, where an approval bound them."""
        for spec in specs:
            self._handlers.approvals.check_bound(spec.name, self._start.params if params is None else params, inputs)

    def _outgoing_handoff(
        self,
        spec: StageSpec,
        seq: int,
        params: Mapping[str, Json] | None,
        inputs: dict[str, JsonValue],
        branches: Sequence[str] = (),
        *,
        stream: bool = False,
    ) -> OutgoingHandoff:
        """Return the handoff to a stage, before its first attempt."""
        given = StageInput(
            stage=spec.name,
            seq=seq,
            task_id=self.task_id,
            baton={},
            params=dict(self._start.params if params is None else params),
            inputs=inputs,
            branch=bool(branches),
            stream=stream or spec.stream,
        )
        return OutgoingHandoff(spec, given, self._handoffs.new_id(), branches)
