"""What services and operators call: connect, read, decide, roll back, fork.

Starting a pipeline needs nothing of Baton's own: it is `client.start_workflow(Delivery.run, PipelineInput(…))`
of the ordinary Temporal client, with `BatonPlugin` among its plugins.
"""

from baton.handoff.client_inbox import WaitingHandoff, inbox, resolve_handoff, run_inbox
from baton.runs.client_connection import Connection, connect
from baton.runs.client_ending import run_and_leave
from baton.runs.client_fork import forked_input
from baton.runs.client_operations import decide, fork
from baton.runs.client_reader import read_run, rebuild
from baton.runs.client_record import RunRecord, RunStatus, Step, StepStatus
from baton.runs.client_rollback import RollbackPoint, RolledBackRun, find_point, roll_back
from baton.sdk.leaving import leave

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
