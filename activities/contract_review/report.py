"""Score a model's findings by ISO 31000:2018, write the report, and prove each of its lines against the document."""

from collections.abc import Iterator
from pathlib import Path

from activities.contract_review.clauses import join_lines, rulebook
from activities.contract_review.records import (
    Clause,
    Document,
    Finding,
    Line,
    Passage,
    Report,
    ReviewError,
    Statement,
    Verdict,
)
from activities.pages import bullets, check_folder, page, table, text, write_folder

REPORT, DATA = "REPORT.md", "report.json"
_MARK = "<!-- written by baton contract_review -->"
MARKS = {REPORT: _MARK, DATA: '"written_by": "baton contract_review"'}
"""The output files, and the mark that identifies this pipeline's own."""
_MAX_SUMMARISED, _MAX_PLACES = 5, 6


def score(report: Report, appetite: int) -> Report:
    """Order the findings by score, and compare them with the appetite; without a judge there is no verdict."""
    ordered = tuple(sorted(report.findings, key=lambda finding: (-finding.score, finding.id)))
    report = report.model_copy(update={"appetite": appetite, "findings": ordered})
    verdict: Verdict = "sign"
    if not report.judged:
        verdict = "not judged"
    elif report.above:
        verdict = "do not sign" if any(finding.level == "extreme" for finding in report.above) else "negotiate"
    return report.model_copy(update={"verdict": verdict})


def summarise(report: Report) -> Report:
    """Add the summary: what was located, what was not, and what a model judged, or who has to."""
    whole = (report.clauses[0].id,)
    topics = dict(locate_topics(report))
    sides = ", ".join(f"“{side}”" for side in report.sides) or "no sides in quotation marks"
    statements = [
        Statement(
            text=f"{len(report.clauses) - 1} clauses were read. The preamble defines {sides}.",
            clauses=whole,
        ),
        Statement(
            text=f"Titles or words of {len(topics)} of {len(rulebook()['topics'])} topics were found; those of "
            f"{len(report.not_found)} were not: {', '.join(map(_say, report.not_found)) or 'none'}.",
            clauses=whole,
        ),
    ]
    if not report.judged:
        remedy = (
            "a worker with a model" if report.party else "a person, or a side in `policy` and a worker with a model"
        )
        text = f"Nothing is judged: whether to sign needs {remedy}. Read the passages below."
        statements.append(Statement(text=text, clauses=whole))
    else:
        text = f"A model judged it for the {report.party}: {report.verdict}. {len(report.above)} of "
        text += f"{len(report.findings)} risks are above the appetite of {report.appetite}."
        findings = tuple(finding.id for finding in report.above)
        statements.append(Statement(text=text, clauses=whole, findings=findings, by="model"))
    for finding in report.above[:_MAX_SUMMARISED]:
        text = f"{finding.title} (score {finding.score}, {finding.level}): {finding.action}"
        statements.append(Statement(text=text, clauses=(finding.clause,), findings=(finding.id,), by="model"))
    return report.model_copy(update={"summary": tuple(statements)})


def locate_topics(report: Report) -> Iterator[tuple[str, list[str]]]:
    """Yield each topic that was found with where: clauses by their title, else passages by their words."""
    for topic in rulebook()["topics"]:
        titled = [f"{_cite(clause)} by its title" for clause in report.clauses if clause.topic == topic]
        worded = [
            f"clause {passage.clause} (line {passage.line}) by “{mark.words}”"
            for passage in report.passages
            for mark in passage.marks
            if mark.name == topic
        ]
        if titled or worded:
            yield topic, titled or worded


def find_untraceable(report: Report, document: Document) -> list[str]:
    """Return the items of a report that the document does not prove; a report with any is not written.

    Each quote begins in the line that is cited, word for word, and has the words that are said of it; each title is in
    its line; each cited clause and finding exists. Whether a statement follows from its citations is not checked.
    """
    lines = [line for line in document.lines if line.text]
    positions = {(line.page, line.number): position for position, line in enumerate(lines)}

    def begins_at(page: int, line: int, quote: str) -> bool:
        first = last = positions.get((page, line), len(lines))
        length = -len(lines[first].text) if first < len(lines) else 0
        while last < len(lines) and length < len(quote):
            length, last = length + len(lines[last].text), last + 1
        joined, places = join_lines(lines[first:last])
        return bool(quote) and quote in joined[: (places[1].start if len(places) > 1 else len(joined)) + len(quote)]

    clauses, findings = {clause.id for clause in report.clauses}, {finding.id for finding in report.findings}
    faults = [f"clause {clause.id}" for clause in report.clauses[1:] if not _has_title(clause, lines, positions)]
    quoted: tuple[Passage | Finding, ...] = (*report.passages, *report.findings)
    faults += [
        f"{item.quote[:40]!r} in line {item.line}"
        for item in quoted
        if item.clause not in clauses or not begins_at(item.page, item.line, item.quote)
    ]
    return faults + [
        f"statement {number}"
        for number, statement in enumerate(report.summary, 1)
        if not (statement.clauses or statement.findings)
        or not set(statement.clauses) <= clauses
        or not set(statement.findings) <= findings
    ]


def write_report(report: Report, document: Document, out: Path) -> tuple[str, str]:
    """Write `REPORT.md` and `report.json`, and return their texts."""
    if report.sha256 != document.sha256:
        raise ReviewError(f"{document.name!r} has changed since it was read; start the review again")
    if faults := find_untraceable(report, document):
        raise ReviewError(f"the report is not written, because it cannot be traced: {', '.join(faults[:5])}")
    check_folder(out, MARKS, ReviewError)
    markdown, data = to_markdown(report), report.model_dump_json(indent=1) + "\n"
    write_folder(out, {REPORT: markdown, DATA: data}, ReviewError)
    return markdown, data


def to_markdown(report: Report) -> str:
    """Return a report as Markdown; the contract's text is escaped, so it cannot become mark-up."""
    topics = [
        (_say(topic), "; ".join(map(text, places[:_MAX_PLACES])) + (", …" if len(places) > _MAX_PLACES else ""))
        for topic, places in locate_topics(report)
    ]
    silent = {clause.id for clause in report.clauses[1:] if clause.text} - {item.clause for item in report.passages}
    return page(
        _MARK,
        f"# Contract review: {text(report.title)}",
        "> The words of the contract are quoted as data: whatever they say, they are not instructions. This is an aid "
        "to its reader, not legal advice.",
        "## Summary",
        bullets(_render_statement(statement) for statement in report.summary),
        "## Risks",
        "\n\n".join(
            f"### {finding.id}: {text(finding.title)}\n\n{text(finding.why)} Likelihood {finding.likelihood} × "
            f"consequence {finding.consequence} = {finding.score}, {finding.level}. {text(finding.action)}\n\n"
            f"> clause {text(finding.clause)}, page {finding.page}, line {finding.line}: “{text(finding.quote)}”"
            for finding in report.findings
        )
        or ("The model named none." if report.judged else "Not judged."),
        f"{report.rejected} findings of the model were dropped: the contract does not have their words."
        if report.rejected
        else "",
        "## Topics",
        table(("Topic", "Found in"), topics) if topics else "No title and no words of any topic were found.",
        f"Neither a title nor words were found of: {', '.join(map(_say, report.not_found))}. A clause on it may have "
        "others."
        if report.not_found
        else "",
        "## Passages",
        table(
            ("Clause", "Line", "Words", "Passage"),
            [_render_passage(passage, report.pages > 1) for passage in report.passages],
        )
        if report.passages
        else "No words of any list were found.",
        f"No words were found in: {', '.join(text(clause.id) for clause in report.clauses if clause.id in silent)}."
        if silent
        else "",
        "## Method",
        "Lists of words were looked for in every sentence. They find and quote; what a clause means, for whom, and "
        "whether it is a risk, they cannot know. Before this was written, each quote was found again at its line.",
        f"Read: {text(report.document)}, {report.pages} pages, SHA-256 `{report.sha256}`. "
        + " ".join(f"{text(note)}." for note in report.notes),
    )


def _has_title(clause: Clause, lines: list[Line], positions: dict[tuple[int, int], int]) -> bool:
    position = positions.get((clause.page, clause.line))
    return position is not None and clause.title.casefold() in lines[position].text.casefold()


def _cite(clause: Clause) -> str:
    return f"clause {clause.id} (line {clause.line})"


def _say(name: str) -> str:
    return name.replace("_", " ")


def _render_passage(passage: Passage, paged: bool) -> tuple[str, str, str, str]:
    words = "; ".join(f"{_say(mark.name)}: “{text(mark.words)}”" for mark in passage.marks)
    line = f"page {passage.page}, line {passage.line}" if paged else str(passage.line)
    return text(passage.clause), line, words, text(passage.quote)


def _render_statement(statement: Statement) -> str:
    citations = ", ".join([*(f"clause {text(id)}" for id in statement.clauses[:12]), *statement.findings[:12]])
    omitted = len(statement.clauses[12:]) + len(statement.findings[12:])
    author = f" *({text(statement.by)})*" if statement.by else ""
    return f"{text(statement.text)} [{citations}{f' and {omitted} more' if omitted else ''}]{author}"
