"""Exhibits: what an approval shows a person, such as outputs, artifacts, diffs and amounts, as readable text.

The run keeps the full text; a query returns an excerpt and the digest of the full text.
"""

import difflib
import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Self

from pydantic import Field

from baton.core.artifacts import ArtifactRef
from baton.wire.json_values import find_excess, format_digest, sha256
from baton.wire.money import to_usd
from baton.wire.records import CompactRecord, Integer, Name
from baton.wire.text import single_line

MAX_EXHIBITS = 20
"""The most exhibits of an approval."""
MAX_EXHIBIT_BYTES = 256 * 1024
"""The most bytes of all exhibits of an approval; larger content belongs in artifacts."""
EXCERPT_LENGTH = 4_000
"""The characters of a text that a query returns."""

_MAX_TITLE_LENGTH = 200
_MAX_DIFF_LINES = 2_000  # longer texts are shown as one removal and one addition
_MAX_COLUMNS = 12


class Exhibit(CompactRecord):
    r"""One item that an approval shows.

    Attributes:
        title: The title.
        form: How to read the text.
        text: The text; in a query its first 4,000 characters.
        length: The length of the full text, in characters.
        digest: The digest of the full text, or of the artifact's bytes.
        artifact: The artifact shown; its content is in the artifact store.

    Example:
        >>> Exhibit.diff("one\ntwo\n", "one\n2\n").text.splitlines()[3:]
        [' one', '-two', '+2']
    """

    title: Name
    form: Literal["markdown", "text", "diff"] = "text"
    text: str = ""
    length: Integer = Field(default=0, ge=0)
    digest: str
    artifact: ArtifactRef | None = None

    @classmethod
    def of(cls, value: Any, title: str) -> Self:
        """Return the exhibit for a value: text, a number, JSON, a record, an artifact or a stage's result.

        Raises:
            ValueError: The value is too large to show.
            TypeError: The value is of another type.
        """
        if isinstance(value, Exhibit):
            return cls.model_validate(value.model_copy(update={"title": title}).model_dump(mode="json"))
        if isinstance(value, ArtifactRef):
            size = "" if value.size is None else f", {value.size:,} bytes"
            summary = f": {value.summary}" if value.summary else ""
            text = f"{value.type} {value.path or value.id}{size}{summary}"
            return cls._from_text(text, title).model_copy(update={"artifact": value, "digest": f"sha256:{value.hash}"})
        if hasattr(value, "baton_patch") and hasattr(value, "output"):  # a stage's result
            value = value.baton_patch if value.output is None else value.output
        if hasattr(value, "model_dump"):
            value = value.model_dump(mode="json", exclude_unset=True)
        if isinstance(value, str):
            return cls._from_text(value, title, "markdown")
        if (limit := find_excess(value)) is not None:
            raise ValueError(f"an approval cannot show {title!r}: {limit}")
        if (table := _render_table(value)) is not None:
            return cls._from_text(table, title, "markdown")
        try:
            text = json.dumps(value, ensure_ascii=False, indent=2, sort_keys=True, default=str)
        except (TypeError, ValueError) as error:
            raise TypeError(f"an approval cannot show {title!r}: {error}") from error
        return cls._from_text(text, title)

    @classmethod
    def diff(cls, before: str, after: str, title: str = "diff") -> Self:
        """Return the unified diff between two texts."""
        old, new = before.splitlines(), after.splitlines()
        if len(old) + len(new) > _MAX_DIFF_LINES:
            rows = [*(f"-{line}" for line in old), *(f"+{line}" for line in new)]
        else:
            rows = list(difflib.unified_diff(old, new, "before", "after", lineterm=""))
        return cls._from_text("\n".join(rows) or "no change", title, "diff")

    @classmethod
    def amount(cls, micro_usd: int, title: str = "amount") -> Self:
        """Return an amount of money, given in millionths of a US dollar."""
        dollars = f"{to_usd(micro_usd):,.2f}" if micro_usd % 10_000 == 0 else f"{to_usd(micro_usd)}"
        return cls._from_text(f"{dollars} USD", title)

    @property
    def is_whole(self) -> bool:
        """Whether the text is complete."""
        return len(self.text) == self.length

    @property
    def excerpt(self) -> Self:
        """The exhibit with a long text cut to its beginning."""
        return self.model_copy(update={"text": self.text[:EXCERPT_LENGTH]})

    def matches(self, text: str) -> bool:
        """Return whether the digest is that of ``text``; always true for an artifact."""
        return self.artifact is not None or format_digest(sha256(text.encode())) == self.digest

    @classmethod
    def _from_text(cls, text: str, title: str, form: Literal["markdown", "text", "diff"] = "text") -> Self:
        encoded = text.encode()  # raises on half a surrogate pair, before the question is asked
        title = single_line(title)[:_MAX_TITLE_LENGTH] or "shown"
        return cls(title=title, form=form, text=text, length=len(text), digest=format_digest(sha256(encoded)))


def build_exhibits(
    shows: Mapping[str, Any] | Sequence[Any], then: tuple[str, Mapping[str, Any]] | None
) -> list[Exhibit]:
    """Return the exhibits of an approval; the stage that a yes runs comes last.

    Raises:
        ValueError: There are too many, or they are too large.
    """
    items = list(shows.items()) if isinstance(shows, Mapping) else [(None, value) for value in shows]
    if len(items) > MAX_EXHIBITS:
        raise ValueError(f"an approval shows at most {MAX_EXHIBITS} things; found {len(items):,}")
    exhibits = [Exhibit.of(value, name or _title(value, number)) for number, (name, value) in enumerate(items, start=1)]
    if then is not None:
        exhibits.append(Exhibit.of(dict(then[1]), f"a yes runs {then[0]} with"))
    size = sum(len(exhibit.text.encode()) for exhibit in exhibits)
    if size > MAX_EXHIBIT_BYTES:
        raise ValueError(
            f"an approval shows at most {MAX_EXHIBIT_BYTES:,} bytes; found {size:,}. Write long texts to artifacts and "
            "show those"
        )
    return exhibits


def _title(value: Any, number: int) -> str:
    if isinstance(value, Exhibit):
        return value.title
    if isinstance(value, ArtifactRef):
        return value.id
    return f"output {number}"


def _render_table(value: Any) -> str | None:
    """Return a list of flat objects with the same members as a Markdown table; None for anything else."""
    rows = value if isinstance(value, list) else []
    if not rows or not all(isinstance(row, dict) and row.keys() == rows[0].keys() for row in rows):
        return None
    names, cells = [*rows[0]], [cell for row in rows for cell in row.values()]
    if not 0 < len(names) <= _MAX_COLUMNS or any(isinstance(cell, dict | list) for cell in cells):
        return None
    lines = [names, ["---"] * len(names), *([_render_cell(row[name]) for name in names] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _render_cell(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return single_line(text).replace("|", "\\|")
