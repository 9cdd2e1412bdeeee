"""A pipeline whose stage raises errors with a key in them."""

from temporalio.exceptions import ApplicationError

from baton import Baton, Pipeline, Retries, StageContext, StageResult, pipeline, stage

LEAKED = "sk-proj-" + "0123456789abcdef"
"""The key."""
LEAKS = ["plain", "cause", "group", "failure"]
"""What the stage raises."""


@stage(retries=Retries(attempts=1))
async def leak(context: StageContext[Baton]) -> StageResult:
    """Raise an error."""
    key = LEAKED
    match context.params["how"]:
        case "plain":
            raise ValueError(f"401: incorrect key {key}")
        case "cause":
            try:
                raise ValueError(f"401: incorrect key {key}")
            except ValueError as error:
                raise RuntimeError("it does not work") from error
        case "group":
            raise ExceptionGroup("both", [ValueError(f"401: incorrect key {key}"), OSError("no line")])
        case _:
            raise ApplicationError(f"401: incorrect key {key}", type="Refused")


@pipeline(name="Leaks")
async def Leaks(p: Pipeline) -> None:  # noqa: N802 - its type's name
    """Run the stage."""
    await p.stage(leak)
