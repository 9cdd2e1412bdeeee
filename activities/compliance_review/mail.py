"""Read a mailbox: the one e-mail that is proposed, its words as a reader sees them, and what was written before it.

The addresses in it are personal data. They are read here, counted by domain, and go no further: not into a record,
not into a text (`without_addresses`), not into a message of an error. A text that cannot be read for certain is None,
and no rule about words or amounts is then met.
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

from activities.compliance_review.claims import highest_amounts, without_invisible
from activities.compliance_review.records import ComplianceError, Mail, domain_of
from baton.wire.records import Record

NoteKind = Literal["brainstorm", "rejected_assumption", "internal_note", "history"]
"""An idea that is not meant, an assumption that was dropped, a note among us, or a message from outside."""

_MOST_BYTES, _MOST_MESSAGES, _MOST_NOTES, _LONGEST_NOTE = 64_000_000, 2_000, 200, 2_000
_SIGN, _NO_DOT = r"[^\s<>()\[\],;:\"'@]", r"[^\s<>()\[\],;:\"'@.]"
# It begins where a run of such signs does and continues without a choice, so a long run costs one look at each sign.
_ADDRESS = re.compile(rf"(?<!{_SIGN}){_SIGN}+@{_SIGN}{_NO_DOT}*(?:\.+{_NO_DOT}+)+")
_DOMAIN = re.compile(r"(?=.{1,253}$)[a-z0-9-]{1,63}(\.[a-z0-9-]{1,63})+")
_RECIPIENTS = ("to", "cc", "bcc", "resent-to", "resent-cc", "resent-bcc")
_FROM_LINE, _HEADER_LINE = re.compile(rb"From +\S.*[0-9]:[0-9][0-9]"), re.compile(rb">From |[!-9;-~]+:")
_BROKEN = (ValueError, IndexError, AttributeError, TypeError, RecursionError, LookupError, HeaderParseError)
"""What the parser of e-mails raises on broken headers."""
# The tags of HTML that are inside a word or a line; every other one begins a new line where it is seen.
_INLINE = re.compile(
    "a|abbr|acronym|b|bdi|bdo|big|cite|code|data|del|dfn|em|font|i|ins|kbd|label|mark|nobr|q|s|samp|small|span|strike|"
    "strong|sub|sup|time|tt|u|var|wbr"
)
_IDEA = re.compile(r"(?i)(?:what if|how about|maybe we|perhaps we|could(?:n['’]t)? we|why not|idea:|brainstorm)\b")
_DROPPED = re.compile(
    r"(?i)(?:rejected(?: assumption)?|dropped|wrong|not so)\s*:"
    r"|(?:we|i) (?:first |once |had )?(?:assumed|thought|believed)\b"
)
_PREFIX = re.compile(r"(?i)^(?:rejected(?: assumption)?|dropped|wrong|not so|idea|brainstorm)\s*:\s*")
_QUOTED = re.compile(r"(?m)^[^\S\n]*>.*$|^On .{1,200} wrote:$")
_SIGNATURE = re.compile(r"(?m)^-- ?$")


@dataclass(frozen=True)
class Mailbox:
    """A mailbox: the e-mail that somebody wants to send, its bytes, and the other messages in order."""

    proposed: EmailMessage
    data: bytes
    earlier: tuple[EmailMessage, ...] = ()


class Note(Record):
    """Something that was said before the e-mail was proposed, without addresses."""

    kind: NoteKind
    text: str


def read_mailbox(path: Path, message_id: str | None = None) -> Mailbox:
    """Return the proposed e-mail of a mailbox and the messages beside it.

    Proposed is the message that ``message_id`` names; else the only one that the header `X-Unsent: 1` marks as a
    draft; else the only message.
    """
    suffix = path.suffix.lower()
    if suffix not in (".mbox", ".mbx", ".eml"):
        raise ComplianceError(f"{path.name!r} is not a mailbox; found {path.suffix!r}, expected .mbox or .eml")
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise ComplianceError(f"{path.name!r} is larger than {_MOST_BYTES:,} bytes; give the thread alone")
        content = path.read_bytes()
        found = [content.removeprefix(codecs.BOM_UTF8)] if suffix == ".eml" else _split(path, content)
    except OSError as error:
        raise ComplianceError(f"the mailbox {str(path)!r} cannot be read ({error.strerror})") from None
    messages = [_parsed(data, path.name) for data in found]
    at = _proposed(messages, message_id, path.name)
    return Mailbox(messages[at], found[at], (*messages[:at], *messages[at + 1 :]))


def read_mail(message: EmailMessage, data: bytes) -> Mail:
    """Return what rules want to know of an e-mail."""
    domains = [*_domains(message, _RECIPIENTS)]
    text = text_of(message)
    return Mail(
        digest="sha256:" + hashlib.sha256(data).hexdigest(),
        domains=dict(sorted(Counter(domain for domain in domains if domain).items())),
        unreadable=domains.count(""),
        amounts=() if text is None else highest_amounts(text),
        text=None if text is None else without_addresses(text),
    )


def text_of(message: EmailMessage) -> str | None:
    """Return subject and words of an e-mail, attached texts and e-mails included; None if a part is unreadable.

    Compatible characters are in their plain form (NFKC), and invisible ones left out.
    """
    pieces: list[str | None] = [] if "subject" in message else [""]  # the first line is the subject
    pieces += [text for part in message.walk() for text in _texts(part)]
    read = [piece for piece in pieces if piece is not None]
    return without_invisible("\n".join(read)) if len(read) == len(pieces) else None


def notes_of(messages: Sequence[EmailMessage], own: frozenset[str]) -> list[Note]:
    """Return what earlier messages say; one among ourselves by paragraphs, one from outside as a whole."""
    return [note for message in messages for note in _notes(message, own)][:_MOST_NOTES]


def note_kind(paragraph: str) -> NoteKind:
    """Return what a paragraph among ourselves is."""
    if _DROPPED.match(paragraph):
        return "rejected_assumption"
    return "brainstorm" if _IDEA.match(paragraph) else "internal_note"


def without_addresses(text: str) -> str:
    """Return a text without e-mail addresses."""
    return _ADDRESS.sub("(an address)", text)


def _split(path: Path, content: bytes) -> list[bytes]:
    """Return the messages of an mbox file."""
    lines = content.splitlines()
    first = next((line for line in lines if line.strip()), b"")
    for number, (line, after) in enumerate(zip(lines, [*lines[1:], b""], strict=False), 1):
        begins = _FROM_LINE.match(line) and _HEADER_LINE.match(after)
        if (line.startswith(b"From ") and not begins) or not first.startswith(b"From "):
            raise ComplianceError(
                f"line {number} of {path.name!r} is not the beginning of a message; write '>From' where a text has "
                "'From' at the beginning of a line, or give the e-mail alone as .eml"
            )
    box: mbox = mbox(path, create=False)
    try:
        if len(box) > _MOST_MESSAGES:
            raise ComplianceError(f"{path.name!r} has more than {_MOST_MESSAGES:,} messages; give the thread alone")
        return [box.get_bytes(key) for key in box.iterkeys()]
    finally:
        box.close()


def _parsed(data: bytes, name: str) -> EmailMessage:
    """Return a message, unless it is nested so deep that its readers, which recurse, fail."""
    try:
        message = email.message_from_bytes(data, policy=email.policy.default)
        if _depth(message) > 30:
            raise RecursionError
    except RecursionError:
        raise ComplianceError(f"{name!r} has a message nested more than 30 parts deep; leave it out") from None
    return message


def _depth(part: Any) -> int:
    return 1 + max(map(_depth, part.get_payload()), default=0) if part.is_multipart() else 1


def _proposed(messages: Sequence[EmailMessage], message_id: str | None, name: str) -> int:
    if message_id is not None:
        wanted = message_id.strip().strip("<>")
        found = [at for at, one in enumerate(messages) if _header(one, "message-id").strip("<>") == wanted]
        how = "have the Message-ID of the parameter 'message'"
    else:
        found = [at for at, one in enumerate(messages) if _header(one, "x-unsent") == "1"]
        how = "are marked as a draft by the header 'X-Unsent: 1'"
        if not found and len(messages) == 1 and messages[0].keys():
            return 0
    if len(found) == 1:
        return found[0]
    if len(messages) == 1 and not messages[0].keys():
        raise ComplianceError(f"{name!r} has no header of an e-mail; save the message as your mail program has it")
    raise ComplianceError(
        f"{name!r} has {len(messages)} messages, and {len(found)} of them {how}; expected one: mark it, or name its "
        "Message-ID in the parameter 'message'"
    )


def _header(message: EmailMessage, name: str) -> str:
    try:
        return str(message.get(name, "")).strip()
    except _BROKEN:
        return ""


def _domains(message: EmailMessage, names: Sequence[str]) -> Iterator[str]:
    """Yield the domain of each address in some headers; an empty text for one that cannot be read.

    The parser skips what it cannot read, or puts an empty address in its place, and others may read one in it: after
    a semicolon, for example. So each @ of a header must be in an address that was read.
    """
    for name in names:
        try:
            addresses = [header.addresses for header in message.get_all(name, [])]
        except _BROKEN:
            yield ""
            continue
        raw = [str(value) for key, value in message.raw_items() if key.lower() == name]
        for value, read in zip(raw, addresses, strict=True):
            known = [address for address in read if address.username or address.domain]
            missed = value.count("@") - sum(str(address).count("@") for address in known)
            yield from [""] * max(missed, len(read) - len(known), 1 if value.strip() and not read else 0)
            for address in known:
                domain = domain_of(address.domain) if address.username else ""
                yield domain if _DOMAIN.fullmatch(domain) else ""


def _texts(part: EmailMessage) -> Iterator[str | None]:
    """Yield the subjects of a part and its text; None for one whose charset is not the one that it names."""
    try:
        if "subject" in part:
            yield from map(_certain, part.get_all("subject", []))  # mail programs differ in which they show
        # Something that says it has parts, and has none, is shown as text.
        is_broken = part.get_content_maintype() == "multipart" and not part.is_multipart()
        if part.get_content_maintype() == "text" or is_broken:
            payload = part.get_payload(decode=True)
            charset = part.get_content_charset("utf-8").replace("us-ascii", "utf-8")
            text = payload.decode(charset) if isinstance(payload, bytes) else ""
            words = _words(text) if part.get_content_subtype() == "html" else text
            yield _certain(words.replace("\r\n", "\n"))
    except _BROKEN:
        yield None


def _certain(text: object) -> str | None:
    """Return a text without signs that stand for bytes of another charset, or None."""
    return None if re.search("[\x80-\x9f\ufffd\ud800-\udfff]", str(text)) else str(text)


def _words(html: str) -> str:
    """Return the words of an HTML text, apart where a reader sees them apart."""
    reader = _Words()
    reader.feed(html)
    reader.close()
    return "".join(reader.words)


class _Words(HTMLParser):
    """Gathers the words of an HTML text."""

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


def _notes(message: EmailMessage, own: frozenset[str]) -> Iterator[Note]:
    text = without_addresses(text_of(message) or "(a text that cannot be read)")
    body = _SIGNATURE.split(_QUOTED.sub("", text))[0]
    senders = [domain for domain in _domains(message, ("from",)) if domain]
    if len(senders) != 1 or senders[0] not in own:
        if said := " ".join(body.split()):
            yield Note(kind="history", text=said[:_LONGEST_NOTE])
        return
    for paragraph in re.split(r"\n\s*\n|\n(?=\s*[-*•] )", body.partition("\n")[2]):
        if said := " ".join(paragraph.split()).lstrip("-*• "):
            yield Note(kind=note_kind(said), text=_PREFIX.sub("", said)[:_LONGEST_NOTE])
