"""The fourth agent: the report, one page first, in which every statement names what it rests on.

Whatever comes from the contract passes through `text` or stands in a quotation, so that nothing in a contract can
become mark-up, a heading or a link of the report.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from activities.contract_review.analysis import unresolved
from activities.contract_review.records import (
    Analysis,
    Clause,
    Extraction,
    Fact,
    Register,
    Report,
    ReviewError,
    Risk,
    Statement,
)
from activities.contract_review.risk import CONSEQUENCE, LIKELIHOOD, matrix
from activities.project_init.markdown import bullets, page, slug, table, text
from activities.project_init.store import write_bytes
from activities.workbench.words import counted

REPORT = "REPORT.md"
DATA = "report.json"
_TOP = 5
_LONGEST = 360
_KEY_FACTS = 3


def summarise(extraction: Extraction, analysis: Analysis, risks: Register) -> tuple[Statement, ...]:
    """Return the executive summary: what it is, what follows, the five highest risks, and what is missing.

    Args:
        extraction: What was read.
        analysis: What was found.
        risks: What it amounts to.
    """
    return (
        *_what_it_is(extraction, analysis),
        _verdict(risks),
        *_highest(risks, analysis),
        *_the_rest(extraction, analysis, risks),
    )


def citation_faults(report: Report) -> list[str]:
    """Return what in a report cannot be traced: empty for every report that is written.

    Each statement of the summary rests on something; each clause and finding that is named is there; each quotation
    stands in its clause, word for word. Whether a statement follows from what it rests on is not checked.
    """
    clauses = {clause.id: clause for clause in report.extraction.clauses}
    findings = {finding.id for finding in report.analysis.findings}
    faults = [f"finding {id} does not resolve" for id in unresolved(report.analysis.findings, clauses)]
    for risk in report.risks.risks:
        if risk.finding not in findings or (risk.clause is not None and risk.clause not in clauses):
            faults.append(f"risk {risk.id} does not resolve")
    for at, statement in enumerate(report.summary, 1):
        if not statement.clauses and not statement.findings and report.analysis.findings:
            faults.append(f"statement {at} rests on nothing")
        if not set(statement.clauses) <= clauses.keys() or not set(statement.findings) <= findings:
            faults.append(f"statement {at} does not resolve")
    return faults


def write_report(report: Report, out: Path) -> tuple[str, str]:
    """Write `REPORT.md` and `report.json` into a folder, which is made, and return their texts.

    Both are replaced whole; nothing else in the folder is touched.

    Raises:
        ReviewError: A citation does not resolve, or the folder cannot be written.
    """
    faults = citation_faults(report)
    if faults:
        raise ReviewError(f"the report is not written, because it cannot be traced: {'; '.join(faults[:5])}")
    shown, data = to_markdown(report), report.model_dump_json(indent=1) + "\n"
    try:
        out.mkdir(parents=True, exist_ok=True)
        write_bytes(out, REPORT, shown.encode())
        write_bytes(out, DATA, data.encode())
    except OSError as error:
        raise ReviewError(f"the output folder {str(out)!r} cannot be written ({error.strerror})") from None
    return shown, data


def to_markdown(report: Report) -> str:
    """Return a report as Markdown, the summary first."""
    links = _Links(report)
    above = [risk for risk in report.risks.risks if not risk.accepted]
    return page(
        f"# Contract review: {text(report.extraction.title)}",
        "> The words of the contract are quoted as data: whatever they say, they instruct nobody. "
        "This is an aid to its reader, not legal advice.",
        "## Summary",
        bullets(_statement(one, links) for one in report.summary),
        "## Risks",
        _register(report.risks.risks, links) if report.risks.risks else "No rule found anything.",
        "### Matrix",
        _matrix(report.risks.risks),
        "## Treatment" if above else "",
        *(_treatment(risk, links) for risk in above),
        "## Clauses cited" if links.cited else "",
        *(_cited(report, clause, links) for clause in links.cited),
        "## Method",
        _method(report),
    )


class _Links:
    """Links from statements to the clauses they cite, by the headings below."""

    def __init__(self, report: Report) -> None:
        named = {id for one in report.summary for id in one.clauses}
        named |= {id for one in report.analysis.findings for id in (one.clause, *one.more) if id}
        self.cited = [clause for clause in report.extraction.clauses if clause.id in named]
        self._headings = {clause.id: f"C{at}: {_called(clause.id)}" for at, clause in enumerate(self.cited, 1)}

    def heading(self, id: str) -> str:
        """Return the text of a clause's heading; its number makes the anchor unique."""
        return self._headings[id]

    def to(self, ids: Iterable[str]) -> str:
        """Return links to clauses."""
        return ", ".join(f"[{text(_called(id))}](#{slug(self._headings[id])})" for id in ids)


def _called(id: str) -> str:
    """Return what to call a clause.

    Example:
        >>> _called("5.2"), _called("Article IV")
        ('clause 5.2', 'Article IV')
    """
    return f"clause {id}" if id[0].isdecimal() else id


def _what_it_is(extraction: Extraction, analysis: Analysis) -> list[Statement]:
    """Say what the contract is, between whom, and its first facts."""
    parties = [fact for fact in extraction.facts if fact.kind == "party"]
    between = (
        " and ".join(f"{fact.value} ({fact.role})" for fact in parties[:4]) or "parties that it does not name clearly"
    )
    first = extraction.clauses[0].id
    clauses = len(extraction.clauses)
    opening = (
        f"{extraction.title}: a contract of the sort '{extraction.type}' between {between}, "
        f"{extraction.pages} page{'s' * (extraction.pages > 1)}, {clauses} clause{'s' * (clauses > 1)}, read for the "
        f"{analysis.party}."
    )
    said = [Statement(text=opening, clauses=tuple(dict.fromkeys(fact.clause for fact in parties)) or (first,))]
    for what, facts in (("Money", _facts(extraction, "amount")), ("Dates", _facts(extraction, "date"))):
        if facts:
            words = "; ".join(f"“…{fact.role[-40:].partition(' ')[2].strip()} {fact.quote}”" for fact in facts)
            said.append(
                Statement(text=f"{what}: {words}.", clauses=tuple(dict.fromkeys(fact.clause for fact in facts)))
            )
    law = next((clause for clause in extraction.clauses if clause.kind == "governing_law" and clause.text), None)
    if law:
        said.append(Statement(text=f"Law: {law.text[:160]}", clauses=(law.id,)))
    return said


def _facts(extraction: Extraction, kind: str) -> list[Fact]:
    found = {fact.value: fact for fact in reversed(extraction.facts) if fact.kind == kind and fact.value}
    return list(reversed(found.values()))[:_KEY_FACTS]


def _verdict(risks: Register) -> Statement:
    """Say what follows, and how the risks spread."""
    above = [risk for risk in risks.risks if not risk.accepted]
    levels = Counter(risk.level for risk in above)
    spread = ", ".join(f"{levels[level]} {level}" for level in ("extreme", "high", "moderate", "low") if levels[level])
    words = {
        "sign": "It can be signed as it stands",
        "negotiate": "Negotiate before signing",
        "do not sign": "Do not sign it as it stands",
    }[risks.verdict]
    after = sum(risk.residual > risks.appetite for risk in above)
    body = f"{len(above)} of {len(risks.risks)} risks are above the appetite of {risks.appetite}"
    if above:
        body += f" ({spread}); once treated as proposed, {after} would be"
    return Statement(text=f"{words}: {body}.", findings=tuple(risk.finding for risk in above or risks.risks))


def _highest(risks: Register, analysis: Analysis) -> list[Statement]:
    """Say the highest risks, each with what to do."""
    findings = {finding.id: finding for finding in analysis.findings}
    return [
        Statement(
            text=(
                f"{risk.id}, {risk.likelihood} × {risk.consequence} = {risk.score}, {risk.level}: {risk.title}. "
                f"{risk.action}"
            ),
            clauses=(risk.clause, *findings[risk.finding].more[:3]) if risk.clause else (),
            findings=(risk.finding,),
        )
        for risk in risks.risks[:_TOP]
        if not risk.accepted
    ]


def _the_rest(extraction: Extraction, analysis: Analysis, risks: Register) -> list[Statement]:
    """Say what is missing, what speaks to machines, and what the reading could not do."""
    said: list[Statement] = []
    missing = [finding for finding in analysis.findings if finding.absent]
    if missing:
        kinds = ", ".join(str(finding.absent).replace("_", " ") for finding in missing)
        said.append(Statement(text=f"No clause was found on: {kinds}.", findings=tuple(one.id for one in missing)))
    spoken = [finding for finding in analysis.findings if finding.rule == "INJ-1"]
    if spoken:
        said.append(
            Statement(
                text=(
                    "Sentences address programs that read the contract; they were read as text, and nothing followed "
                    "them."
                ),
                clauses=tuple(dict.fromkeys(one.clause for one in spoken if one.clause)),
                findings=tuple(one.id for one in spoken),
            )
        )
    accepted = tuple(risk.finding for risk in risks.risks if risk.accepted)
    if accepted:
        said.append(
            Statement(text=f"Within the appetite, and retained: {counted(len(accepted), 'risk')}.", findings=accepted)
        )
    if extraction.notes:
        said.append(
            Statement(text=f"Of the reading: {'; '.join(extraction.notes)}.", clauses=(extraction.clauses[0].id,))
        )
    return said


def _statement(statement: Statement, links: _Links) -> str:
    rests = links.to(statement.clauses)
    if statement.findings and not statement.clauses:
        shown = ", ".join(statement.findings[:8])
        rests = shown + (f" and {len(statement.findings) - 8} more" if len(statement.findings) > 8 else "")
    author = f" *({text(statement.by)})*" if statement.by else ""
    return f"{text(statement.text, _LONGEST)}{f' [{rests}]' if rests else ''}{author}"


def _register(risks: Sequence[Risk], links: _Links) -> str:
    rows = [
        (
            risk.id,
            links.to([risk.clause]) if risk.clause else "missing",
            text(risk.title),
            f"{risk.likelihood} × {risk.consequence} = {risk.score}",
            risk.level,
            "yes" if risk.accepted else "no",
            risk.treatment,
            str(risk.residual),
        )
        for risk in risks
    ]
    headings = ("Risk", "Where", "What", "Likelihood × consequence", "Level", "Accepted", "Treatment", "Left after it")
    return table(headings, rows)


def _matrix(risks: Sequence[Risk]) -> str:
    cells = matrix(risks)
    rows = [
        (f"likelihood {likelihood}", *(", ".join(cells[likelihood, consequence]) for consequence in range(1, 6)))
        for likelihood in range(5, 0, -1)
    ]
    return table(("", *(f"consequence {consequence}" for consequence in range(1, 6))), rows)


def _treatment(risk: Risk, links: _Links) -> str:
    where = links.to([risk.clause]) if risk.clause else "nowhere in the contract"
    lines = [
        f"Where: {where} ({risk.finding})",
        f"Event: {text(risk.event, _LONGEST)}",
        f"Likelihood {risk.likelihood}: {text(risk.likelihood_reason, _LONGEST)}",
        f"Consequence {risk.consequence}: {text(risk.consequence_reason, _LONGEST)}",
        f"Treatment: {risk.treatment}. {text(risk.action, _LONGEST)} That leaves {risk.residual}.",
    ]
    wording = f"Proposed wording:\n\n> {text(risk.wording, 1_000)}" if risk.wording else ""
    return page(f"### {risk.id}: {text(risk.title)}", bullets(lines), wording).rstrip("\n")


def _cited(report: Report, clause: Clause, links: _Links) -> str:
    findings = [one for one in report.analysis.findings if one.clause == clause.id]
    lines = [
        f"{one.id}, rule {one.rule}: {text(one.title)}"
        + (f" ({text(one.because, _LONGEST)})" if one.because else "")
        + f": “{text(one.quote, _LONGEST)}”"
        + (f" Doubted: {text(one.doubt, _LONGEST)}" if one.doubt else "")
        for one in findings
    ] or [f"“{text(clause.text or clause.title, _LONGEST)}”"]
    place = f"{text(clause.title)}, {clause.kind.replace('_', ' ')}, page {clause.page}, line {clause.line}"
    return page(f"### {text(links.heading(clause.id))}", place, bullets(lines)).rstrip("\n")


def _method(report: Report) -> str:
    grades = table(
        ("Grade", "Likelihood", "Consequence"),
        [(str(at), LIKELIHOOD[at], CONSEQUENCE[at]) for at in sorted(LIKELIHOOD)],
    )
    said = (
        f"{report.analysis.rules} rules were applied to every clause. Each finding is a risk in the sense of ISO "
        "31000:2018: identified (6.4.2), graded by the criteria below (6.4.3), compared with the appetite of "
        f"{report.risks.appetite} (6.4.4) and treated (6.5). Scores: 1 to 4 low, 5 to 9 moderate, 10 to 14 high, 15 "
        "and above extreme. Rules find what they were written to find; a clause that nothing is said of was not found "
        "to be harmless."
    )
    source = f"Read: {text(report.extraction.document)}, SHA-256 `{report.extraction.sha256}`."
    dropped = report.analysis.rejected
    model = (
        f"Dropped, because the contract does not have the words: {counted(dropped, 'finding')} of a model."
        if dropped
        else ""
    )
    return page(said, grades, source, model).rstrip("\n")
