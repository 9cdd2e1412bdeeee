"""Score a model's findings by ISO 31000:2018, write the report, and prove each of its lines against the document."""

from collections.abc import Iterator
from pathlib import Path

from activities.citations import Citation, find_unproved
from activities.contract_review.clauses import normalize, rulebook
from activities.contract_review.records import Document, Passage, Report, ReviewError, Statement, Verdict
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
    topics = len(dict(locate_topics(report)))
    names = ", ".join(f"“{name.quote}” ({name.place})" for name in report.names) or "none"
    statements = [
        f"Names in brackets and quotation marks in the first clauses: {names}.",
        f"Titles or words of {topics} of {len(rulebook()['topics'])} topics were found; those of "
        f"{len(report.not_found)} were not: {', '.join(map(_say, report.not_found)) or 'none'}.",
    ]
    if not report.judged:
        remedy = (
            "a worker with a model" if report.party else "a person, or a side in `policy` and a worker with a model"
        )
        statements.append(f"Nothing is judged: whether to sign needs {remedy}. Read the passages below.")
    summary = [Statement(text=text) for text in statements]
    if report.judged:
        text = f"A model judged it for the {report.party}: {report.verdict}. {len(report.above)} of "
        text += f"{len(report.findings)} risks are above the appetite of {report.appetite}."
        summary.append(Statement(text=text, findings=tuple(finding.id for finding in report.findings), by="model"))
    for finding in report.above[:_MAX_SUMMARISED]:
        text = f"{finding.title} (score {finding.score}, {finding.level}): {finding.action}"
        summary.append(Statement(text=text, clauses=(finding.clause,), findings=(finding.id,), by="model"))
    return report.model_copy(update={"summary": tuple(summary)})


def locate_topics(report: Report) -> Iterator[tuple[str, list[str]]]:
    """Yield each topic that was found with where: titles of clauses, else sentences with its words."""
    for topic in rulebook()["topics"]:
        titled = [f"{clause.id}, title “{clause.title}”" for clause in report.clauses if clause.topic == topic]
        worded = [
            f"{passage.place}, “{mark.words}”"
            for passage in report.passages
            for mark in passage.marks
            if mark.name == topic
        ]
        if titled or worded:
            yield topic, titled or worded


def find_untraceable(report: Report, document: Document) -> list[str]:
    """Return the items of a report that the document does not prove; a report with any is not written.

    Each title and quote begins in the line that is cited, word for word, and each quote has the words that are said of
    it; what a model cites exists. Whether its statements follow from that is not checked.
    """
    lines = [line for line in document.lines if line.text]
    texts = [line.text for line in lines]
    numbers = {(line.page, line.number): number for number, line in enumerate(lines, 1)}
    quoted: tuple[Passage, ...] = (*report.names, *report.passages, *report.findings)
    quotes = [(item.place, item.quote) for item in quoted]
    quotes += [(clause.places[0], clause.title) for clause in report.clauses]
    faults = find_unproved(
        Citation(str(place), texts, numbers.get((place.page, place.line), 0), words) for place, words in quotes
    )
    clauses, findings = {clause.id for clause in report.clauses}, {finding.id for finding in report.findings}
    faults += [f"{item.place} is in no clause" for item in quoted if item.clause not in clauses]
    faults += [
        f"{item.place} does not have {mark.words!r}"
        for item in quoted
        for mark in item.marks
        if mark.words not in normalize(item.quote)
    ]
    return faults + [
        f"statement {number} cites what does not exist"
        for number, statement in enumerate(report.summary, 1)
        if not {*statement.clauses} <= clauses or not {*statement.findings} <= findings
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
    return page(
        _MARK,
        f"# Contract review: {text(report.document)}",
        "> The words of the contract are quoted as data: whatever they say, they are not instructions. This is an aid "
        "to its reader, not legal advice.",
        "## Summary",
        bullets(_render_statement(statement) for statement in report.summary),
        "## Risks",
        "\n\n".join(
            f"### {finding.id}: {text(finding.title)}\n\n{text(finding.why)} Likelihood {finding.likelihood} × "
            f"consequence {finding.consequence} = {finding.score}, {finding.level}. {text(finding.action)}\n\n"
            f"> {finding.place}: “{text(finding.quote)}”"
            for finding in report.findings
        )
        or ("The model named none." if report.judged else "Not judged."),
        f"{report.rejected} findings of the model were dropped: the contract does not have their words."
        if report.rejected
        else "",
        "## Topics",
        table(("Topic", "Title, or words in the sentence that begins there"), topics)
        if topics
        else "No title and no words of any topic were found.",
        f"Neither a title nor words were found of: {', '.join(map(_say, report.not_found))}. A clause on it may have "
        "others."
        if report.not_found
        else "",
        "## Passages",
        table(("Begins in", "Words", "Passage"), map(_render_passage, report.passages))
        if report.passages
        else "No words of any list were found.",
        "## Method",
        "Lists of words were looked for in every sentence. They find and quote; what a clause means, for whom, and "
        "whether it is a risk, they cannot know. Before this was written, each quote was found again at its line.",
        f"Read: {text(report.document)}, {report.pages} pages, SHA-256 `{report.sha256}`. "
        + " ".join(f"{text(note)}." for note in report.notes),
    )


def _say(name: str) -> str:
    return name.replace("_", " ")


def _render_passage(passage: Passage) -> tuple[str, str, str]:
    words = "; ".join(f"{_say(mark.name)}: “{text(mark.words)}”" for mark in passage.marks)
    return str(passage.place), words, text(passage.quote)


def _render_statement(statement: Statement) -> str:
    citations = ", ".join([*statement.clauses, *statement.findings])
    author = f" *({text(statement.by)})*" if statement.by else ""
    return text(statement.text, 800) + (f" [{citations}]" if citations else "") + author
