"""Read a mailbox: the proposed e-mail, its text as a reader sees it, and the messages before it.

Its addresses are personal data. They are counted by domain here and go no further: not into a record, a text
(`remove_addresses`) or an error message. A text that cannot be decoded with certainty is None, and then no rule
about words or amounts is met.
"""

import codecs
import email
import email.policy
import hashlib
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from email.errors import HeaderParseError
from email.message import EmailMessage
from html.parser import HTMLParser
from mailbox import mbox
from pathlib import Path
from typing import Any, Literal

from activities.compliance_review.claims import ComplianceError, Mail, highest_amounts, parse_domain, remove_invisible
from baton.wire.records import Record

NoteKind = Literal["brainstorm", "rejected_assumption", "internal_note", "history"]
"""A loose idea, a rejected assumption, a note among colleagues, or a message from outside."""

_MAX_BYTES, _MAX_MESSAGES, _MAX_NOTES, _MAX_NOTE_LENGTH = 64_000_000, 2_000, 200, 2_000
_SIGN, _NO_DOT = r"[^\s<>()\[\],;:\"'@]", r"[^\s<>()\[\],;:\"'@.]"
# It matches from the start of a run and never backtracks, so a long run takes linear time.
_ADDRESS = re.compile(rf"(?<!{_SIGN}){_SIGN}+@{_SIGN}{_NO_DOT}*(?:\.+{_NO_DOT}+)+")
_DOMAIN = re.compile(r"(?=.{1,253}$)[a-z0-9-]{1,63}(\.[a-z0-9-]{1,63})+")
_RECIPIENTS = ("to", "cc", "bcc", "resent-to", "resent-cc", "resent-bcc")
_FROM_LINE, _HEADER_LINE = re.compile(rb"From +\S.*[0-9]:[0-9][0-9]"), re.compile(rb">From |[!-9;-~]+:")
_PARSER_ERRORS = (ValueError, IndexError, AttributeError, TypeError, RecursionError, LookupError, HeaderParseError)
"""The exceptions of the e-mail parser on broken headers."""
# Inline HTML tags; every other tag begins a new line.
_INLINE = re.compile(
    "a|abbr|acronym|b|bdi|bdo|big|cite|code|data|del|dfn|em|font|i|ins|kbd|label|mark|nobr|q|s|samp|small|span|strike|"
    "strong|sub|sup|time|tt|u|var|wbr"
)
_IDEA = re.compile(r"(?i)(?:what if|how about|maybe we|perhaps we|could(?:n['’]t)? we|why not|idea:|brainstorm)\b")
_REJECTED = re.compile(
    r"(?i)(?:rejected(?: assumption)?|dropped|wrong|not so)\s*:"
    r"|(?:we|i) (?:first |once |had )?(?:assumed|thought|believed)\b"
)
_PREFIX = re.compile(r"(?i)^(?:rejected(?: assumption)?|dropped|wrong|not so|idea|brainstorm)\s*:\s*")
_QUOTED = re.compile(r"(?m)^[^\S\n]*>.*$|^On .{1,200} wrote:$")
_SIGNATURE = re.compile(r"(?m)^-- ?$")


@dataclass(frozen=True)
class Mailbox:
    """The proposed e-mail, its bytes, and the other messages in order."""

    proposed: EmailMessage
    data: bytes
    earlier: tuple[EmailMessage, ...] = ()


class Note(Record):
    """A part of an earlier message, without addresses."""

    kind: NoteKind
    text: str


def read_mailbox(path: Path, message_id: str | None = None) -> Mailbox:
    """Return the proposed e-mail: that with the id, else the only one with `X-Unsent: 1`, else the only one."""
    suffix = path.suffix.lower()
    if suffix not in (".mbox", ".mbx", ".eml"):
        raise ComplianceError(f"{path.name!r} is not a mailbox; found {path.suffix!r}, expected .mbox or .eml")
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise ComplianceError(f"{path.name!r} is larger than {_MAX_BYTES:,} bytes; give the thread alone")
        content = path.read_bytes()
        contents = [content.removeprefix(codecs.BOM_UTF8)] if suffix == ".eml" else _split_mbox(path, content)
    except OSError as error:
        raise ComplianceError(f"the mailbox {str(path)!r} cannot be read ({error.strerror})") from None
    messages = [_parse_message(data, path.name) for data in contents]
    index = _find_proposed(messages, message_id, path.name)
    return Mailbox(messages[index], contents[index], (*messages[:index], *messages[index + 1 :]))


def read_mail(message: EmailMessage, data: bytes) -> Mail:
    """Return the properties of an e-mail that rules need."""
    domains = [*_read_domains(message, _RECIPIENTS)]
    text = read_text(message)
    return Mail(
        digest="sha256:" + hashlib.sha256(data).hexdigest(),
        domains=dict(sorted(Counter(domain for domain in domains if domain).items())),
        unreadable=domains.count(""),
        amounts=() if text is None else highest_amounts(text),
        text=None if text is None else remove_addresses(text),
    )


def read_text(message: EmailMessage) -> str | None:
    """Return subject and text (NFKC), with attached texts and e-mails; None if a part is unreadable."""
    pieces: list[str | None] = [] if "subject" in message else [""]  # the first line is the subject
    pieces += [text for part in message.walk() for text in _read_texts(part)]
    readable = [piece for piece in pieces if piece is not None]
    return remove_invisible("\n".join(readable)) if len(readable) == len(pieces) else None


def read_notes(messages: Sequence[EmailMessage], own: frozenset[str]) -> list[Note]:
    """Return notes of earlier messages: one per paragraph of our own, one per message from outside."""
    return [note for message in messages for note in _read_notes(message, own)][:_MAX_NOTES]


def classify_note(paragraph: str) -> NoteKind:
    """Return the kind of a paragraph among colleagues."""
    if _REJECTED.match(paragraph):
        return "rejected_assumption"
    return "brainstorm" if _IDEA.match(paragraph) else "internal_note"


def remove_addresses(text: str) -> str:
    """Replace the e-mail addresses in a text."""
    return _ADDRESS.sub("(an address)", text)


def _split_mbox(path: Path, content: bytes) -> list[bytes]:
    lines = content.splitlines()
    first = next((line for line in lines if line.strip()), b"")
    for number, (line, following) in enumerate(zip(lines, [*lines[1:], b""], strict=False), 1):
        starts_message = _FROM_LINE.match(line) and _HEADER_LINE.match(following)
        if (line.startswith(b"From ") and not starts_message) or not first.startswith(b"From "):
            raise ComplianceError(
                f"line {number} of {path.name!r} is not the beginning of a message; write '>From' where a text has "
                "'From' at the beginning of a line, or give the e-mail alone as .eml"
            )
    box: mbox = mbox(path, create=False)
    try:
        if len(box) > _MAX_MESSAGES:
            raise ComplianceError(f"{path.name!r} has more than {_MAX_MESSAGES:,} messages; give the thread alone")
        return [box.get_bytes(key) for key in box.iterkeys()]
    finally:
        box.close()


def _parse_message(data: bytes, name: str) -> EmailMessage:
    """Parse a message; reject nesting that would exceed the recursion limit."""
    try:
        message = email.message_from_bytes(data, policy=email.policy.default)
        if _depth(message) > 30:
            raise RecursionError
    except RecursionError:
        raise ComplianceError(f"{name!r} has a message nested more than 30 parts deep; leave it out") from None
    return message


def _depth(part: Any) -> int:
    return 1 + max(map(_depth, part.get_payload()), default=0) if part.is_multipart() else 1


def _find_proposed(messages: Sequence[EmailMessage], message_id: str | None, name: str) -> int:
    if message_id is not None:
        wanted_id = message_id.strip().strip("<>")
        matches = [
            index
            for index, message in enumerate(messages)
            if _read_header(message, "message-id").strip("<>") == wanted_id
        ]
        criterion = "have the Message-ID of the parameter 'message'"
    else:
        matches = [index for index, message in enumerate(messages) if _read_header(message, "x-unsent") == "1"]
        criterion = "are marked as a draft by the header 'X-Unsent: 1'"
        if not matches and len(messages) == 1 and messages[0].keys():
            return 0
    if len(matches) == 1:
        return matches[0]
    if len(messages) == 1 and not messages[0].keys():
        raise ComplianceError(f"{name!r} has no header of an e-mail; save the message as your mail program has it")
    raise ComplianceError(
        f"{name!r} has {len(messages)} messages, and {len(matches)} of them {criterion}; expected one: mark it, or "
        "name its Message-ID in the parameter 'message'"
    )


def _read_header(message: EmailMessage, name: str) -> str:
    try:
        return str(message.get(name, "")).strip()
    except _PARSER_ERRORS:
        return ""


def _read_domains(message: EmailMessage, names: Sequence[str]) -> Iterator[str]:
    """Yield the domain of each address, or an empty text for each @ that no parsed address has."""
    for name in names:
        try:
            addresses = [header.addresses for header in message.get_all(name, [])]
        except _PARSER_ERRORS:
            yield ""
            continue
        raw = [str(value) for key, value in message.raw_items() if key.lower() == name]
        for value, parsed in zip(raw, addresses, strict=True):
            valid = [address for address in parsed if address.username or address.domain]
            missed = value.count("@") - sum(str(address).count("@") for address in valid)
            yield from [""] * max(missed, len(parsed) - len(valid), 1 if value.strip() and not parsed else 0)
            for address in valid:
                domain = parse_domain(address.domain) if address.username else ""
                yield domain if _DOMAIN.fullmatch(domain) else ""


def _read_texts(part: EmailMessage) -> Iterator[str | None]:
    """Yield the subjects and the text of a part; None if the declared charset is wrong."""
    try:
        if "subject" in part:
            yield from map(_require_certain, part.get_all("subject", []))  # mail programs differ in which one they show
        # A multipart type without parts is displayed as text.
        is_broken = part.get_content_maintype() == "multipart" and not part.is_multipart()
        if part.get_content_maintype() == "text" or is_broken:
            payload = part.get_payload(decode=True)
            charset = part.get_content_charset("utf-8").replace("us-ascii", "utf-8")
            text = payload.decode(charset) if isinstance(payload, bytes) else ""
            words = _html_to_text(text) if part.get_content_subtype() == "html" else text
            yield _require_certain(words.replace("\r\n", "\n"))
    except _PARSER_ERRORS:
        yield None


def _require_certain(text: object) -> str | None:
    """Return the text, or None if characters show that it was decoded with the wrong charset."""
    return None if re.search("[\x80-\x9f\ufffd\ud800-\udfff]", str(text)) else str(text)


def _html_to_text(html: str) -> str:
    parser = _TextParser()
    parser.feed(html)
    parser.close()
    return "".join(parser.words)


class _TextParser(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.words: list[str] = []
        self._hidden = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._hidden += tag in ("script", "style")
        self._break(tag)

    def handle_endtag(self, tag: str) -> None:
        self._hidden -= self._hidden > 0 and tag in ("script", "style")
        self._break(tag)

    def handle_data(self, data: str) -> None:
        if not self._hidden:
            self.words.append(data)

    def _break(self, tag: str) -> None:
        if not _INLINE.fullmatch(tag):
            self.words.append("\n")


def _read_notes(message: EmailMessage, own: frozenset[str]) -> Iterator[Note]:
    text = remove_addresses(read_text(message) or "(a text that cannot be read)")
    body = _SIGNATURE.split(_QUOTED.sub("", text))[0]
    senders = [domain for domain in _read_domains(message, ("from",)) if domain]
    if len(senders) != 1 or senders[0] not in own:
        if content := " ".join(body.split()):
            yield Note(kind="history", text=content[:_MAX_NOTE_LENGTH])
        return
    for paragraph in re.split(r"\n\s*\n|\n(?=\s*[-*•] )", body.partition("\n")[2]):
        if content := " ".join(paragraph.split()).lstrip("-*• "):
            yield Note(kind=classify_note(content), text=_PREFIX.sub("", content)[:_MAX_NOTE_LENGTH])
