"""Amounts of money, in the ways in which many countries write them."""

import re
from decimal import Decimal, InvalidOperation
from itertools import chain

from activities.compliance_review.records import Amount

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
# Where a line or a table's cell ends within an amount.
_BEFORE_UNIT = re.compile(rf"(?<!\s)\s+(?={CURRENCY}|{SCALED})")
_AFTER_CURRENCY = re.compile(rf"({CURRENCY})\s+(?=\d)")
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


def highest_amounts(text: str) -> tuple[Amount, ...]:
    """Return the highest amount that a text names in each currency, also across the end of a line or a table's cell.

    Where a currency is between two figures there, as in a table, both are read.
    """
    highest: dict[str, int] = {}
    joined = _BEFORE_UNIT.sub(" ", text)
    for found in chain(AMOUNT.finditer(joined), AMOUNT.finditer(_AFTER_CURRENCY.sub(r"\1 ", joined))):
        if known := amount_of(found):
            currency, value = known
            cents = min(int((value * 100).to_integral_value()), 10**15)
            highest[currency] = max(cents, highest.get(currency, 0))
    return tuple(Amount(currency=currency, cents=cents) for currency, cents in sorted(highest.items()))


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
