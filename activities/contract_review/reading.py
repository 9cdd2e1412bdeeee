"""Read a contract from text, Markdown or PDF as lines that keep their place, so that every quotation can be found.

What a reader does not see on the page, such as a comment in Markdown, is left out and noted: it is not part of
what is agreed, and it is where instructions to machines are hidden.
"""

import codecs
import hashlib
import io
import re
import unicodedata
from collections import Counter
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token
from pypdf import PdfReader
from pypdf.errors import PyPdfError

from activities.contract_review.records import Document, Line, ReviewError

_MOST_BYTES, _MOST_CHARACTERS, _MOST_PAGES = 32_000_000, 8_000_000, 2_000
_BOMS = ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))
_INVISIBLE = re.compile(
    r"[\x00-\x08\x0e-\x1f\x7f-\x9f\xad\u200b-\u200f\u202a-\u202e\u2060-\u2064\ufeff\U000e0000-\U000e0fff]"
)
_FRONT_MATTER = re.compile(r"---[ \t]*\n(?:.*\n){0,100}?---[ \t]*(?:\n|\Z)")
_EDGE_LINES = 3  # running headers and footers are among the first and last lines of a page
_EMPTY_PAGE = 16  # characters: a scanned page has at most a stamp or a number


def read_document(path: Path) -> Document:
    """Return a contract as lines with page and number.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = Path(folder, "nda.md")
        ...     _ = file.write_text("# NDA")
        ...     read_document(file).lines
        (Line(text='NDA', number=1, page=1),)
    """
    suffix = path.suffix.lower()
    if suffix not in (".txt", ".text", ".md", ".markdown", ".pdf"):
        raise ReviewError(f"{path.name!r} is not a .txt, .md or .pdf file: convert it first")
    content = _content(path)
    if suffix == ".pdf":
        lines, notes = _pdf(path.name, content)
    else:
        text, notes = _decoded(path.name, content)
        if len(text) > _MOST_CHARACTERS:
            raise ReviewError(f"{path.name!r} has more than {_MOST_CHARACTERS:,} characters; give the contract alone")
        text = re.sub(r"\r\n|[\r\v\x85\u2028\u2029]", "\n", text)
        if suffix in (".md", ".markdown"):
            lines, hidden = _markdown(text)
            notes += [f"{hidden} comments or pieces of HTML left out: they are not shown"] if hidden else []
        else:
            lines = _plain(text)
    if not any(line.text for line in lines):
        raise ReviewError(f"{path.name!r} has no text in it; there is nothing to review")
    return Document(
        name=path.name,
        sha256=hashlib.sha256(content).hexdigest(),
        pages=max(line.page for line in lines),
        lines=tuple(lines),
        notes=tuple(notes),
    )


def squeeze(text: str) -> str:
    """Return a text on one line, in composed form (NFC), without invisible characters.

    Example:
        >>> squeeze(" limited " + chr(0x200B) + "to  fees ")
        'limited to fees'
    """
    return " ".join(unicodedata.normalize("NFC", _INVISIBLE.sub("", text)).split())


def _content(path: Path) -> bytes:
    try:
        if not path.is_file():
            raise ReviewError(
                f"the file {str(path)!r} does not exist; give the parameter 'source' the path of the contract"
            )
        with path.open("rb") as file:
            content = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise ReviewError(f"{str(path)!r} cannot be read ({error.strerror})") from None
    if len(content) > _MOST_BYTES:
        raise ReviewError(f"{path.name!r} is larger than {_MOST_BYTES:,} bytes; give the contract without its annexes")
    if not content.strip():
        raise ReviewError(f"{path.name!r} is empty; there is nothing to review")
    return content


def _decoded(name: str, content: bytes) -> tuple[str, list[str]]:
    """Return the text of a file: by its byte order mark, as UTF-8, or as Windows-1252 where that makes sense."""
    encodings = [encoding for mark, encoding in _BOMS if content.startswith(mark)] or ["utf-8", "cp1252"]
    if b"\0" in content and encodings[0] != "utf-16":
        raise ReviewError(f"{name!r} holds zero bytes, so it is not text; give it the ending of its real format")
    for encoding in encodings:
        try:
            text = content.decode(encoding)
        except UnicodeDecodeError:
            continue
        return text, ["The file is not UTF-8; it was read as Windows-1252"] if encoding == "cp1252" else []
    raise ReviewError(f"{name!r} is not valid {' or '.join(encodings)}; save it as UTF-8")


def _plain(text: str) -> list[Line]:
    page, lines = 1, []
    for number, line in enumerate(text.split("\n"), 1):
        page += line.count("\f")
        lines.append(Line(text=squeeze(line), number=number, page=page))
    return lines


def _markdown(text: str) -> tuple[list[Line], int]:
    """Return the lines of a Markdown text as they are shown, and how many hidden pieces there are."""
    if front := _FRONT_MATTER.match(text):
        text = "\n" * front[0].count("\n") + text[front.end() :]
    lines: list[Line] = []
    hidden, marker, row = 0, "", 0
    for token in MarkdownIt("commonmark", {"maxNesting": 50}).enable("table").parse(text):
        if token.type in ("tr_open", "tr_close"):
            row = token.map[0] + 1 if token.type == "tr_open" and token.map else 0
        elif token.type == "list_item_open":
            marker = f"{token.info}{token.markup} " if token.info else ""
        elif token.type == "html_block":
            hidden += 1
        elif token.type in ("inline", "fence", "code_block") and token.map:
            shown, unseen = _shown(token)
            hidden += unseen
            for offset, words in enumerate(shown):
                number = row or token.map[0] + 1 + offset
                said = squeeze(marker + words)
                if row and lines and lines[-1].number == row:  # a cell of the same row
                    said = f"{lines.pop().text} | {said}"
                lines.append(Line(text=said, number=number))
                marker = ""
    return lines, hidden


def _shown(token: Token) -> tuple[list[str], int]:
    """Return the words of a token, line by line, and how many hidden pieces are in it."""
    if token.type != "inline":
        return token.content.split("\n"), 0
    lines, hidden = [""], 0
    for child in token.children or []:
        if child.type in ("softbreak", "hardbreak"):
            lines.append("")
        elif child.type in ("text", "code_inline", "text_special"):
            lines[-1] += child.content
        elif child.type == "html_inline":
            hidden += child.content.startswith("<!--")
    return lines, hidden


def _pdf(name: str, content: bytes) -> tuple[list[Line], list[str]]:
    """Read a PDF that has text in it; pictures of text are not recognised."""
    notes = []
    try:
        reader = PdfReader(io.BytesIO(content))
        if reader.is_encrypted and not reader.decrypt(""):
            raise ReviewError(f"{name!r} is protected by a password; save it without one")
        if len(reader.pages) > _MOST_PAGES:
            raise ReviewError(f"{name!r} has more than {_MOST_PAGES:,} pages; give the contract alone")
        pages = [[squeeze(line) for line in page.extract_text().split("\n")] for page in reader.pages]
        if any(field.get("/V") for field in (reader.get_fields() or {}).values()):
            notes.append("Form fields that are filled in were not read: print the file to a PDF first")
    except ReviewError:
        raise
    except Exception as error:  # a damaged file makes the library fail in many ways
        what = str(error) if isinstance(error, PyPdfError) else type(error).__name__
        raise ReviewError(f"{name!r} is not a PDF that can be read ({squeeze(what)[:120]}); export it again") from None
    blank = [number for number, page in enumerate(pages, 1) if sum(map(len, page)) < _EMPTY_PAGE]
    if len(blank) == len(pages):
        raise ReviewError(f"{name!r} has no text on its {len(pages)} pages: it is a scan; run text recognition first")
    if blank:
        notes.append(f"No text on page {', '.join(map(str, blank))}: blank, or a scan that was not read")
    running = _running(pages)
    if running:
        notes.append(f"{len(running)} running headers or footers left out")
    lines = []
    for page, texts in enumerate(pages, 1):
        for number, text in enumerate(texts, 1):
            is_edge = number <= _EDGE_LINES or number > len(texts) - _EDGE_LINES
            if text and not (is_edge and _without_numbers(text) in running):
                lines.append(Line(text=text, number=number, page=page))
    return lines, notes


def _running(pages: list[list[str]]) -> set[str]:
    """Return the lines that are at the edge of most pages, with every number replaced."""
    edges = Counter(
        text
        for page in pages
        for text in {_without_numbers(line) for line in (*page[:_EDGE_LINES], *page[-_EDGE_LINES:]) if line}
    )
    return {text for text, count in edges.items() if count >= 2 and 2 * count > len(pages)}


def _without_numbers(text: str) -> str:
    return re.sub(r"\d+", "#", text)
