"""What a worker lacks to do a stage, as workers and pipelines tell each other; the run waits for one that has it."""

from pydantic import Field

from baton.wire.records import CompactRecord, Whole

WAIT_FOR_WORKER = "baton.wait_for_worker"
"""The activity that succeeds on a worker that may have what was lacking; its retries wait, and cost no history."""

MOST_WORKERS = 100
"""So many workers are remembered that lacked it; each of them has done the stage's activity once, unpaid."""


class Lack(CompactRecord):
    """Something that a worker lacks.

    Attributes:
        kind: What it is, as of `ConfigurationError`.
        name: Its name.
        text: The message, with what to do.
        worker: Which worker lacks it.
    """

    kind: str
    name: str
    text: str
    worker: str


class Lacking(CompactRecord):
    """What the activity `baton.wait_for_worker` is sent.

    Attributes:
        stage: The stage that waits.
        seq: The number of its step.
        kind: What is lacking.
        name: Its name.
        text: The message, with what to do.
        workers: The workers that lacked it.
    """

    stage: str
    seq: Whole
    kind: str
    name: str
    text: str
    workers: list[str] = Field(default_factory=list)
