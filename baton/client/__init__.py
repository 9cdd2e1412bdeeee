"""What services and operators call: connect, read, decide, roll back, fork.

Starting a pipeline needs nothing of Baton's own: it is `client.start_workflow(Delivery.run, PipelineInput(…))`
of the ordinary Temporal client, with `BatonPlugin` among its plugins.
"""

from baton.client.connecting import Connection, connect
from baton.client.ending import run_and_leave
from baton.client.forking import forked_input
from baton.client.inbox import WaitingHandoff, inbox, resolve_handoff, run_inbox
from baton.client.operating import decide, fork
from baton.client.reading import read_run, rebuild
from baton.client.record import RunRecord, RunStatus, Step, StepStatus
from baton.client.rollback import RollbackPoint, RolledBackRun, find_point, roll_back
from baton.edge.leaving import leave

__all__ = [
    "Connection",
    "RollbackPoint",
    "RolledBackRun",
    "RunRecord",
    "RunStatus",
    "Step",
    "StepStatus",
    "WaitingHandoff",
    "connect",
    "decide",
    "find_point",
    "fork",
    "forked_input",
    "inbox",
    "leave",
    "read_run",
    "rebuild",
    "resolve_handoff",
    "roll_back",
    "run_and_leave",
    "run_inbox",
]
