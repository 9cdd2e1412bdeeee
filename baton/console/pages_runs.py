"""The list of runs: those that need a person first, filtered by the address of the page."""

import asyncio
from collections.abc import AsyncIterator

from starlette.requests import Request
from starlette.responses import Response
from temporalio.service import RPCError

from baton.client import STATUSES, RunFilter
from baton.console.board import Board, Listing
from baton.console.live import Change, cursor_of, stream
from baton.console.rendering import render
from baton.console.security import page
from baton.errors import BatonError

MENU = ("/", "Runs")

_USUAL, _MOST = 50, 1_000
_SEARCHED, _MOST_SEARCHED = 500, 5_000
_LOOKS_EVERY = 1.0
_LONGEST_TEXT = 200


def _number(given: str, usual: int, most: int) -> int:
    """Return a number of an address, within bounds."""
    number = int(given) if given.isdecimal() and given.isascii() and len(given) < 5 else usual
    return max(1, min(number, most))


def _filter(request: Request) -> tuple[RunFilter, str, int, int]:
    """Return what the address asks for: a filter, a text, how many runs, and how many to search."""
    asked = request.query_params
    status = asked.get("status", "").upper()
    wanted = RunFilter(
        pipeline=asked.get("pipeline") or None,
        status=status if status in STATUSES else None,
        stage=asked.get("stage") or None,
        task=asked.get("task") or None,
        children=asked.get("children") == "1",
    )
    limit = _number(asked.get("limit", ""), _USUAL, _MOST)
    depth = _number(asked.get("searched", ""), _SEARCHED, _MOST_SEARCHED)
    return wanted, asked.get("q", "").strip()[:_LONGEST_TEXT], limit, depth


def board_of(request: Request) -> Board:
    """Return the list that all viewers share."""
    state = request.app.state
    if not hasattr(state, "board"):
        state.board = Board(state.sources)
    board: Board = state.board
    return board


async def runs(request: Request) -> Response:
    """Show the list."""
    wanted, text, limit, depth = _filter(request)
    listing = await board_of(request).listing(wanted, text, limit, depth)
    values = {
        "listing": listing,
        "needs": [one for one in listing.lines if one.needs_you],
        "others": [one for one in listing.lines if not one.needs_you],
        "wanted": wanted,
        "text": text,
        "limit": limit,
        "most": _MOST,
        "depth": depth,
        "further": min(depth * 4, _MOST_SEARCHED) if listing.beyond and depth < _MOST_SEARCHED else None,
        "statuses": STATUSES,
        "filtered": bool(request.query_params),
        "events": f"/runs/events?{request.url.include_query_params(cursor=listing.mark).query}",
    }
    return render(request, "runs.html", values)


async def events(request: Request) -> Response:
    """Tell the list whenever it changes."""
    return stream(_changes(request))


async def _changes(request: Request) -> AsyncIterator[Change]:
    wanted, text, limit, depth = _filter(request)
    board, told = board_of(request), cursor_of(request)
    lost = False
    while True:
        try:
            listing: Listing = await board.recent(wanted, text, limit, depth, _LOOKS_EVERY)
        except (RPCError, BatonError) as error:
            if not lost:
                yield Change("lost", told or "", getattr(error, "message", None) or str(error))
            lost = True
        else:
            if lost or listing.mark != told:
                yield Change("changed", listing.mark)
            told, lost = listing.mark, False
        await asyncio.sleep(_LOOKS_EVERY)


ROUTES = [page("/", runs), page("/runs/events", events)]
