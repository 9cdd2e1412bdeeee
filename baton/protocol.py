"""The protocol in plain functions, without Temporal, for agents of any other system. Loaded on first use.

A handoff: `build_handoff`, `sign`, `verify`, `validate_handoff`, `issue_receipt`, `verify_receipt`; of another company,
in a relay file: `open_order`. A contract:
`import_session`, `compile_contract`, `validate_contract`, `render_contract`. A report: `render_report`, `parse_report`.
The schemas: `handoff_schema`, `contract_schema`. The baton itself, its patches and `render` are in `baton`.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from baton.contract.compiler import Compiled as Compiled
    from baton.contract.compiler import CompileReport as CompileReport
    from baton.contract.compiler import compile_contract as compile_contract
    from baton.contract.draft import ContractPolicy as ContractPolicy
    from baton.contract.draft import ContractRequest as ContractRequest
    from baton.contract.draft import render_contract as render_contract
    from baton.contract.importing import import_session as import_session
    from baton.contract.records import Confidence as Confidence
    from baton.contract.records import ContractError as ContractError
    from baton.contract.records import ContractVerdict as ContractVerdict
    from baton.contract.records import EventType as EventType
    from baton.contract.records import HandoffContract as HandoffContract
    from baton.contract.records import OutputSchemaRef as OutputSchemaRef
    from baton.contract.records import SessionEvent as SessionEvent
    from baton.contract.transcripts import TranscriptError as TranscriptError
    from baton.contract.validation import contract_schema as contract_schema
    from baton.contract.validation import validate_contract as validate_contract
    from baton.core.costs import CostTracking as CostTracking
    from baton.core.history import Spend as Spend
    from baton.core.receivers import ReceiverRequirements as ReceiverRequirements
    from baton.core.turns import Turn as Turn
    from baton.core.verdict import Code as Code
    from baton.core.verdict import Disposition as Disposition
    from baton.core.verdict import Finding as Finding
    from baton.core.verdict import Receipt as Receipt
    from baton.core.verdict import Verdict as Verdict
    from baton.handoff.records import CompletedSubtask as CompletedSubtask
    from baton.handoff.records import ContextItem as ContextItem
    from baton.handoff.records import Handoff as Handoff
    from baton.handoff.records import Sender as Sender
    from baton.handoff.records import Subtask as Subtask
    from baton.handoff.records import Target as Target
    from baton.handoff.records import ToolCall as ToolCall
    from baton.handoff.records import Trail as Trail
    from baton.handoff.records import handoff_schema as handoff_schema
    from baton.handoff.relay import AgentState as AgentState
    from baton.handoff.relay import Envelope as Envelope
    from baton.handoff.relay import build_handoff as build_handoff
    from baton.handoff.sealed import SealError as SealError
    from baton.handoff.sealed import VerifiedHandoff as VerifiedHandoff
    from baton.handoff.store_order import OpenOrder as OpenOrder
    from baton.handoff.store_order import Order as Order
    from baton.handoff.store_order import OrderError as OrderError
    from baton.handoff.store_order import open_order as open_order
    from baton.handoff.store_protocol import issue_receipt as issue_receipt
    from baton.handoff.store_protocol import sign as sign
    from baton.handoff.store_protocol import validate_handoff as validate_handoff
    from baton.handoff.store_protocol import verify as verify
    from baton.handoff.store_protocol import verify_receipt as verify_receipt
    from baton.keys.store_keyring import Keyring as Keyring
    from baton.keys.store_keys import Key as Key
    from baton.keys.store_keys import PublicKeys as PublicKeys
    from baton.keys.store_keys import Purpose as Purpose
    from baton.report.parsing import ParsedReport as ParsedReport
    from baton.report.parsing import parse_report as parse_report
    from baton.report.records import HandoffReport as HandoffReport
    from baton.report.records import ReportError as ReportError
    from baton.report.rendering import render_report as render_report
else:
    from baton.lazy import lazy_exports

    __getattr__, __dir__, __all__ = lazy_exports(__name__, __file__)
