"""Contracts in a table: the number, the title and the wording of each clause stand in cells of one row."""

import re
from collections.abc import Iterator, Sequence

from activities.contract_review.headings import is_title, reads_as_sentence
from activities.contract_review.records import Line

CELLS = " | "
"""What stands between the cells of a row."""

_NUMBER = re.compile(r"(?:§ ?)?\d{1,3}(?:\.\d{1,3}){0,3}[.)]?")
_LEAST_WORDING = 25  # characters: less is a price, a date or a name


def unfolded(lines: Sequence[Line]) -> Sequence[Line]:
    """Return the lines of a contract, each row that is a clause as the line of its title and that of its wording.

    Only where most of the words stand in such rows: what a table lists beside clauses is no clause.

    Args:
        lines: The contract as it was read.

    Example:
        >>> row = Line(text="2 | Fees | The Customer shall pay within 30 days.", number=7)
        >>> [(line.text, line.heading, line.number) for line in unfolded([row])]
        [('2. Fees', 1, 7), ('The Customer shall pay within 30 days.', 0, 7)]
    """
    rows = {at: parts for at, line in enumerate(lines) if (parts := [*_parts(line)])}
    if 2 * sum(len(lines[at].text) for at in rows) < sum(len(line.text) for line in lines):
        return lines
    return [part for at, line in enumerate(lines) for part in rows.get(at, [line])]


def _parts(row: Line) -> Iterator[Line]:
    """Yield the title and the wording of a row; nothing of one that is no clause."""
    number, *cells = row.text.split(CELLS)
    if not _NUMBER.fullmatch(number):
        number, cells = "", [number, *cells]
    titled = len(cells) > 1 and is_title(cells[0], strict=False) and not reads_as_sentence(cells[0])
    wording = CELLS.join(cells[titled:])
    is_wording = len(wording) >= _LEAST_WORDING and (wording[-1] in ".;" or reads_as_sentence(wording))
    if not (number or titled) or not is_wording:
        return
    if number:
        number = f"{number.rstrip('.)')}. "
    if titled:
        yield row.model_copy(update={"text": number + cells[0], "heading": 1})
        yield row.model_copy(update={"text": wording})
    else:
        yield row.model_copy(update={"text": number + wording})
