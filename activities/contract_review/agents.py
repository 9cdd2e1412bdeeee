"""The four agents of `contract_review`: rules first, and additions of a model if one is configured.

A model may add findings that quote the contract, and sentences with citations. It cannot remove or change the result
of a rule, so a contract that persuades the model gains nothing.
"""

import asyncio
import json
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, Field, JsonValue, ValidationError

from activities.contract_review.clauses import check_contract, extract, read_document, squeeze
from activities.contract_review.records import (
    ClauseKey,
    ContractPatch,
    Finding,
    Grade,
    Policy,
    Prices,
    Report,
    ReviewError,
    RiskFlag,
    Statement,
)
from activities.contract_review.report import DATA, MARKS, REPORT, score, summarise, write_report
from activities.contract_review.rules import analyse, number_findings
from activities.models import ask_model
from activities.pages import check_folder
from baton import Spend, estimate_tokens
from baton.agents.answers import AgentAnswer
from baton.agents.port import AgentWork
from baton.wire.records import Record
from baton.wire.text import describe_faults

RecordT = TypeVar("RecordT", bound=Record)
_MAX_CLAUSES, _MAX_FLAGS, _MAX_QUESTIONS, _MAX_SENTENCES = 60, 30, 8, 3
_MAX_TOKENS, _MIN_QUOTE_LENGTH = 24_000, 8
_USAGE = "baton run contract_review --goal … --param source=FILE --param output=DIR"


class Claim(BaseModel):
    """A finding of a model; the quote must be in the clause."""

    clause: str
    quote: str
    title: str = Field(min_length=1, max_length=80)
    why: str = Field(min_length=1, max_length=300)
    likelihood: Grade
    consequence: Grade


class Claims(BaseModel):
    """A model's additional findings."""

    findings: list[Claim]


class Sentence(BaseModel):
    """A sentence for the summary and its citations."""

    text: str = Field(min_length=1, max_length=360)
    clauses: list[str] = []
    findings: list[str] = []


class Sentences(BaseModel):
    """A model's additional sentences for the summary."""

    sentences: list[Sentence]


class Extractor:
    """Splits the contract into clauses with kind and place."""

    name = "extract-clauses"

    async def run(self, work: AgentWork) -> AgentAnswer:
        """Read the file and hand on a `Report` with clauses."""
        source, out = Path(_text_parameter(work, "source")), Path(_text_parameter(work, "output"))
        policy = _record_parameter(work, "policy", Policy)
        await asyncio.to_thread(check_folder, out, MARKS, ReviewError)
        document = await asyncio.to_thread(read_document, source)
        await asyncio.to_thread(check_contract, document)
        report = await asyncio.to_thread(extract, document)
        await _write_report_artifact(work, "clauses", report, "\n".join(line.text for line in document.lines))
        classified = [clause for clause in report.clauses if clause.kind not in ("general", "parties") and clause.text]
        baton = work.context.baton
        patch = ContractPatch(
            current_state=[
                f"Extracted {len(report.clauses)} clauses of {len({clause.kind for clause in classified})} kinds",
                f"It reads as a contract of the type {report.type!r} (pages: {report.pages})",
                "Nothing is analysed yet",
                *report.notes[:4],
            ],
            decision_log=[f"Read as a contract of the type {report.type!r}"],
            constraints=[*baton.constraints, "scoringFramework:iso31000", f"riskAppetite:{policy.appetite}"],
            open_questions=[*baton.open_questions, *(f"Is this complete? {note}" for note in report.notes)],
            extracted_clauses=[
                ClauseKey(id=clause.id, kind=clause.kind, title=clause.title[:60])
                for clause in classified[:_MAX_CLAUSES]
            ],
        )
        return AgentAnswer(patch=patch, output={"type": report.type, "clauses": len(report.clauses)}, claimed=False)


class Analyst:
    """Applies every rule to every clause, and asks the model for more findings."""

    name = "analyse-clauses"
    task = (
        "Review a contract for one party. Name what this party may come to regret and the known findings do not name, "
        "quoting the clause word for word; likelihood and consequence are grades from 1 to 5."
    )

    async def run(self, work: AgentWork) -> AgentAnswer:
        """Hand on the report with findings."""
        report, policy = await _read_report_artifact(work, "clauses"), _record_parameter(work, "policy", Policy)
        report = await asyncio.to_thread(analyse, report, policy)
        answer = await ask_model(work, self.task, _model_input(report), Claims)
        if answer is not None:
            report = _add_claims(report, answer)
        await _write_report_artifact(work, "findings", report)
        missing = sum(finding.absent is not None for finding in report.findings)
        patch = ContractPatch(
            current_state=[
                f"{len(report.findings)} findings, {missing} of them on missing clauses",
                f"No rule looked any closer at {len(report.uncovered)} of {len(report.clauses) - 1} clauses",
                "No risk is scored yet",
            ],
            decision_log=[f"Reviewed for the {report.party[:60]}, {_describe_method(answer)}"],
            risk_flags=[
                RiskFlag(finding=finding.id, rule=finding.rule, clause=finding.clause)
                for finding in report.findings[:_MAX_FLAGS]
            ],
        )
        rules = sorted({finding.rule for finding in report.findings})
        return AgentAnswer(patch=patch, output={"findings": len(report.findings), "rules": [*rules]}, claimed=False)


class Scorer:
    """Takes each finding through the risk process of ISO 31000."""

    name = "score-risk"

    async def run(self, work: AgentWork) -> AgentAnswer:
        """Hand on the report with the risk register."""
        report = score(
            await _read_report_artifact(work, "findings"), _record_parameter(work, "policy", Policy).appetite
        )
        await _write_report_artifact(work, "risks", report)
        rules = {finding.id: finding.rule for finding in report.findings}
        above = [risk for risk in report.risks if not risk.accepted]
        flags = [
            RiskFlag(
                finding=risk.finding,
                rule=rules[risk.finding],
                clause=risk.clause,
                score=risk.score,
                treatment=risk.treatment,
            )
            for risk in report.risks[:_MAX_FLAGS]
        ]
        patch = ContractPatch(
            current_state=[
                f"{len(report.risks)} risks, {len(above)} above the appetite of {report.appetite}",
                f"The contract as it is: {report.verdict}",
                "No report is written yet",
            ],
            decision_log=[f"Scored by likelihood and consequence as in ISO 31000:2018: {report.verdict}"],
            acceptance=[*work.context.baton.acceptance, f"No risk is above {report.appetite} before anybody signs"],
            risk_flags=flags,
        )
        return AgentAnswer(patch=patch, output=_make_output(report), claimed=False)


class Writer:
    """Writes the report."""

    name = "write-summary"
    task = (
        "Write up to three plain sentences for a manager who decides, each with the clauses and findings it rests on."
    )

    async def run(self, work: AgentWork) -> AgentAnswer:
        """Write `REPORT.md` and `report.json`."""
        out = Path(_text_parameter(work, "output"))
        report = summarise(await _read_report_artifact(work, "risks"))
        answer = await ask_model(work, self.task, _model_input(report, clauses=False), Sentences)
        if answer is not None:
            report = _add_sentences(report, answer)
        markdown, data = await asyncio.to_thread(write_report, report, out)
        await work.context.artifacts.write("report", markdown, type="report", path=REPORT, summary="The report")
        await work.context.artifacts.write("report-data", data, type="report", path=DATA, summary="The report as JSON")
        _charge(work, data, markdown)
        above = [risk for risk in report.risks if not risk.accepted]
        questions = [
            f"{risk.id} (score {risk.score}): {risk.treatment} as proposed?" for risk in above[:_MAX_QUESTIONS]
        ]
        patch = ContractPatch(
            current_state=[
                f"The review is written: {REPORT} and {DATA}",
                f"The contract as it is: {report.verdict}",
                f"{len(above)} of {len(report.risks)} risks are above the appetite of {report.appetite}",
            ],
            decision_log=[f"Reported in {len(report.summary)} statements with citations, {_describe_method(answer)}"],
            open_questions=[*work.context.baton.open_questions, *questions],
            work_scope=[REPORT, DATA],
        )
        output = {**_make_output(report), "report": str(out / REPORT), "data": str(out / DATA)}
        return AgentAnswer(patch=patch, output=output, claimed=False)


def _make_output(report: Report) -> dict[str, str | int]:
    above = sum(not risk.accepted for risk in report.risks)
    return {"verdict": report.verdict, "risks": len(report.risks), "above_appetite": above}


def _describe_method(answer: BaseModel | None) -> str:
    return "by rules alone" if answer is None else "by rules and a model"


def _model_input(report: Report, *, clauses: bool = True) -> JsonValue:
    """Return a model's input: the findings and risks of a report, and the clauses that fit."""
    texts: list[JsonValue] = []
    tokens_left = _MAX_TOKENS if clauses else 0
    for clause in report.clauses:
        tokens_left -= estimate_tokens(clause.text)
        if tokens_left > 0 and clause.text:
            texts.append({"clause": clause.id, "title": clause.title, "text": clause.text})
    findings: list[JsonValue] = [
        finding.model_dump(mode="json", include={"id", "clause", "title", "why"}) for finding in report.findings
    ]
    risks: list[JsonValue] = [
        risk.model_dump(mode="json", include={"finding", "score", "action"}) for risk in report.risks
    ]
    return {"party": report.party, "findings": findings, "risks": risks, "clauses": texts}


def _add_claims(report: Report, answer: Claims) -> Report:
    """Add a model's findings whose quote is in the contract."""
    clauses = {clause.id: clause for clause in report.clauses}
    findings, rejected = [*report.findings], 0
    for claim in answer.findings:
        quote = squeeze(claim.quote)
        text = clauses[claim.clause].text if claim.clause in clauses else ""
        if len(quote) < _MIN_QUOTE_LENGTH or quote not in text:
            rejected += 1
        elif not any(
            finding.clause == claim.clause and (quote in finding.quote or finding.quote in quote)
            for finding in findings
        ):
            new = {"rule": "LLM-1", "quote": quote, "title": squeeze(claim.title), "why": squeeze(claim.why)}
            findings.append(Finding.model_validate(claim.model_dump() | new))
    return report.model_copy(update={"findings": number_findings(findings, report.clauses), "rejected": rejected})


def _add_sentences(report: Report, answer: Sentences) -> Report:
    """Add a model's sentences whose citations exist."""
    clauses, findings = {clause.id for clause in report.clauses}, {finding.id for finding in report.findings}
    added = [
        Statement(
            text=squeeze(sentence.text), clauses=tuple(sentence.clauses), findings=tuple(sentence.findings), by="model"
        )
        for sentence in answer.sentences
        if (sentence.clauses or sentence.findings)
        and {*sentence.clauses} <= clauses
        and {*sentence.findings} <= findings
    ]
    return report.model_copy(update={"summary": (*report.summary, *added[:_MAX_SENTENCES])})


async def _write_report_artifact(work: AgentWork, id: str, report: Report, input: str = "") -> None:
    """Write the report as an artifact for the next agent, and charge the tokens."""
    data = report.model_dump_json()
    summary = f"{len(report.clauses)} clauses, {len(report.findings)} findings, {len(report.risks)} risks"
    await work.context.artifacts.write(id, data, type="review", summary=summary)
    _charge(work, input or data, data)


async def _read_report_artifact(work: AgentWork, id: str) -> Report:
    """Return the report of the previous agent."""
    data = await work.context.artifacts.read(id)
    return await asyncio.to_thread(Report.model_validate_json, data)


def _charge(work: AgentWork, input: str, output: str) -> None:
    """Charge the tokens at the prices of the parameter `prices`, by default nothing."""
    prices, count = _record_parameter(work, "prices", Prices), work.context.parts.counter
    tokens = count(input), count(output)
    cost = tokens[0] * prices.prompt_per_million + tokens[1] * prices.completion_per_million  # micro-dollars
    work.charge(Spend(micro_usd=round(cost), prompt_tokens=tokens[0], completion_tokens=tokens[1]))


def _record_parameter(work: AgentWork, name: str, record_type: type[RecordT]) -> RecordT:
    """Return a record from a parameter, by default with its default values."""
    try:
        return record_type.model_validate_json(json.dumps(work.context.params.get(name) or {}))
    except ValidationError as error:
        raise ReviewError(f"the parameter {name!r} cannot be used: {describe_faults(error, name)}") from None


def _text_parameter(work: AgentWork, name: str) -> str:
    value = work.context.params.get(name)
    if not isinstance(value, str) or not value:
        raise ReviewError(f"contract_review needs the parameter {name!r}; found {value!r}. Start it with: {_USAGE}")
    return value
