"""Read a contract as lines that keep their place, and find the words of `rules.toml` in it; nothing is judged.

Content that a reader does not see, such as a comment in Markdown, is left out and noted: it is not part of the
agreement, and may hide instructions to machines.
"""

import codecs
import hashlib
import io
import re
import tomllib
import unicodedata
from collections import Counter
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from pypdf import PdfReader
from pypdf.errors import PyPdfError

from activities.citations import join_lines
from activities.contract_review.records import Clause, Document, Line, Mark, Passage, Place, Report, ReviewError

_MAX_BYTES, _MAX_CHARACTERS, _MAX_PAGES = 32_000_000, 8_000_000, 2_000
_BOMS = ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))
_INVISIBLE = re.compile(
    r"[\x00-\x08\x0e-\x1f\x7f-\x9f\xad\u200b-\u200f\u202a-\u202e\u2060-\u2064\ufeff\U000e0000-\U000e0fff]"
)
_EDGE_LINES = 3  # running headers and footers are among the first and last lines of a page
_EMPTY_PAGE = 16  # characters: a scanned page has at most a stamp or a number


def read_document(path: Path) -> Document:
    """Read a contract as lines with page and number."""
    suffix = path.suffix.lower()
    if suffix not in (".txt", ".text", ".md", ".markdown", ".pdf"):
        raise ReviewError(f"{path.name!r} is not a .txt, .md or .pdf file: convert it first")
    content = _read_content(path)
    if suffix == ".pdf":
        lines, notes = _read_pdf(path.name, content)
    else:
        text, notes = _decode(path.name, content)
        if len(text) > _MAX_CHARACTERS:
            raise ReviewError(f"{path.name!r} has more than {_MAX_CHARACTERS:,} characters; give the contract alone")
        text = re.sub(r"\r\n|[\r\v\x85\u2028\u2029]", "\n", text)
        if suffix in (".md", ".markdown"):
            text, hidden = _strip_markdown(text)
            notes += [f"{hidden} comments left out: they are not shown"] if hidden else []
        lines = _split_lines(text)
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
    """Return a text on one line, normalized (NFC), without invisible characters."""
    return " ".join(unicodedata.normalize("NFC", _INVISIBLE.sub("", text)).split())


def _read_content(path: Path) -> bytes:
    try:
        if not path.is_file():
            raise ReviewError(
                f"the file {str(path)!r} does not exist; give the parameter 'source' the path of the contract"
            )
        with path.open("rb") as file:
            content = file.read(_MAX_BYTES + 1)
    except OSError as error:
        raise ReviewError(f"{str(path)!r} cannot be read ({error.strerror})") from None
    if len(content) > _MAX_BYTES:
        raise ReviewError(f"{path.name!r} is larger than {_MAX_BYTES:,} bytes; give the contract without its annexes")
    if not content.strip():
        raise ReviewError(f"{path.name!r} is empty; there is nothing to review")
    return content


def _decode(name: str, content: bytes) -> tuple[str, list[str]]:
    """Decode a file by its byte order mark, else as UTF-8 or Windows-1252; return the text and notes."""
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


def _split_lines(text: str) -> list[Line]:
    page, lines = 1, []
    for number, line in enumerate(text.split("\n"), 1):
        page += line.count("\f")
        lines.append(Line(text=squeeze(line), number=number, page=page))
    return lines


def _strip_markdown(text: str) -> tuple[str, int]:
    """Remove mark-up, tags and comments from Markdown, line by line; return the text and the number of comments."""
    text, comments = re.subn(r"(?s)<!--.*?(?:-->|\Z)", lambda match: "\n" * match[0].count("\n"), text)
    text = re.sub(r"</?[a-zA-Z][^<>\n]*>", "", text)
    text = re.sub(r"(?m)^[ >]*#{1,6} +|^[ >]*\|?[ :|-]{3,}$|^ *\||\| *$|\*\*|__|`", "", text)
    return re.sub(r"!?\[([^\]\n]*)\]\([^)\s]*\)", r"\1", text), comments


def _read_pdf(name: str, content: bytes) -> tuple[list[Line], list[str]]:
    """Read a PDF with a text layer; scanned text is not recognised."""
    notes = []
    try:
        reader = PdfReader(io.BytesIO(content))
        if reader.is_encrypted and not reader.decrypt(""):
            raise ReviewError(f"{name!r} is protected by a password; save it without one")
        if len(reader.pages) > _MAX_PAGES:
            raise ReviewError(f"{name!r} has more than {_MAX_PAGES:,} pages; give the contract alone")
        pages = [[squeeze(line) for line in page.extract_text().split("\n")] for page in reader.pages]
    except ReviewError:
        raise
    except Exception as error:  # a damaged file makes the library fail in many ways
        cause = str(error) if isinstance(error, PyPdfError) else type(error).__name__
        raise ReviewError(f"{name!r} is not a PDF that can be read ({squeeze(cause)[:120]}); export it again") from None
    blank = [number for number, page in enumerate(pages, 1) if sum(map(len, page)) < _EMPTY_PAGE]
    if len(blank) == len(pages):
        raise ReviewError(f"{name!r} has no text on its {len(pages)} pages: it is a scan; run text recognition first")
    if blank:
        notes.append(f"No text on page {', '.join(map(str, blank))}: blank, or a scan that was not read")
    running_lines = _find_running_lines(pages)
    if running_lines:
        notes.append(f"{len(running_lines)} running headers or footers left out")
    lines = []
    for page, texts in enumerate(pages, 1):
        for number, text in enumerate(texts, 1):
            is_edge = number <= _EDGE_LINES or number > len(texts) - _EDGE_LINES
            if text and not (is_edge and _mask_numbers(text) in running_lines):
                lines.append(Line(text=text, number=number, page=page))
    return lines, notes


def _find_running_lines(pages: list[list[str]]) -> set[str]:
    """Return the headers and footers that repeat on most pages, with numbers masked."""
    edges = Counter(
        text
        for page in pages
        for text in {_mask_numbers(line) for line in (*page[:_EDGE_LINES], *page[-_EDGE_LINES:]) if line}
    )
    return {text for text, count in edges.items() if count >= 2 and 2 * count > len(pages)}


def _mask_numbers(text: str) -> str:
    return re.sub(r"\d+", "#", text)


_NAMED = (
    r"(?:article|section|schedule|annex|appendix|exhibit|clause|§) ?(?:\d{1,3}(?:\.\d{1,3}){0,4}|[IVXL]{1,7}|[A-H])\b"
)
_NUMBERED = r"(?:\d{1,3}(?:\.\d{1,3}){1,4}[.):]?|\d{1,3}[.):])(?= [A-Z(“\"])"
_OPENING = re.compile(rf"(?i:{_NAMED})[.:]?(?=$| *[-–—:]? *[A-Z(“\"])|{_NUMBERED}")
_TITLE = re.compile(r"[A-Z][^.;:!?]{1,70}?(?=[.:] |[.:]?$)")
_VERB = re.compile(r"\b(?:shall|may|is|are|will|must|has|have)\b", re.IGNORECASE)
_BRACKETS, _NAME = re.compile(r"\([^()]{3,200}\)"), re.compile(r"[“\"]([A-Z][\w \-]{1,40})[”\"]")
_MAX_NAMED = 3  # names of the sides are in the first clauses
_SMALL_WORD = re.compile(r"\b(?:the|and|to|of|any|by|for|this|that|with|or|is|be|in|a|an|it|you|are|on|not)\b")
_MIN_WORDS, _MIN_SMALL_WORD_SHARE = 30, 0.12
_MAX_CLAUSES = 20_000


@cache
def rulebook() -> dict[str, Any]:
    """Return `rules.toml`."""
    return tomllib.loads(files("activities.contract_review").joinpath("rules.toml").read_text("utf-8"))


def check_contract(document: Document) -> None:
    """Raise `ReviewError` if a document is not an English contract."""
    text = " ".join(line.text for line in document.lines)
    words = re.findall(r"[^\W\d_]+", text)
    remedy = "nothing was reviewed"
    if len(words) < _MIN_WORDS:
        raise ReviewError(f"{document.name!r} is not a contract: it has {len(words)} words; {remedy}")
    if len(_SMALL_WORD.findall(text.lower())) < _MIN_SMALL_WORD_SHARE * len(words):
        raise ReviewError(
            f"the text of {document.name!r} does not read as English: translate it, or, if it is English on its pages, "
            f"the PDF's fonts hide its letters: run text recognition; {remedy}"
        )
    missing = [
        name
        for name, mark in rulebook()["contract"].items()
        if len(re.findall(mark["find"], text, re.IGNORECASE)) < mark["least"]
    ]
    if missing:
        raise ReviewError(
            f"{document.name!r} does not read as a contract: it lacks {', '.join(missing)}; "
            f"{remedy}. If it is one, give the text of the contract alone"
        )


def extract(document: Document) -> Report:
    """Return a report with the clauses of a document, and the names that its first ones define.

    A line opens a clause if it begins with a number or a name such as `Article II`, or is a title of a known topic, and
    does not continue the sentence of the line before.
    """
    parts: list[tuple[str, list[Line]]] = [("", [])]
    last: Line | None = None  # the first line is the contract's own title
    for line in filter(lambda line: line.text, document.lines):
        title = _read_title(line.text) if last and _may_open(line, last) else None
        if title is not None:
            parts.append((title, []))
        parts[-1][1].append(line)
        last = line
    if len(parts) > _MAX_CLAUSES:
        raise ReviewError(f"{document.name!r} has more than {_MAX_CLAUSES:,} clauses; give one contract alone")
    clauses = tuple(_make_clause(title, lines) for title, lines in parts)
    return Report(
        document=document.name,
        sha256=document.sha256,
        pages=document.pages,
        notes=document.notes,
        names=tuple(
            Passage(clause=clause.id, place=clause.place(match.start(1)), quote=match[1])
            for clause in clauses[:_MAX_NAMED]
            for brackets in _BRACKETS.finditer(clause.text)
            for match in _NAME.finditer(clause.text, *brackets.span())
        ),
        clauses=clauses,
    )


def _make_clause(title: str, lines: list[Line]) -> Clause:
    text, starts = join_lines(line.text for line in lines)
    places = (Place(start=start, page=line.page, line=line.number) for start, line in zip(starts, lines, strict=True))
    return Clause(title=title, topic=find_topic(title), text=text, places=tuple(places))


def _may_open(line: Line, last: Line) -> bool:
    is_apart = last.page == line.page and last.number < line.number - 1
    heading = _read_title(last.text)
    is_heading = last.text.endswith(heading) if heading else _OPENING.fullmatch(last.text) is not None
    return is_apart or last.text[-1] in '.;:)!?”"' or is_heading


def _read_title(line: str) -> str | None:
    """Return the title of the clause that a line opens, empty if it has none; None if it opens no clause."""
    opening = _OPENING.match(line)
    if opening is None:
        is_title = len(line.split()) <= 6 and line[0].isupper() and line[-1] not in ".,;"
        return line.rstrip(":") if is_title and find_topic(line.rstrip(":")) else None
    rest = line[opening.end() :].lstrip(" -–—:")
    match = _TITLE.match(rest)
    is_sentence = match is None or len(match[0].split()) > 8 or _VERB.search(match[0])
    return "" if match is None or is_sentence else match[0]


def find_topic(title: str) -> str:
    """Return the topic that a clause's title names, or an empty text."""
    best, best_score = "", 0
    for topic, words in rulebook()["topics"].items():
        full_title, title_part = _title_patterns(words["title"])
        score = 2 if full_title.match(title) else 1 if title and title_part.search(title) else 0
        if score > best_score:
            best, best_score = topic, score
    return best


@cache
def _title_patterns(title: str) -> tuple[re.Pattern[str], re.Pattern[str]]:
    return re.compile(rf"(?i)(?:{title})$"), re.compile(rf"(?i)\b(?:{title.replace('.*', '')})\b")


_ONES = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
_ONES += "eighteen nineteen twenty thirty forty fifty sixty seventy eighty ninety hundred"
_WORD = "|".join(sorted(_ONES.split(), key=len, reverse=True))
_WORDS = rf"(?:{_WORD})(?:[- ](?:and[- ])?(?:{_WORD})){{0,4}}"
_PERIOD = (
    rf"\b(?:{_WORDS} ?\(\d{{1,4}}\)|\d{{1,4}}|{_WORDS})[- ]"
    r"(?:business |calendar |working |full )?(?:day|week|month|quarter|year)s?\b"
)
_RATE = r"\b\d{1,3}(?:\.\d{1,3})? ?(?:%|per ?cent\b)(?: interest)?(?: (?:per|a|each) (?:day|week|month|year|annum)\b)?"
_SENTENCE_END = re.compile(r"(?<=[.;])(?<!\b[A-Z]\.)\s+(?=[A-Z(“\"])|\s+(?=\((?:[a-z]|[ivx]+)\) )")
_DASHES = str.maketrans(dict.fromkeys("\u2010\u2011\u2012\u2013\u2212", "-"))
_MAX_QUOTE_LENGTH, _MAX_WORDS_LENGTH = 400, 80


def locate(report: Report) -> Report:
    """Add the passages that have words of the rulebook, and the topics without a title or words."""
    passages = []
    for clause in report.clauses:
        for start, quote in sentences(clause.text):
            if marks := tuple(mark for mark in find_marks(quote) if mark.name != clause.topic):
                passages.append(Passage(clause=clause.id, place=clause.place(start), quote=quote, marks=marks))
    found = {clause.topic for clause in report.clauses} | {mark.name for item in passages for mark in item.marks}
    not_found = tuple(topic for topic in rulebook()["topics"] if topic not in found)
    return report.model_copy(update={"passages": tuple(passages), "not_found": not_found})


def find_marks(quote: str) -> Iterator[Mark]:
    """Yield the words of each topic and sort in a sentence, once each; those of an open list count for nothing else.

    Example:
        >>> [*find_marks("It will survive, including, without limitation, rights of any sort.")]
        [Mark(name='open list', words='including, without limitation')]
    """
    text = normalize(quote)
    for name, regex in _regexes():
        match = regex.search(text)
        if match is not None and match[0].strip():
            yield Mark(name=name, words=match[0].strip()[:_MAX_WORDS_LENGTH])
        if name == "open list":
            text = regex.sub(lambda list_words: "." * len(list_words[0]), text)


def normalize(quote: str) -> str:
    """Return the form of a sentence that patterns read: NFKC, and one kind of dash."""
    return unicodedata.normalize("NFKC", quote).translate(_DASHES)


@cache
def _regexes() -> tuple[tuple[str, re.Pattern[str]], ...]:
    """Return the pattern of each sort of words and of each topic, open lists first."""
    patterns = {**rulebook()["words"], **{topic: words["text"] for topic, words in rulebook()["topics"].items()}}
    return tuple(
        (name, re.compile(pattern.replace("{period}", _PERIOD).replace("{rate}", _RATE), re.IGNORECASE))
        for name, pattern in patterns.items()
    )


def sentences(text: str) -> Iterator[tuple[int, str]]:
    """Yield each sentence of a text with its offset; a long one in pieces of whole words."""
    start = 0
    for end in [*(match.start() for match in _SENTENCE_END.finditer(text)), len(text)]:
        while start < end:
            while start < end and text[start].isspace():
                start += 1
            cut = start + _MAX_QUOTE_LENGTH
            stop = end if end <= cut else max(text.rfind(" ", start, cut), start) if " " in text[start:cut] else cut
            if text[start:stop].strip():
                yield start, text[start:stop].strip()
            start = stop
