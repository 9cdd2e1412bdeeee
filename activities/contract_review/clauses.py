"""Read a contract from text, Markdown or PDF as lines that keep their place, so that every quotation can be found.

What a reader does not see on the page, such as a comment in Markdown, is left out and noted: it is not part of
what is agreed, and it is where instructions to machines are hidden.
"""

import codecs
import hashlib
import io
import re
import tomllib
import unicodedata
from collections import Counter
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from pypdf import PdfReader
from pypdf.errors import PyPdfError

from activities.contract_review.records import Clause, Document, Line, Report, ReviewError

_MOST_BYTES, _MOST_CHARACTERS, _MOST_PAGES = 32_000_000, 8_000_000, 2_000
_BOMS = ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))
_INVISIBLE = re.compile(
    r"[\x00-\x08\x0e-\x1f\x7f-\x9f\xad\u200b-\u200f\u202a-\u202e\u2060-\u2064\ufeff\U000e0000-\U000e0fff]"
)
_EDGE_LINES = 3  # running headers and footers are among the first and last lines of a page
_EMPTY_PAGE = 16  # characters: a scanned page has at most a stamp or a number


def read_document(path: Path) -> Document:
    """Return a contract as lines with page and number."""
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
            text, hidden = _without_marks(text)
            notes += [f"{hidden} comments left out: they are not shown"] if hidden else []
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
    """Return a text on one line, in composed form (NFC), without invisible characters."""
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


def _without_marks(text: str) -> tuple[str, int]:
    """Return a Markdown text without its marks and hidden comments, line by line, and how many comments there are."""
    text, hidden = re.subn(r"(?s)<!--.*?(?:-->|\Z)", lambda found: "\n" * found[0].count("\n"), text)
    text = re.sub(r"(?m)^[ >]*#{1,6} +|^[ >]*\|?[ :|-]{3,}$|^ *\||\| *$|\*\*|__|`", "", text)
    return re.sub(r"!?\[([^\]\n]*)\]\([^)\s]*\)", r"\1", text), hidden


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


PREAMBLE = "Preamble"
_NUMBER = re.compile(r"(?:§ ?|[Cc]lause )?(?P<path>\d{1,3}(?:\.\d{1,3}){0,4})(?P<end>[.):]?) +(?P<rest>\S.*)$")
_NAMED = re.compile(
    r"(?P<word>Article|ARTICLE|Section|SECTION|Schedule|SCHEDULE|Annex|ANNEX|Appendix|APPENDIX|Exhibit|EXHIBIT) "
    r"(?P<path>\d{1,3}(?:\.\d{1,3}){0,4}|[IVXL]{1,7}|[A-H])(?P<end>[.:]?)(?: *[-–—:.]? *(?P<rest>\S.*))?$"
)
_TITLE = re.compile(r"(?P<title>[A-Z][^.;:!?]{1,70}?)(?:[.:] (?P<rest>\S.*)|[.:]?)$")
_ROLE = re.compile(
    r"(?P<name>[A-ZÀ-Ý][^()“”\";]{1,300}?)\(\s*(?:hereinafter |together |each )?(?:the )?"
    r"[“\"](?P<role>[A-Z][\w \-]{1,40})[”\"]\s*\)"
)
_NOT_A_ROLE = re.compile(r"(?i)agreement|date|services?|term|parties|fees?|purpose|platform|order|software|terms")
_AFTER_NAME = re.compile(r",(?! ?(?:Inc|Ltd|LLC|L\.?P|Corp|S\.?A|N\.?V|B\.?V|PLC|plc|GmbH|AG|s\.r\.o)\b)| (?:a|an) ")
_BEFORE_NAME = re.compile(r".*?\b(?:between|among)\b:? (?=[A-ZÀ-Ý])|.*?\bby (?=[A-ZÀ-Ý])")
_SMALL_WORD = re.compile(r"\b(?:the|and|to|of|any|by|for|this|that|with|or|is|be|in|a|an|it|you|are|on|not)\b")
_FEWEST_WORDS, _FEWEST_SMALL_WORDS, _SHARE_OF_LATIN = 30, 0.12, 0.8
_MOST_CLAUSES = 20_000


@cache
def rulebook() -> dict[str, Any]:
    """Return `rules.toml`."""
    return tomllib.loads(files("activities.contract_review").joinpath("rules.toml").read_text("utf-8"))


def check_contract(document: Document) -> None:
    """Refuse a document that cannot be read, or does not read as a contract."""
    text = " ".join(line.text for line in document.lines)
    letters = [char for char in text if char.isalpha()]
    words = re.findall(r"[^\W\d_]+", text)
    remedy = "nothing was reviewed"
    if sum(char < "\u0250" for char in letters) < _SHARE_OF_LATIN * len(letters):
        raise ReviewError(f"{document.name!r} cannot be read: most of it is not in Latin letters; {remedy}")
    if len(words) < _FEWEST_WORDS:
        raise ReviewError(f"{document.name!r} is not a contract: it has {len(words)} words; {remedy}")
    if len(_SMALL_WORD.findall(text.lower())) < _FEWEST_SMALL_WORDS * len(words):
        raise ReviewError(f"{document.name!r} does not seem to be in English; translate it first: {remedy}")
    missing = [
        name
        for name, mark in rulebook()["contract"].items()
        if len(re.findall(mark["find"], text, re.IGNORECASE)) < mark["least"]
    ]
    if missing:
        raise ReviewError(
            f"{document.name!r} does not read as a contract (it lacks what contracts have: {', '.join(missing)}); "
            f"{remedy}. If it is one, give the text of the contract alone"
        )


def extract(document: Document) -> Report:
    """Return a report with the clauses of a document, its parties, its title and its type."""
    clauses: list[Clause] = [Clause(id=PREAMBLE, title=PREAMBLE, kind="parties")]
    words: list[list[str]] = [[]]
    numbers: tuple[int, ...] = ()
    titles: dict[tuple[int, ...], str] = {}
    prefix, headings, seen = "", 0, {PREAMBLE}
    for line in document.lines:
        if not line.text:
            continue
        is_first = len(clauses) == 1 and not words[0]  # the title of the contract
        opened = None if is_first else _opening(line.text, numbers, restarted=bool(prefix), headings=headings)
        if opened is None:
            words[-1].append(line.text)
            continue
        label, path, title, rest = opened
        if not path and label:  # an article or schedule of its own: its sections may count from 1 again
            prefix, numbers, titles = f"{label} ", (), {}
            id = label
        elif path:
            numbers = path
            id = label if label[0].isalpha() or not prefix.startswith(("Sch", "Ann", "App", "Exh")) else prefix + label
            title = title or titles.get(path[:1], "")
            titles[path] = title
        else:
            headings, numbers, titles = headings + 1, (), {}
            id = f"H{headings}"
        number, unique = 1, id
        while unique in seen:
            number, unique = number + 1, f"{id} ({number + 1})"
        seen.add(unique)
        if len(clauses) >= _MOST_CLAUSES:
            raise ReviewError(f"{document.name!r} has more than {_MOST_CLAUSES:,} clauses; give one contract alone")
        clauses.append(Clause(id=unique, title=title or label, page=line.page, line=line.number))
        words.append([rest] if rest else [])
    joined = [re.sub(r"(?<=[a-z])- (?=[a-z])", "-", " ".join(parts)) for parts in words]
    kinds = _kinds(clauses, joined)
    made = tuple(
        clause.model_copy(update={"text": text, "kind": kind})
        for clause, text, kind in zip(clauses, joined, kinds, strict=True)
    )
    title = next((line.text for line in document.lines if line.text), "")[:200]
    return Report(
        document=document.name,
        sha256=document.sha256,
        pages=document.pages,
        notes=document.notes,
        title=title,
        type=_type(title, made[0].text),
        parties=_parties(made[0].text + " " + " ".join(one.text for one in made[1:3])),
        clauses=made,
    )


def kind_of(title: str, text: str) -> str:
    """Return what a clause is about, by its title, else by its text; `general` where neither says."""
    best, most = "general", 0
    for kind, words in rulebook()["kinds"].items():
        whole, part = _title_patterns(words["title"])
        score = 12 if whole.match(title) else 8 if title and part.search(title) else 0
        score += min(4, len({found.lower() for found in re.findall(words["text"], text[:4_000], re.IGNORECASE)}))
        if score > most:
            best, most = kind, score
    return best


@cache
def _title_patterns(title: str) -> tuple[re.Pattern[str], re.Pattern[str]]:
    return re.compile(rf"(?i)(?:{title})$"), re.compile(rf"(?i)\b(?:{title.replace('.*', '')})\b")


def _opening(
    text: str, numbers: tuple[int, ...], *, restarted: bool, headings: int
) -> tuple[str, tuple[int, ...], str, str] | None:
    """Return label, number, title and further words of the clause that a line opens, or None if it opens none."""
    if found := _NAMED.match(text):
        rest = found["rest"] or ""
        label = f"{found['word'].title()} {found['path']}"
        if found["word"].title() == "Section" and found["path"][0].isdecimal():
            path = tuple(map(int, found["path"].split(".")))
            return (found["path"], path, *_titled(rest)) if _follows(path, numbers, restarted=True) else None
        is_title = not rest or found["end"] or rest[0] in "-–—" or rest == rest.title() or rest.isupper()
        return (label, (), *_titled(rest.lstrip("-–— "))) if is_title or (len(rest) < 60 and rest[-1] != ".") else None
    if found := _NUMBER.match(text):
        path = tuple(map(int, found["path"].split(".")))
        is_marked = len(path) > 1 or bool(found["end"]) or text[0] in "§Cc"
        if is_marked and _follows(path, numbers, restarted=restarted):
            return (found["path"], path, *_titled(found["rest"]))
        return None
    is_title = len(text.split()) <= 6 and text[0].isupper() and text[-1] not in ".,;"
    known = is_title and kind_of(text.rstrip(":"), "") != "general"
    # Titles without numbers part a contract only where its first ones have none.
    return ("", (), text.rstrip(":"), "") if known and (not numbers or headings) else None


def _titled(rest: str) -> tuple[str, str]:
    """Return the title and the further words of what comes after a number."""
    found = _TITLE.match(rest)
    is_sentence = found is not None and found["rest"] is None and rest.endswith(".") and len(rest.split()) > 4
    if found is None or is_sentence or (found["rest"] is None and len(rest.split()) > 8):
        return "", rest
    is_title = rest.isupper() or len(found["title"].split()) <= 8
    has_verb = re.search(r"\b(?:shall|may|is|are|will|must|has|have)\b", found["title"]) is not None
    return (found["title"], found["rest"] or "") if is_title and not has_verb else ("", rest)


def _follows(path: tuple[int, ...], before: tuple[int, ...], *, restarted: bool) -> bool:
    """Return whether a number can come after another one: the next, the first below it, or the next above it."""
    if not before:
        return path[0] == 1 or len(path) > 1 or restarted
    if path[:-1] == before and path[-1] == 1:
        return True
    depth = len(path)
    if depth > len(before):  # 2.1 right after 1, without a 2 of its own
        return depth == len(before) + 1 and path[0] in (before[0], before[0] + 1) and path[-1] == 1
    return (
        path[: depth - 1] == before[: depth - 1] and before[depth - 1] < path[depth - 1] <= before[depth - 1] + 3
    ) or (depth > 1 and path[-1] == 1 and path[0] == before[0] + 1)


def _kinds(clauses: list[Clause], texts: list[str]) -> list[str]:
    """Return the kinds of clauses; one that says nothing of its own has that of its title's clause."""
    kinds: list[str] = []
    by_title: dict[str, str] = {}
    for clause, text in zip(clauses, texts, strict=True):
        own = clause.kind if clause.id == PREAMBLE else kind_of(clause.title, "")
        if own == "general":
            own = kind_of("", text)
        if own == "general":
            own = by_title.get(clause.id.rpartition(".")[0], "general")
        by_title[clause.id] = own
        kinds.append(own)
    return kinds


def _type(title: str, preamble: str) -> str:
    for place in (title, preamble[:4_000]):
        for name, sort in rulebook()["types"].items():
            if sort["find"] and re.search(sort["find"], place, re.IGNORECASE):
                return str(name)
    return "other"


def _parties(text: str) -> dict[str, str]:
    """Return the parties' names by the roles that a preamble gives them."""
    parties: dict[str, str] = {}
    for found in _ROLE.finditer(text[:6_000]):
        name = _AFTER_NAME.split(_BEFORE_NAME.sub("", found["name"], count=1).lstrip(" ,"), maxsplit=1)[0].strip(" ,")
        if not _NOT_A_ROLE.fullmatch(found["role"]):
            parties.setdefault(found["role"], name)
    return parties
