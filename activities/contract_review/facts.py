"""Parties, defined terms, dates, amounts, periods and percentages, each with its words and a form to compute with.

What cannot be read for certain, such as 03/04/2026, keeps its words and gets no date.
"""

import re
from collections.abc import Iterable, Iterator
from datetime import date
from decimal import Decimal, InvalidOperation

from activities.contract_review.records import Clause, Fact, FactKind

# fmt: off
_MONTHS = [
    "january", "february", "march", "april", "may", "june",
    "july", "august", "september", "october", "november", "december",
]
_ONES = [
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
    "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
]
_TENS = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
# fmt: on
_MONTH = "|".join(_MONTHS)
_UNITS = {"day": 1, "week": 7, "month": 30, "quarter": 91, "year": 365}
SPELLED = "|".join(sorted([*_ONES, *_TENS, "hundred"], key=len, reverse=True))
_WORDS = rf"(?:{SPELLED})(?:[- ](?:and[- ])?(?:{SPELLED})){{0,4}}"

DATE = re.compile(
    r"(?i)\b(?P<iso>\d{4}-\d\d-\d\d)\b"
    rf"|\b(?P<d1>\d{{1,2}})(?:st|nd|rd|th)?(?: day of)? (?P<m1>{_MONTH}),? (?P<y1>\d{{4}})\b"
    rf"|\b(?P<m2>{_MONTH}) (?P<d2>\d{{1,2}})(?:st|nd|rd|th)?,? (?P<y2>\d{{4}})\b"
    r"|\b(?P<slash>\d{1,2}[/.]\d{1,2}[/.]\d{4})\b"
)
_GROUPED = r"\d{1,3}(?:[,.'’ ]\d{3}){1,4}(?:[.,]\d{1,2})?(?!\d)|\d{1,2}(?:,\d{2}){1,4},\d{3}(?:\.\d{1,2})?(?!\d)"
_FIGURE = rf"{_GROUPED}|\d{{1,15}}(?:[.,]\d{{1,2}}(?!\d))?"
SCALED = r"(?i:thousand|tsd\.?|k|millions?|mio\.?|mln|mn|m|billions?|mrd\.?|bn)(?!\w)"
_MYRIADS = "[万萬億亿]"
# Without PHP, which is a programming language more often, and those that are English words in capitals.
_CODES = (
    "USD|EUR|TEUR|kEUR|GBP|CHF|AED|ARS|AUD|BGN|BHD|BRL|CAD|CLP|CNH|CNY|CZK|DKK|EGP|HKD|HUF|IDR|ILS|INR|ISK|JPY|KES|KRW|"
    "KWD|KZT|MXN|MYR|NGN|NOK|NZD|OMR|PKR|PLN|QAR|RON|RSD|RUB|SAR|SEK|SGD|THB|TRY|TWD|UAH|UYU|VND|ZAR"
)
_SYMBOLS = "€|£|¥|₹|₩|₺|₽|₪|₱|₫|₴|₦"
CURRENCY = rf"(?:\b(?:US|CA|AU|NZ|HK|SG|NT|MX|R|A|C|S)\$|\$|{_SYMBOLS}|\b(?:{_CODES}))"
AMOUNT = re.compile(
    rf"(?P<c1>{CURRENCY}) ?(?P<n1>{_FIGURE})(?P<s1> ?{SCALED}| ?{_MYRIADS})?"
    rf"|(?<![A-Za-z0-9_À-ӿ])(?P<n2>{_FIGURE})(?P<s2> ?{SCALED}| ?{_MYRIADS})? ?"
    rf"(?P<c2>(?:{_SYMBOLS}|{_CODES}|zł|Kč|(?i:euros?|(?:US )?dollars?|pounds(?: sterling)?))(?!\w| ?\d)|[円元])"
)
PERIOD = re.compile(
    rf"(?i)\b(?:(?P<words>{_WORDS}) ?\((?P<figure>\d{{1,4}})\)|(?P<number>\d{{1,4}})|(?P<only>{_WORDS}))[- ]"
    rf"(?P<adj>(?:business|calendar|working|consecutive|full)[- ])?(?P<unit>days?|weeks?|months?|quarters?|years?)\b"
)
PERCENT = re.compile(
    r"(?i)\b(?P<rate>\d{1,3}(?:\.\d{1,3})?) ?(?:%|per ?cent\b)"
    r"(?P<per>(?: interest)? (?:per|a|each|for each) (?P<unit>day|week|month|year|annum)\b)?"
)
_DEFINED = re.compile(r'[“"](?P<term>[A-Z][^”"]{1,60})[”"] (?:means|shall mean|has the meaning|refers to)')
_ROLE = re.compile(
    r"\(\s*(?:(?:hereinafter|hereafter|together|each|collectively)[^“”\"()]{0,40})?(?:the |THE )?"
    r"[“\"](?P<role>[A-Z][\w \-]{1,40})[”\"]\s*\)"
)
_BEFORE_NAME = re.compile(r"(?:\b(?i:between|among|by|and)\b:?|\(\d\)|[.;:|])\s+(?=[A-Z])")
_AFTER_NAME = re.compile(
    r",(?! ?(?:Inc|Ltd|LLC|L\.?P|Corp|S\.?A|N\.?V|B\.?V|PLC|plc|GmbH|AG|s\.r\.o)\b)"
    r"| (?:a|an|of|with|having|whose)\b| \("
)
_NO_PARTY = re.compile(r"(?i)agreement|date|services?|term|parties|fees?|purpose|effective|platform|order|software")
# fmt: off
_CURRENCIES = {
    "US$": "USD", "$": "USD", "dollar": "USD", "dollars": "USD", "us dollar": "USD", "us dollars": "USD",
    "€": "EUR", "euro": "EUR", "euros": "EUR", "£": "GBP", "pounds": "GBP", "pounds sterling": "GBP",
    "CA$": "CAD", "C$": "CAD", "AU$": "AUD", "A$": "AUD", "NZ$": "NZD", "HK$": "HKD", "SG$": "SGD", "S$": "SGD",
    "NT$": "TWD", "MX$": "MXN", "R$": "BRL", "¥": "JPY", "円": "JPY", "元": "CNY", "₹": "INR", "₩": "KRW", "₺": "TRY",
    "₽": "RUB", "₪": "ILS", "₱": "PHP", "₫": "VND", "₴": "UAH", "₦": "NGN", "zł": "PLN", "Kč": "CZK",
}
# fmt: on
_SCALES = {
    **dict.fromkeys(("thousand", "tsd", "k"), 1_000),
    **dict.fromkeys(("million", "mio", "mln", "mn", "m"), 1_000_000),
    **dict.fromkeys(("billion", "mrd", "bn"), 1_000_000_000),
    **dict.fromkeys("万萬", 10_000),
    **dict.fromkeys("億亿", 100_000_000),
}
_LEADING = 60  # characters before an amount that say what it is for
_PARTIES_WITHIN = 6_000
_LONGEST_PARTY = 400  # characters of a party's name and description
_MOST = 5_000


def find_facts(clauses: Iterable[Clause]) -> list[Fact]:
    """Return the facts of all clauses, in order; at most 5,000.

    Parties are looked for in the preamble and in the clauses about them, where their roles are defined.
    """
    found: list[Fact] = []
    for clause in clauses:
        if clause.kind == "parties":
            found.extend(_parties(clause))
        found.extend(_facts(clause))
        if len(found) >= _MOST:
            break
    return found[:_MOST]


def days_in(found: re.Match[str]) -> int:
    """Return how many days a match of `PERIOD` is; months have 30, years 365, five business days seven.

    Example:
        >>> [days_in(PERIOD.search(text)) for text in ("thirty (30) days", "two years", "10 business days")]
        [30, 730, 14]
    """
    unit = found["unit"].lower().rstrip("s")
    days = number_in(found) * _UNITS[unit]
    return days * 7 // 5 if (found["adj"] or "").lower().startswith(("business", "working")) and unit == "day" else days


def number_in(found: re.Match[str]) -> int:
    """Return the number of a match of `PERIOD`; where words and figures differ, the figures."""
    figure = found["figure"] or found["number"]
    return int(figure) if figure else spelled(found["only"])


def spelled(words: str) -> int:
    """Return the value of a number in words.

    Example:
        >>> spelled("forty-five"), spelled("one hundred and twenty")
        (45, 120)
    """
    total = 0
    for word in re.split(r"[- ]+", words.lower()):
        if word in _ONES:
            total += _ONES.index(word)
        elif word in _TENS:
            total += 10 * (_TENS.index(word) + 2)
        elif word == "hundred":
            total = max(1, total) * 100
    return total


def monthly_rate(found: re.Match[str]) -> float | None:
    """Return percent a month of a match of `PERCENT`, or None where no period is given."""
    unit = (found["unit"] or "").lower()
    months = {"day": 30.0, "week": 4.345, "month": 1.0, "year": 1 / 12, "annum": 1 / 12}
    return float(found["rate"]) * months[unit] if unit else None


def amount_of(found: re.Match[str]) -> tuple[str, Decimal] | None:
    """Return currency and value of a match of `AMOUNT`, or None where it cannot be read.

    Example:
        >>> [amount_of(AMOUNT.search(text)) for text in ("EUR 1.200,50", "$1.5 million", "2,5 Mio. EUR")]
        [('EUR', Decimal('1200.50')), ('USD', Decimal('1500000.0')), ('EUR', Decimal('2500000.0'))]
    """
    sign = found["c1"] or found["c2"]
    digits = found["n1"] or found["n2"]
    scale = (found["s1"] or found["s2"] or "").strip(" .").lower().removesuffix("s")
    if sign in ("TEUR", "kEUR"):
        sign, scale = "EUR", "k"
    if grouped := re.search(r"[.,'’ ]\d{3}[,.](\d{1,2})$", digits):
        digits = re.sub(r"\D", "", digits[: grouped.start(1)]) + "." + grouped[1]
    elif re.search(r"[.,'’ ]\d{3}$", digits):
        digits = re.sub(r"\D", "", digits)
    digits = digits.replace(",", ".")
    try:
        value = Decimal(digits) * _SCALES.get(scale, 1)
    except InvalidOperation:
        return None
    return _CURRENCIES.get(sign, _CURRENCIES.get(sign.lower(), sign.upper())), value


def date_of(found: re.Match[str]) -> date | None:
    """Return the day of a match of `DATE`, or None where day and month could be exchanged.

    Example:
        >>> date_of(DATE.search("on 1st March 2026")), date_of(DATE.search("03/04/2026"))
        (datetime.date(2026, 3, 1), None)
    """
    try:
        if found["iso"]:
            return date.fromisoformat(found["iso"])
        if found["slash"]:
            first, second, year = map(int, re.split(r"[/.]", found["slash"]))
            if first > 12 or first == second:
                return date(year, second, first)
            return date(year, first, second) if second > 12 else None
        month = _MONTHS.index((found["m1"] or found["m2"]).lower()) + 1
        return date(int(found["y1"] or found["y2"]), month, int(found["d1"] or found["d2"]))
    except ValueError:
        return None


def _parties(clause: Clause) -> Iterator[Fact]:
    """Yield the parties that a preamble names and gives a role."""
    seen: set[str] = set()
    text = clause.text[:_PARTIES_WITHIN]
    start = 0
    for found in _ROLE.finditer(text):
        before = text[max(start, found.start() - _LONGEST_PARTY) : found.start()]
        start = found.end()
        # The last word that can precede a name may be within one ("Smith and Sons"): the first is taken.
        opening = _BEFORE_NAME.search(before)
        named = before[opening.end() :] if opening else before.lstrip(" ,")
        name = _AFTER_NAME.split(named, maxsplit=1)[0].strip()
        role = found["role"]
        if role not in seen and name[:1].isupper() and not _NO_PARTY.fullmatch(role):
            seen.add(role)
            yield Fact(kind="party", clause=clause.id, quote=(named + found[0]).strip(), value=name, role=role)


def _facts(clause: Clause) -> Iterator[Fact]:
    """Yield the other facts of a clause."""

    def fact(kind: FactKind, found: re.Match[str], value: str, role: str = "") -> Fact:
        return Fact(kind=kind, clause=clause.id, quote=found[0].strip(), value=value, role=role)

    text = clause.text
    for found in _DEFINED.finditer(text):
        yield fact("definition", found, found["term"])
    for found in DATE.finditer(text):
        day = date_of(found)
        yield fact(
            "date", found, day.isoformat() if day else "", text[max(0, found.start() - _LEADING) : found.start()]
        )
    for found in AMOUNT.finditer(text):
        amount = amount_of(found)
        if amount:
            leading = text[max(0, found.start() - _LEADING) : found.start()]
            yield fact("amount", found, f"{amount[0]} {amount[1]:.2f}", leading)
    for found in PERIOD.finditer(text):
        yield fact("period", found, f"{number_in(found)} {found['unit'].lower().rstrip('s')}s")
    for found in PERCENT.finditer(text):
        unit = f" per {found['unit'].lower()}" if found["unit"] else ""
        yield fact("percentage", found, f"{found['rate']} %{unit}")
