"""`@pipeline`: a pipeline written as one async function."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, overload

from temporalio import workflow
from temporalio.types import MethodAsyncSingleParam

from baton.contract.workflow import ContractTerms
from baton.core.baton import Baton
from baton.core.messages import PipelineInput, PipelineResult
from baton.core.state import MergeStrategy
from baton.handoff.relay import HandoffTerms
from baton.pipelines.workflow import Pipeline
from baton.pipelines.workflow_steps import ContinueAfter

_COROUTINE = 0x80  # inspect.CO_COROUTINE

Body = Callable[[Pipeline], Awaitable[Any]]
"""An async function that runs the steps of a pipeline."""

if TYPE_CHECKING:

    class PipelineType(type, MethodAsyncSingleParam[Any, PipelineInput, PipelineResult]):
        """What type checkers see of a function pipeline: a workflow class that a client starts like a `run` method."""

        def __call__(cls, workflow: Any, start: PipelineInput, /) -> Awaitable[PipelineResult]:
            """Show what `Client.start_workflow` takes and returns."""

else:
    PipelineType = type


@overload
def pipeline(function: Body, /) -> PipelineType: ...


@overload
def pipeline(
    *,
    name: str | None = None,
    baton_type: type[Baton] = Baton,
    freeze_goal: bool = False,
    protected: Sequence[str] = (),
    merge: Mapping[str, MergeStrategy] | None = None,
    continue_after: ContinueAfter | None = None,
    handoffs: HandoffTerms | None = None,
    contracts: ContractTerms | None = None,
) -> Callable[[Body], PipelineType]: ...


def pipeline(function: Body | None = None, /, *, name: str | None = None, **terms: Any) -> Any:
    """Make a workflow of an async function that takes a `Pipeline`.

    The function may return a `PipelineResult`, or the pipeline's output as JSON, or nothing. The decorator returns a
    workflow class of the function's name: a client starts it, also by name, and a worker takes it among its workflows.

    Args:
        function: The function.
        name: The workflow type's name; the function's own by default.
        **terms: What `Pipeline` takes beside its input, for example `contracts=ContractTerms()`.

    Raises:
        TypeError: It is not an async function of one argument at the top level of a module.

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
        return lambda given: _workflow(given, name, terms)
    return _workflow(function, name, terms)


def _workflow(function: Body, name: str | None, terms: Mapping[str, Any]) -> type:
    """Return the workflow class of a function."""
    code = getattr(function, "__code__", None)
    if code is None or code.co_argcount != 1 or not code.co_flags & _COROUTINE:
        raise TypeError(f"@pipeline needs an async function of one argument, the pipeline; found {function!r}")
    own: str = function.__name__
    if function.__qualname__ != own:
        raise TypeError(
            f"@pipeline found {function.__qualname__!r} inside a function or class; move it to the top level of its "
            "module, where a worker finds it by name"
        )

    class Made:
        def __init__(self, start: PipelineInput) -> None:
            self.pipeline = Pipeline(start, **terms)

        async def run(self, start: PipelineInput) -> PipelineResult:
            returned = await function(self.pipeline)
            return returned if isinstance(returned, PipelineResult) else self.pipeline.result(returned)

    for part, called in ((Made.__init__, f"{own}.__init__"), (Made.run, f"{own}.run"), (Made, own)):
        part.__module__, part.__qualname__ = function.__module__, called
    Made.__name__, Made.__doc__ = own, function.__doc__
    workflow.init(Made.__init__)
    workflow.run(Made.run)
    return workflow.defn(name=name)(Made)
