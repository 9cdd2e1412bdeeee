"""The words of an e-mail as its reader sees them: of its subject and of every part, in whatever charset they are.

Mail programs show what is written under the wrong charset, and no phrase that they show may pass unread.
"""

import codecs
import contextlib
import re
from email.errors import HeaderParseError
from email.header import decode_header
from email.message import EmailMessage
from html.parser import HTMLParser

from activities.compliance_review.phrases import without_unseen

_HIDDEN = ("script", "style")
# The tags of HTML that stand inside a word or a line; every other one begins a new line where it is seen.
_INLINE = re.compile(
    "a|abbr|acronym|b|bdi|bdo|big|cite|code|data|del|dfn|em|font|i|ins|kbd|label|mark|nobr|q|s|samp|small|span|strike|"
    "strong|sub|sup|time|tt|u|var|wbr"
)
# What mail programs read a charset as, since what is written under its name is the larger one.
_AS_READ = {
    "iso8859-1": "cp1252",
    "iso8859-9": "cp1254",
    "gb2312": "gb18030",
    "gbk": "gb18030",
    "big5": "big5hkscs",
    "shift_jis": "cp932",
    "euc_jp": "euc_jis_2004",
    "euc_kr": "cp949",
}
_ESCAPED = re.compile(rb"\\udc([89a-f][0-9a-f])")  # a byte that is no ASCII, as it comes beside encoded words
BROKEN = (ValueError, IndexError, AttributeError, TypeError, RecursionError)
"""What the parser of e-mails raises on broken headers."""


def text_of(message: EmailMessage) -> str:
    """Return an e-mail's subject and words, of every part that holds text, attached ones and e-mails included.

    Characters that nobody sees are left out, and compatible ones put in their plain form, as the reader sees them.
    """
    parts = []
    for part in message.walk():
        if part is message or "subject" in part:
            parts.append(_subject(part))
        if part.get_content_maintype() == "text" or _is_broken_multipart(part):
            content = _content(part)
            parts.append(_seen(content) if part.get_content_subtype() == "html" else content)
    return without_unseen("\n".join(parts))


def _subject(message: EmailMessage) -> str:
    """Return an e-mail's subject: every one that it has, for mail programs differ in which they show."""
    raw = (str(value) for name, value in message.raw_items() if name.lower() == "subject")
    return " ".join(" ".join(map(_unfolded, raw)).split())


def _unfolded(raw: str) -> str:
    """Return a header's text, its encoded words (RFC 2047) read in any charset that a part's text is read in."""
    try:
        pieces = decode_header(raw)
    except (HeaderParseError, *BROKEN):
        pieces = [(raw, None)]
    words = []
    for piece, charset in pieces:
        if isinstance(piece, str):  # there is no encoded word in it
            piece = piece.encode("utf-8", "surrogateescape")
        elif charset is None:
            piece = _ESCAPED.sub(lambda found: bytes([int(found[1], 16)]), piece)
        words.append(_text(piece, charset or "utf-8"))
    return "".join(words)


def _is_broken_multipart(part: EmailMessage) -> bool:
    """Return whether a part says that it has parts, and none was found: mail programs show it as text."""
    return part.get_content_maintype() == "multipart" and not part.is_multipart()


def _content(part: EmailMessage) -> str:
    """Return a part's text."""
    payload = part.get_payload(decode=True)
    if not isinstance(payload, bytes):
        return ""
    try:
        named = part.get_content_charset("utf-8")
    except BROKEN:
        named = "utf-8"
    return _text(payload, named).replace("\r\n", "\n")


def _text(raw: bytes, named: str) -> str:
    """Return bytes as text in the charset that is named if they are in that, else as mail programs guess it."""
    marked = ["utf-16"] if raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else []
    for charset in (*marked, named, "utf-8", "cp1252"):
        text = _decoded(raw, charset)
        if text is not None:
            return text
    return raw.decode("latin-1")


def _decoded(payload: bytes, charset: str) -> str | None:
    """Return bytes as text in a charset, or None if they are not in it; most of what is no ASCII has to be."""
    with contextlib.suppress(LookupError, ValueError):
        charset = codecs.lookup(charset).name
        charset = _AS_READ.get(charset, charset)
        with contextlib.suppress(UnicodeDecodeError):
            return payload.decode(charset)
        text = payload.decode(charset, "replace")
        if 2 * text.count("\ufffd") <= sum(not sign.isascii() for sign in text):
            return text
    return None


class _Words(HTMLParser):
    """Gathers the words of an HTML text."""

    def __init__(self) -> None:
        super().__init__()
        self.words: list[str] = []
        self._inside: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._break(tag)
        if tag in _HIDDEN:
            self._inside.append(tag)

    def handle_endtag(self, tag: str) -> None:
        self._break(tag)
        if self._inside and tag == self._inside[-1]:
            self._inside.pop()

    def handle_data(self, data: str) -> None:
        if not self._inside:
            self.words.append(data)

    def _break(self, tag: str) -> None:
        if not _INLINE.fullmatch(tag):
            self.words.append("\n")


def _seen(html: str) -> str:
    words = _Words()
    words.feed(html)
    words.close()
    return "".join(words.words)
