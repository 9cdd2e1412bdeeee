"""`Pipeline`: attached to a workflow in its `__init__`, it runs the steps and holds the baton."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from typing import Any, Unpack

from pydantic import BaseModel, JsonValue
from temporalio import workflow

from baton.contract.workflow import ContractTerms, child_limits
from baton.core.baton import Baton
from baton.core.history import Outcome, StepKind
from baton.core.inputs import Input, Parameters, as_output, decode_inputs, encode_inputs, encode_params
from baton.core.messages import (
    PipelineInput,
    PipelineResult,
    PipelineStatus,
    StageInput,
    StageResult,
    StageReturn,
    ToolLimits,
)
from baton.core.patching import PatchRules, shorten_findings
from baton.core.pending import PendingHandoff
from baton.core.plan import Plan, PlanEntry
from baton.core.questions import Settled, handoff_title
from baton.core.stages import Calls, HasSpec, OnReport, Stages, StageSpec, name_set, step
from baton.core.state import DEFAULT_STRATEGIES, MergeStrategy
from baton.errors import ApprovalDeniedError, PatchError, PipelineError, StageFailedError
from baton.handoff.relay import HandoffTerms
from baton.handoff.workflow_coordinator import HandoffCoordinator
from baton.handoff.workflow_delivery import Delivery
from baton.pipelines.workflow_branches import ItemT, MapRequest, as_item, map_results, run_branches
from baton.pipelines.workflow_children import Takes, child_patch, run_child, settle_failure
from baton.pipelines.workflow_reports import RunReports
from baton.pipelines.workflow_steps import (
    LONG_ENOUGH,
    ContinueAfter,
    Steps,
    check_task_queue,
    stage_results,
    workflow_type,
)
from baton.runtime.workflow_approvals import ApprovalRequest, ApprovalTerms, Then, stage_arguments
from baton.runtime.workflow_questions import Asking
from baton.runtime.workflow_run import Run
from baton.wire.json_values import Json, find_unwritable
from baton.wire.names import HAND_OFF
from baton.wire.records import Record

CHAIN = "chain"
"""The key in `Pipeline.carries` of the chain of handoffs between pipelines that brought the task here."""


class Pipeline:
    """A pipeline: the baton, the steps that change it, and the handlers for people and services.

    Construct it in the workflow's `@workflow.init`. It registers its own handlers: the queries `baton`,
    `history`, `status`, `waiting`, `questions` and `baton_details`, and the update and signal `answer`.
    Control flow stays the workflow's own Python: ifs, loops and gathers.

    Attributes:
        state: The baton, its history and the recorded outcomes.
        task_id: The task's id; the same across continued and forked runs.
        carries: Functions by key that return further state for the next run when this one continues as new.
    """

    def __init__(
        self,
        start: PipelineInput,
        *,
        baton_type: type[Baton] = Baton,
        protected: Sequence[str] = (),
        merge: Mapping[str, MergeStrategy] | None = None,
        continue_after: ContinueAfter | None = None,
        handoffs: HandoffTerms | None = None,
        contracts: ContractTerms | bool = True,
        on_report: OnReport = OnReport.STOP,
        plan: Sequence[PlanEntry] = (),
    ) -> None:
        """Start a pipeline.

        Args:
            start: The workflow's argument.
            baton_type: The pipeline's type of baton, derived from `Baton`.
            protected: Fields that may lose no entry, for example `["constraints"]`; a text such as `goal` may not
                change.
            merge: Merge strategies by field for fan-outs, over the defaults.
            continue_after: When to continue as new.
            handoffs: The terms of handoffs between stages.
            contracts: By default stages that are agents get a contract: facts with their sources, compiled from the
                session events. `ContractTerms` give one to every stage and limit its tools; False gives none.
            on_report: What happens about a handoff report that is not ready: by default a failed or blocked one
                fails its stage, and one that says `Ready: No` asks people.
            plan: What the pipeline is going to do, for the receivers of its handoffs: names of steps, stages, or either
                with a description. It binds nothing.
        """
        rules = PatchRules(name_set(protected, "protected"))
        self._run = run = Run(start, baton_type, rules)
        self.state, self.task_id = run.state, run.task_id
        self._strategies = {**DEFAULT_STRATEGIES, **(merge or {})}
        self._contracts = contracts if isinstance(contracts, ContractTerms) else None
        self._reports = RunReports(on_report)
        self._handoffs = HandoffCoordinator(run, handoffs or HandoffTerms(), contracts)
        if self._handoffs.relay is not None and plan:
            self._handoffs.relay.plan = Plan(plan, run.state.outcomes)
        self.carries: dict[str, Callable[[], JsonValue]] = {
            "operators": run.carried,
            CHAIN: partial(self.carried, CHAIN),
            **self._handoffs.carries,
        }
        record_interventions = self._handoffs.escalation.record_interventions
        self._steps = Steps(run, continue_after or ContinueAfter(), self.carries, record_interventions)
        self._calls = Calls()
        self._stages = Stages()
        run.restore()
        self._handoffs.restore()

    @property
    def baton(self) -> Baton:
        """A copy of the current baton; only a step's patch changes the pipeline's own."""
        return self.state.baton.model_copy(deep=True)

    @property
    def params(self) -> dict[str, Json]:
        """The parameters of the pipeline."""
        return Parameters(self._run.start.params)

    @property
    def inputs(self) -> dict[str, Input]:
        """The inputs of the pipeline. Stages get them only if passed on: `inputs=p.inputs`."""
        return decode_inputs(self._run.start.inputs)

    @step
    async def stage(
        self,
        stage: HasSpec,
        *,
        inputs: Mapping[str, Any] | None = None,
        params: Mapping[str, Json] | None = None,
        task_queue: str | None = None,
        stream: bool = False,
        name: str | None = None,
    ) -> StageResult:
        """Run a stage and apply its patch.

        Args:
            stage: The stage, as decorated by `@stage`.
            inputs: What it works on, by name: the `StageResult` of another stage (for its output), JSON, text, an
                `ArtifactRef` or a pydantic model. An agent's prompt has each in full, with its name and author.
            params: The parameters in the stage's context; the pipeline's own by default.
            task_queue: The task queue of its workers; the pipeline's own by default.
            stream: Let people watch its tokens and tool calls with `baton watch` and `follow`.
            name: The step's name, for example `"digest page 7"`; the stage's by default.

        Returns:
            The applied patch and the stage's output.

        Raises:
            StageFailedError: It raised as often as its retries allow, or its patches were rejected as often as
                its attempts allow. The baton is unchanged.
            InputError: The name or value of an input is not allowed.
            ValueError: The step's name does not have 1 to 200 characters.
            ApprovalDeniedError: People approve it (`then`), and no unused approval has these params and inputs; or
                its report is not ready, and people did not want to continue.

        Example:
            ```python
            drafted = await p.stage(write)
            await p.stage(edit, inputs={"draft": drafted, "style": "plain"})
            ```
        """
        spec, encoded_inputs = self._stages.spec_of(stage), encode_inputs(inputs)
        taken = self._stage_params(params)
        self._run.approved_stages.use([spec.name], stage_arguments(taken, encoded_inputs))
        name = spec.name if name is None else name
        seq, recorded = await self._steps.begin(name, StepKind.STAGE)
        if recorded is not None:
            await self._ask_about_report(recorded)
            return stage_results(recorded)[0]

        delivery = self._delivery(spec, seq, taken, encoded_inputs, task_queue, name=name, stream=stream)

        def accept(returned: StageReturn, base: Baton) -> Outcome:
            self._run.visibility.add_seconds(returned.seconds)
            outcome = self.state.record_stage(returned, workflow.now(), base=base)
            delivery.complete(returned)
            return outcome

        with self._steps.under_way(StepKind.STAGE, name, seq):
            outcome = await delivery.deliver(accept)
        await self._ask_about_report(outcome)
        return stage_results(outcome)[0]

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

        Each field is merged by its strategy, and differing values are recorded as conflicts. The call waits for all
        branches, even if one fails.

        Args:
            stages: The branches, at least one, each with a unique name.
            merge: Merge strategies by field, over the pipeline's.
            inputs: The inputs of every branch, as in `stage`.
            params: The parameters of every branch; the pipeline's own by default.
            task_queue: The task queue of their workers.

        Returns:
            The result of each branch, in the order of ``stages``.

        Raises:
            ValueError: There is no stage, or the same one twice.
            StageFailedError: A branch failed, or the patches cannot be merged. Nothing was applied.
            InputError: The name or value of an input is not allowed.
            ApprovalDeniedError: A branch has no unused approval with these params and inputs, and needs one.
        """
        encoded_inputs = encode_inputs(inputs)
        specs = [self._stages.spec_of(stage) for stage in stages]
        names = [spec.name for spec in specs]
        if not names or len(set(names)) < len(names):
            raise ValueError(f"fan_out needs at least one stage, each once; got {names}")
        taken = self._stage_params(params)
        self._run.approved_stages.use(names, stage_arguments(taken, encoded_inputs))
        name = "+".join(names)[:200]
        seq, recorded = await self._steps.begin(name, StepKind.MERGE)
        if recorded is not None:
            await self._ask_about_report(recorded)
            return stage_results(recorded)
        deliveries = [self._delivery(spec, seq, taken, encoded_inputs, task_queue, names) for spec in specs]
        return stage_results(await self._merge_branches(seq, name, deliveries, merge))

    @step
    async def map(
        self,
        stage: HasSpec,
        items: Sequence[ItemT],
        *,
        at_most: int = 3,
        name: str | None = None,
        inputs: Callable[[ItemT], Mapping[str, Any]] = as_item,
        merge: Mapping[str, MergeStrategy] | None = None,
        params: Mapping[str, Json] | None = None,
        task_queue: str | None = None,
    ) -> list[StageResult | StageFailedError]:
        """Run a stage for each item, a few at a time on the same baton, and merge their patches as `fan_out` does.

        An item that fails changes nothing, and the others count. Items are named after the step: `digest page 7`.

        Args:
            stage: The stage.
            items: The items, at most 500; without any, nothing is done.
            at_most: How many run at once.
            name: The step's name, at most 190 characters; the stage's by default.
            inputs: Returns the inputs of an item; by default it is the input `item`.
            merge: Merge strategies by field, over the pipeline's.
            params: The parameters of every item; the pipeline's own by default.
            task_queue: The task queue of the stage's workers.

        Returns:
            The result of each item in order, or the `StageFailedError` that says why it failed.

        Raises:
            TypeError: The items are not a list.
            ValueError: There are too many, `at_most` is not a number from 1 up, or the name is too long.
            StageFailedError: The patches cannot be merged. Nothing was applied.
            InputError: The name or value of an input is not allowed.
            ApprovalDeniedError: An item has no unused approval with these params and inputs, and needs one.
        """
        spec, taken = self._stages.spec_of(stage), self._stage_params(params)
        request = MapRequest.of(spec.name if name is None else name, items, inputs, at_most)
        if not items:
            return []
        self._run.approved_stages.use([spec.name], *(stage_arguments(taken, given) for given in request.inputs))
        seq, recorded = await self._steps.begin(request.name, StepKind.MERGE)
        if recorded is not None:
            await self._steps.recorded.check_items(recorded, len(items))
            await self._ask_about_report(recorded)
            return map_results(recorded)
        deliveries = [
            self._delivery(spec, seq, taken, given, task_queue, [spec.name], name=request.name, item=number)
            for number, given in enumerate(request.inputs, 1)
        ]
        return map_results(await self._merge_branches(seq, request.name, deliveries, merge, at_most))

    async def _merge_branches(
        self,
        seq: int,
        name: str,
        deliveries: Sequence[Delivery],
        merge: Mapping[str, MergeStrategy] | None,
        at_most: int | None = None,
    ) -> Outcome:
        strategies = {**self._strategies, **(merge or {})}
        with self._steps.under_way(StepKind.MERGE, name, seq):
            outcome = await run_branches(self._handoffs, seq, name, deliveries, strategies, at_most)
        self._run.publish(outcome)
        await self._ask_about_report(outcome)
        return outcome

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
    ) -> Settled:
        """Wait until people approve; no answer by the deadline means no.

        They decide with `baton approve` and `baton deny`, or by the update or signal `answer`. A decision counts
        once, for this question and for what was shown: the baton, `asks`, `shows` and `then`. One no is enough.
        The wait survives restarts of workers and servers.

        Args:
            approval: The title, for example whose approval it is: `"release manager"`.
            within: How long to wait.
            asks: The question, at most 2,000 characters.
            shows: What to show, at most 20 items, by name or in order: results of stages, artifacts, text, JSON,
                records, `Exhibit.diff(…)`, `Exhibit.amount(…)`; at most 256 KiB of text.
            then: A stage with its parameters and optional inputs, as they are now, to approve as well: from then on
                each run of that stage needs an approval of its own, with exactly its arguments.
            answer: A pydantic model that the approver fills in; `Settled.answer_as` returns it.
            **terms: `needs`, how many different people have to approve (1); `who` may decide: names, or `"group:leads"`
                for a group in the workers' file of deciders; `proof`, count only decisions signed with the key of a
                decider in that file (an unsigned name is unverified); `default`, the decision at the deadline (False,
                deny).

        Returns:
            Who approved, when and why, and the answer.

        Raises:
            ApprovalDeniedError: A person denied, or the deadline passed; its `decided` says which.
            ValueError: An approval with that title is already open, the question or an exhibit is too large, or the
                title does not have 1 to 200 characters.
        """
        request = ApprovalRequest(approval, within, asks, shows, then, answer, **terms)
        seq, recorded = await self._steps.begin(approval, StepKind.APPROVAL)
        settled = await self._answer_to(request.asking(seq), approval, recorded)
        if not settled.approved:
            reason = f": {settled.why}" if settled.why else ""
            raise ApprovalDeniedError(f"{approval!r} was denied by {settled.who}{reason}", settled)
        if request.stage is not None:
            self._run.approved_stages.add(request.stage, settled, request.arguments)
        return settled

    @step
    async def sleep(self, duration: timedelta, *, name: str = "sleep") -> None:
        """Sleep as a recorded step, so that a continued or forked run does not sleep again.

        The sleep survives restarts of workers and servers. `workflow.sleep` between steps is not recorded.

        Args:
            duration: How long to sleep; zero or more.
            name: The step's name, for example the reason.

        Raises:
            ValueError: The duration is negative, or the name does not have 1 to 200 characters.
        """
        if duration < timedelta(0):
            raise ValueError(f"duration is {duration}; expected zero or more")
        self._run.visibility.add_seconds(LONG_ENOUGH)  # so that this step and the next are shown
        seq, recorded = await self._steps.begin(name, StepKind.SLEEP)
        if recorded is not None:
            return
        with self._steps.under_way(StepKind.SLEEP, name, seq, until=workflow.now() + duration):
            await self._steps.sleep(seq, name, duration)
        self._run.publish(self.state.record_sleep(seq, name, workflow.now()))

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
        """Run another pipeline as a child, and apply its result.

        The child starts with this baton and its own goal. When it ends, its new decisions are appended to this
        baton and its artifacts and work scope are added, unless ``takes`` returns another patch.

        Args:
            pipeline: The child's `run` method, or the name of its workflow type.
            goal: The child's goal.
            name: The step's name; the child's type by default.
            inputs: The child's inputs, as in `stage`; its code reads `Pipeline.inputs`.
            params: The child's parameters.
            takes: Returns the patch for this baton, given this baton and the child's result.
            task_queue: The task queue of the child's workers; this pipeline's by default.

        Returns:
            The child's result.

        Raises:
            StageFailedError: The child failed, or its patch breaks a rule here.
            ValueError: The step's name does not have 1 to 200 characters.
            InputError: The name or value of an input is not allowed.
        """
        encoded_inputs = encode_inputs(inputs)
        kind = workflow_type(pipeline)
        step = name or kind
        seq, recorded = await self._steps.begin(step, StepKind.CHILD)
        if recorded is not None:
            return self._handoffs.merge_personal_data(PipelineResult.model_validate(recorded.value))
        with self._steps.under_way(StepKind.CHILD, step, seq):
            start = PipelineInput(
                goal=goal,
                baton={key: value for key, value in self.state.baton.to_json_object().items() if key != "goal"},
                params=encode_params(params or {}),
                inputs=encoded_inputs,
                task_id=self.task_id,
                budget=self._run.account.reserve_child(seq, step),
                traceparent=self._run.start.traceparent,
                tool_limits=self.limits_for(kind),
                carried={CHAIN: chain} if (chain := self.carries[CHAIN]()) else {},
                **self._handoffs.for_child(),
            )
            async with self._run.limit.slot(), settle_failure(self._handoffs, kind, seq, step):
                await self._run.limit.admit(start.goal, start.baton, start.params, start.inputs, start.personal_data)
                result = await run_child(kind, seq, step, start, task_queue, searchable=self._run.visibility.enabled)
            self._run.account.settle_child_result(seq, step, result)
            await self._handoffs.receive_child(kind, seq, result)
            self._run.visibility.add_seconds(LONG_ENOUGH)
            try:
                patch = takes(self.state.baton, result)
                outcome = self.state.record_child(seq, step, result, patch, workflow.now())
            except PatchError as error:
                raise StageFailedError(f"the patch from child {step!r} is rejected: {error}") from error
        self._run.publish(outcome)
        return self._handoffs.merge_personal_data(result)

    def limits_for(self, child: str) -> ToolLimits | None:
        """Return which tools a child may call at most: what this pipeline may, by its contracts and its own parent's.

        Args:
            child: The child's workflow type.
        """
        return child_limits(self._run.start.tool_limits, self._contracts, workflow.info().workflow_type, child)

    def carried(self, name: str, form: type[Record] | None = None) -> dict[str, Any]:
        """Return what ``carries[name]`` returned in the previous run; empty in a first run.

        Args:
            name: The state's name.
            form: The state's form. A state that does not fit makes the input unusable, and is returned as empty.
        """
        return self._run.input.carried(name, form)

    @contextmanager
    def defer_continue_as_new(self) -> Iterator[None]:
        """Prevent continue-as-new inside the block, for work between two steps that no outcome records."""
        self._run.defer_continue_as_new += 1
        try:
            yield
        finally:
            self._run.defer_continue_as_new -= 1

    def is_recorded(self, name: str) -> bool:
        """Return whether the next step has this name and a recorded outcome, as in a forked or continued run.

        If so, the code can skip work outside of steps that only prepares this step.

        Args:
            name: The step's name.
        """
        return self._steps.recorded.has_step(self._run.steps + 1, name)

    @step
    async def ask(self, pending: PendingHandoff, within: timedelta) -> Settled:
        """Put a handoff into the inbox, and wait until people requeue or abandon it (`baton inbox`).

        Who may decide, and how many must, is in the pipeline's `HandoffTerms`. It is a recorded step, as an approval
        is, unless the step that sends the handoff asks.

        Args:
            pending: The handoff.
            within: How long to wait; after that the handoff counts as abandoned.
        """
        escalation, pending = self._handoffs.escalation, pending.model_copy(update={"only_as_sent": True})
        if pending.seq in self._run.under_way:
            return await escalation.ask(escalation.asking(pending, within), f"{HAND_OFF}{pending.receiver}"[:200])
        name = handoff_title(pending)
        seq, recorded = await self._steps.begin(name, StepKind.APPROVAL)
        asking = escalation.asking(pending.model_copy(update={"seq": seq}), within)
        return await self._answer_to(asking, name, recorded)

    async def _answer_to(self, asking: Asking, name: str, recorded: Outcome | None) -> Settled:
        """Return the answer to a question that is a step: the recorded one, or that of people."""
        seq = asking.question.seq
        if recorded is not None:
            settled = Settled.model_validate(recorded.value, strict=False)
            # The texts of a continued run may name the time; those of a fork must be what the people saw.
            fault = self._run.board.restore(settled, asking, same_texts=not self._run.start.continued)
            if fault is not None:
                await self._steps.recorded.suspend(
                    f"step {seq} is the question {name!r}, and its recorded decision does not answer what the code "
                    f"asks now: {fault}"
                )
            return settled
        with self._steps.record_failure(StepKind.APPROVAL, name, seq):
            settled = await self._handoffs.escalation.ask(asking, name)
        self._run.publish(self.state.record_decision(seq, settled))
        return settled

    def note(self, text: str) -> None:
        """Add a note for operators, shown in the status and in the run's details."""
        self._run.note(text)

    def result(self, output: Json = None) -> PipelineResult:
        """Return the result for the workflow's `run` to return.

        Args:
            output: The pipeline's output, as JSON.

        Raises:
            PipelineError: The pipeline's input is unusable, a step was never awaited, or JSON cannot represent the
                output exactly: an integer of 2**53 or more, or half a surrogate pair.
        """
        self._steps.check()
        self._calls.check()
        self._steps.apply_edit()
        result = PipelineResult(
            task_id=self.task_id,
            baton=self.state.baton.to_json_object(),
            steps=self._run.steps,
            spend=self.state.spend,
            billed=self._run.account.billed(self.state.spend),
            topped_up_micro_usd=self._run.account.budget.topped_up_micro_usd,
            output=as_output(output),
            personal_data=self._handoffs.personal_data_for_parent(self._run.start.personal_data),
            handoff=self._handoffs.handoff_for_parent(),
        )
        if findings := find_unwritable(result.output, "output"):
            raise PipelineError(f"the pipeline's output is rejected: {'; '.join(shorten_findings(findings))}")
        self._run.visibility.set_status(PipelineStatus.COMPLETED)
        self._run.visibility.at_end = partial(self._handoffs.complete_task, result)
        return result

    async def _ask_about_report(self, outcome: Outcome) -> None:
        """Ask people whether to continue if a step's report is not ready; raise `ApprovalDeniedError` if not."""
        if (question := self._reports.question(outcome)) is not None:
            within, terms = self._handoffs.terms.within, self._handoffs.approval_terms
            await self.approve(question.title, within=within, asks=question.asks, shows=question.shows, **terms)

    def _stage_params(self, params: Mapping[str, Json] | None) -> dict[str, JsonValue]:
        """Return a copy of a stage's parameters, by default the pipeline's: an approval, and each try, is for these."""
        return encode_params(self._run.start.params if params is None else params)

    def _delivery(
        self,
        spec: StageSpec,
        seq: int,
        params: dict[str, JsonValue],
        inputs: dict[str, JsonValue],
        task_queue: str | None,
        receivers: Sequence[str] = (),
        *,
        name: str | None = None,
        item: int | None = None,
        stream: bool = False,
    ) -> Delivery:
        """Return the handoff to a stage, before its first attempt; of several at once, `receivers` are their stages."""
        stage_input = StageInput(
            stage=spec.name,
            seq=seq,
            task_id=self.task_id,
            baton={},
            params=params,
            inputs=inputs,
            authors=self.state.find_authors(inputs),
            branch=bool(receivers),
            **self._run.for_stages(),
            stream=stream or spec.stream,
            steer=spec.steer,
            report=self._reports.last(self.state.outcomes, spec),
            on_report=self._reports.on_report,
            step_name=name if name and name != spec.name else "",
            item=item,
        )
        handoff_id, queue = self._handoffs.new_id(), check_task_queue(task_queue)
        return Delivery(self._handoffs, spec, stage_input, handoff_id, receivers, queue)
