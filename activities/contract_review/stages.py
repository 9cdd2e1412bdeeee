"""The four agents of `contract_review`: rules find and quote; a model, if one is configured, judges for a side.

A model cannot remove or change what a rule found, so a contract that persuades it hides nothing.
"""

import asyncio
import json
import re
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field, JsonValue, ValidationError

from activities.contract_review.clauses import check_contract, extract, locate, read_document, squeeze
from activities.contract_review.records import (
    ClauseKey,
    ContractBaton,
    ContractPatch,
    Finding,
    Grade,
    Policy,
    Report,
    ReviewError,
    RiskFlag,
)
from activities.contract_review.report import DATA, MARKS, REPORT, locate_topics, score, summarise, write_report
from activities.models import ask_model
from activities.pages import check_folder
from activities.parameters import text_parameter
from baton import Retries, estimate_tokens
from baton.agents.answers import AgentAnswer
from baton.agents.port import AgentLimits, AgentWork, agent_stage
from baton.wire.text import describe_faults

_MAX_CLAUSES, _MAX_FLAGS, _MAX_QUESTIONS = 60, 30, 8
_MAX_TOKENS, _MIN_QUOTE_LENGTH = 24_000, 8


class Claim(BaseModel):
    """A finding of a model; the quote must be in the contract."""

    quote: str
    title: str = Field(min_length=1, max_length=80)
    why: str = Field(min_length=1, max_length=300)
    action: str = Field(min_length=1, max_length=300)
    likelihood: Grade
    consequence: Grade


class Claims(BaseModel):
    """A model's findings."""

    findings: list[Claim]


class Extractor:
    """Splits the contract into clauses with kind and place."""

    name = "extract-clauses"

    async def run(self, work: AgentWork) -> AgentAnswer:
        """Read the file and hand on a `Report` with clauses."""
        source, out = _path_parameter(work, "source"), _path_parameter(work, "output")
        policy = _read_policy(work)
        await asyncio.to_thread(check_folder, out, MARKS, ReviewError)
        document = await asyncio.to_thread(read_document, source)
        await asyncio.to_thread(check_contract, document)
        report = await asyncio.to_thread(extract, document)
        names = ", ".join(dict.fromkeys(repr(name.quote) for name in report.names)) or "none"
        if policy.party and not re.search(rf"\b{re.escape(policy.party)}\b", " ".join(c.text for c in report.clauses)):
            raise ReviewError(
                f"the contract has no party {policy.party!r}; names in it: {names}: set the policy's `party`"
            )
        report = report.model_copy(update={"party": policy.party or ""})
        await _write_report_artifact(work, "clauses", report)
        titled = [clause for clause in report.clauses if clause.topic]
        baton = work.context.baton
        questions = [f"Is this complete? {note}" for note in report.notes]
        if policy.party is None:
            questions.append(f"""For which side is the review? Names: {names}. --param policy='{{"party": "…"}}'""")
        patch = ContractPatch(
            current_state=[
                f"Extracted {len(report.clauses)} clauses, {len(titled)} of them with a title of a known topic",
                f"For the side: {policy.party or 'not named'} (pages: {report.pages})",
                "Nothing is located yet",
                *report.notes[:4],
            ],
            decision_log=[f"Read {report.document} in clauses"],
            constraints=[*baton.constraints, "scoringFramework:iso31000", f"riskAppetite:{policy.appetite}"],
            open_questions=[*baton.open_questions, *questions],
            extracted_clauses=[
                ClauseKey(id=clause.id, topic=clause.topic, title=clause.title[:60]) for clause in titled[:_MAX_CLAUSES]
            ],
        )
        return AgentAnswer(patch=patch, output={"clauses": len(report.clauses)}, claimed=False)


class Analyst:
    """Locates topics and words in every clause, and asks the model to judge for the side."""

    name = "analyse-clauses"
    lab_overrides = frozenset({"model", "prompt"})  # it reads artifacts and asks the model, nothing else
    task = (
        "Review a contract for one party, which accepts the terms that are given. Name what this party may come to "
        "regret, quoting the clause word for word, and what to do about it; likelihood and consequence are grades from "
        "1 to 5."
    )

    async def run(self, work: AgentWork) -> AgentAnswer:
        """Hand on the report with passages, and with a model's findings if the side is named."""
        report, policy = await _read_report_artifact(work, "clauses"), _read_policy(work)
        report = await asyncio.to_thread(locate, report)
        answer = None
        if report.party:
            answer = await ask_model(work, self.task, _model_input(report, policy), Claims)
        if answer is not None:
            report = _add_claims(report, answer)
        await _write_report_artifact(work, "findings", report)
        topics = len([*locate_topics(report)])
        patch = ContractPatch(
            current_state=[
                f"Located {topics} topics and {len(report.passages)} passages",
                f"Titles or words of {len(report.not_found)} topics were not found",
                f"A model named {len(report.findings)} risks" if report.judged else "No risk is judged",
            ],
            decision_log=[f"Located by words; {_describe_judge(report)}"],
            risk_flags=[RiskFlag(finding=item.id, clause=item.clause) for item in report.findings[:_MAX_FLAGS]],
        )
        return AgentAnswer(patch=patch, output=_make_output(report), claimed=False)


class Scorer:
    """Compares a model's findings with the appetite, as in ISO 31000."""

    name = "score-risk"

    async def run(self, work: AgentWork) -> AgentAnswer:
        """Hand on the report with findings in order and a verdict, if a model judged."""
        appetite = _read_policy(work).appetite
        report = score(await _read_report_artifact(work, "findings"), appetite)
        await _write_report_artifact(work, "risks", report)
        flags = [
            RiskFlag(finding=finding.id, clause=finding.clause, score=finding.score)
            for finding in report.findings[:_MAX_FLAGS]
        ]
        patch = ContractPatch(
            current_state=[
                f"{len(report.findings)} risks, {len(report.above)} above the appetite of {report.appetite}",
                f"The contract as it is: {report.verdict}",
                "No report is written yet",
            ],
            decision_log=[f"Scored by likelihood and consequence as in ISO 31000:2018: {report.verdict}"],
            acceptance=[*work.context.baton.acceptance, f"No risk is above {report.appetite} before anybody signs"],
            risk_flags=flags,
        )
        return AgentAnswer(patch=patch, output=_make_output(report), claimed=False)


class Writer:
    """Writes the report, and `REPORT.md` and `report.json`, once each of its lines is proved."""

    name = "write-summary"

    async def run(self, work: AgentWork) -> AgentAnswer:
        """Write the report and ask what is above the appetite."""
        out = _path_parameter(work, "output")
        report = summarise(await _read_report_artifact(work, "risks"))
        document = await asyncio.to_thread(read_document, _path_parameter(work, "source"))
        markdown, data = await asyncio.to_thread(write_report, report, document, out)
        await work.context.artifacts.write("report", markdown, type="report", path=REPORT, summary="The report")
        await work.context.artifacts.write("report-data", data, type="report", path=DATA, summary="The report as JSON")
        questions = [f"{item.id} (score {item.score}): {item.action}" for item in report.above[:_MAX_QUESTIONS]]
        patch = ContractPatch(
            current_state=[
                f"The review is written: {REPORT} and {DATA}",
                f"The contract as it is: {report.verdict}",
                f"{len(report.passages)} passages are quoted, each found again at its line",
            ],
            decision_log=[f"Reported in {len(report.summary)} statements; {_describe_judge(report)}"],
            open_questions=[*work.context.baton.open_questions, *questions],
            work_scope=[REPORT, DATA],
        )
        output = {**_make_output(report), "report": str(out / REPORT), "data": str(out / DATA)}
        return AgentAnswer(patch=patch, output=output, claimed=False)


def _make_output(report: Report) -> dict[str, str | int]:
    return {
        "verdict": report.verdict,
        "topics": len([*locate_topics(report)]),
        "passages": len(report.passages),
        "risks": len(report.findings),
        "above_appetite": len(report.above),
    }


def _describe_judge(report: Report) -> str:
    return "judged by a model" if report.judged else "not judged"


def _model_input(report: Report, policy: Policy) -> JsonValue:
    """Return a model's input: the side, what it accepts, and the clauses that fit."""
    texts: list[JsonValue] = []
    tokens_left = _MAX_TOKENS
    for clause in report.clauses:
        tokens_left -= estimate_tokens(clause.text)
        if tokens_left > 0:
            texts.append({"title": clause.title, "text": clause.text})
    return {"party": report.party, "accepts": [*policy.terms], "clauses": texts}


def _add_claims(report: Report, answer: Claims) -> Report:
    """Add a model's findings whose quote is in the contract, with the line where it begins."""
    findings: list[Finding] = []
    for claim in answer.findings:
        quote = squeeze(claim.quote)
        clause = next((clause for clause in report.clauses if quote in clause.text), None)
        if clause is not None and len(quote) >= _MIN_QUOTE_LENGTH:
            words = {name: squeeze(getattr(claim, name)) for name in ("title", "why", "action")}
            place = clause.place(clause.text.find(quote))
            id = f"F-{len(findings) + 1:02d}"
            new = {"id": id, "clause": clause.id, "place": place, "quote": quote, **words}
            findings.append(Finding.model_validate(claim.model_dump() | new))
    rejected = len(answer.findings) - len(findings)
    return report.model_copy(update={"judged": True, "findings": tuple(findings), "rejected": rejected})


async def _write_report_artifact(work: AgentWork, id: str, report: Report) -> None:
    summary = f"{len(report.clauses)} clauses, {len(report.passages)} passages, {len(report.findings)} risks"
    await work.context.artifacts.write(id, report.model_dump_json(), type="review", summary=summary)


async def _read_report_artifact(work: AgentWork, id: str) -> Report:
    return await asyncio.to_thread(Report.model_validate_json, await work.context.artifacts.read(id))


def _read_policy(work: AgentWork) -> Policy:
    try:
        return Policy.model_validate_json(json.dumps(work.context.params.get("policy") or {}))
    except ValidationError as error:
        raise ReviewError(f"the parameter 'policy' cannot be used: {describe_faults(error, 'policy')}") from None


def _path_parameter(work: AgentWork, name: str) -> Path:
    return Path(text_parameter(work.context, name, "contract_review", ReviewError))


_TERMS: dict[str, Any] = {
    "timeout": timedelta(minutes=20),
    "heartbeat": timedelta(seconds=10),
    "retries": Retries(never=("TypeError", "ReviewError")),  # a retry does not fix a wrong file or parameter
}

extract_clauses = agent_stage(
    Extractor(),
    writes=["current_state", "decision_log", "constraints", "artifacts", "open_questions", "extracted_clauses"],
    baton_type=ContractBaton,
    **_TERMS,
)
"""Split the contract into clauses with topic and place, and find its sides."""

analyse_clauses = agent_stage(
    Analyst(),
    writes=["current_state", "decision_log", "artifacts", "risk_flags"],
    baton_type=ContractBaton,
    **_TERMS,
    limits=AgentLimits(requests=4),
    reserve_micro_usd=100_000,
)
"""Locate topics and words in every clause, and ask the model to judge for the side."""

score_risk = agent_stage(
    Scorer(),
    writes=["current_state", "decision_log", "artifacts", "acceptance", "risk_flags"],
    baton_type=ContractBaton,
    **_TERMS,
)
"""Compare each finding of the model with the appetite, as in ISO 31000."""

write_summary = agent_stage(
    Writer(),
    writes=["current_state", "decision_log", "artifacts", "open_questions", "work_scope"],
    baton_type=ContractBaton,
    **_TERMS,
)
"""Write the report; every statement has citations."""

STAGES: list[Callable[..., Any]] = [extract_clauses, analyse_clauses, score_risk, write_summary]
"""The stages that a worker runs."""
