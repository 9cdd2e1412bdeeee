"""What each of the four agents asks a model, and what may be taken from its answers.

The rules' work stands whatever a model says: it may put a kind to clauses that have none, add findings whose words
stand in the contract, move a grade by one, and write sentences that cite. It can remove nothing, so a contract that
talks a model into silence gains nothing by it.
"""

from collections.abc import Iterator, Sequence

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from activities.contract_review.agents import Consultation
from activities.contract_review.analysis import numbered
from activities.contract_review.reading import squeeze
from activities.contract_review.records import (
    Analysis,
    Clause,
    Extraction,
    Finding,
    Grade,
    Kind,
    Policy,
    Register,
    Report,
    Statement,
)
from activities.contract_review.risk import register, regraded
from baton import estimate_tokens

_TOKENS_A_CALL = 24_000
_MOST_CALLS = 20
_MOST_STATEMENTS = 3
_SHORTEST_QUOTE = 8


class _Answer(BaseModel):
    """An answer of a model; members it adds are passed over."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class NamedClause(_Answer):
    """The kind that a model puts to a clause."""

    clause: str
    kind: Kind


class NamedClauses(_Answer):
    """Kinds for clauses."""

    clauses: list[NamedClause]


class Claim(_Answer):
    """A finding of a model; the quotation must stand in the clause."""

    clause: str
    quote: str
    title: str = Field(min_length=1, max_length=80)
    why: str = Field(min_length=1, max_length=300)
    likelihood: Grade
    consequence: Grade


class Doubt(_Answer):
    """Why a finding of the rules may be none."""

    finding: str
    reason: str = Field(min_length=1, max_length=300)


class Claims(_Answer):
    """Findings to add, and doubts about others."""

    findings: list[Claim]
    doubts: list[Doubt] = []


class Regrade(_Answer):
    """Other grades for a risk."""

    risk: str
    likelihood: Grade
    consequence: Grade
    reason: str = Field(min_length=1, max_length=300)


class Regrades(_Answer):
    """Other grades for some risks."""

    risks: list[Regrade]


class Sentence(_Answer):
    """A sentence for the summary and what it rests on."""

    text: str = Field(min_length=1, max_length=360)
    clauses: list[str] = []
    findings: list[str] = []


class Sentences(_Answer):
    """Sentences to open the summary with."""

    sentences: list[Sentence]


async def refine_extraction(talk: Consultation, extraction: Extraction) -> Extraction:
    """Return the extraction with kinds for clauses that no rule could put one to."""
    open_ = [clause for clause in extraction.clauses if clause.kind == "general" and clause.text]
    named: dict[str, Kind] = {}
    for batch in _batches(open_):
        answer = await talk.ask("Say what each clause of the contract is about.", _shown(batch), NamedClauses)
        named |= {one.clause: one.kind for one in answer.clauses}
    may = {clause.id for clause in open_}
    clauses = tuple(
        clause.model_copy(update={"kind": named[clause.id]}) if clause.id in may and clause.id in named else clause
        for clause in extraction.clauses
    )
    return extraction.model_copy(update={"clauses": clauses})


async def refine_analysis(talk: Consultation, extraction: Extraction, analysis: Analysis, policy: Policy) -> Analysis:
    """Return the analysis with what a model finds beyond the rules, and its doubts about what they found.

    A finding whose words do not stand in the clause it names is dropped, and counted.
    """
    clauses = {clause.id: clause for clause in extraction.clauses}
    added: list[Finding] = []
    doubts: dict[str, str] = {}
    rejected = 0
    known: JsonValue = [{"id": one.id, "clause": one.clause, "title": one.title} for one in analysis.findings]
    task = (
        f"Review a contract for the party {analysis.party!r}. Name what this party may come to regret and the known "
        "findings do not name, quoting the clause word for word; likelihood and consequence are grades from 1 to 5. "
        "Say which known findings you doubt."
    )
    for batch in _batches([clause for clause in extraction.clauses if clause.text]):
        data: JsonValue = {"policy": policy.model_dump(mode="json"), "known": known, "clauses": _shown(batch)}
        answer = await talk.ask(task, data, Claims)
        doubts |= {one.finding: squeeze(one.reason) for one in answer.doubts}
        for claim in answer.findings:
            finding = _borne_out(claim, clauses)
            if finding is None:
                rejected += 1
            elif not any(_same(finding, other) for other in (*analysis.findings, *added)):
                added.append(finding)
    doubted = [one.model_copy(update={"doubt": doubts.get(one.id, "")}) for one in analysis.findings]
    findings = numbered([*doubted, *added], extraction.clauses)
    return analysis.model_copy(update={"findings": findings, "rejected": rejected})


async def refine_register(talk: Consultation, risks: Register) -> Register:
    """Return the register with grades moved by at most one where a model gives a reason."""
    if not risks.risks:
        return risks
    data: JsonValue = [
        {
            "risk": one.id,
            "title": one.title,
            "event": one.event,
            "likelihood": one.likelihood,
            "consequence": one.consequence,
            "reasons": [one.likelihood_reason, one.consequence_reason],
        }
        for one in risks.risks
    ]
    answer = await talk.ask(
        "Grade these risks from 1 to 5 where you would grade them otherwise, and say why.", data, Regrades
    )
    moved = {one.risk: one for one in answer.risks}
    regradings = []
    for risk in risks.risks:
        other = moved.get(risk.id)
        if other is not None:
            likelihood = _near(other.likelihood, risk.likelihood)
            consequence = _near(other.consequence, risk.consequence)
            reason = f"moved by {talk.model.name}: {squeeze(other.reason)}"
            risk = regraded(risk, likelihood, consequence, reason, risks.appetite)
        regradings.append(risk)
    return register(regradings, risks.appetite)


async def refine_summary(talk: Consultation, report: Report) -> Report:
    """Return the report with up to three sentences of a model after the rules' own, each with what it rests on."""
    clauses = {clause.id for clause in report.extraction.clauses}
    findings = {finding.id for finding in report.analysis.findings}
    data: JsonValue = {
        "verdict": report.risks.verdict,
        "findings": [
            one.model_dump(mode="json", include={"id", "clause", "title", "why"}) for one in report.analysis.findings
        ],
        "risks": [
            one.model_dump(mode="json", include={"id", "finding", "score", "action"}) for one in report.risks.risks
        ],
    }
    task = (
        "Write up to three plain sentences for a manager who has to decide, each with the clauses and findings that it "
        "rests on."
    )
    answer = await talk.ask(task, data, Sentences)
    said = [
        Statement(text=squeeze(one.text), clauses=tuple(one.clauses), findings=tuple(one.findings), by=talk.model.name)
        for one in answer.sentences
        if (one.clauses or one.findings) and set(one.clauses) <= clauses and set(one.findings) <= findings
    ]
    return report.model_copy(update={"summary": (*report.summary, *said[:_MOST_STATEMENTS])})


def _borne_out(claim: Claim, clauses: dict[str, Clause]) -> Finding | None:
    """Return a model's finding if the clause that it names has the words that it quotes."""
    clause = clauses.get(claim.clause)
    quote = squeeze(claim.quote)
    if clause is None or len(quote) < _SHORTEST_QUOTE or quote not in clause.text:
        return None
    return Finding(
        id="F-00",
        rule="LLM-1",
        title=squeeze(claim.title),
        why=squeeze(claim.why),
        clause=clause.id,
        quote=quote,
        page=clause.page,
        line=clause.line,
        likelihood=claim.likelihood,
        consequence=claim.consequence,
    )


def _same(one: Finding, other: Finding) -> bool:
    return one.clause == other.clause and (one.quote in other.quote or other.quote in one.quote)


def _near(wanted: int, now: int) -> int:
    return max(now - 1, min(now + 1, wanted))


def _shown(clauses: Sequence[Clause]) -> JsonValue:
    return [{"clause": one.id, "title": one.title, "text": one.text} for one in clauses]


def _batches(clauses: Sequence[Clause]) -> Iterator[list[Clause]]:
    """Yield clauses in parts that a model can read, at most twenty; what is beyond, the rules alone have read."""
    batch: list[Clause] = []
    tokens = calls = 0
    for clause in clauses:
        cost = estimate_tokens(clause.text)
        if batch and tokens + cost > _TOKENS_A_CALL:
            yield batch
            batch, tokens, calls = [], 0, calls + 1
            if calls == _MOST_CALLS:
                return
        batch.append(clause)
        tokens += cost
    if batch:
        yield batch
