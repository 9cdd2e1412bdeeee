"""Read a mailbox: the one e-mail that is proposed, and what was written before it.

The addresses in it are personal data. They are read here, counted by domain, and go no further: not into a record,
not into a text (`without_addresses`), not into a message of an error.
"""

import codecs
import email
import email.policy
import hashlib
import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from email.message import EmailMessage, MIMEPart
from itertools import chain
from mailbox import mbox
from pathlib import Path

from activities.compliance_review.amounts import AMOUNT, CURRENCY, SCALED, amount_of
from activities.compliance_review.records import Amount, Attachment, ComplianceError, Mail, domain_of
from activities.compliance_review.texts import BROKEN, text_of
from activities.workbench.words import counted

MOST_BYTES = 64_000_000
MOST_MESSAGES = 2_000
MOST_NESTED = 30

_SIGN, _NO_DOT = r"[^\s<>()\[\],;:\"'@]", r"[^\s<>()\[\],;:\"'@.]"
# It begins where a run of such signs does and goes on without a choice, so that a long run costs one look at each sign.
_ADDRESS = re.compile(rf"(?<!{_SIGN}){_SIGN}+@{_SIGN}{_NO_DOT}*(?:\.+{_NO_DOT}+)+")
_DOMAIN = re.compile(r"(?=.{1,253}$)[a-z0-9-]{1,63}(\.[a-z0-9-]{1,63})+")
_EXTENSION = re.compile(r"\.([A-Za-z0-9]{1,12})$")
_TYPE = re.compile(r"[a-z0-9]{1,12}$")
_RECIPIENTS = ("to", "cc", "bcc", "resent-to", "resent-cc", "resent-bcc")
_UNSENT = "x-unsent"
_SUFFIXES = {".mbox": True, ".mbx": True, ".eml": False}
_BEGINNING = re.compile(rb"From +\S.*[0-9]:[0-9][0-9].*\n(>From |[!-9;-~]+:)")
# Where a line or a table's cell ends within an amount.
_BEFORE_UNIT = re.compile(rf"(?<!\s)\s+(?={CURRENCY}|{SCALED})")
_AFTER_CURRENCY = re.compile(rf"({CURRENCY})\s+(?=\d)")


@dataclass(frozen=True)
class Correspondence:
    """A mailbox as it was read.

    Attributes:
        proposed: The e-mail that somebody wants to send.
        data: Its bytes, as they are in the mailbox.
        earlier: The other messages, in the mailbox's order.
    """

    proposed: EmailMessage
    data: bytes
    earlier: tuple[EmailMessage, ...] = ()


def read_mailbox(path: Path, message_id: str | None = None) -> Correspondence:
    """Return the proposed e-mail of a mailbox and the messages beside it.

    Proposed is the message that ``message_id`` names; else the only one that is marked as a draft by the header
    `X-Unsent: 1`; else the only message there is.

    Args:
        path: An `.mbox` file, a folder of that ending with the file `mbox` in it, as Apple's Mail exports it, or an
            `.eml` file with one message.
        message_id: The `Message-ID` of the proposed e-mail, with or without its angle brackets.

    Raises:
        ComplianceError: The file is missing, of another format, too large or empty, a message is nested too deep, or
            it is not clear which of them is proposed.
    """
    if path.suffix.lower() not in _SUFFIXES:
        raise ComplianceError(f"{path.name!r} is no mailbox; found {path.suffix!r}, expected .mbox or .eml")
    is_mbox = _SUFFIXES[path.suffix.lower()]
    try:
        if is_mbox and path.is_dir():
            path = path / "mbox"
        if path.stat().st_size > MOST_BYTES:
            raise ComplianceError(f"{path.name!r} is larger than {MOST_BYTES:,} bytes; give the thread alone")
        found = _mbox(path) if is_mbox else [path.read_bytes().removeprefix(codecs.BOM_UTF8)]
    except OSError as error:
        raise ComplianceError(f"the mailbox {str(path)!r} cannot be read ({error.strerror})") from None
    messages = [_parsed(data, path.name) for data in found]
    at = _proposed(messages, message_id, path.name)
    return Correspondence(messages[at], found[at], (*messages[:at], *messages[at + 1 :]))


def read_mail(message: EmailMessage, data: bytes) -> Mail:
    """Return what rules want to know of an e-mail.

    Args:
        message: The proposed e-mail.
        data: Its bytes.
    """
    domains, unreadable = _domains(message)
    text = text_of(message)
    return Mail(
        digest="sha256:" + hashlib.sha256(data).hexdigest(),
        domains=dict(sorted(domains.items())),
        unreadable=unreadable,
        attachments=tuple(_attachments(message)),
        amounts=_amounts(text),
        text=without_addresses(text),
    )


def sender_domain(message: EmailMessage) -> str | None:
    """Return the domain that an e-mail says it comes from, or None if it cannot be read."""
    found = [domain for domain in _domains_in(message, ("from",)) if domain]
    return found[0] if len(found) == 1 else None


def without_addresses(text: str) -> str:
    """Return a text without e-mail addresses.

    Example:
        >>> without_addresses("Ask Ann <ann.lee@acme.example>, or bob@acme.example.")
        'Ask Ann <(an address)>, or (an address).'
    """
    return _ADDRESS.sub("(an address)", text)


def _mbox(path: Path) -> list[bytes]:
    """Return the messages of an mbox file.

    Raises:
        ComplianceError: There are too many, or it is not clear where one begins.
        OSError: It cannot be read.
    """
    if not path.is_file():
        raise FileNotFoundError(2, "no such file")
    _check_beginnings(path)
    box: mbox = mbox(path, create=False)
    try:
        if len(box) > MOST_MESSAGES:
            raise ComplianceError(f"{path.name!r} has more than {MOST_MESSAGES:,} messages; give the thread alone")
        return [box.get_bytes(key) for key in box.iterkeys()]
    finally:
        box.close()


def _check_beginnings(path: Path) -> None:
    """Make sure that each line that Python's reader takes for the beginning of a message is one, from the first on.

    Else the rest of an e-mail would go for another one, and would not be reviewed.

    Raises:
        ComplianceError: One is not.
        OSError: The file cannot be read.
    """
    with path.open("rb") as file:
        before, number, is_first = next(file, b""), 1, True
        if before.startswith(codecs.BOM_UTF8):
            raise ComplianceError(f"{path.name!r} begins with a byte order mark, as no mailbox does; save it without")
        for line in chain(file, [b""]):
            begins = before.startswith(b"From ")
            if not _BEGINNING.match(before + line) if begins else is_first and before.strip():
                raise ComplianceError(
                    f"line {number} of {path.name!r} is not the beginning of a message; write '>From' where a text has "
                    "'From' at the beginning of a line, or give the e-mail alone as .eml"
                )
            is_first = is_first and not begins
            before, number = line, number + 1


def _parsed(data: bytes, name: str) -> EmailMessage:
    """Return a message that is not nested so deep that its readers, which recurse, would fail.

    Raises:
        ComplianceError: It is.
    """
    try:
        message = email.message_from_bytes(data, policy=email.policy.default)
    except RecursionError:
        raise _too_deep(name) from None
    level: list[MIMEPart] = [message]
    for _ in range(MOST_NESTED):
        level = [part for outer in level if outer.is_multipart() for part in outer.iter_parts()]
    if level:
        raise _too_deep(name)
    return message


def _too_deep(name: str) -> ComplianceError:
    return ComplianceError(f"{name!r} has a message with parts nested more than {MOST_NESTED} deep; leave it out")


def _proposed(messages: Sequence[EmailMessage], message_id: str | None, name: str) -> int:
    """Return which of the messages is proposed.

    Raises:
        ComplianceError: None is, or more than one.
    """
    if message_id is not None:
        wanted = message_id.strip().strip("<>")
        found = [at for at, one in enumerate(messages) if _header(one, "message-id").strip().strip("<>") == wanted]
        how = "with the Message-ID of the parameter 'message'"
    else:
        found = [at for at, one in enumerate(messages) if _header(one, _UNSENT).strip() == "1"]
        how = "marked as a draft by the header 'X-Unsent: 1'"
        if not found and len(messages) == 1 and messages[0].keys():
            return 0
    if len(found) == 1:
        return found[0]
    if len(messages) == 1 and not messages[0].keys():
        raise ComplianceError(
            f"{name!r} has no header of an e-mail in it; save the message as your mail program has it"
        )
    raise ComplianceError(
        f"{name!r} has {counted(len(messages), 'message')}, and {len(found)} of them {how}; expected one: mark it, or "
        "name its Message-ID in the parameter 'message'"
    )


def _header(message: EmailMessage, name: str) -> str:
    """Return a header's text; empty where there is none, or none that can be decoded."""
    try:
        return str(message.get(name, ""))
    except BROKEN:
        return ""


def _domains(message: EmailMessage) -> tuple[Counter[str], int]:
    """Return recipients by domain, and how many of them cannot be read."""
    found = list(_domains_in(message, _RECIPIENTS))
    return Counter(domain for domain in found if domain), sum(1 for domain in found if not domain)


def _domains_in(message: EmailMessage, names: Sequence[str]) -> Iterator[str]:
    """Yield the domain of each address in some headers; an empty text for one that cannot be read.

    The parser passes over what it cannot read, or puts an empty address in its place, and others may read one in it:
    after a semicolon, for one. So each @ of a header must be in an address that was read.
    """
    for name in names:
        try:
            headers = message.get_all(name, [])
            addresses = [header.addresses for header in headers]
        except BROKEN:
            yield ""
            continue
        raw = [str(value) for key, value in message.raw_items() if key.lower() == name]
        for value, read in zip(raw, addresses, strict=True):
            told = [address for address in read if address.username or address.domain]
            missed = value.count("@") - sum(str(address).count("@") for address in told)
            yield from [""] * max(missed, len(read) - len(told), 1 if value.strip() and not read else 0)
            for address in told:
                yield _domain(address.domain) if address.username else ""


def _domain(spelt: str) -> str:
    """Return a domain in lower case and ASCII; empty if it is none."""
    domain = domain_of(spelt)
    return domain if _DOMAIN.fullmatch(domain) else ""


def _attachments(message: EmailMessage) -> Iterator[Attachment]:
    for part in message.walk():
        embedded = part.get_content_type() == "message/rfc822"
        if part.is_multipart() and not embedded:
            continue
        name = _file_name(part)
        if not (embedded or name or part.is_attachment() or part.get_content_maintype() != "text"):
            continue
        extension = _EXTENSION.search(name.strip())
        subtype = "eml" if embedded else _TYPE.search(part.get_content_subtype().lower())
        kind = extension[1].lower() if extension else subtype if isinstance(subtype, str) else subtype and subtype[0]
        yield Attachment(type=kind or "unknown", kilobytes=math.ceil(_size(part) / 1024))


def _file_name(part: EmailMessage) -> str:
    try:
        return part.get_filename() or ""
    except BROKEN:
        return "unknown"


def _size(part: EmailMessage) -> int:
    payload = part.get_payload(decode=True)
    return len(payload) if isinstance(payload, bytes) else len(bytes(part))


def _amounts(text: str) -> tuple[Amount, ...]:
    """Return the highest amount that a text names in each currency, also across the end of a line or a table's cell.

    Where a currency stands between two figures there, as in a table, both are read.
    """
    highest: dict[str, int] = {}
    after = _BEFORE_UNIT.sub(" ", text)
    for found in chain(AMOUNT.finditer(after), AMOUNT.finditer(_AFTER_CURRENCY.sub(r"\1 ", after))):
        known = amount_of(found)
        if known is not None:
            currency, value = known
            cents = min(int((value * 100).to_integral_value()), 10**15)
            highest[currency] = max(cents, highest.get(currency, 0))
    return tuple(Amount(currency=currency, cents=cents) for currency, cents in sorted(highest.items()))
