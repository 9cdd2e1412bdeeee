"""Take a document apart into clauses, and say what each is about; or say that it does not read as a contract."""

import re
import tomllib
from functools import cache
from importlib.resources import files
from typing import Any

from activities.contract_review.records import Clause, Document, Report, ReviewError

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
    """Return what a clause is about, by its title, else by its text; `general` where neither says.

    Example:
        >>> kind_of("Limitation of Liability", ""), kind_of("", "Rain falls.")
        ('liability', 'general')
    """
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
