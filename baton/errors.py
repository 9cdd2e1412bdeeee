"""All exceptions of Baton, as one tree; this module imports nothing of Baton, so any module may import it.

```
BatonError                    catch this for any error of Baton itself
├── PatchError                a patch breaks a rule; nothing of it was applied
├── ArtifactError             an operation of the artifact store failed
│   ├── ArtifactUnavailableError  the store is not writable now: try again
│   ├── ArtifactNotFoundError     no artifact with that hash
│   ├── ArtifactCorruptError      the stored bytes do not match their hash
│   └── ArtifactConflictError     an id that is already used for another hash
├── PipelineError             a pipeline cannot continue
│   ├── StageFailedError          a stage failed, or its patches were rejected
│   ├── ApprovalDeniedError       a person or the deadline denied
│   ├── BudgetExhaustedError      the budget is used up, and the pipeline stops then
│   └── InputError                an input of a step is missing, too large or of a wrong type
│       └── ParameterError        a parameter is missing
├── ConfigurationError        a worker lacks what a stage needs; the run waits for another worker
├── AgentError                an agent failed: its model, its program or its answer
├── HandoffError              a handoff cannot be made, read or routed
│   ├── MalformedMessageError     received bytes are not unambiguous JSON
│   └── RoutingError              no agent fits the target
├── HistoryError              an event history lacks what was requested
│   └── UnreadableRunError        a run has malformed records, which anybody may have started it with
├── PayloadError              a payload cannot be decoded: it is damaged or too large
│   └── NewerPayloadError         it was written by a newer Baton
└── ServerError               no Temporal server could be found, started or reached
```

Contracts, reports, the ledger and the vault define further subclasses of `BatonError` in their own modules.
Misuse by a programmer raises `TypeError` or `ValueError` instead.
"""

from typing import TYPE_CHECKING, Any


class BatonError(Exception):
    """The base of all errors of Baton. Catch it for any of them."""


class PatchError(BatonError):
    """A patch breaks a rule; nothing of it was applied.

    Correct what the findings name.

    Attributes:
        findings: One sentence for each broken rule, naming the field, what was found and what to do.

    Example:
        >>> PatchError(["goal: may not be cleared"]).findings
        ['goal: may not be cleared']
    """

    def __init__(self, findings: list[str]) -> None:
        super().__init__("; ".join(findings))
        self.findings = findings


class ArtifactError(BatonError):
    """An operation of the artifact store failed. See the more specific errors."""


class ArtifactUnavailableError(ArtifactError):
    """The artifact store is not writable now, for example because the disk is full. Try again."""


class ArtifactNotFoundError(ArtifactError):
    """The store has no artifact with that hash. Restore the store's backup, or `baton artifact put FILE`."""


class ArtifactCorruptError(ArtifactError):
    """Stored bytes do not match their hash. Restore the store's backup, or `baton artifact put FILE`."""


class ArtifactConflictError(ArtifactError):
    """An artifact id is already used for other bytes; artifacts are immutable. Write the new version under a new id."""


class PipelineError(BatonError):
    """A pipeline cannot continue; it fails with this message.

    Do what the message says, then roll back to the failed step.
    """


class OutdatedError(PipelineError):
    """What a person was shown before an operation has changed; nothing was done.

    Look again, and decide on the new preview.

    Attributes:
        preview: What would follow now; None if nothing can.
    """

    def __init__(self, message: str, preview: object) -> None:
        self.preview = preview
        super().__init__(message)


class StageFailedError(PipelineError):
    """A stage failed, or its patches were rejected as often as its terms allow; the baton is unchanged.

    Repair the stage, and roll back to it. `Pipeline.map` returns it in place of a failed item's result:

    Example:
        >>> StageFailedError("stage 'digest 2' failed").output
        Traceback (most recent call last):
        AttributeError: no output: stage 'digest 2' failed; ask isinstance(result, StageFailedError) first
    """

    if not TYPE_CHECKING:  # a type checker finds it by itself

        def __getattr__(self, name: str) -> Any:
            """Explain why a member of a result is missing."""
            if name in ("output", "output_as", "baton_patch"):
                raise AttributeError(f"no {name}: {self}; ask isinstance(result, StageFailedError) first")
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")


class PayloadTooLargeError(StageFailedError):
    """A payload exceeds the server's limit in bytes, after compression, and there is no artifact store.

    Give the workers a store.
    """

    def __init__(self, kind: str, size: int, limit: int) -> None:
        self.size, self.limit = size, limit
        super().__init__(
            f"{kind} has {size:,} bytes as it would be stored, and without an artifact store the server takes "
            f"{limit:,}: give the workers one (BATON_ARTIFACTS, WorkerParts(artifacts=…)), or pass it as an artifact"
        )


class ApprovalDeniedError(PipelineError):
    """A person or the deadline denied an approval.

    Catch it, or roll back to the approval to ask again.

    Attributes:
        decided: The outcome of the question, a `Settled`: `who`, `why`, `via` and the votes. `via` is `"deadline"` if
            nobody decided in time. If a stage was about to run with other arguments than those approved, it is the
            outcome that approved it.
    """

    def __init__(self, message: str, decided: Any) -> None:
        super().__init__(message)
        self.decided = decided


class InputError(PipelineError, ValueError):
    """An input of a step is missing, too large, or of a type that is not allowed or not expected. Correct the call."""


class ParameterError(InputError, KeyError):
    """A parameter is missing; the message names those that were given. Start the run with it."""

    __str__ = Exception.__str__  # a KeyError's would quote the message


class RecordedBatonError(PipelineError):
    """A recorded baton does not fit the pipeline's baton type, because a field has changed.

    Bring the field back, or give it a default.
    """


class ConfigurationError(BatonError):
    """A worker lacks what a stage needs, and another worker may have it; the stage did not start.

    The run is suspended until a suitable worker starts, without using up an attempt. Raise it in your own stages
    before any work or cost, with what is missing and what to do.

    Example:
        >>> raise ConfigurationError("this worker has no SEARCH_KEY; set it")
        Traceback (most recent call last):
        baton.errors.ConfigurationError: this worker has no SEARCH_KEY; set it
    """


class LabRefusedError(BatonError):
    """The lab does not run a stage, because it could not hold back what the stage may do; nothing ran. Name the stage.

    The message says how.

    Attributes:
        is_unheld: Whether nothing else is in the way, so that the recorded result may stand for it.
    """

    def __init__(self, text: str, *, is_unheld: bool = False) -> None:
        super().__init__(text)
        self.is_unheld = is_unheld


class LabEndedError(BatonError):
    """A pipeline's run in the lab ends here: its last step is done, or people would have been asked again.

    No step begins after it, so code that catches it does nothing more.
    """


class AgentError(BatonError):
    """An agent failed; nothing of its answer was applied. Correct key, model or request if it is permanent.

    The message is stored in the history, so it contains neither keys nor a provider's verbatim answer.

    Attributes:
        permanent: Whether a retry would fail as well: a wrong key, an unknown model, a rejected request.
        waits: Whether waiting for minutes may help: the provider limits the rate, is overloaded or unreachable. The
            run is retried after growing pauses.
        retry_after: The seconds that the provider asks to wait, if known.

    Example:
        >>> AgentError("the provider answered 429", waits=True, retry_after=2.5).permanent
        False
    """

    def __init__(
        self, message: str, *, permanent: bool = False, waits: bool = False, retry_after: float | None = None
    ) -> None:
        super().__init__(message)
        self.permanent = permanent
        self.waits = waits and not permanent
        self.retry_after = retry_after


class HistoryError(BatonError):
    """An event history lacks what was requested. Name another run or step; past its retention a history is gone."""


class UnreadableRunError(HistoryError):
    """A run has malformed records, which anybody may have started it with; lists name it and continue.

    End it if it is not needed.
    """


class PayloadError(BatonError):
    """A payload cannot be decoded: it is damaged or too large.

    Use the workers' settings for keys, codec and artifacts.
    """


class NewerPayloadError(PayloadError):
    """A payload was written by a newer Baton. Upgrade to decode it."""


class ServerError(BatonError):
    """No Temporal server could be found, started or reached.

    Start one with `baton dev`, or name yours in `TEMPORAL_ADDRESS`.

    Attributes:
        title: The cause in a few words, such as "The server's certificate is not valid".
    """

    title = "No Temporal server answers"


class HandoffError(BatonError):
    """A handoff cannot be made, read or routed. See the more specific errors."""


class MalformedMessageError(HandoffError):
    """Received bytes are not unambiguous JSON; the message never quotes them. Send valid JSON, each member once."""


class RoutingError(HandoffError):
    """No agent fits the target of a handoff; the message names the closest.

    Correct the target, or register the agent.
    """


class BudgetExhaustedError(PipelineError):
    """The budget is used up, and the pipeline stops then.

    Start with a larger budget, or let it pause (`Budget(then=…)`).
    """
