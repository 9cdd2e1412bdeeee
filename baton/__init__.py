"""Baton: durable multi-agent pipelines on Temporal.

A pipeline is a workflow whose state is a small record, the baton. Stages are activities that read the baton and
return a patch. `dir(baton)` lists what a first pipeline needs, `__all__` also what later ones need. Each name is loaded
on first use, so `import baton` loads neither Temporal nor any service library, not even in a workflow.

Five more modules are public: `baton.agents` (adapters for agent frameworks), `baton.client` (for services and
operators: list, read, decide, operate), `baton.lab` (recorded stages run again), `baton.protocol` (handoffs, contracts
and reports without Temporal) and `baton.testing` (the test kit).

Example:
    >>> from baton import apply_patch
    >>> start = Baton(goal="Add OAuth2 login", current_state=["Workflow starting"])
    >>> after = apply_patch(start, BatonPatch(decision_log=["Chose JWT over sessions"]))
    >>> after.decision_log
    ['Chose JWT over sessions']
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from baton.artifacts.store import MemoryArtifactStore as MemoryArtifactStore
    from baton.artifacts.store import open_store as open_store
    from baton.compression.rules import Summariser as Summariser
    from baton.contract.compiler import DEFAULT_PROCESSORS as DEFAULT_PROCESSORS
    from baton.contract.draft import Draft as Draft
    from baton.contract.draft import Processor as Processor
    from baton.contract.registry import OutputSchema as OutputSchema
    from baton.contract.registry import OutputSchemas as OutputSchemas
    from baton.contract.workflow import ContractTerms as ContractTerms
    from baton.core.artifacts import ArtifactRef as ArtifactRef
    from baton.core.baton import Baton as Baton
    from baton.core.baton import BatonPatch as BatonPatch
    from baton.core.budget import Budget as Budget
    from baton.core.budget import OnExhaustion as OnExhaustion
    from baton.core.exhibits import Exhibit as Exhibit
    from baton.core.history import Conflict as Conflict
    from baton.core.history import HistoryEntry as HistoryEntry
    from baton.core.history import Outcome as Outcome
    from baton.core.history import Spend as Spend
    from baton.core.history import StepKind as StepKind
    from baton.core.history import snapshots as snapshots
    from baton.core.messages import Overview as Overview
    from baton.core.messages import PipelineInput as PipelineInput
    from baton.core.messages import PipelineResult as PipelineResult
    from baton.core.messages import PipelineStatus as PipelineStatus
    from baton.core.messages import StageResult as StageResult
    from baton.core.patching import PatchRules as PatchRules
    from baton.core.patching import apply_patch as apply_patch
    from baton.core.patching import merge_patch as merge_patch
    from baton.core.questions import Settled as Settled
    from baton.core.receivers import ReceiverRequirements as ReceiverRequirements
    from baton.core.rendering import render as render
    from baton.core.requester import Requester as Requester
    from baton.core.stages import OnReport as OnReport
    from baton.core.stages import Retries as Retries
    from baton.core.state import MergeStrategy as MergeStrategy
    from baton.errors import ApprovalDeniedError as ApprovalDeniedError
    from baton.errors import ArtifactConflictError as ArtifactConflictError
    from baton.errors import ArtifactCorruptError as ArtifactCorruptError
    from baton.errors import ArtifactError as ArtifactError
    from baton.errors import ArtifactNotFoundError as ArtifactNotFoundError
    from baton.errors import BatonError as BatonError
    from baton.errors import BudgetExhaustedError as BudgetExhaustedError
    from baton.errors import ConfigurationError as ConfigurationError
    from baton.errors import HistoryError as HistoryError
    from baton.errors import InputError as InputError
    from baton.errors import OutdatedError as OutdatedError
    from baton.errors import ParameterError as ParameterError
    from baton.errors import PatchError as PatchError
    from baton.errors import PipelineError as PipelineError
    from baton.errors import ServerError as ServerError
    from baton.errors import StageFailedError as StageFailedError
    from baton.exchange.workflow import Exchange as Exchange
    from baton.exchange.workflow_broadcast import hand_off_to_all as hand_off_to_all
    from baton.exchange.workflow_external import Outside as Outside
    from baton.exchange.workflow_messages import Receiver as Receiver
    from baton.exchange.workflow_streams import Streams as Streams
    from baton.handoff.relay import HandoffTerms as HandoffTerms
    from baton.handoff.store_safeguards import Safeguards as Safeguards
    from baton.keys.store_keyring import Keyring as Keyring
    from baton.local import run as run
    from baton.personal.records import SubjectErasedError as SubjectErasedError
    from baton.pipelines.activity_context import StageContext as StageContext
    from baton.pipelines.activity_parts import WorkerParts as WorkerParts
    from baton.pipelines.activity_stage import Stage as Stage
    from baton.pipelines.activity_stage import stage as stage
    from baton.pipelines.workflow import Pipeline as Pipeline
    from baton.pipelines.workflow_compensation import Compensations as Compensations
    from baton.pipelines.workflow_function import pipeline as pipeline
    from baton.pipelines.workflow_steps import ContinueAfter as ContinueAfter
    from baton.plugin import BatonPlugin as BatonPlugin
    from baton.report.merging import merge_reports as merge_reports
    from baton.report.records import HandoffReport as HandoffReport
    from baton.safety.detector import detect as detect
    from baton.safety.scan import Category as Category
    from baton.safety.scan import ScanPolicy as ScanPolicy
    from baton.safety.scan import Suspicion as Suspicion
    from baton.safety.store_classifier import Classifier as Classifier
    from baton.wire.text import TokenEstimator as TokenEstimator
    from baton.wire.text import estimate_tokens as estimate_tokens
    from baton.wire.text import fence as fence
    from baton.worker import run_worker as run_worker

__version__ = "0.1.0"

_HOMES = {
    "core.artifacts": "ArtifactRef",
    "core.budget": "Budget OnExhaustion",
    "contract.workflow": "ContractTerms",
    "core.baton": "Baton BatonPatch",
    "core.history": "Conflict HistoryEntry Outcome Spend StepKind snapshots",
    "core.patching": "merge_patch PatchRules apply_patch",
    "core.state": "MergeStrategy",
    "core.messages": "Overview PipelineInput PipelineResult PipelineStatus StageResult",
    "core.rendering": "render",
    "core.exhibits": "Exhibit",
    "core.stages": "OnReport Retries",
    "errors": (
        "ApprovalDeniedError ArtifactConflictError ArtifactCorruptError ArtifactError ArtifactNotFoundError "
        "BatonError BudgetExhaustedError ConfigurationError HistoryError InputError OutdatedError ParameterError "
        "PatchError PipelineError ServerError StageFailedError"
    ),
    "exchange.workflow": "Exchange",
    "exchange.workflow_external": "Outside",
    "exchange.workflow_streams": "Streams",
    "handoff.store_safeguards": "Safeguards",
    "handoff.relay": "HandoffTerms",
    "local": "run",
    "pipelines.activity_context": "StageContext",
    "pipelines.activity_parts": "WorkerParts",
    "pipelines.activity_stage": "Stage stage",
    "pipelines.workflow": "Pipeline",
    "pipelines.workflow_compensation": "Compensations",
    "pipelines.workflow_steps": "ContinueAfter",
    "pipelines.workflow_function": "pipeline",
    "plugin": "BatonPlugin",
    "report.merging": "merge_reports",
    "report.records": "HandoffReport",
    "safety.scan": "Category ScanPolicy Suspicion",
    "safety.detector": "detect",
    "safety.store_classifier": "Classifier",
    "exchange.workflow_messages": "Receiver",
    "exchange.workflow_broadcast": "hand_off_to_all",
    "keys.store_keyring": "Keyring",
    "personal.records": "SubjectErasedError",
    "compression.rules": "Summariser",
    "artifacts.store": "open_store MemoryArtifactStore",
    "contract.registry": "OutputSchema OutputSchemas",
    "contract.compiler": "DEFAULT_PROCESSORS",
    "contract.draft": "Draft Processor",
    "wire.text": "TokenEstimator estimate_tokens fence",
    "worker": "run_worker",
    "core.receivers": "ReceiverRequirements",
    "core.questions": "Settled",
    "core.requester": "Requester",
}
_HOME = {name: f"baton.{module}" for module, names in _HOMES.items() for name in names.split()}

_FIRST = (
    "ApprovalDeniedError Baton BatonPatch BatonPlugin Budget Compensations ContractTerms Exhibit HandoffTerms Keyring "
    "MergeStrategy OnExhaustion Pipeline PipelineInput PipelineResult Retries Safeguards Spend Stage StageContext "
    "StageFailedError StageResult WorkerParts open_store pipeline run run_worker stage"
)

__all__ = sorted(_HOME)

if not TYPE_CHECKING:  # a type checker would take any name for one that this loads

    def __getattr__(name: str) -> Any:
        """Load a public name when it is first used."""
        if name not in _HOME:
            raise AttributeError(f"module 'baton' has no attribute {name!r}")
        # The workflow sandbox replaces the builtin `__import__`; importlib would bypass the sandbox.
        value = getattr(__import__(_HOME[name], fromlist=[name]), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    """Return the names that a first pipeline needs, loaded or not; `__all__` has those for later."""
    return [*_FIRST.split(), "__version__"]
