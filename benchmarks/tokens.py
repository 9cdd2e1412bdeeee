"""The tokens that receivers read: the context that a stage inherits, against the whole conversation.

Every agent asks its model sixteen times and reads files of this project. The exact prompts are counted, including fence
and markings, in the vocabulary o200k_base.
"""

from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import accumulate

from baton import StageContext, WorkerParts
from baton.artifacts.store import ArtifactStore, MemoryArtifactStore
from baton.compression.store_tokens import exact_counter
from baton.contract.compiler import compile_contract
from baton.contract.draft import ContractPolicy, ContractRequest
from baton.contract.records import SessionEvent
from baton.contract.validation import validate_contract
from baton.contract.workflow import MAX_CONTRACT_TOKENS
from baton.core.baton import Baton, BatonPatch
from baton.core.messages import StageInput
from baton.core.patching import apply_patch
from baton.core.stages import AGENT_DECISIONS
from baton.report.records import HandoffReport, ReportContext, ReportDecision, ReportFindings, Status
from baton.report.rendering import render_report
from baton.wire.text import fence
from benchmarks.compare import Effort
from benchmarks.report import Findings
from benchmarks.rig import Rig
from benchmarks.samples import patch, thousand_tokens
from benchmarks.sessions import TOOLS, Session, work
from benchmarks.workflows.inputs import text

LENGTHS = (2, 5, 10, 20)
"""The stages in the table, from 1."""

_NONCE = "0123456789abcdef"
_BEGAN = datetime(2026, 1, 1, 9, 0, tzinfo=UTC)


@dataclass(frozen=True)
class Inherited:
    """The tokens that the receiver of a stage reads before it starts, by what is passed on.

    Attributes:
        transcript: All messages of all stages before it.
        baton: The baton alone.
        contract: The contract and the baton, as a stage's prompt has them.
        facts: How many facts the contract has.
        report: The handoff report of the stage before it.
        with_input: The contract and the baton with a declared input of 40 KB.
        own: The tokens of each message that its own agent will exchange with its model.
    """

    transcript: int
    baton: int
    contract: int
    facts: int
    report: int
    with_input: int
    own: tuple[int, ...]

    def loop(self, inherited: int) -> int:
        """Return the tokens of all model requests of the stage, each of which repeats the earlier messages."""
        transcript_sizes = [0, *accumulate(a + b for a, b in zip(self.own[::2], self.own[1::2], strict=False))]
        return sum(inherited + own for own in transcript_sizes)


async def tokens(rig: Rig, effort: Effort) -> Findings:
    """Count what receivers read in a chain of twenty stages, and in the agents' whole loops."""
    automatic = await chain(max(LENGTHS), sentences=False)
    stated = await chain(max(LENGTHS), sentences=True)
    findings = Findings("Tokens that a receiver inherits (o200k_base)", COLUMNS)
    findings.rows.extend(_rows(automatic, stated))
    findings.values.update(figures(automatic))
    return findings


COLUMNS = ("read on entry to", "transcript", "baton", "contract", "facts", "report", "contract, facts in sentences")


async def chain(length: int, *, sentences: bool) -> list[Inherited]:
    """Return what each stage of a chain inherits; the first one inherits no transcript.

    Args:
        length: How many stages.
        sentences: As in `benchmarks.sessions.work`.
    """
    counter = exact_counter()
    baton = Baton.from_json_object(thousand_tokens())
    now, transcript_tokens = _BEGAN, 0
    events: list[SessionEvent] = []
    inherited: list[Inherited] = []
    store = MemoryArtifactStore()
    for ref in baton.artifacts:  # what the samples refer to
        await store.put(str(ref.summary).encode())
    for seq in range(1, length + 1):
        session = work(seq, now, counter, sentences=sentences)
        inherited.append(await _measure_inherited(seq, baton, events, now, transcript_tokens, session, store))
        kept_events, _ = await session.log.close(store)
        events += [SessionEvent.from_json_object(event.to_json_object()) for event in kept_events]
        baton = apply_patch(baton, BatonPatch.model_validate(patch(seq, 3)))
        now, transcript_tokens = session.ended, transcript_tokens + sum(inherited[-1].own)
    return inherited


def figures(stages: list[Inherited]) -> dict[str, float]:
    """Return the figures of the report.

    The whole loops are those of the first five stages: all tokens that models read, with the transcript passed on, of
    those with the contract.
    """
    fifth, twentieth, first_five = stages[4], stages[19], stages[:5]
    with_transcript = sum(stage.loop(stage.transcript) for stage in first_five)
    with_contract = sum(stage.loop(stage.contract) for stage in first_five)
    return {
        "tokens_vs_transcript_stage5": fifth.transcript / fifth.contract,
        "tokens_vs_transcript_stage20": twentieth.transcript / twentieth.contract,
        "tokens_with_inputs_stage5": fifth.transcript / fifth.with_input,
        "tokens_whole_loop_ratio": with_transcript / with_contract,
        "tokens_growth_stage20_vs_stage5": twentieth.contract / fifth.contract,
    }


async def _measure_inherited(
    seq: int,
    baton: Baton,
    events: list[SessionEvent],
    now: datetime,
    transcript_tokens: int,
    session: Session,
    store: ArtifactStore,
) -> Inherited:
    """Return what a stage inherits in a real pipeline."""
    counter = exact_counter()
    restricted = baton.restricted(None, AGENT_DECISIONS)
    earlier = len(baton.decision_log) - len(restricted.decision_log)
    stage_input = StageInput(
        stage=f"stage{seq}", seq=seq, task_id="task", baton=restricted.to_json_object(), earlier_decisions=earlier
    )
    request = ContractRequest(
        f"h-{seq}", stage_input.stage, baton.goal[:500], "trace", now, TOOLS, TOOLS, max_tokens=MAX_CONTRACT_TOKENS
    )
    compiled = compile_contract(events, request, ContractPolicy())
    verdict = validate_contract(
        compiled.contract, now=now, report=compiled.report, events=events, max_tokens=MAX_CONTRACT_TOKENS
    )
    assert verdict, f"the contract of stage {seq} is not valid: {verdict.errors}"
    report = HandoffReport(
        sender=f"stage{seq - 1}",
        receiver=stage_input.stage,
        task=restricted.goal,
        status=Status.COMPLETED,
        confidence=90,
        summary=" ".join(restricted.current_state[:3]),
        findings=ReportFindings(discoveries=restricted.current_state),
        context=ReportContext(decisions=[ReportDecision(decision=decision) for decision in restricted.decision_log]),
        blockers=restricted.open_questions,
    )
    contracted = stage_input.model_copy(update={"contract": compiled.contract.to_json_object()})
    return Inherited(
        transcript=transcript_tokens,
        baton=await _prompt_tokens(restricted, stage_input, store),
        contract=await _prompt_tokens(restricted, contracted, store),
        facts=len(compiled.contract.facts),
        report=counter(fence(render_report(report), _NONCE)),
        with_input=await _prompt_tokens(
            restricted, contracted.model_copy(update={"inputs": {"text": text(seq)}}), store
        ),
        own=tuple(map(counter, session.messages)),
    )


async def _prompt_tokens(baton: Baton, stage_input: StageInput, store: ArtifactStore) -> int:
    """Return the tokens of the prompt that a stage's agent is given, the texts behind its facts included."""
    context = StageContext.of(baton, stage_input, WorkerParts(artifacts=store, counter=exact_counter()))
    return exact_counter()(await context.prompt_with_inputs())


def _rows(automatic: list[Inherited], stated: list[Inherited]) -> list[tuple[str, ...]]:
    """Return a row for some stages."""
    rows = []
    for length in LENGTHS:
        automatic_stage, stated_stage = automatic[length - 1], stated[length - 1]
        cells = (
            automatic_stage.transcript,
            automatic_stage.baton,
            automatic_stage.contract,
            automatic_stage.facts,
            automatic_stage.report,
            stated_stage.contract,
        )
        rows.append((f"stage {length}", *(f"{cell:,}" for cell in cells)))
    return rows
