"""A pipeline whose stage raises errors with a key in them."""

from contextlib import suppress

from temporalio.exceptions import ApplicationError

from baton import Baton, PatchError, Pipeline, Retries, StageContext, StageResult, pipeline, stage

LEAKED = "sk-proj-" + "0123456789abcdef"
"""The key."""
LEAKS = ["plain", "cause", "group", "failure", "details", "findings", "tool"]
"""What the stage raises."""


def _refuse(key: str) -> None:
    raise ValueError(f"401: incorrect key {key}")


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
        case "details":
            raise ApplicationError("401", {"tried": [f"incorrect key {key}"]}, type="Refused")
        case "findings":
            raise PatchError([f"current_state: the key {key} is not a text"])
        case "tool":
            with suppress(ValueError):
                await context.tools.call("crm.lookup", _refuse, key)
            return StageResult(baton_patch={"unknown": "so that the run fails"})
        case _:
            raise ApplicationError(f"401: incorrect key {key}", type="Refused")


@pipeline(name="Leaks")
async def Leaks(p: Pipeline) -> None:  # noqa: N802 - its type's name
    """Run the stage."""
    await p.stage(leak)
