"""What the command and the console need besides `baton.client`, to show, check and page. Any release may change it."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from baton.artifacts.store import ArtifactStore as ArtifactStore
    from baton.artifacts.store import LocalArtifactStore as LocalArtifactStore
    from baton.core.baton import AnyBaton as AnyBaton
    from baton.core.messages import StageInput as StageInput
    from baton.core.messages import StageReturn as StageReturn
    from baton.core.people import name_refusal as name_refusal
    from baton.core.questions import APPROVE as APPROVE
    from baton.core.questions import DENY as DENY
    from baton.ledger.chain import Finding as Finding
    from baton.ledger.chain import Verdict as Verdict
    from baton.ledger.records import AuditCost as AuditCost
    from baton.ledger.records import AuditHeader as AuditHeader
    from baton.ledger.records import LedgerContinuityError as LedgerContinuityError
    from baton.ledger.records import LedgerKeysError as LedgerKeysError
    from baton.ledger.store_evidence import AnchorFile as AnchorFile
    from baton.ledger.store_reader import FlawedRecordsError as FlawedRecordsError
    from baton.ledger.store_reader import Segment as Segment
    from baton.ledger.store_schema import is_ledger_url as is_ledger_url
    from baton.ledger.store_schema import migrate_ledger as migrate_ledger
    from baton.personal.store_subjects import Place as Place
    from baton.runs.client_bill import PairedSum as PairedSum
    from baton.runs.client_bill import pair_sums as pair_sums
    from baton.runs.client_bill import read_export as read_export
    from baton.runs.client_changes import Before as Before
    from baton.runs.client_changes import Change as Change
    from baton.runs.client_changes import changes as changes
    from baton.runs.client_changes import compare as compare
    from baton.runs.client_changes import for_display as for_display
    from baton.runs.client_changes import remarks as remarks
    from baton.runs.client_changes import with_before as with_before
    from baton.runs.client_checks import CheckMark as CheckMark
    from baton.runs.client_checks import CheckResult as CheckResult
    from baton.runs.client_checks import check_artifacts as check_artifacts
    from baton.runs.client_checks import check_routing as check_routing
    from baton.runs.client_checks import check_server as check_server
    from baton.runs.client_checks import run_check as run_check
    from baton.runs.client_clock import server_now as server_now
    from baton.runs.client_decide import name_questions as name_questions
    from baton.runs.client_decide import select_questions as select_questions
    from baton.runs.client_description import describe_news as describe_news
    from baton.runs.client_executions import describe as describe
    from baton.runs.client_explanation import explain_in as explain_in
    from baton.runs.client_follow import wait_for_first_answer as wait_for_first_answer
    from baton.runs.client_fork import refused_patch as refused_patch
    from baton.runs.client_handoffs import text_at as text_at
    from baton.runs.client_handoffs import without_envelope as without_envelope
    from baton.runs.client_heads import parse_anchors as parse_anchors
    from baton.runs.client_heads import read_heads as read_heads
    from baton.runs.client_inbox import InboxPage as InboxPage
    from baton.runs.client_inbox import inbox_page as inbox_page
    from baton.runs.client_list import SUSPENDED as SUSPENDED
    from baton.runs.client_list import lacks_attributes as lacks_attributes
    from baton.runs.client_list import with_details as with_details
    from baton.runs.client_reader import find_task_id as find_task_id
    from baton.runs.client_replay import Replayed as Replayed
    from baton.runs.client_replay import replay_history as replay_history
    from baton.runs.client_schemas import MESSAGES as MESSAGES
    from baton.runs.client_schemas import SCHEMAS as SCHEMAS
    from baton.runs.client_standing import decision_commands as decision_commands
    from baton.runs.client_standing import identity_option as identity_option
    from baton.runs.client_standing import standings as standings
    from baton.runs.client_waiting import lacking as lacking
    from baton.sdk import exit_process as exit_process
    from baton.wire.names import DEFAULT_STORE as DEFAULT_STORE
else:
    from baton.lazy import lazy_exports

    __getattr__, __dir__, __all__ = lazy_exports(__name__, __file__)
