"""`@pipeline`: a pipeline written as one async function."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, overload

from temporalio import workflow
from temporalio.types import MethodAsyncSingleParam

from baton.contract.registry import OutputSchema, OutputSchemas
from baton.contract.workflow import ContractTerms
from baton.core.baton import Baton
from baton.core.messages import PipelineInput, PipelineResult
from baton.core.plan import PlanEntry, read_plan
from baton.core.stages import OnReport
from baton.core.state import MergeStrategy
from baton.handoff.relay import HandoffTerms
from baton.pipelines.workflow import Pipeline
from baton.pipelines.workflow_steps import ContinueAfter

_COROUTINE = 0x80  # inspect.CO_COROUTINE

Body = Callable[[Pipeline], Awaitable[Any]]
"""An async function that runs the steps of a pipeline."""

if TYPE_CHECKING:

    class PipelineType(type, MethodAsyncSingleParam[Any, PipelineInput, PipelineResult]):
        """A function pipeline for type checkers: a workflow class that a client starts like a `run` method."""

        def __call__(cls, workflow: Any, start: PipelineInput, /) -> Awaitable[PipelineResult]:
            """The signature for `Client.start_workflow`."""

else:
    PipelineType = type


@overload
def pipeline(function: Body, /) -> PipelineType: ...


@overload
def pipeline(
    *,
    name: str | None = None,
    baton_type: type[Baton] = Baton,
    protected: Sequence[str] = (),
    merge: Mapping[str, MergeStrategy] | None = None,
    continue_after: ContinueAfter | None = None,
    handoffs: HandoffTerms | None = None,
    contracts: ContractTerms | bool = True,
    on_report: OnReport = OnReport.STOP,
    plan: Sequence[PlanEntry] = (),
) -> Callable[[Body], PipelineType]: ...


def pipeline(function: Body | None = None, /, *, name: str | None = None, **terms: Any) -> Any:
    """Make a workflow of an async function that takes a `Pipeline`.

    The function may return a `PipelineResult`, the pipeline's output as JSON, or nothing. The decorator returns a
    workflow class with the function's name, for `Client.start_workflow` and for a worker's `workflows`.

    Args:
        function: The function.
        name: The workflow type's name; the function's own by default.
        **terms: Further arguments of `Pipeline`, for example `contracts=ContractTerms()`.

    Raises:
        TypeError: The function is not async, does not take one argument, or is not at the top level of a module.
        ValueError: The plan has too many steps, or one without text.

    Example:
        ```python
        @pipeline
        async def article(p: Pipeline) -> None:
            await p.stage(research)
            await p.stage(write)

        await client.start_workflow(article, PipelineInput(goal="..."), id="article-1", task_queue="baton")
        ```
    """
    if function is None:
        return partial(_make_workflow, name=name, terms=terms)
    return _make_workflow(function, name, terms)


def _make_workflow(function: Body, name: str | None, terms: Mapping[str, Any]) -> type:
    code = getattr(function, "__code__", None)
    if code is None or code.co_argcount != 1 or not code.co_flags & _COROUTINE:
        raise TypeError(f"@pipeline needs an async function of one argument, the pipeline; found {function!r}")
    own_name: str = function.__name__
    if function.__qualname__ != own_name:
        raise TypeError(
            f"@pipeline found {function.__qualname__!r} inside a function or class; move it to the top level of its "
            "module, where a worker finds it by name"
        )

    read_plan(terms.get("plan", ()))  # a mistake in it is reported here, not by each run

    class FunctionWorkflow:
        contracts = terms.get("contracts")

        def __init__(self, start: PipelineInput) -> None:
            self.pipeline = Pipeline(start, **terms)

        async def run(self, start: PipelineInput) -> PipelineResult:
            result = await function(self.pipeline)
            return result if isinstance(result, PipelineResult) else self.pipeline.result(result)

    for part, qualname in (
        (FunctionWorkflow, own_name),
        (FunctionWorkflow.__init__, f"{own_name}.__init__"),
        (FunctionWorkflow.run, f"{own_name}.run"),
    ):
        part.__module__, part.__qualname__ = function.__module__, qualname
    FunctionWorkflow.__name__, FunctionWorkflow.__doc__ = own_name, function.__doc__
    workflow.init(FunctionWorkflow.__init__)
    workflow.run(FunctionWorkflow.run)
    return workflow.defn(name=name)(FunctionWorkflow)


def named_schemas(values: Iterable[object]) -> list[OutputSchema]:
    """Return the output schemas among values, and those that their registries, contract terms and pipelines name."""
    found: list[OutputSchema] = []
    for value in values:
        named = getattr(value, "contracts", None) if isinstance(value, type) else value
        named = named.schemas if isinstance(named, ContractTerms) else named
        schemas = named.schemas if isinstance(named, OutputSchemas) else [named]
        found += [schema for schema in schemas if isinstance(schema, OutputSchema) and schema not in found]
    return found
