"""What an activity uses: `@stage`, and the context a stage may ask for.

A stage is a plain async function. In a test it is called like one; in a worker it is an activity that
takes a `StageInput` and answers with a `StageReturn`.
"""

from baton.activity.context import StageContext, WorkerParts, current_parts, worker_parts
from baton.activity.desk import ArtifactDesk
from baton.activity.stage import Stage, stage

__all__ = ["ArtifactDesk", "Stage", "StageContext", "WorkerParts", "current_parts", "stage", "worker_parts"]
