"""The four agents of `contract_review`, each behind Baton's port: rules first, and a model on top where there is one.

The rules' work stands whatever a model says. A model may add findings whose words are in the contract, and
write sentences that cite. It can remove nothing, so a contract that talks a model into silence gains nothing.
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
from activities.contract_review.rules import analyse, numbered
from activities.models import ask_model
from activities.pages import check_folder
from baton import Spend, estimate_tokens
from baton.agents.answers import AgentAnswer
from baton.agents.port import AgentWork
from baton.wire.records import Record
from baton.wire.text import describe_faults

RecordT = TypeVar("RecordT", bound=Record)
_MOST_CLAUSES, _MOST_FLAGS, _MOST_OPEN, _MOST_SENTENCES = 60, 30, 8, 3
_MOST_TOKENS, _SHORTEST_QUOTE = 24_000, 8
_USAGE = "baton run contract_review --goal … --param source=FILE --param output=DIR"


class Claim(BaseModel):
    """A finding of a model; the quotation must be in the clause."""

    clause: str
    quote: str
    title: str = Field(min_length=1, max_length=80)
    why: str = Field(min_length=1, max_length=300)
    likelihood: Grade
    consequence: Grade


class Claims(BaseModel):
    """Findings to add."""

    findings: list[Claim]


class Sentence(BaseModel):
    """A sentence for the summary and what it rests on."""

    text: str = Field(min_length=1, max_length=360)
    clauses: list[str] = []
    findings: list[str] = []


class Sentences(BaseModel):
    """Sentences to add to the summary."""

    sentences: list[Sentence]


class Extractor:
    """Takes the contract apart into clauses with kind and place."""

    name = "extract-clauses"

    async def run(self, work: AgentWork) -> AgentAnswer:
        """Read the file and hand on a `Report` with clauses."""
        source, out = Path(_text(work, "source")), Path(_text(work, "output"))
        policy = _parameter(work, "policy", Policy)
        await asyncio.to_thread(check_folder, out, MARKS, ReviewError)
        document = await asyncio.to_thread(read_document, source)
        await asyncio.to_thread(check_contract, document)
        report = await asyncio.to_thread(extract, document)
        await _hand_on(work, "clauses", report, "\n".join(line.text for line in document.lines))
        known = [one for one in report.clauses if one.kind not in ("general", "parties") and one.text]
        baton = work.context.baton
        patch = ContractPatch(
            current_state=[
                f"Extracted {len(report.clauses)} clauses of {len({one.kind for one in known})} kinds",
                f"It reads as a contract of the type {report.type!r} (pages: {report.pages})",
                "Nothing is analysed yet",
                *report.notes[:4],
            ],
            decision_log=[f"Read as a contract of the type {report.type!r}"],
            constraints=[*baton.constraints, "scoringFramework:iso31000", f"riskAppetite:{policy.appetite}"],
            open_questions=[*baton.open_questions, *(f"Is this complete? {note}" for note in report.notes)],
            extracted_clauses=[
                ClauseKey(id=one.id, kind=one.kind, title=one.title[:60]) for one in known[:_MOST_CLAUSES]
            ],
        )
        return AgentAnswer(patch=patch, output={"type": report.type, "clauses": len(report.clauses)}, claimed=False)


class Analyst:
    """Applies every rule to every clause, and asks the model for what the rules do not know."""

    name = "analyse-clauses"
    task = (
        "Review a contract for one party. Name what this party may come to regret and the known findings do not name, "
        "quoting the clause word for word; likelihood and consequence are grades from 1 to 5."
    )

    async def run(self, work: AgentWork) -> AgentAnswer:
        """Hand on the report with findings."""
        report, policy = await _handed(work, "clauses"), _parameter(work, "policy", Policy)
        report = await asyncio.to_thread(analyse, report, policy)
        said = await ask_model(work, self.task, _shown(report), Claims)
        if said is not None:
            report = _with_claims(report, said)
        await _hand_on(work, "findings", report)
        missing = sum(one.absent is not None for one in report.findings)
        patch = ContractPatch(
            current_state=[
                f"{len(report.findings)} findings, {missing} of them on missing clauses",
                f"No rule looked any closer at {len(report.uncovered)} of {len(report.clauses) - 1} clauses",
                "No risk is scored yet",
            ],
            decision_log=[f"Reviewed for the {report.party[:60]}, {_by(said)}"],
            risk_flags=[
                RiskFlag(finding=one.id, rule=one.rule, clause=one.clause) for one in report.findings[:_MOST_FLAGS]
            ],
        )
        rules = sorted({one.rule for one in report.findings})
        return AgentAnswer(patch=patch, output={"findings": len(report.findings), "rules": [*rules]}, claimed=False)


class Scorer:
    """Takes each finding through the risk process of ISO 31000."""

    name = "score-risk"

    async def run(self, work: AgentWork) -> AgentAnswer:
        """Hand on the report with the risk register."""
        report = score(await _handed(work, "findings"), _parameter(work, "policy", Policy).appetite)
        await _hand_on(work, "risks", report)
        rules = {one.id: one.rule for one in report.findings}
        above = [one for one in report.risks if not one.accepted]
        flags = [
            RiskFlag(
                finding=one.finding,
                rule=rules[one.finding],
                clause=one.clause,
                score=one.score,
                treatment=one.treatment,
            )
            for one in report.risks[:_MOST_FLAGS]
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
        return AgentAnswer(patch=patch, output=_result(report), claimed=False)


class Writer:
    """Writes the report."""

    name = "write-summary"
    task = (
        "Write up to three plain sentences for a manager who decides, each with the clauses and findings it rests on."
    )

    async def run(self, work: AgentWork) -> AgentAnswer:
        """Write `REPORT.md` and `report.json`."""
        out = Path(_text(work, "output"))
        report = summarise(await _handed(work, "risks"))
        said = await ask_model(work, self.task, _shown(report, clauses=False), Sentences)
        if said is not None:
            report = _with_sentences(report, said)
        shown, data = await asyncio.to_thread(write_report, report, out)
        await work.context.artifacts.write("report", shown, type="report", path=REPORT, summary="The report")
        await work.context.artifacts.write("report-data", data, type="report", path=DATA, summary="The report as JSON")
        _charge(work, data, shown)
        above = [one for one in report.risks if not one.accepted]
        open_ = [f"{one.id} (score {one.score}): {one.treatment} as proposed?" for one in above[:_MOST_OPEN]]
        patch = ContractPatch(
            current_state=[
                f"The review is written: {REPORT} and {DATA}",
                f"The contract as it is: {report.verdict}",
                f"{len(above)} of {len(report.risks)} risks are above the appetite of {report.appetite}",
            ],
            decision_log=[f"Reported in {len(report.summary)} statements that all say what they rest on, {_by(said)}"],
            open_questions=[*work.context.baton.open_questions, *open_],
            work_scope=[REPORT, DATA],
        )
        output = {**_result(report), "report": str(out / REPORT), "data": str(out / DATA)}
        return AgentAnswer(patch=patch, output=output, claimed=False)


def _result(report: Report) -> dict[str, str | int]:
    above = sum(not one.accepted for one in report.risks)
    return {"verdict": report.verdict, "risks": len(report.risks), "above_appetite": above}


def _by(said: BaseModel | None) -> str:
    return "by rules alone" if said is None else "by rules and a model"


def _shown(report: Report, *, clauses: bool = True) -> JsonValue:
    """Return what a model reads of a report; of a long contract the clauses that fit."""
    shown: list[JsonValue] = []
    left = _MOST_TOKENS if clauses else 0
    for one in report.clauses:
        left -= estimate_tokens(one.text)
        if left > 0 and one.text:
            shown.append({"clause": one.id, "title": one.title, "text": one.text})
    findings: list[JsonValue] = [
        one.model_dump(mode="json", include={"id", "clause", "title", "why"}) for one in report.findings
    ]
    risks: list[JsonValue] = [
        one.model_dump(mode="json", include={"finding", "score", "action"}) for one in report.risks
    ]
    return {"party": report.party, "findings": findings, "risks": risks, "clauses": shown}


def _with_claims(report: Report, said: Claims) -> Report:
    """Return the report with a model's findings whose words are in the contract."""
    clauses = {one.id: one for one in report.clauses}
    kept, rejected = [*report.findings], 0
    for claim in said.findings:
        quote = squeeze(claim.quote)
        text = clauses[claim.clause].text if claim.clause in clauses else ""
        if len(quote) < _SHORTEST_QUOTE or quote not in text:
            rejected += 1
        elif not any(one.clause == claim.clause and (quote in one.quote or one.quote in quote) for one in kept):
            new = {"rule": "LLM-1", "quote": quote, "title": squeeze(claim.title), "why": squeeze(claim.why)}
            kept.append(Finding.model_validate(claim.model_dump() | new))
    return report.model_copy(update={"findings": numbered(kept, report.clauses), "rejected": rejected})


def _with_sentences(report: Report, said: Sentences) -> Report:
    """Return the report with a model's sentences whose citations exist."""
    clauses, findings = {one.id for one in report.clauses}, {one.id for one in report.findings}
    added = [
        Statement(text=squeeze(one.text), clauses=tuple(one.clauses), findings=tuple(one.findings), by="model")
        for one in said.sentences
        if (one.clauses or one.findings) and {*one.clauses} <= clauses and {*one.findings} <= findings
    ]
    return report.model_copy(update={"summary": (*report.summary, *added[:_MOST_SENTENCES])})


async def _hand_on(work: AgentWork, id: str, report: Report, read: str = "") -> None:
    """Write the report as an artifact for the next agent, and charge the work at the given prices."""
    data = report.model_dump_json()
    summary = f"{len(report.clauses)} clauses, {len(report.findings)} findings, {len(report.risks)} risks"
    await work.context.artifacts.write(id, data, type="review", summary=summary)
    _charge(work, read or data, data)


async def _handed(work: AgentWork, id: str) -> Report:
    """Return the report of the agent before."""
    data = await work.context.artifacts.read(id)
    return await asyncio.to_thread(Report.model_validate_json, data)


def _charge(work: AgentWork, read: str, written: str) -> None:
    """Charge the tokens of the rules' work, at the prices of the parameter `prices`; without it they are free."""
    prices, count = _parameter(work, "prices", Prices), work.context.parts.counter
    tokens = count(read), count(written)
    cost = tokens[0] * prices.prompt_per_million + tokens[1] * prices.completion_per_million  # micro-dollars
    work.charge(Spend(micro_usd=round(cost), prompt_tokens=tokens[0], completion_tokens=tokens[1]))


def _parameter(work: AgentWork, name: str, kind: type[RecordT]) -> RecordT:
    """Return a parameter that is a record; its defaults where it is not given."""
    try:
        return kind.model_validate_json(json.dumps(work.context.params.get(name) or {}))
    except ValidationError as error:
        raise ReviewError(f"the parameter {name!r} cannot be used: {describe_faults(error, name)}") from None


def _text(work: AgentWork, name: str) -> str:
    value = work.context.params.get(name)
    if not isinstance(value, str) or not value:
        raise ReviewError(f"contract_review needs the parameter {name!r}; found {value!r}. Start it with: {_USAGE}")
    return value
