"""Every exception Baton raises, in one tree; this module imports nothing, so any ring may use it.

```
BatonError                    catch this for "anything Baton itself refused"
├── PatchError                a stage's patch breaks a rule; nothing of it was applied
├── ArtifactError             the artifact store cannot give or take what was asked
│   ├── ArtifactUnavailableError  the store cannot be written right now: try again
│   ├── ArtifactNotFoundError     no artifact with that hash
│   ├── ArtifactCorruptError      the stored bytes no longer have their hash
│   └── ArtifactConflictError     an id that is taken, with another hash
├── PipelineError             a pipeline cannot continue
│   ├── StageFailedError          a stage failed, or was refused as often as allowed
│   ├── ApprovalDeniedError       a person, or the deadline, said no
│   ├── OutcomeMismatchError      the code asks for another stage than the one recorded
│   ├── BudgetExhaustedError      the budget is used up, and the pipeline declared to stop then
│   └── InputError                what a step is to be given cannot be handed on, or is not what it expects
├── ConfigurationError        a worker lacks what a stage needs; the run waits for one that has it
├── AgentError                an agent could not do its stage: its model, its program or its answer failed
├── HandoffError              a handoff cannot be made, read or routed
│   ├── MalformedMessageError     received bytes are not JSON that every reader reads alike
│   └── RoutingError              no agent fits the target
├── HistoryError              an event history does not hold what was asked of it
├── PayloadError              a payload cannot be decoded: it is damaged or too large
│   └── NewerPayloadError         it was written by a newer Baton
└── ServerError               no Temporal server could be found, started or reached
```

The errors of contracts, reports, the ledger and the vault hang below `BatonError` in modules of their own.
Misuse by a programmer is a `TypeError` or `ValueError` where it starts, not one of these.
"""


class BatonError(Exception):
    """The root of everything Baton raises by itself."""


class PatchError(BatonError):
    """A patch breaks a rule; nothing of it was applied.

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
    """The artifact store cannot give or take what was asked."""


class ArtifactUnavailableError(ArtifactError):
    """The artifact store cannot be written right now, as on a full disk; it is worth trying again."""


class ArtifactNotFoundError(ArtifactError):
    """The store holds nothing under that hash."""


class ArtifactCorruptError(ArtifactError):
    """Stored bytes no longer have the hash they are stored under."""


class ArtifactConflictError(ArtifactError):
    """An artifact id is already used for other bytes; artifacts are immutable."""


class PipelineError(BatonError):
    """A pipeline cannot continue; it fails with this message."""


class StageFailedError(PipelineError):
    """A stage failed, or was refused as often as its options allow; the baton is as it was before it."""


class PayloadTooLargeError(StageFailedError):
    """Something that a step sends, or a run returns, is larger than the server takes, and there is no artifact store.

    Attributes:
        size: Its size in bytes, compressed where payloads are.
        limit: The most that is taken.
    """

    def __init__(self, kind: str, size: int, limit: int) -> None:
        self.size, self.limit = size, limit
        super().__init__(
            f"{kind} has {size:,} bytes as it would be stored, and without an artifact store the server takes "
            f"{limit:,}: give the workers one (BATON_ARTIFACTS, WorkerParts(artifacts=…)), or hand it on as an artifact"
        )


class ApprovalDeniedError(PipelineError):
    """A person, or the deadline, denied an approval."""


class OutcomeMismatchError(PipelineError):
    """A recorded outcome belongs to another step than the one the code asks for."""


class InputError(PipelineError, ValueError):
    """What a step is to be given cannot be handed on, or is not what its code expects."""


class RecordedBatonError(PipelineError):
    """A recorded baton does not fit the pipeline's type of baton: a field of it has changed since."""


class ConfigurationError(BatonError):
    """A worker lacks what a stage needs, and another worker may have it; the stage did not begin its work.

    The run is suspended until a worker that may have it is started, and none of the stage's tries is used up. Raise
    it in a stage of your own, with what is missing and what to do, before anything was done or paid.

    Example:
        >>> raise ConfigurationError("this worker has no SEARCH_KEY; set it")
        Traceback (most recent call last):
        baton.errors.ConfigurationError: this worker has no SEARCH_KEY; set it
    """


class AgentError(BatonError):
    """An agent could not do its stage; nothing of what it answered was applied.

    Its text goes into the history: it never holds a key, nor what a provider answered word for word.

    Attributes:
        permanent: Whether another run would fail as well: a wrong key, an unknown model, a refused request.
        waits: Whether waiting for minutes may help: the provider limits the rate, is overloaded or cannot be reached.
            Such a run is repeated after growing pauses.
        retry_after: After how many seconds the provider wants to be asked again, if it said so.

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
    """An event history does not hold what was asked of it."""


class PayloadError(BatonError):
    """A payload cannot be decoded: it is damaged or too large."""


class NewerPayloadError(PayloadError):
    """A payload was written by a newer Baton, and can be decoded once this one is upgraded."""


class ServerError(BatonError):
    """No Temporal server could be found, started or reached."""


class HandoffError(BatonError):
    """A handoff cannot be made, read or routed."""


class MalformedMessageError(HandoffError):
    """Received bytes are not JSON that every reader reads alike; the message never quotes them."""


class RoutingError(HandoffError):
    """No agent fits the target of a handoff; the message names what comes nearest."""


class BudgetExhaustedError(PipelineError):
    """The budget is used up, and the pipeline declared to stop then."""
