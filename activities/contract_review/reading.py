"""Read a contract from text, Markdown or PDF as lines that keep their place, so that every quotation can be found.

What a reader would not see in the rendered page, such as a comment in Markdown, is left out and noted: nobody
agrees to it, and it is where instructions to machines are hidden.
"""

import codecs
import hashlib
import io
import re
import unicodedata
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token
from pypdf import PageObject, PdfReader
from pypdf.errors import PyPdfError
from pypdf.generic import DictionaryObject, TextStringObject

from activities.contract_review.headings import is_title, opening_of, reads_as_sentence
from activities.contract_review.kinds import kind_of
from activities.contract_review.records import Document, Format, Line, ReviewError

_FORMATS: dict[str, Format] = {
    ".txt": "text",
    ".text": "text",
    ".md": "markdown",
    ".markdown": "markdown",
    ".pdf": "pdf",
}
_BOMS = ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))
_BREAKS = re.compile(r"\r\n|[\r\n\v\x85\u2028\u2029]")
_UNSEEN = re.compile(
    r"[\x00-\x08\x0e-\x1f\x7f-\x9f\xad\u200b-\u200f\u202a-\u202e\u2060-\u2064\ufeff\U000e0000-\U000e0fff]"
)
_ABOUT = re.compile(r"---[ \t]*\n(?:(?:\w[\w-]*:.*|[ \t#-].*|)\n){0,100}?(?:---|\.\.\.)[ \t]*(?:\n|\Z)")
_FOOTNOTE = re.compile(r"(?m)^( {0,3})(?=\[\^)")  # one of a single word is a link's target to the parser, and unseen
_SPACES = re.compile(r"\s+")
_MOST_IN_A_LINE = 100_000
_NUMBERED = re.compile(r"0(?:[.)]|(?:\.0)+[.)]?) \w")
_EDGE_LINES = 3  # running headers and footers are among the first and last lines of a page
_SMALL_WORD = re.compile("the|and|to|shall|any|by|for|this|that|with|such|not|or|which|are|from|is|be|has|its|may|will")
_LEAST_PERCENT = 8  # of the words; English contracts have 20 and more, other languages 2
_ENOUGH_LETTERS = 120
_EMPTY_PAGE = 16  # characters: a scanned page has at most a stamp or a number


@dataclass(frozen=True)
class Limits:
    """How much of a file is read.

    Attributes:
        bytes: The largest file.
        characters: The longest text.
        pages: The most pages of a PDF.
    """

    bytes: int = 32_000_000
    characters: int = 8_000_000
    pages: int = 2_000


def read_document(path: Path, limits: Limits | None = None) -> Document:
    """Return a contract as lines with page and number.

    Args:
        path: A `.txt`, `.md` or `.pdf` file.
        limits: How much is read; nothing is cut silently, a larger file is refused.

    Returns:
        The document; it has some text.

    Raises:
        ReviewError: The file is missing, of another format, too large, damaged, encrypted, without text, or
            in no encoding that can be told.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = Path(folder, "nda.md")
        ...     _ = file.write_text("# NDA")
        ...     read_document(file).lines
        (Line(text='NDA', number=1, page=1, heading=1),)
    """
    bounds = limits or Limits()
    kind = _FORMATS.get(path.suffix.lower())
    if kind is None:
        raise ReviewError(
            f"{path.name!r} has the ending {path.suffix!r}; a contract is read from .txt, .md or .pdf: convert it first"
        )
    content = _bytes_of(path, bounds)
    lines, notes = _pdf(path.name, content, bounds) if kind == "pdf" else _written(path.name, content, kind, bounds)
    if not any(line.text for line in lines):
        raise ReviewError(f"{path.name!r} has no text in it; there is nothing to review")
    return Document(
        name=path.name,
        format=kind,
        sha256=hashlib.sha256(content).hexdigest(),
        pages=max(line.page for line in lines),
        lines=tuple(lines),
        notes=tuple(notes),
    )


def is_english(document: Document) -> bool:
    """Return whether a document has the small words of English as often as any contract has; a short one passes.

    The rules know English alone: of a contract in another language they would say that clauses are missing.
    """
    words = re.findall(r"[^\W\d_]+", " ".join(line.text for line in document.lines).lower())
    known = sum(_SMALL_WORD.fullmatch(word) is not None for word in words)
    return sum(map(len, words)) < _ENOUGH_LETTERS or known * 100 >= len(words) * _LEAST_PERCENT


def squeeze(text: str) -> str:
    """Return ``text`` on one line, in composed form (NFC), without characters that nobody sees.

    Example:
        >>> squeeze(" limited " + chr(0x200B) + "to  fees ")
        'limited to fees'
    """
    if not text.isascii() or not text.isprintable():
        text = unicodedata.normalize("NFC", _UNSEEN.sub("", text))
    return _SPACES.sub(" ", text).strip()


def _bytes_of(path: Path, limits: Limits) -> bytes:
    """Return a regular file's bytes."""
    try:
        if not path.is_file():
            raise ReviewError(f"there is no file {str(path)!r}; give the parameter 'source' the path of the contract")
        with path.open("rb") as file:
            content = file.read(limits.bytes + 1)
    except OSError as error:
        raise ReviewError(f"{str(path)!r} cannot be read ({error.strerror})") from None
    if len(content) > limits.bytes:
        raise ReviewError(f"{path.name!r} is larger than {limits.bytes:,} bytes; give the contract without its annexes")
    if not content.strip():
        raise ReviewError(f"{path.name!r} is empty; there is nothing to review")
    return content


def _written(name: str, content: bytes, kind: Format, limits: Limits) -> tuple[list[Line], list[str]]:
    """Read a text or Markdown file."""
    text, notes = _decoded(name, content)
    if len(text) > limits.characters:
        raise ReviewError(f"{name!r} has more than {limits.characters:,} characters; give the contract alone")
    text = _BREAKS.sub("\n", text)
    if kind == "markdown":
        about = _ABOUT.match(text)
        if about:  # its lines stay, empty, so that all others keep their numbers
            text = "\n" * about[0].count("\n") + text[about.end() :]
            notes.append("The file's own header (YAML) left out")
        lines, hidden = _markdown(text)
        if hidden:
            notes.append(f"{hidden} blocks of HTML or comments left out: write as Markdown what readers see of them")
        return lines, notes
    page, lines = 1, []
    for number, line in enumerate(text.split("\n"), 1):
        page += line.count("\f")
        lines.extend(Line(text=squeeze(piece), number=number, page=page) for piece in _pieces(line))
    return lines, notes


def _pieces(line: str) -> list[str]:
    """Return a line, or the pieces of one that is longer than any: a whole contract may stand on one line."""
    return [line[start : start + _MOST_IN_A_LINE] for start in range(0, max(1, len(line)), _MOST_IN_A_LINE)]


def _decoded(name: str, content: bytes) -> tuple[str, list[str]]:
    """Return the text of a file: by its byte order mark, as UTF-8, or as Windows-1252 where that makes sense."""
    for mark, encoding in _BOMS:
        if content.startswith(mark):
            try:
                return content.decode(encoding), []
            except UnicodeDecodeError as error:
                raise ReviewError(
                    f"{name!r} begins as {encoding} but byte {error.start} is not; save it as UTF-8"
                ) from None
    if b"\0" in content:
        raise ReviewError(f"{name!r} holds zero bytes, so it is no text; give it the ending of its real format")
    try:
        return content.decode("utf-8"), []
    except UnicodeDecodeError:
        pass
    try:
        text = content.decode("cp1252")
    except UnicodeDecodeError as error:
        raise ReviewError(
            f"{name!r} is neither UTF-8 nor Windows-1252 (byte {error.start} is in neither); save it as UTF-8"
        ) from None
    return text, ["The file is not UTF-8; it was read as Windows-1252"]


def _markdown(text: str) -> tuple[list[Line], int]:
    """Return the lines of a Markdown text as they are shown, and how many hidden blocks there are."""
    # An HTML entity or a link target is not what a reader sees; the parser gives the words.
    tokens = MarkdownIt("commonmark", {"maxNesting": 50}).enable("table").parse(_FOOTNOTE.sub(r"\1\\", text))
    lines: list[Line] = []
    counted: list[int] = []  # of each ordered list that is open, the last number
    hidden, heading, marker, row = 0, 0, "", None
    is_numbered, begun, points = False, False, False
    for token in tokens:
        if token.type in ("tr_open", "tr_close"):
            row = token.map
        if token.type == "heading_open":
            heading = int(token.tag[1])
        elif token.type == "list_item_open":
            marker = _marker(token, counted, points=points)
        elif token.type == "ordered_list_open":
            # What counts from 1 below `## 3. Fees` counts that clause's points, and goes on with no clause.
            points = points if counted else is_numbered and token.attrGet("start") is None
            counted.append(0)
        elif token.type == "ordered_list_close":
            counted.pop()
        elif token.type == "html_block":
            hidden += 1
        elif token.type == "inline" and row is not None:
            words = squeeze(" ".join(_shown(token)[0]))
            if lines and lines[-1].number == row[0] + 1:
                words = f"{lines.pop().text} | {words}"
            lines.append(Line(text=words, number=row[0] + 1))
        elif token.type in ("inline", "code_block", "fence") and token.map:
            if token.type == "inline":
                shown, unseen = _shown(token)
                hidden += unseen
            else:
                shown = token.content.split("\n")
            if lines and token.map[0] + 1 > lines[-1].number + 1:
                lines.append(Line(text="", number=lines[-1].number + 1))
            is_bold = not heading and begun and token.level == 1 and _is_bold_title(token, shown)
            if is_bold:
                heading, shown = 6, [shown[0].rstrip(" :.")]
            opened = opening_of(Line(text=squeeze(marker + shown[0]), number=1, heading=heading), "", "")
            begun = begun or (opened is not None and opened.style in ("number", "article"))
            if heading and not is_bold:  # below a title in bold type things go on being counted as above it
                is_numbered = opened is not None and opened.style == "number"
            for offset, words in enumerate(shown):
                number = token.map[0] + 1 + offset
                lines.append(Line(text=squeeze(marker + words), number=number, heading=0 if offset else heading))
                marker = ""
            heading = 0
    return lines, hidden


def _is_bold_title(inline: Token, shown: list[str]) -> bool:
    """Return whether a paragraph in bold type is the title of a clause: it names what a contract settles."""
    kinds = [child.type for child in inline.children or [] if child.type != "text" or child.content]
    title = squeeze(shown[0]).rstrip(".:")
    is_bold = kinds == ["strong_open", "text", "strong_close"] and not reads_as_sentence(title)
    return is_bold and is_title(title, strict=False) and kind_of(title, "") != "general"


def _marker(item: Token, counted: list[int], *, points: bool) -> str:
    """Return what a list's item is headed by; Markdown counts on where each says `1.`, and within an item anew."""
    if not item.info:
        return ""
    counted[-1] = max(int(item.info), counted[-1] + 1)
    if points:
        return f"({'.'.join(map(str, counted))}) "
    number = ".".join(map(str, counted)) if item.markup == "." else str(counted[-1])
    return f"{number}{item.markup} "


def _shown(inline: Token) -> tuple[list[str], int]:
    """Return the words of an inline token, line by line, and how many pieces of HTML are in it."""
    lines, hidden = [""], 0
    for child in inline.children or []:
        if child.type in ("softbreak", "hardbreak"):
            lines.append("")
        elif child.type in ("text", "code_inline", "text_special"):
            lines[-1] += child.content
        elif child.type == "html_inline":
            hidden += child.content.startswith("<!--")
    return lines, hidden


def _pdf(name: str, content: bytes, limits: Limits) -> tuple[list[Line], list[str]]:
    """Read a PDF that has text in it; pictures of text are not recognised."""
    try:
        reader = PdfReader(io.BytesIO(content))
        if reader.is_encrypted and not reader.decrypt(""):
            raise ReviewError(f"{name!r} is protected by a password; save it without one")
        if len(reader.pages) > limits.pages:
            raise ReviewError(
                f"{name!r} has {len(reader.pages):,} pages, more than {limits.pages:,}; give the contract alone"
            )
        pages, filled, characters = [], [], 0
        for number, page in enumerate(reader.pages, 1):
            if _is_filled_in(page):
                filled.append(number)
            pages.append([squeeze(piece) for line in page.extract_text().split("\n") for piece in _pieces(line)])
            characters += sum(map(len, pages[-1]))
            if characters > limits.characters:
                raise ReviewError(f"{name!r} has more than {limits.characters:,} characters; give the contract alone")
    except ReviewError:
        raise
    except Exception as error:  # a damaged file makes the library fail in many ways, all of which mean this
        what = str(error) if isinstance(error, PyPdfError) else type(error).__name__
        raise ReviewError(f"{name!r} is no PDF that can be read ({squeeze(what)[:120]}); export it again") from None
    blank = [number for number, page in enumerate(pages, 1) if sum(map(len, page)) < _EMPTY_PAGE]
    if len(blank) == len(pages):
        raise ReviewError(
            f"{name!r} has no text on its {len(pages)} pages: it is a scan; run text recognition on it first"
        )
    notes = [f"No text on page {', '.join(map(str, blank))}: blank, or a scan that was not read"] if blank else []
    if filled:
        notes.append(f"Forms or notes filled in on page {', '.join(map(str, filled))} were not read: print it to a PDF")
    running = _running(pages)
    if running:
        notes.append(f"{len(running)} running headers or footers left out")
    lines = [Line(text=text, number=number, page=page) for page, number, text in _body(pages, running)]
    return lines, notes


def _is_filled_in(page: PageObject) -> bool:
    """Return whether a page has forms or notes with words in them, which are shown over its text and are none of it."""
    for one in page.annotations or ():
        shown = one.get_object()
        if not isinstance(shown, DictionaryObject):
            continue
        above = shown.get("/Parent")
        field = above.get_object() if "/V" not in shown and above is not None else shown
        words = {"/FreeText": shown.get("/Contents"), "/Widget": dict(field).get("/V")}.get(str(shown.get("/Subtype")))
        if isinstance(words, TextStringObject) and words.strip():
            return True
    return False


def _running(pages: list[list[str]]) -> set[str]:
    """Return what stands at the edge of most pages, numbers aside: running headers, footers and page numbers.

    Of two pages only what has a number in it: what else both begin with may be the contract's title.
    """
    seen = Counter(shape for page in pages for shape in {_shape(text) for text in _edges(page) if text})
    least = max(2, min(3, len(pages)))
    often = {shape for shape, count in seen.items() if count >= least and count > 0.6 * len(pages)}
    often = {shape for shape in often if len(pages) > 2 or "0" in shape}
    return {shape for shape in often if not _opens_clauses([text for page in pages for text in _edges(page)], shape)}


def _opens_clauses(lines: list[str], shape: str) -> bool:
    """Return whether the lines of a shape are titles of clauses that begin on a page each: no number comes twice.

    A page's number may stand before a running title as well, but then without the point that a clause's has.
    """
    alike = [text for text in lines if _shape(text) == shape]
    opened = [one for text in alike if (one := opening_of(Line(text=text, number=1), "", "")) is not None]
    is_named = all(one.style in ("article", "attached") for one in opened)
    labels = {one.label for one in opened if one.label}
    return (is_named or _NUMBERED.match(shape) is not None) and len(labels) == len(alike)


def _body(pages: list[list[str]], running: set[str]) -> Iterator[tuple[int, int, str]]:
    """Yield page, line and text without what runs along the edges."""
    for number, page in enumerate(pages, 1):
        for at, text in enumerate(page):
            edge = at < _EDGE_LINES or at >= len(page) - _EDGE_LINES
            if not (edge and _shape(text) in running):
                yield number, at + 1, text


def _edges(page: list[str]) -> list[str]:
    return page[:_EDGE_LINES] + page[_EDGE_LINES:][-_EDGE_LINES:]


def _shape(text: str) -> str:
    return re.sub(r"\d+", "0", text)
