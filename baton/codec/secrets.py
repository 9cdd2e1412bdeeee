"""Keys and passwords in texts of errors and tools, which are stored for good: usual forms, and values of variables."""

import os
import re
from collections.abc import Iterable, Iterator
from typing import Any

from baton.wire.json_values import json_spellings

WITHHELD = "[withheld]"
"""What stands for a secret."""

MIN_SECRET_LENGTH = 6
"""The length from which a variable's value is searched for; a shorter one would occur by chance."""

_PRIVATE_KEY = re.compile(
    r"-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----[\s\S]*?(?:(-----END [A-Z ]{0,30}PRIVATE KEY-----)|\Z)"
)
_FORMS = [  # each with texts in lower case; a secret of this form has one of them
    (marks, re.compile(form))
    for marks, form in (
        (("sk-",), r"\bsk-[\w-]{16,}"),  # OpenAI, Anthropic and others
        (("k_live_", "k_test_"), r"\b[srp]k_(?:live|test)_\w{16,}"),  # Stripe
        (("gh", "glpat-"), r"\bgh[oprsu]_\w{20,}|\bgithub_pat_\w{20,}|\bglpat-[\w-]{16,}"),
        (("xox",), r"\bxox[a-z]-[\w-]{10,}"),  # Slack
        (("akia", "asia"), r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b"),  # AWS
        (("aiza",), r"\bAIza[\w-]{30,}"),  # Google
        (("hf_", "npm_", "pypi-"), r"\bhf_\w{20,}|\bnpm_\w{30,}|\bpypi-[\w-]{30,}"),
        (("eyj",), r"\beyJ[\w-]{10,}\.[\w-]{10,}\.[\w-]*"),  # JSON web tokens
        (("private key",), _PRIVATE_KEY.pattern),
        (("://",), r"(?<=://)[^\s/:@]{0,200}:[^\s/@]{1,200}(?=@)"),  # a name and a password in an address
        (("bearer ", "basic "), r"(?i:(?<=\bbearer )|(?<=\bbasic ))[\w.~+/=-]{16,}"),
    )
]
_NAME = (
    r"(?<![A-Za-z0-9])(?:api[_-]?key|(?:secret[_-]?)?access[_-]?(?:key|token)|client[_-]?secret|secret|token|passwd|"
    r"password)[\"']?"
)
_NAMED = re.compile(
    rf"(?i)({_NAME}\s{{0,3}}[=:]\s{{0,3}})"
    r"(?:(?P<quote>[\"'])(?=[^\"'\s]{0,200}\d)[^\"'\s]{8,}|(?=[^\s\"',;&{}()\[\]]{0,200}\d)[^\s\"',;&{}()\[\]]{8,})"
)
_NAMES = ("key", "access", "secret", "token", "passw")
_ENDS_WITH_NAME = re.compile(rf"(?i){_NAME}\Z")
_MEMBER = re.compile(r"([\"']?)(?=.*\d).{8,}?([\"']?)", re.DOTALL)
_LAST_WORD = re.compile(r"[^\s\u3001\u3002\uff01\uff0c\uff1a\uff1b\uff1f]*\Z")  # Chinese has no blanks
_TOGETHER = re.compile(  # what is masked, or not, as one
    rf"(?i)(?=(\b(?:bearer|basic)\s\S*|{_NAME}\s{{0,3}}(?:[=:]\s{{0,3}}[\"']?)?\S*))"
    r"|(?=(-----BEGIN [A-Z ]{0,43}-{0,5}\Z))"
)
_SECRET_VARIABLE = re.compile(r"(?:KEY|TOKEN|SECRET|PASSWORD)\Z")
_named_variables: set[str] = set()


def hold_secret(*variables: str) -> None:
    """Have the values of variables of the environment masked, whatever the variables are called."""
    _named_variables.update(variables)


def mask(text: str, secrets: Iterable[str]) -> str:
    """Return a text without these secrets, also as JSON spells them."""
    for spelling in _spellings(secrets):
        text = text.replace(spelling, WITHHELD)
    return text


def _spellings(secrets: Iterable[str]) -> list[str]:
    """Return what is searched for, the longest first: a secret may start with another one."""
    spellings = {spelling for secret in secrets for spelling in json_spellings(secret)}
    return sorted((spelling for spelling in spellings if len(spelling) >= MIN_SECRET_LENGTH), key=len, reverse=True)


def mask_values(value: Any) -> Any:
    """Return a value with the texts in its lists and mappings masked as by `mask_secrets`; other values unchanged.

    Example:
        >>> mask_values({"user": "ann", "password": "pa55-word"})
        {'user': 'ann', 'password': '[withheld]'}
    """
    match value:
        case str():
            return mask_secrets(value)
        case dict():
            return {mask_values(name): _mask_member(name, member) for name, member in value.items()}
        case list():
            return [mask_values(item) for item in value]
        case tuple() if type(value) is tuple:
            return tuple(mask_values(item) for item in value)
        case _:
            return value


def _mask_member(name: Any, value: Any) -> Any:
    """Return a member's value without secrets, where the name may say that it is one."""
    if isinstance(value, list):
        return [_mask_member(name, item) for item in value]
    named = isinstance(name, str) and isinstance(value, str) and _ENDS_WITH_NAME.search(name)
    if named and (match := _MEMBER.fullmatch(value)):
        return f"{match[1]}{WITHHELD}{match[2]}"
    return mask_values(value)


def _mask_named(match: re.Match[str]) -> str:
    """Return a named secret without its value; a bare one in JSON becomes a text, so that the JSON stays whole."""
    opening, quote = match[1], match["quote"]
    if quote is None and '"' in opening:
        return f'{opening}"{WITHHELD}"'
    return f"{opening}{quote or ''}{WITHHELD}"


def mask_secrets(text: str) -> str:
    """Return a text without the usual forms of keys and without the values of variables that hold one.

    Example:
        >>> mask_secrets("401: incorrect API key provided: sk-proj-0123456789abcdef")
        '401: incorrect API key provided: [withheld]'
    """
    text = mask(text, _held_secrets())
    folded = text.lower()  # a search for plain texts is a hundred times as fast, and a tool's result may be long
    for marks, form in _FORMS:
        if any(mark in folded for mark in marks):
            text = form.sub(WITHHELD, text)
    return _NAMED.sub(_mask_named, text) if any(name in folded for name in _NAMES) else text


def _held_secrets() -> Iterator[str]:
    """Yield the values of variables that hold a secret."""
    for name, value in os.environ.items():
        if name in _named_variables or (_SECRET_VARIABLE.search(name) and not value.startswith(("/", "."))):
            yield value


def settled_length(text: str) -> int:
    """Return how much of a growing text `mask_secrets` can mask by itself, whatever follows.

    It ends before the last word, and before what may be a part of a secret.

    Example:
        >>> settled_length("The password: hun")
        4
    """
    end = _LAST_WORD.search(text).start()  # type: ignore[union-attr]  # it may be empty
    spans = [*_spans_of_forms(text), *_spans_of_values(text)]
    while begins := [begin for begin, after in spans if begin < end < after]:
        end = min(begins)
    return end


def _spans_of_forms(text: str) -> Iterator[tuple[int, int]]:
    """Yield the beginning and the end of what is masked as one; what may continue ends after the text."""
    for match in _TOGETHER.finditer(text):
        begin, after = match.span(match.lastindex or 0)
        yield begin, after + (after == len(text))
    for match in _PRIVATE_KEY.finditer(text):
        yield match.start(), match.end() if match[1] else len(text) + 1


def _spans_of_values(text: str) -> Iterator[tuple[int, int]]:
    for spelling in _spellings(_held_secrets()):
        begin = text.find(spelling)
        while begin >= 0:
            yield begin, begin + len(spelling)
            begin = text.find(spelling, begin + 1)
        begin = text.find(spelling[0], max(0, len(text) - len(spelling) + 1))
        while begin >= 0 and not spelling.startswith(text[begin:]):
            begin = text.find(spelling[0], begin + 1)
        if begin >= 0:
            yield begin, len(text) + 1
