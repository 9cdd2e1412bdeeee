"""One operation at a terminal: show it, ask, and do what was shown."""

from collections.abc import Callable
from typing import TypeVar

from rich.console import RenderableType
from rich.text import Text

from baton.cli.output import plain, stack
from baton.cli.session import Session
from baton.client import Operation, Preview

PreviewT = TypeVar("PreviewT", bound=Preview)
ResultT = TypeVar("ResultT")


async def operate(
    session: Session,
    operation: Operation[PreviewT, ResultT],
    question: str | Callable[[PreviewT], str],
    *,
    by: str,
    why: str = "",
    yes: bool,
    render: Callable[[PreviewT], RenderableType] | None = None,
) -> ResultT:
    """Show an operation, ask for confirmation, and do what was shown; without a confirmation, the command ends."""
    with session.progress("looking"):
        preview = await operation.preview()
    if not session.json:
        session.err.print(render(preview) if render else stack(plain(preview.title, "bold"), *fact_lines(preview)))
    asked = question if isinstance(question, str) else question(preview)
    session.confirm(asked, yes=yes, otherwise=operation.nothing_done)
    with session.progress("at it"):
        return await operation.pinned_to(preview).commit(preview.mark, by=by, why=why)


def fact_lines(preview: PreviewT) -> list[Text]:
    """Return the consequences of an operation, a line each."""
    return [plain(f"  {fact.text}", "bold yellow" if fact.is_loss else "yellow") for fact in preview.facts]
