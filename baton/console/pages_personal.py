"""The personal data of a run: sealed, until who may open it says why; that is on record before it is shown."""

from collections.abc import Mapping

from starlette.requests import Request
from starlette.responses import Response

from baton.client import Erased, PersonalData, RunRecord
from baton.console.pages_run import run_of, sources_of
from baton.console.rendering import render, run_path
from baton.console.security import Role, action, page, viewer_of

_PATH = "/run/personal"
_LONGEST_REASON = 10_000


async def sealed(request: Request) -> Response:
    """Show of whom a run knows what, without what it is."""
    return _shown(request, await run_of(request))


async def opened(request: Request, form: Mapping[str, str]) -> Response:
    """Show the values, once it is on record who opened them and why."""
    run, why = await run_of(request), form.get("why", "").strip()
    if not 0 < len(why) <= _LONGEST_REASON:
        return _shown(request, run, fault="say why, in at most 10,000 characters; the reason is recorded")
    return _shown(request, run, known=await sources_of(request).disclosed(run, viewer_of(request).name, why))


def _shown(request: Request, run: RunRecord, *, known: PersonalData | None = None, fault: str = "") -> Response:
    sealed_fields = ((who, entry.get("fields")) for who, entry in run.personal_data.items() if isinstance(entry, dict))
    values = {
        "run": run,
        "people": {who: sorted(fields) if isinstance(fields, dict) else [] for who, fields in sealed_fields},
        "known": known,
        "erased": {who: one for who, one in (known or {}).items() if isinstance(one, Erased)},
        "fault": fault,
        "action": run_path(run.workflow_id, run.run_id, "/personal"),
    }
    return render(request, "personal.html", values, status=422 if fault else 200)


ROUTES = [page(_PATH, sealed), action(_PATH, opened, Role.OPERATOR)]
