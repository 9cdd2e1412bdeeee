"""A run as one file that reads without a server, prints well, and loads nothing."""

import base64
import hashlib
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from baton import ArtifactRef, BatonError
from baton.client import RunRecord
from baton.console.comparison import compare
from baton.console.content import Content, content_of
from baton.console.pages_run import run_values
from baton.console.relay import relay
from baton.console.rendering import STATIC, make_environment, run_path
from baton.console.sources import Sources
from baton.console.stages import works

_MOST_OPENED = 300
"""So many steps are opened in a report; the relay has all of them."""
_MOST_BYTES = 1024 * 1024


@dataclass(frozen=True)
class Enclosed:
    """An artifact in a report.

    Attributes:
        ref: The artifact.
        content: It, made readable; None where it is too large or cannot be read.
        picture: A picture as a `data:` address.
        trouble: Why it is not there.
    """

    ref: ArtifactRef
    content: Content | None = None
    picture: str = ""
    trouble: str = ""


async def report(sources: Sources, workflow_id: str, run_id: str | None = None) -> str:
    """Return a run as one self-contained HTML file.

    Args:
        sources: What it is read from.
        workflow_id: The workflow.
        run_id: One of its runs; the newest by default.

    Raises:
        HistoryError: The workflow is not a pipeline.
        temporalio.service.RPCError: There is no such run, or the server cannot be asked.
    """
    run = await sources.run(workflow_id, run_id)
    style = (STATIC / "console.css").read_text(encoding="utf-8")
    values = {
        **await run_values(sources, run, 0, len(run.steps) or 1),
        "ui": None,
        "style": style,
        "style_hash": base64.b64encode(hashlib.sha256(style.encode()).digest()).decode(),
        "opened": await _opened(sources, run),
        "most": _MOST_OPENED,
        "enclosed": [await _enclosed(sources, ref) for ref in run.baton.artifacts],
        "made": datetime.now(UTC),
        "run_path": run_path,
    }
    return make_environment().get_template("report.html").render(values)


async def _opened(sources: Sources, run: RunRecord) -> list[dict[str, Any]]:
    """Return the steps of a run, opened."""
    messages = (await sources.handoffs(run)).messages
    legs = relay(run, 0, _MOST_OPENED).legs
    batons = {entry.seq: after for entry, after in run.history}
    before = run.state.initial
    opened = []
    for leg in legs:
        after = batons.get(leg.step.seq)
        entries = [entry for entry in run.state.entries if entry.seq == leg.step.seq]
        fields = [one for one in compare(before, after) if one.differs] if after is not None else []
        opened.append(
            {
                "step": leg.step,
                "leg": leg,
                "works": works(run, leg.step, messages),
                "entries": entries,
                "fields": fields,
            }
        )
        before = after or before
    return opened


async def _enclosed(sources: Sources, ref: ArtifactRef) -> Enclosed:
    try:
        data = await sources.artifact(ref.hash)
    except BatonError as error:
        return Enclosed(ref, trouble=str(error))
    if len(data) > _MOST_BYTES:
        return Enclosed(ref, trouble="it is too large for a report")
    content = content_of(data, type=ref.type, path=ref.path)
    picture = f"data:{content.media};base64,{base64.b64encode(data).decode()}" if content.media else ""
    return Enclosed(ref, content, picture)
