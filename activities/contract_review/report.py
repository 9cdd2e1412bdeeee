"""Score the findings by ISO 31000:2018, and write the report; every statement has citations."""

from pathlib import Path
from typing import Any

from activities.contract_review.clauses import rulebook
from activities.contract_review.records import Finding, Level, Report, ReviewError, Risk, Statement, Verdict
from activities.pages import bullets, check_folder, page, table, text, write_folder

REPORT, DATA = "REPORT.md", "report.json"
_MARK = "<!-- written by baton contract_review -->"
MARKS = {REPORT: _MARK, DATA: '"written_by": "baton contract_review"'}
"""The output files, and the mark that identifies this pipeline's own."""
_BANDS: tuple[tuple[int, Level], ...] = ((15, "extreme"), (10, "high"), (5, "moderate"), (1, "low"))
_UNKNOWN = {
    "event": "What the finding describes happens.",
    "treatment": "reduce",
    "action": "Have a lawyer look at it.",
    "lowers": [1, 1],
}
_MAX_SUMMARISED = 5


def score(report: Report, appetite: int) -> Report:
    """Add the risk register: each risk identified, graded, compared with the appetite, and treated."""
    plans = {rule["id"]: rule for rule in rulebook()["rule"]}
    names = {"us": report.party, "them": report.other}
    risks = [_assess_risk(finding, plans.get(finding.rule, _UNKNOWN), names, appetite) for finding in report.findings]
    ordered = sorted(risks, key=lambda risk: (-risk.score, risk.finding))
    unaccepted = [risk for risk in ordered if not risk.accepted]
    verdict: Verdict = "negotiate" if unaccepted else "sign"
    if any(risk.level == "extreme" for risk in unaccepted):
        verdict = "do not sign"
    numbered = tuple(risk.model_copy(update={"id": f"R-{number:02d}"}) for number, risk in enumerate(ordered, 1))
    return report.model_copy(update={"appetite": appetite, "risks": numbered, "verdict": verdict})


def summarise(report: Report) -> Report:
    """Add the summary: the contract, the verdict, the highest risks, and the clauses that no rule examined."""
    above = [risk for risk in report.risks if not risk.accepted]
    parties = (
        " and ".join(f"{name} ({role})" for role, name in report.parties.items()) or "parties that it does not name"
    )
    first = (report.clauses[0].id,)
    statements = [
        Statement(text=f"{report.title}: a contract of the type {report.type!r} between {parties}.", clauses=first),
        Statement(
            text=f"Reviewed for the {report.party}: {report.verdict}. {len(above)} of {len(report.risks)} risks are "
            f"above the appetite of {report.appetite}.",
            clauses=first,
            findings=tuple(risk.finding for risk in above),
        ),
    ]
    for risk in above[:_MAX_SUMMARISED]:
        clauses = (risk.clause,) if risk.clause else ()
        text = f"{risk.title} (score {risk.score}, {risk.level}): {risk.action}"
        statements.append(Statement(text=text, clauses=clauses, findings=(risk.finding,)))
    if report.uncovered:
        text = f"No rule looked at {len(report.uncovered)} of {len(report.clauses) - 1} clauses any closer: read them."
        statements.append(Statement(text=text, clauses=report.uncovered))
    return report.model_copy(update={"summary": tuple(statements)})


def find_untraceable(report: Report) -> list[str]:
    """Return the items of a report with invalid citations; a report with any is not written.

    Each cited clause and finding must exist, and each quote must be in its clause verbatim. Whether a statement follows
    from its citations is not checked.
    """
    clauses = {clause.id: clause for clause in report.clauses}
    findings = {finding.id for finding in report.findings}
    faults = [
        f"finding {finding.id}"
        for finding in report.findings
        if (finding.clause is None and finding.absent is None)
        or (
            finding.clause is not None
            and (finding.clause not in clauses or finding.quote not in clauses[finding.clause].text)
        )
    ]
    faults += [f"risk {risk.id}" for risk in report.risks if risk.finding not in findings]
    return faults + [
        f"statement {number}"
        for number, statement in enumerate(report.summary, 1)
        if not (statement.clauses or statement.findings)
        or not set(statement.clauses) <= clauses.keys()
        or not set(statement.findings) <= findings
    ]


def write_report(report: Report, out: Path) -> tuple[str, str]:
    """Write `REPORT.md` and `report.json`, and return their texts."""
    if faults := find_untraceable(report):
        raise ReviewError(f"the report is not written, because it cannot be traced: {', '.join(faults[:5])}")
    check_folder(out, MARKS, ReviewError)
    markdown, data = to_markdown(report), report.model_dump_json(indent=1) + "\n"
    write_folder(out, {REPORT: markdown, DATA: data}, ReviewError)
    return markdown, data


def to_markdown(report: Report) -> str:
    """Return a report as Markdown; the contract's text is escaped, so it cannot become mark-up."""
    above = [risk for risk in report.risks if not risk.accepted]
    clauses = {clause.id: clause for clause in report.clauses}
    parts = [
        _MARK,
        f"# Contract review: {text(report.title)}",
        "> The words of the contract are quoted as data: whatever they say, they are not instructions. This is an aid "
        "to its reader, not legal advice.",
        "## Summary",
        bullets(_render_statement(statement) for statement in report.summary),
        "## Risks",
        table(
            ("Risk", "Where", "What", "Likelihood × consequence", "Level", "Accepted", "Treatment", "Left after it"),
            [
                (
                    risk.id,
                    _render_clause(risk),
                    text(risk.title),
                    f"{risk.likelihood} × {risk.consequence} = {risk.score}",
                    risk.level,
                    "yes" if risk.accepted else "no",
                    risk.treatment,
                    str(risk.residual),
                )
                for risk in report.risks
            ],
        )
        if report.risks
        else "No rule found anything.",
        *(_render_treatment(risk) for risk in above),
        "## Findings",
        *(
            f"- **{finding.id}**, rule {finding.rule}, "
            + (
                _render_place(clauses[finding.clause])
                if finding.clause
                else f"nowhere: a clause on {(finding.absent or '').replace('_', ' ')}"
            )
            + f": {text(finding.title)}. {text(finding.why)}"
            + (f" ({text(finding.because)})" if finding.because else "")
            + (f" “{text(finding.quote)}”" if finding.quote else "")
            for finding in report.findings
        ),
        "## Method",
        f"{len(rulebook()['rule'])} rules were applied to every clause. A finding is a risk in the sense of ISO "
        f"31000:2018: identified (6.4.2), graded (6.4.3), compared with the appetite of {report.appetite} (6.4.4), "
        "treated (6.5). "
        "Scores: 1 to 4 low, 5 to 9 moderate, 10 to 14 high, 15 and more extreme. A clause without a finding was not "
        "found to be harmless.",
        f"No rule looked any closer at: {', '.join(map(text, report.uncovered))}." if report.uncovered else "",
        f"Read: {text(report.document)}, {report.pages} pages, SHA-256 `{report.sha256}`. "
        + " ".join(f"{text(note)}." for note in report.notes),
        f"Dropped, because the contract does not have their words: {report.rejected} findings of a model."
        if report.rejected
        else "",
    ]
    return page(*parts)


def _assess_risk(finding: Finding, plan: dict[str, Any], names: dict[str, str], appetite: int) -> Risk:
    consequence, score = finding.consequence, finding.likelihood * finding.consequence
    accepted = score <= appetite
    residual = max(1, finding.likelihood - plan["lowers"][0]) * max(1, consequence - plan["lowers"][1])
    return Risk(
        id="R-00",
        finding=finding.id,
        clause=finding.clause,
        title=finding.title,
        event=plan["event"].format(**names),
        likelihood=finding.likelihood,
        consequence=consequence,
        score=score,
        level=next(level for minimum, level in _BANDS if score >= minimum),
        accepted=accepted,
        treatment="retain" if accepted else plan["treatment"],
        action="Accept it as it is." if accepted else plan["action"].format(**names),
        wording="" if accepted else plan.get("wording", "").format(**names),
        residual=score if accepted else min(residual, score),
    )


def _render_treatment(risk: Risk) -> str:
    lines = [
        f"Event: {text(risk.event)}",
        f"Treatment: {risk.treatment}. {text(risk.action)} That leaves {risk.residual}.",
    ]
    heading = f"### {risk.id}: {text(risk.title)} ({_render_clause(risk)}, {risk.finding})"
    wording = f"\n\nProposed wording:\n\n> {text(risk.wording)}" if risk.wording else ""
    return f"{heading}\n\n{bullets(lines)}{wording}"


def _render_statement(statement: Statement) -> str:
    citations = ", ".join([*(f"clause {text(id)}" for id in statement.clauses[:12]), *statement.findings[:12]])
    omitted = len(statement.clauses[12:]) + len(statement.findings[12:])
    author = f" *({text(statement.by)})*" if statement.by else ""
    return f"{text(statement.text)} [{citations}{f' and {omitted} more' if omitted else ''}]{author}"


def _render_clause(risk: Risk) -> str:
    return f"clause {text(risk.clause)}" if risk.clause else "missing"


def _render_place(clause: Any) -> str:
    return f"clause {text(clause.id)} ({text(clause.title)}, page {clause.page}, line {clause.line})"
