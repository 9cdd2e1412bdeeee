"""The API for services and operators: connect, read, decide, roll back, fork. Each name is loaded on first use.

To start a pipeline, use `Start`, or call `client.start_workflow(Delivery.run, PipelineInput(...))` on an ordinary
Temporal client that has `BatonPlugin` among its plugins.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from baton.artifacts.store import ArtifactStore as ArtifactStore
    from baton.contract.records import Explanation as Explanation
    from baton.core.messages import StageInput as StageInput
    from baton.core.messages import StageReturn as StageReturn
    from baton.core.operations import Fact as Fact
    from baton.core.operations import Operation as Operation
    from baton.core.operations import Preview as Preview
    from baton.core.pending import HandoffAction as HandoffAction
    from baton.core.pending import PendingHandoff as PendingHandoff
    from baton.core.questions import APPROVE as APPROVE
    from baton.core.questions import DENY as DENY
    from baton.core.questions import Answer as Answer
    from baton.core.questions import Choice as Choice
    from baton.core.questions import Question as Question
    from baton.core.questions import Settled as Settled
    from baton.core.questions import Vote as Vote
    from baton.ledger.chain import ChainHead as ChainHead
    from baton.ledger.entries import Trace as Trace
    from baton.ledger.records import AuditRecord as AuditRecord
    from baton.ledger.store import Ledger as Ledger
    from baton.ledger.store import LedgerOptions as LedgerOptions
    from baton.outside.client_external import OutsideAgents as OutsideAgents
    from baton.outside.client_external import hand_off_to as hand_off_to
    from baton.outside.client_http import serve_outside as serve_outside
    from baton.personal.records import Erased as Erased
    from baton.personal.records import PersonalData as PersonalData
    from baton.personal.store import Vault as Vault
    from baton.personal.store_erasure import Erase as Erase
    from baton.personal.store_erasure import ErasePreview as ErasePreview
    from baton.runs.client_cancel import Cancel as Cancel
    from baton.runs.client_cancel import CancelPreview as CancelPreview
    from baton.runs.client_changes import Change as Change
    from baton.runs.client_changes import FieldChange as FieldChange
    from baton.runs.client_changes import changes as changes
    from baton.runs.client_changes import compare as compare
    from baton.runs.client_changes import for_display as for_display
    from baton.runs.client_changes import remarks as remarks
    from baton.runs.client_changes import with_before as with_before
    from baton.runs.client_clock import server_now as server_now
    from baton.runs.client_connection import Connection as Connection
    from baton.runs.client_connection import connect as connect
    from baton.runs.client_connection import run_and_leave as run_and_leave
    from baton.runs.client_decide import Decide as Decide
    from baton.runs.client_decide import DecidePreview as DecidePreview
    from baton.runs.client_decide import decide as decide
    from baton.runs.client_executions import describe as describe
    from baton.runs.client_explanation import explain as explain
    from baton.runs.client_follow import Cursor as Cursor
    from baton.runs.client_follow import Followed as Followed
    from baton.runs.client_follow import follow as follow
    from baton.runs.client_fork import Fork as Fork
    from baton.runs.client_fork import ForkPreview as ForkPreview
    from baton.runs.client_fork import fork as fork
    from baton.runs.client_fork import forked_input as forked_input
    from baton.runs.client_fork import refused_patch as refused_patch
    from baton.runs.client_handoffs import RunHandoffs as RunHandoffs
    from baton.runs.client_handoffs import read_handoffs as read_handoffs
    from baton.runs.client_handoffs import text_at as text_at
    from baton.runs.client_handoffs import without_envelope as without_envelope
    from baton.runs.client_inbox import InboxPage as InboxPage
    from baton.runs.client_inbox import WaitingQuestion as WaitingQuestion
    from baton.runs.client_inbox import inbox as inbox
    from baton.runs.client_inbox import run_inbox as run_inbox
    from baton.runs.client_list import STATUSES as STATUSES
    from baton.runs.client_list import ListedRun as ListedRun
    from baton.runs.client_list import RunFilter as RunFilter
    from baton.runs.client_list import list_runs as list_runs
    from baton.runs.client_list import with_details as with_details
    from baton.runs.client_news import News as News
    from baton.runs.client_news import NewsKind as NewsKind
    from baton.runs.client_pause import Pause as Pause
    from baton.runs.client_pause import PausePreview as PausePreview
    from baton.runs.client_pause import Unpause as Unpause
    from baton.runs.client_personal import open_personal_data as open_personal_data
    from baton.runs.client_reader import read_run as read_run
    from baton.runs.client_reader import rebuild as rebuild
    from baton.runs.client_record import Note as Note
    from baton.runs.client_record import RunRecord as RunRecord
    from baton.runs.client_record import RunStatus as RunStatus
    from baton.runs.client_record import Step as Step
    from baton.runs.client_record import StepStatus as StepStatus
    from baton.runs.client_rollback import RollBack as RollBack
    from baton.runs.client_rollback import RollbackPoint as RollbackPoint
    from baton.runs.client_rollback import RollbackPreview as RollbackPreview
    from baton.runs.client_rollback import RolledBackRun as RolledBackRun
    from baton.runs.client_rollback import roll_back as roll_back
    from baton.runs.client_standing import Standing as Standing
    from baton.runs.client_standing import decision_commands as decision_commands
    from baton.runs.client_standing import identity_option as identity_option
    from baton.runs.client_standing import standing as standing
    from baton.runs.client_start import Start as Start
    from baton.runs.client_start import StartPreview as StartPreview
    from baton.runs.client_waiting import NoAnswerError as NoAnswerError
    from baton.runs.client_waiting import Pending as Pending
    from baton.runs.client_waiting import Waits as Waits
    from baton.runs.client_waiting import answer_of as answer_of
    from baton.runs.client_waiting import waits as waits
    from baton.sdk import leave as leave
else:
    from baton.lazy import lazy_exports

    __getattr__, __dir__, __all__ = lazy_exports(__name__, __file__)
