"""A pipeline whose stage raises errors with a key in them."""

from contextlib import suppress
from datetime import timedelta
from pathlib import Path

from temporalio import activity, workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ApplicationError

from baton import Baton, PatchError, Pipeline, Retries, StageContext, StageResult, pipeline, stage

LEAKED = "sk-proj-" + "0123456789abcdef"
"""The key."""
LEAKS = ["plain", "cause", "group", "failure", "details", "findings", "tool", "call", "note", "warning"]
"""What the stage raises or records."""


def _refuse(key: str) -> None:
    raise ValueError(f"401: incorrect key {key}")


@stage(retries=Retries(attempts=1), attempts=1, stream=True)
async def leak(context: StageContext[Baton]) -> StageResult:
    """Raise an error, or record something and fail."""
    key = LEAKED
    rejected = StageResult(baton_patch={"unknown": "so that the run fails"})
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
            return rejected
        case "call":
            answer = await context.tools.call("crm.config", lambda **headers: str(headers), authorization=key)
            context.stream.tool_called("crm.config", {"authorization": key})
            context.stream.tool_answered("crm.config", answer)
            for part in ("The key is ", key[:9], key[9:]):
                context.stream.text(part)
            return rejected
        case "note":
            context.session.tool_call("crm.lookup", {"keys": [key], "client": Path(key)})
            context.session.tool_result("crm.lookup", f"It works with {key}", content=f"GET /?key={key}")
            context.session.internal_note(f"The key {key} works.")
            return rejected
        case "warning":
            return rejected.model_copy(update={"warnings": [f"401: incorrect key {key}"]})
        case _:
            raise ApplicationError(f"401: incorrect key {key}", type="Refused")


@activity.defn
async def leak_plainly() -> None:
    """Raise an error outside stages."""
    _refuse(LEAKED)


@pipeline(name="Leaks")
async def Leaks(p: Pipeline) -> None:  # noqa: N802 - its type's name
    """Run the stage, or the activity."""
    if p.params["how"] == "activity":
        once = RetryPolicy(maximum_attempts=1)
        await workflow.execute_activity(leak_plainly, start_to_close_timeout=timedelta(seconds=10), retry_policy=once)
    await p.stage(leak)
