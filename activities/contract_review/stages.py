"""The four stages of `contract_review`: extract clauses → analyse → score risk → executive summary (S3-13.3).

Between the stages the work travels as artifacts; the baton carries the clauses by id, the risks by rule, and the
decisions. No name of a party, and no sentence of the contract, is in the baton.
"""

import asyncio
import json
import os
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

from pydantic import JsonValue, ValidationError

from activities.contract_review.agents import Consultation, HttpChatModel, ModelSettings, spend_of
from activities.contract_review.analysis import analyse
from activities.contract_review.clauses import extract
from activities.contract_review.reading import is_english, read_document
from activities.contract_review.records import (
    Analysis,
    ClauseKey,
    ContractBaton,
    ContractPatch,
    Extraction,
    Policy,
    Prices,
    Register,
    Report,
    ReviewError,
    RiskFlag,
)
from activities.contract_review.refining import refine_analysis, refine_extraction, refine_register, refine_summary
from activities.contract_review.risk import assess
from activities.contract_review.summary import DATA, REPORT, summarise, write_report
from activities.workbench.parameters import required_text
from activities.workbench.words import counted
from baton import Retries, Spend, StageContext, StageResult, stage
from baton.wire.misfit import misfit
from baton.wire.records import Record

RecordT = TypeVar("RecordT", bound=Record)
Context = StageContext[ContractBaton]

_USAGE = "contract_review --goal … --param source=FILE --param output=DIR"
_HEARTBEAT = timedelta(seconds=10)
_LONGEST = timedelta(minutes=20)
# A wrong file, parameter or key does not become right by waiting.
_RETRIES = Retries(never=("TypeError", "ReviewError", "ModelRefusedError"))
_MOST_CLAUSES = 60
_MOST_FLAGS = 30
_MOST_LISTED = 8
_LONGEST_TITLE = 60


@stage(
    name="extract-clauses",
    writes=["current_state", "decision_log", "constraints", "artifacts", "open_questions", "extracted_clauses"],
    timeout=_LONGEST,
    heartbeat=_HEARTBEAT,
    retries=_RETRIES,
)
async def extract_clauses(context: Context) -> StageResult:
    """Read the contract and take it apart: clauses with kind and place, parties, dates, amounts and periods."""
    source, policy = Path(_text(context, "source")), _policy(context)
    _text(context, "output")  # said now, not after three stages
    document = await asyncio.to_thread(read_document, source)
    if not await asyncio.to_thread(is_english, document):
        raise ReviewError(
            f"{source.name!r} is not in English, as it seems; the rules know English alone, and would call clauses "
            "missing that are there: translate it first"
        )
    extraction = await asyncio.to_thread(extract, document)
    talk = _consultation(context)
    if talk:
        extraction = await refine_extraction(talk, extraction)
    written = await _hand_on(
        context, "clauses", extraction, f"{counted(len(extraction.clauses), 'clause')} of the contract"
    )
    known = [
        clause
        for clause in extraction.clauses
        if clause.kind not in ("general", "parties") and clause.text and not clause.point
    ]
    kinds = counted(len({clause.kind for clause in known}), "kind")
    patch = ContractPatch(
        current_state=[
            f"Extracted {counted(len(extraction.clauses), 'clause')} of {kinds} (pages: {extraction.pages})",
            f"Read {counted(len(extraction.facts), 'fact')}: parties, terms, dates, amounts and periods",
            f"It reads as a contract of the sort {extraction.type!r}",
            *extraction.notes,
        ][:_MOST_LISTED],
        decision_log=[f"Read as a contract of the sort {extraction.type!r}, {_by(talk)}"],
        constraints=[*context.baton.constraints, "scoringFramework:iso31000", f"riskAppetite:{policy.appetite}"],
        open_questions=[*context.baton.open_questions, *(f"Is this complete? {note}" for note in extraction.notes)],
        extracted_clauses=[
            ClauseKey(id=clause.id, kind=clause.kind, title=clause.title[:_LONGEST_TITLE])
            for clause in known[:_MOST_CLAUSES]
        ],
    )
    read = "\n".join(line.text for line in document.lines)
    output: dict[str, JsonValue] = {
        "type": extraction.type,
        "clauses": len(extraction.clauses),
        "facts": len(extraction.facts),
    }
    return StageResult(baton_patch=patch, output=output, spend=_spend(context, talk, read, written))


@stage(
    name="analyse-clauses",
    writes=["current_state", "decision_log", "artifacts", "risk_flags"],
    timeout=_LONGEST,
    heartbeat=_HEARTBEAT,
    retries=_RETRIES,
)
async def analyse_clauses(context: Context) -> StageResult:
    """Apply every rule to every clause; each finding cites clause, words and rule."""
    policy = _policy(context)
    read, extraction = await _handed(context, "clauses", Extraction)
    analysis = await asyncio.to_thread(analyse, extraction, policy)
    talk = _consultation(context)
    if talk:
        analysis = await refine_analysis(talk, extraction, analysis, policy)
    written = await _hand_on(context, "findings", analysis, counted(len(analysis.findings), "finding"))
    missing = sum(1 for finding in analysis.findings if finding.absent)
    patch = ContractPatch(
        current_state=[
            f"{counted(len(analysis.findings), 'finding')} by {analysis.rules} rules, {missing} on missing clauses",
            "Every finding cites its rule, its clause and the clause's words",
            "No risk is scored yet",
        ],
        decision_log=[f"Reviewed from the side of one party, the {analysis.party[:_LONGEST_TITLE]}, {_by(talk)}"],
        risk_flags=[
            RiskFlag(finding=one.id, rule=one.rule, clause=one.clause) for one in analysis.findings[:_MOST_FLAGS]
        ],
    )
    output: dict[str, JsonValue] = {
        "findings": len(analysis.findings),
        "rules": [*sorted({finding.rule for finding in analysis.findings})],
    }
    return StageResult(baton_patch=patch, output=output, spend=_spend(context, talk, read, written))


@stage(
    name="score-risk",
    writes=["current_state", "decision_log", "artifacts", "acceptance", "risk_flags"],
    timeout=_LONGEST,
    heartbeat=_HEARTBEAT,
    retries=_RETRIES,
)
async def score_risk(context: Context) -> StageResult:
    """Take each finding through the risk process of ISO 31000: identify, analyse, evaluate, treat."""
    read, analysis = await _handed(context, "findings", Analysis)
    risks = assess(analysis, _policy(context))
    talk = _consultation(context)
    if talk:
        risks = await refine_register(talk, risks)
    written = await _hand_on(context, "risks", risks, f"{counted(len(risks.risks), 'risk')} by ISO 31000")
    rules = {finding.id: finding.rule for finding in analysis.findings}
    above = [risk for risk in risks.risks if not risk.accepted]
    patch = ContractPatch(
        current_state=[
            f"Scored {counted(len(risks.risks), 'risk')}; {len(above)} above the appetite of {risks.appetite}",
            f"The contract as it stands: {risks.verdict}",
            "No report is written yet",
        ],
        decision_log=[
            f"Scored by likelihood and consequence as in ISO 31000:2018, verdict {risks.verdict!r}, {_by(talk)}"
        ],
        acceptance=[*context.baton.acceptance, f"No risk scores above {risks.appetite} before anybody signs"],
        risk_flags=[
            RiskFlag(
                finding=risk.finding,
                rule=rules[risk.finding],
                clause=risk.clause,
                score=risk.score,
                treatment=risk.treatment,
            )
            for risk in risks.risks[:_MOST_FLAGS]
        ],
    )
    output: dict[str, JsonValue] = {"verdict": risks.verdict, "risks": len(risks.risks), "above_appetite": len(above)}
    return StageResult(baton_patch=patch, output=output, spend=_spend(context, talk, read, written))


@stage(
    name="write-summary",
    writes=["current_state", "decision_log", "artifacts", "open_questions", "work_scope"],
    timeout=_LONGEST,
    heartbeat=_HEARTBEAT,
    retries=_RETRIES,
)
async def write_summary(context: Context) -> StageResult:
    """Write the report, one page first; every statement in it resolves to clauses and findings."""
    out = Path(_text(context, "output"))
    first, extraction = await _handed(context, "clauses", Extraction)
    second, analysis = await _handed(context, "findings", Analysis)
    third, risks = await _handed(context, "risks", Register)
    report = Report(
        summary=summarise(extraction, analysis, risks), extraction=extraction, analysis=analysis, risks=risks
    )
    talk = _consultation(context)
    if talk:
        report = await refine_summary(talk, report)
    shown, data = await asyncio.to_thread(write_report, report, out)
    await context.artifacts.write("report", shown, type="report", path=REPORT, summary="The report, one page first")
    await context.artifacts.write("report-data", data, type="report", path=DATA, summary="The report as JSON")
    above = [risk for risk in risks.risks if not risk.accepted]
    patch = ContractPatch(
        current_state=[
            f"The review is written: {REPORT} and {DATA}, {len(report.summary)} statements, each with what it rests on",
            f"The contract as it stands: {risks.verdict}",
            f"{len(above)} of {len(risks.risks)} risks are above the appetite of {risks.appetite}",
        ],
        decision_log=[f"Reported with {len(report.summary)} statements that all resolve, {_by(talk)}"],
        open_questions=[
            *context.baton.open_questions,
            *(
                f"{risk.id} ({_where(risk.clause)}, score {risk.score}): {risk.treatment} as proposed?"
                for risk in above
            ),
        ][: len(context.baton.open_questions) + _MOST_LISTED],
        work_scope=[REPORT, DATA],
    )
    output: dict[str, JsonValue] = {
        "verdict": risks.verdict,
        "risks": len(risks.risks),
        "above_appetite": len(above),
        "report": str(out / REPORT),
        "data": str(out / DATA),
    }
    return StageResult(baton_patch=patch, output=output, spend=_spend(context, talk, first + second + third, shown))


STAGES: list[Callable[..., Any]] = [extract_clauses, analyse_clauses, score_risk, write_summary]
"""What a worker runs."""


async def _hand_on(context: Context, id: str, result: Record, summary: str) -> str:
    """Write a stage's result as an artifact for the next one, and return it as JSON."""
    data = result.model_dump_json()
    await context.artifacts.write(id, data, type=id, summary=summary)
    return data


async def _handed(context: Context, id: str, kind: type[RecordT]) -> tuple[str, RecordT]:
    """Return what an earlier stage handed on, as JSON and as a record; the store has checked its hash."""
    data = (await context.artifacts.read(id)).decode()
    return data, await asyncio.to_thread(kind.model_validate_json, data)


def _consultation(context: Context) -> Consultation | None:
    """Return a talk with the model that this worker's environment names, or None where there is none."""
    settings = ModelSettings.of(os.environ)
    return Consultation(HttpChatModel(settings), context.prompt) if settings else None


def _spend(context: Context, talk: Consultation | None, read: str, written: str) -> Spend:
    """Return what a stage cost: a model's bill, or the tokens that were read and written at the given prices.

    Without the parameter `prices` the work of the rules costs tokens and no money.
    """
    if talk:
        return talk.spend
    prices = _parameter(context, "prices", Prices)
    count = context.parts.counter
    return spend_of(count(read), count(written), prices)


def _policy(context: Context) -> Policy:
    return _parameter(context, "policy", Policy)


def _parameter(context: Context, name: str, kind: type[RecordT]) -> RecordT:
    """Return a parameter that is a record; its defaults where it is not given.

    Raises:
        ReviewError: It has members that are unknown or wrong.
    """
    value = context.params.get(name)
    try:
        return kind.model_validate_json(json.dumps(value if value is not None else {}))
    except ValidationError as error:
        raise ReviewError(f"the parameter {name!r} cannot be used: {misfit(error, name)}") from None


def _text(context: Context, name: str) -> str:
    """Return a parameter that is a text."""
    return required_text(context.params, name, _USAGE, ReviewError)


def _by(talk: Consultation | None) -> str:
    return f"by rules and {talk.model.name}" if talk else "by rules alone"


def _where(clause: str | None) -> str:
    return f"clause {clause}" if clause else "missing clause"
