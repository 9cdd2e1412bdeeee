"""The API for services and operators: list, read, decide, operate. Each name is loaded on first use.

One shape for each kind: a list is an async iterator with an optional `limit`, a record has `to_json_object()`, and an
operation has `preview()` and `commit()`.

| to | names |
|---|---|
| connect | `connect`, `Connection`, `ClientPlugin`, `DEFAULT_TASK_QUEUE`, `run_and_exit` |
| list runs | `list_runs`, `count_runs`, `RunFilter`, `STATUSES`, `ListedRun` |
| list what people are asked | `inbox`, `WaitingQuestion`, `open_approvals`, `OpenApproval` |
| list costs | `read_charges`, `Charged`, `sum_charges`, `GroupBy` |
| read a run | `read_run`, `rebuild`, `RunRecord`, `RunStatus`, `Step`, `StepStatus`, `Note`, `schema_of` |
| read its handoffs | `read_handoffs`, `RunHandoffs`, `explain`, `Explanation` |
| read where a value comes from | `why`, `Provenance`, `Reason`, `ReasonKind` |
| read what agents were asked | `ReadTranscript`, `Transcript` |
| read what it waits for | `waits`, `Waits`, `Pending`, `standing`, `Standing` |
| follow it | `follow`, `Followed`, `Cursor`, `News`, `NewsKind`, `PauseChange` |
| answer a question | `decide`, `Answer`, `Settled`, `Question`, `Choice`, `Vote`, `HandoffAction`, `PendingHandoff` |
| operate | `Operation`, `Preview`, `Fact`, `Start`, `StartPreview`, `Decide`, `DecidePreview` |
| steer an agent | `Steer`, `SteerPreview`, `SteeringNote` |
| pause and cancel | `Cancel`, `CancelPreview`, `Pause`, `Unpause`, `PausePreview` |
| roll back | `RollBack`, `RollbackPreview`, `RollbackPoint`, `roll_back`, `RolledBackRun` |
| fork | `Fork`, `ForkPreview`, `fork` |
| hand off to another company | `ExportHandoff`, `ExportPreview`, `AcceptHandoff`, `AcceptPreview`, `AcceptedHandoff` |
| audit | `Ledger`, `LedgerOptions`, `LedgerError`, `Trace`, `AuditRecord`, `TaskCost`, `ChainHead` |
| verify | `verify_bundle`, `Report`, `Checkpoint` |
| keep personal data | `Vault`, `VaultOptions`, `open_personal_data`, `PersonalData`, `Erased` |
| erase it | `Erase`, `ErasePreview`, `Erasure` |
| serve pipelines | `service`, `serve_service`, `ServiceParts`, `Offer`, `Access`, `Tokens`, `Caller`, `Role` |
| serve agents outside, and take orders | `OutsideAgents`, `HandoffTools`, `handoff_server`, `hand_off_to`, `Orders` |

To start a pipeline, use `Start`, or call `client.start_workflow(Delivery.run, PipelineInput(...))` on an ordinary
Temporal client that has `BatonPlugin` among its plugins.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from baton.contract.records import Explanation as Explanation
    from baton.core.operations import Fact as Fact
    from baton.core.operations import Operation as Operation
    from baton.core.operations import Preview as Preview
    from baton.core.pending import HandoffAction as HandoffAction
    from baton.core.pending import PendingHandoff as PendingHandoff
    from baton.core.questions import Answer as Answer
    from baton.core.questions import Choice as Choice
    from baton.core.questions import Question as Question
    from baton.core.questions import Settled as Settled
    from baton.core.questions import Vote as Vote
    from baton.core.steering import SteeringNote as SteeringNote
    from baton.core.transcript import Transcript as Transcript
    from baton.doors.client_access import Access as Access
    from baton.doors.client_access import Caller as Caller
    from baton.doors.client_access import Role as Role
    from baton.doors.client_access import Tokens as Tokens
    from baton.doors.client_mcp import handoff_server as handoff_server
    from baton.doors.client_runs import Offer as Offer
    from baton.doors.client_runs import Orders as Orders
    from baton.doors.client_runs import ServiceParts as ServiceParts
    from baton.doors.client_service import serve_service as serve_service
    from baton.doors.client_service import service as service
    from baton.ledger.chain import ChainHead as ChainHead
    from baton.ledger.entries import TaskCost as TaskCost
    from baton.ledger.entries import Trace as Trace
    from baton.ledger.proof import Checkpoint as Checkpoint
    from baton.ledger.proof import Report as Report
    from baton.ledger.records import AuditRecord as AuditRecord
    from baton.ledger.records import LedgerError as LedgerError
    from baton.ledger.store import Ledger as Ledger
    from baton.ledger.store import LedgerOptions as LedgerOptions
    from baton.ledger.store_evidence import verify_bundle as verify_bundle
    from baton.outside.client_external import OutsideAgents as OutsideAgents
    from baton.outside.client_external import hand_off_to as hand_off_to
    from baton.outside.client_tools import HandoffTools as HandoffTools
    from baton.personal.records import Erased as Erased
    from baton.personal.records import PersonalData as PersonalData
    from baton.personal.store import Vault as Vault
    from baton.personal.store import VaultOptions as VaultOptions
    from baton.personal.store_erasure import Erase as Erase
    from baton.personal.store_erasure import ErasePreview as ErasePreview
    from baton.personal.store_subjects import Erasure as Erasure
    from baton.runs.client_bill import Charged as Charged
    from baton.runs.client_bill import GroupBy as GroupBy
    from baton.runs.client_bill import read_charges as read_charges
    from baton.runs.client_bill import sum_charges as sum_charges
    from baton.runs.client_connection import DEFAULT_TASK_QUEUE as DEFAULT_TASK_QUEUE
    from baton.runs.client_connection import Connection as Connection
    from baton.runs.client_connection import connect as connect
    from baton.runs.client_connection import run_and_exit as run_and_exit
    from baton.runs.client_control import Cancel as Cancel
    from baton.runs.client_control import CancelPreview as CancelPreview
    from baton.runs.client_control import Pause as Pause
    from baton.runs.client_control import PausePreview as PausePreview
    from baton.runs.client_control import Unpause as Unpause
    from baton.runs.client_decide import Decide as Decide
    from baton.runs.client_decide import DecidePreview as DecidePreview
    from baton.runs.client_decide import decide as decide
    from baton.runs.client_explanation import explain as explain
    from baton.runs.client_follow import Cursor as Cursor
    from baton.runs.client_follow import Followed as Followed
    from baton.runs.client_follow import follow as follow
    from baton.runs.client_fork import Fork as Fork
    from baton.runs.client_fork import ForkPreview as ForkPreview
    from baton.runs.client_fork import fork as fork
    from baton.runs.client_handoffs import RunHandoffs as RunHandoffs
    from baton.runs.client_handoffs import read_handoffs as read_handoffs
    from baton.runs.client_inbox import OpenApproval as OpenApproval
    from baton.runs.client_inbox import WaitingQuestion as WaitingQuestion
    from baton.runs.client_inbox import inbox as inbox
    from baton.runs.client_inbox import open_approvals as open_approvals
    from baton.runs.client_list import STATUSES as STATUSES
    from baton.runs.client_list import ListedRun as ListedRun
    from baton.runs.client_list import RunFilter as RunFilter
    from baton.runs.client_list import count_runs as count_runs
    from baton.runs.client_list import list_runs as list_runs
    from baton.runs.client_news import News as News
    from baton.runs.client_news import NewsKind as NewsKind
    from baton.runs.client_order import AcceptedHandoff as AcceptedHandoff
    from baton.runs.client_order import AcceptHandoff as AcceptHandoff
    from baton.runs.client_order import AcceptPreview as AcceptPreview
    from baton.runs.client_order import ExportHandoff as ExportHandoff
    from baton.runs.client_order import ExportPreview as ExportPreview
    from baton.runs.client_personal import open_personal_data as open_personal_data
    from baton.runs.client_plugin import ClientPlugin as ClientPlugin
    from baton.runs.client_provenance import Provenance as Provenance
    from baton.runs.client_provenance import Reason as Reason
    from baton.runs.client_provenance import ReasonKind as ReasonKind
    from baton.runs.client_provenance import why as why
    from baton.runs.client_reader import read_run as read_run
    from baton.runs.client_reader import rebuild as rebuild
    from baton.runs.client_record import Note as Note
    from baton.runs.client_record import PauseChange as PauseChange
    from baton.runs.client_record import RunRecord as RunRecord
    from baton.runs.client_record import RunStatus as RunStatus
    from baton.runs.client_record import Step as Step
    from baton.runs.client_record import StepStatus as StepStatus
    from baton.runs.client_rollback import RollBack as RollBack
    from baton.runs.client_rollback import RollbackPoint as RollbackPoint
    from baton.runs.client_rollback import RollbackPreview as RollbackPreview
    from baton.runs.client_rollback import RolledBackRun as RolledBackRun
    from baton.runs.client_rollback import roll_back as roll_back
    from baton.runs.client_schemas import schema_of as schema_of
    from baton.runs.client_standing import Standing as Standing
    from baton.runs.client_standing import standing as standing
    from baton.runs.client_start import Start as Start
    from baton.runs.client_start import StartPreview as StartPreview
    from baton.runs.client_steer import Steer as Steer
    from baton.runs.client_steer import SteerPreview as SteerPreview
    from baton.runs.client_transcript import ReadTranscript as ReadTranscript
    from baton.runs.client_waiting import Pending as Pending
    from baton.runs.client_waiting import Waits as Waits
    from baton.runs.client_waiting import waits as waits
else:
    from baton.lazy import lazy_exports

    __getattr__, __dir__, __all__ = lazy_exports(__name__, __file__)
