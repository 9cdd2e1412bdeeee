"""Describes the news of a run, a sentence each."""

import shlex

from baton.core.history import StepKind
from baton.runs.client_news import News, NewsKind
from baton.runs.client_record import RunRecord
from baton.runs.client_standing import decision_commands, missing_sentence, suspension_sentence
from baton.wire.text import cut_line, elapsed, format_duration

_MAX_LINE_LENGTH = 80


def describe_news(news: News, run: RunRecord) -> str:
    """Return a piece of news as a sentence, with the command that helps where a person is needed.

    It is one line, unless a stage or a person wrote several. All of its text is untrusted and must be escaped
    where it is shown.

    Args:
        news: What happened.
        run: The run, as it is since.

    Example:
        ```python
        async for update in follow(client, "order-1"):
            for news in update.news:
                print(describe_news(news, update.run))
        ```
    """
    step, asked = news.step, news.question
    name = f"{step.seq} {step.name}" if step else ""
    match news.kind:
        case NewsKind.RUN_STARTED:
            return f"{run.pipeline} {run.workflow_id}: {news.text}"
        case NewsKind.RUN_SUSPENDED:
            return suspension_sentence(news.text)
        case NewsKind.WAITS_FOR_WORKER:
            return missing_sentence(news.text)
        case NewsKind.STEP_STARTED if step and step.kind is StepKind.APPROVAL:
            asked = next((approval for approval in run.approvals if approval.seq == step.seq), asked)
            return f"{name}: waits for a decision ({decision_commands(run.workflow_id, step.name, asked)[0]})"
        case NewsKind.STEP_STARTED:
            return f"{name}: begins"
        case NewsKind.STEP_REFUSED:
            return f"{name}: refused, attempt {step.attempts if step else 0} begins: {news.text}"
        case NewsKind.HANDOFF_WAITS:
            why = f": {news.text}" if news.text else ""
            if not name and asked and asked.handoff:
                name = f"{asked.seq} {asked.handoff.receiver}"
            return f"{name}: waits for a person (baton inbox show {shlex.quote(run.workflow_id)}){why}".lstrip(": ")
        case NewsKind.STEP_DONE if step and step.kind is StepKind.APPROVAL:
            approval = news.entries[-1]
            return f"{name}: {step.verdict} by {approval.by}{f': {approval.why}' if approval.why else ''}"
        case NewsKind.STEP_DONE if step:
            attempts = f", at attempt {step.attempts}" if step.attempts > 1 else ""
            retried = f", retried: {cut_line(step.retried, _MAX_LINE_LENGTH)}" if step.retried else ""
            return f"{name}: done in {format_duration(elapsed(step.began, step.ended))}{attempts}{retried}"
        case NewsKind.STEP_FAILED:
            return f"{name}: failed: {news.text}" if news.text else f"{name}: the run ended before it did"
        case NewsKind.STEP_UNDONE:
            return f"{name}: undone"
        case NewsKind.REUSED:
            return f"reused: {news.text}"
        case NewsKind.EDITED:
            by = f" by {news.entries[-1].by}" if news.entries[-1].by else ""
            return f"the baton was edited{by}"
        case NewsKind.TEXT:
            return f"{name}: {news.text}"
        case NewsKind.TOOL_CALLED:
            return f"{name}: calls {news.tool} {cut_line(news.text, _MAX_LINE_LENGTH)}"
        case NewsKind.TOOL_ANSWERED:
            return f"{name}: {news.tool} answered {cut_line(news.text, _MAX_LINE_LENGTH)}"
        case NewsKind.STREAM_RESTARTED:
            return f"{name}: begins again; its earlier output does not count"
        case _:
            return news.text
