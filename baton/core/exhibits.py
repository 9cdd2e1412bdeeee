"""What a person is shown before they decide: outputs, artifacts, diffs, amounts and texts, as readable text.

The text stands in the run's memory; what a query carries of it is its beginning, and the digest of the whole.
"""

import difflib
import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Self

from pydantic import Field

from baton.artifacts.records import ArtifactRef
from baton.wire.json_values import find_excess, format_digest, sha256
from baton.wire.money import to_usd
from baton.wire.records import CompactRecord, Integer, Name
from baton.wire.text import single_line

MAX_EXHIBITS = 20
"""How many things an approval may show."""
MAX_EXHIBIT_BYTES = 256 * 1024
"""How long all texts that an approval shows may be together; what is longer is an artifact."""
EXCERPT_LENGTH = 4_000
"""How many characters of a text a query carries."""

_LONGEST_TITLE = 200
_MOST_LINES = 2_000  # of a diff; a longer one is shown as all that goes and all that comes
_MOST_CELLS = 12  # columns of a table


class Exhibit(CompactRecord):
    r"""One thing that a person is shown before they decide.

    Attributes:
        title: What it is.
        form: How to read the text.
        text: The text; in a query its first 4,000 characters.
        length: How many characters the whole text has.
        digest: The digest of the whole text, or of the artifact's bytes.
        artifact: The artifact that it is; its content is in the artifact store.

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
        """Return what a value looks like: a text or number, a stage's result, an artifact, JSON, a record.

        Raises:
            ValueError: The value is larger than an approval may show.
            TypeError: It is none of these.
        """
        if isinstance(value, Exhibit):
            return cls.model_validate(value.model_copy(update={"title": title}).model_dump(mode="json"))
        if isinstance(value, ArtifactRef):
            size = "" if value.size is None else f", {value.size:,} bytes"
            summary = f": {value.summary}" if value.summary else ""
            text = f"{value.type} {value.path or value.id}{size}{summary}"
            one = cls._made(text, title, "text")
            return one.model_copy(update={"artifact": value, "digest": f"sha256:{value.hash}"})
        if hasattr(value, "baton_patch") and hasattr(value, "output"):  # a stage's result
            value = value.baton_patch if value.output is None else value.output
        if hasattr(value, "model_dump"):
            value = value.model_dump(mode="json", exclude_unset=True)
        if isinstance(value, str):
            return cls._made(value, title, "markdown")
        if (found := find_excess(value)) is not None:
            raise ValueError(f"an approval cannot show {title!r}: {found}")
        table = _table(value)
        if table is not None:
            return cls._made(table, title, "markdown")
        try:
            text = json.dumps(value, ensure_ascii=False, indent=2, sort_keys=True, default=str)
        except (TypeError, ValueError) as error:
            raise TypeError(f"an approval cannot show {title!r}: {error}") from error
        return cls._made(text, title, "text")

    @classmethod
    def diff(cls, before: str, after: str, title: str = "diff") -> Self:
        """Return what changes from one text to another, as a unified diff."""
        old, new = before.splitlines(), after.splitlines()
        if len(old) + len(new) > _MOST_LINES:
            rows = [*(f"-{line}" for line in old), *(f"+{line}" for line in new)]
        else:
            rows = list(difflib.unified_diff(old, new, "before", "after", lineterm=""))
        return cls._made("\n".join(rows) or "no change", title, "diff")

    @classmethod
    def amount(cls, micro_usd: int, title: str = "amount") -> Self:
        """Return an amount of money, given in millionths of a US dollar."""
        return cls._made(
            f"{to_usd(micro_usd):,.2f} USD" if micro_usd % 10_000 == 0 else f"{to_usd(micro_usd)} USD", title
        )

    @property
    def is_whole(self) -> bool:
        """Whether the text is all of it."""
        return len(self.text) == self.length

    @property
    def excerpt(self) -> Self:
        """The same with the beginning of the text only, if it is long."""
        return self.model_copy(update={"text": self.text[:EXCERPT_LENGTH]})

    def matches(self, text: str) -> bool:
        """Return whether this is the text that the digest is of."""
        return self.artifact is not None or format_digest(sha256(text.encode())) == self.digest

    @classmethod
    def _made(cls, text: str, title: str, form: Literal["markdown", "text", "diff"] = "text") -> Self:
        encoded = text.encode()  # half a surrogate pair fails here, before anybody is asked
        title = single_line(title)[:_LONGEST_TITLE] or "shown"
        return cls(title=title, form=form, text=text, length=len(text), digest=format_digest(sha256(encoded)))


def build_exhibits(
    shows: Mapping[str, Any] | Sequence[Any], then: tuple[str, Mapping[str, Any]] | None
) -> list[Exhibit]:
    """Return all that an approval shows, what follows from it last.

    Raises:
        ValueError: It is too much.
    """
    given = list(shows.items()) if isinstance(shows, Mapping) else [(None, one) for one in shows]
    if len(given) > MAX_EXHIBITS:
        raise ValueError(f"an approval shows at most {MAX_EXHIBITS} things; found {len(given):,}")
    made = [Exhibit.of(one, name or _title(one, number)) for number, (name, one) in enumerate(given, start=1)]
    if then is not None:
        made.append(Exhibit.of(dict(then[1]), f"a yes runs {then[0]} with"))
    size = sum(len(one.text.encode()) for one in made)
    if size > MAX_EXHIBIT_BYTES:
        raise ValueError(
            f"what an approval shows may have {MAX_EXHIBIT_BYTES:,} bytes; found {size:,}. Write the long ones to "
            "artifacts, and show those"
        )
    return made


def _title(value: Any, number: int) -> str:
    """Return a title for what was given none."""
    if isinstance(value, Exhibit):
        return value.title
    if isinstance(value, ArtifactRef):
        return value.id
    return f"output {number}"


def _table(value: Any) -> str | None:
    """Return a list of flat objects with the same members as a Markdown table; of anything else None."""
    rows = value if isinstance(value, list) else []
    if not rows or not all(isinstance(row, dict) and row.keys() == rows[0].keys() for row in rows):
        return None
    names = [*rows[0]]
    if not 0 < len(names) <= _MOST_CELLS or any(isinstance(cell, dict | list) for row in rows for cell in row.values()):
        return None
    lines = [names, ["---"] * len(names), *([_cell(row[name]) for name in names] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return single_line(text).replace("|", "\\|")
