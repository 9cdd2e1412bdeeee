"""Reading a mailbox: which e-mail is proposed, whom it goes to, what is in it, and files that are no mailbox."""

import email
import email.policy
import shutil
from email.message import EmailMessage
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from activities.compliance_review.claims import Attached, Recipients, claim_of
from activities.compliance_review.mailbox import read_mail, read_mailbox, without_addresses
from activities.compliance_review.phrases import phrases_in
from activities.compliance_review.records import Amount, Attachment, ComplianceError, Mail
from tests.unit.compliance_review.material import OFFER, REPLY


def eml(folder: Path, head: str, body: str = "Hello") -> Path:
    """Write an e-mail with these headers, and return its path."""
    path = folder / "mail.eml"
    path.write_bytes(f"{head.strip()}\n\n{body}\n".encode())
    return path


def read(path: Path) -> Mail:
    """Return what is read of the proposed e-mail of a file."""
    mailbox = read_mailbox(path)
    return read_mail(mailbox.proposed, mailbox.data)


class TestReadMailbox:
    """Which message of a mailbox is proposed."""

    def test_takes_the_one_that_is_marked_as_a_draft(self) -> None:
        """The header X-Unsent marks it, as mail programs write it; the other messages are what came before."""
        mailbox = read_mailbox(OFFER)
        assert mailbox.proposed["subject"] == "Offer for the second year"
        assert [one["subject"] for one in mailbox.earlier] == ["Renewal", "Re: Renewal"]

    @pytest.mark.parametrize("named", ["<a1@acme.example>", "a1@acme.example"])
    def test_takes_the_one_that_is_named(self, named: str) -> None:
        """A Message-ID comes before the mark, with or without its brackets."""
        assert read_mailbox(OFFER, named).proposed["subject"] == "Renewal"

    def test_takes_the_only_one(self, tmp_path: Path) -> None:
        """A file with one message needs no mark."""
        assert read(eml(tmp_path, "To: a@acme.example")).domains == {"acme.example": 1}

    def test_takes_the_folder_that_mail_on_a_mac_exports(self, tmp_path: Path) -> None:
        """It has the name of a mailbox, and the mailbox in it has none."""
        folder = tmp_path / "Offer.mbox"
        folder.mkdir()
        shutil.copy(OFFER, folder / "mbox")
        (folder / "table_of_contents").write_bytes(b"\0")
        assert read_mailbox(folder).data == read_mailbox(OFFER).data

    @pytest.mark.parametrize(
        ("name", "content", "message"),
        [
            pytest.param("mail.txt", b"To: a@b.example", "found '.txt', expected .mbox or .eml", id="another format"),
            pytest.param("mail.mbox", b"", "0 messages, and 0 of them marked", id="an empty mailbox"),
            pytest.param("mail.eml", b"", "no header of an e-mail in it", id="an empty message"),
            pytest.param("mail.eml", b"just words\n", "no header of an e-mail in it", id="a text"),
            pytest.param("mail.mbox", None, "cannot be read", id="no file"),
            pytest.param("mail.mbox", b"\xef\xbb\xbfFrom a@b.example", "a byte order mark", id="a mark in front"),
        ],
    )
    def test_refuses_what_is_no_mailbox(self, tmp_path: Path, name: str, content: bytes | None, message: str) -> None:
        """The error says what was found and what to give."""
        if content is not None:
            (tmp_path / name).write_bytes(content)
        with pytest.raises(ComplianceError, match=message):
            read_mailbox(tmp_path / name)

    @pytest.mark.parametrize(
        ("content", "line"),
        [
            pytest.param(b"\nTo: a@b.example\n\nHello\n\nFrom now on\nwe promise it.\n", 6, id="a line of the text"),
            pytest.param(b"\nTo: a@b.example\n\nFrom 10:00 to 11:00 we\nare out\n", 4, id="one with a time"),
            pytest.param(b"\nTo: a@b.example\n\nFrom 10:00 to 11:00", 4, id="the last line"),
            pytest.param(None, 1, id="no beginning"),
        ],
    )
    def test_refuses_to_review_a_part_of_a_message(self, tmp_path: Path, content: bytes | None, line: int) -> None:
        """A line of the text that Python takes for the beginning of the next message is named."""
        start = b"From ann@own.example Thu Jan  1 10:00:00 2026"
        (tmp_path / "x.mbox").write_bytes(b"To: a@b.example\n\nx\n" if content is None else start + content)
        with pytest.raises(ComplianceError, match=f"line {line} of 'x.mbox' is not the beginning of a message"):
            read_mailbox(tmp_path / "x.mbox")

    @pytest.mark.parametrize("who", [b"From - Thu", b"From MAILER-DAEMON Thu", b"From 17@xxx Thu"])
    def test_knows_how_mail_programs_begin_a_message(self, tmp_path: Path, who: bytes) -> None:
        """With either line end, after empty lines, and with a mark of the byte order in an .eml."""
        mail = b"To: a@b.example\nX-Unsent: 1\n\n>From now on\n"
        text = b"\n" + who + b" Jan  1 10:00:00 2026\n" + mail
        for content in (text, text.replace(b"\n", b"\r\n")):
            (tmp_path / "x.mbox").write_bytes(content)
            assert read(tmp_path / "x.mbox").domains == {"b.example": 1}
        (tmp_path / "x.eml").write_bytes(b"\xef\xbb\xbf" + mail)
        assert read(tmp_path / "x.eml").domains == {"b.example": 1}

    def test_refuses_to_guess(self, tmp_path: Path) -> None:
        """Of two drafts none is taken, and no address is in the message."""
        shutil.copy(OFFER, tmp_path / "two.mbox")
        text = OFFER.read_text()
        (tmp_path / "two.mbox").write_text(text + text)
        with pytest.raises(ComplianceError, match="6 messages, and 2 of them marked") as raised:
            read_mailbox(tmp_path / "two.mbox")
        assert "@" not in str(raised.value)


class TestRecipients:
    """Whom an e-mail goes to."""

    @pytest.mark.parametrize(
        ("head", "domains", "unreadable"),
        [
            pytest.param("To: a@acme.example, b@acme.example", {"acme.example": 2}, 0, id="two of one domain"),
            pytest.param(
                "To: a@acme.example\nBcc: b@birch.example", {"acme.example": 1, "birch.example": 1}, 0, id="blind"
            ),
            pytest.param('To: "Doe, Jane" <a@ACME.Example>', {"acme.example": 1}, 0, id="a comma in the name"),
            pytest.param('To: "ok@own.example" <a@evil.example>', {"evil.example": 1}, 0, id="an address as the name"),
            pytest.param(
                "To: Friends: a@acme.example, b@birch.example;",
                {"acme.example": 1, "birch.example": 1},
                0,
                id="a group",
            ),
            pytest.param("To: a@xn--mnchen-3ya.example", {"xn--mnchen-3ya.example": 1}, 0, id="letters beyond ASCII"),
            pytest.param("To: a@münchen.example", {}, 1, id="letters that mail does not carry"),
            pytest.param(
                "To: a@acme.example\nTo: b@birch.example", {"acme.example": 1, "birch.example": 1}, 0, id="two To"
            ),
            pytest.param("To: nobody in particular", {}, 1, id="no address"),
            pytest.param("To: a@acme.example, nonsense", {"acme.example": 1}, 1, id="an address and something else"),
            pytest.param("To: a@acme.example; b@evil.example", {"acme.example": 1}, 1, id="a semicolon between"),
            pytest.param("To: a@acme.example b@evil.example", {"acme.example": 1}, 1, id="a blank between"),
            pytest.param("To: <@evil.example:a@acme.example>", {"acme.example": 1}, 1, id="a route"),
            pytest.param("To: undisclosed-recipients:;", {}, 1, id="somebody"),
            pytest.param("To: (a@acme.example", {}, 1, id="a comment"),
            pytest.param("Subject: x", {}, 0, id="nobody"),
        ],
    )
    def test_are_counted_by_domain(self, tmp_path: Path, head: str, domains: dict[str, int], unreadable: int) -> None:
        """Whoever gets a copy counts; what cannot be read is counted too and never passed over."""
        mail = read(eml(tmp_path, head))
        assert (mail.domains, mail.unreadable) == (domains, unreadable)

    def test_leave_no_address_in_the_record(self) -> None:
        """What is handed on of a mailbox names no person."""
        mail = read(OFFER)
        assert "@" not in mail.model_dump_json() + repr(mail) + mail.text
        assert "Jane" not in mail.model_dump_json() + repr(mail)


class TestContents:
    """What is in an e-mail."""

    def test_are_attachments_and_amounts(self) -> None:
        """Type and size of what is attached, and the highest amount in each currency."""
        mail = read(OFFER)
        assert mail.attachments == (Attachment(type="pdf", kilobytes=1),)
        assert mail.amounts == (Amount(currency="EUR", cents=4_800_000),)

    @pytest.mark.parametrize(
        ("name", "kind"),
        [
            pytest.param("invoice.pdf.exe", "exe", id="the last extension counts"),
            pytest.param("OFFER.PDF", "pdf", id="in capitals"),
            pytest.param("offer", "stream", id="without an extension"),
        ],
    )
    def test_types_are_told_by_the_name(self, name: str, kind: str) -> None:
        """A name with two extensions is what the last one says."""
        message = EmailMessage()
        message.set_content("Hello")
        message.add_attachment(b"x", maintype="application", subtype="octet-stream", filename=name)
        assert [one.type for one in read_mail(message, b"").attachments] == [kind]

    def test_words_in_html_and_in_attached_texts_are_read(self) -> None:
        """What is promised in the other half of a message, or in a file, is promised."""
        message = EmailMessage()
        message.set_content("Hello")
        message.add_alternative("<p>We <b>guaran</b>tee</p><style>p{}</style>", subtype="html")
        message.add_attachment("off the record", filename="notes.txt")
        text = read_mail(message, b"").text
        assert phrases_in(text, ["we guarantee"])
        assert phrases_in(text, ["off the record"])
        assert "p{}" not in text

    @pytest.mark.parametrize(
        "body",
        [
            pytest.param("We gua\u200brantee it.", id="a character that nobody sees"),
            pytest.param("\uff37\uff45 guarantee it.", id="wide letters"),
            pytest.param("We\u00a0guarantee it.", id="a hard blank"),
            pytest.param("WE GUARANTEE IT.", id="capitals"),
        ],
    )
    def test_a_phrase_is_found_however_it_is_dressed_up(self, body: str) -> None:
        """What a reader would read is found."""
        message = EmailMessage()
        message.set_content(body)
        assert phrases_in(read_mail(message, b"").text, ["we guarantee"])

    @pytest.mark.parametrize(
        "html",
        [
            pytest.param("<p>As promised, we<br>guarantee it for</p>1000 EUR", id="a break of the line"),
            pytest.param("<div>we</div><div>guarantee it</div><ul><li>Item 5</li><li>1000 EUR</li></ul>", id="blocks"),
            pytest.param("<p>we <b>gu</b>arant<a href='x'>ee</a></p>10<span>00</span> EUR", id="marks in a word"),
        ],
    )
    def test_words_in_html_are_apart_where_a_reader_sees_them_apart(self, html: str) -> None:
        """No phrase is hidden by a break, and no two numbers are one."""
        message = EmailMessage()
        message.set_content(html, subtype="html")
        mail = read_mail(message, b"")
        assert phrases_in(mail.text, ["we guarantee"])
        assert mail.amounts == (Amount(currency="EUR", cents=100_000),)

    @pytest.mark.parametrize(
        ("head", "body"),
        [
            pytest.param("Content-Type: text/plain; charset=us-ascii", "utf-8", id="UTF-8 that says it is ASCII"),
            pytest.param("Content-Type: text/plain", "utf-8", id="UTF-8 that says nothing"),
            pytest.param("Subject: x", "utf-8", id="no type"),
            pytest.param("Content-Type: text/plain; charset=utf-8", "cp1252", id="Windows that says it is UTF-8"),
            pytest.param("Content-Type: text/plain; charset=nobody-knows", "cp1252", id="a charset that nobody knows"),
            pytest.param("Content-Type: text/plain; charset=utf-8", "utf-16", id="UTF-16 with its mark"),
            pytest.param("Content-Type: text/plain; charset=iso-8859-1", "cp1252", id="Windows that says Latin 1"),
            pytest.param("Content-Type: multipart/mixed", "utf-8", id="parts without a boundary"),
        ],
    )
    def test_are_read_whatever_charset_they_claim(self, head: str, body: str) -> None:
        """An amount in euros is one, as mail programs show it."""
        data = head.encode() + b"\n\n" + "We guarantee € 12000 – für Sie.\n".encode(body)
        message = email.message_from_bytes(data, policy=email.policy.default)
        mail = read_mail(message, data)
        assert mail.amounts == (Amount(currency="EUR", cents=1_200_000),)
        assert phrases_in(mail.text, ["we guarantee"])

    @pytest.mark.parametrize(
        ("charset", "body", "phrase"),
        [
            pytest.param("gb2312", "朱镕基：全额退款".encode("gbk"), "全额退款", id="a larger one of its family"),
            pytest.param("shift_jis", "①全額返金".encode("cp932"), "全額返金", id="signs of Windows"),
            pytest.param("euc-kr", "똠방 전액 환불".encode("cp949"), "전액 환불", id="syllables of Windows"),
            pytest.param("iso-2022-jp", b"\x1b$B-!A43[JV6b\x1b(B", "全額返金", id="a bad sign"),
            pytest.param("utf-8", "全額返金".encode() + b"\xff", "全額返金", id="a bad byte"),
        ],
    )
    def test_phrases_are_found_beside_signs_that_a_charset_lacks(self, charset: str, body: bytes, phrase: str) -> None:
        """Mail programs show the rest, so it is no text in another charset."""
        data = f"Content-Type: text/plain; charset={charset}\n\n".encode() + body
        message = email.message_from_bytes(data, policy=email.policy.default)
        assert phrases_in(read_mail(message, data).text, [phrase])

    @pytest.mark.parametrize(
        "head",
        [
            pytest.param(b"Subject: =?iso-8859-1?Q?For_sure:_=80_12000?=", id="Windows that says Latin 1"),
            pytest.param("Subject: For sure: € 12000".encode("cp1252"), id="Windows, not encoded"),
            pytest.param(b"Subject: C:\\users =?nobody?B?Rm9yIHN1cmU6IIAgMTIwMDA=?=", id="beside what looks escaped"),
            pytest.param("Subject: х =?utf-8?Q?For_sure:?= € 12000".encode(), id="encoded by half"),
            pytest.param("Subject: Hello\nSubject: For sure: € 12000".encode(), id="the second of two"),
            pytest.param(
                "Content-Type: message/rfc822\n\nSubject: For sure: € 12000".encode(), id="of an e-mail in the e-mail"
            ),
        ],
    )
    def test_a_subject_is_read_as_words_are(self, head: bytes) -> None:
        """What it promises in another charset than it names, or in a forwarded e-mail, was approved unread."""
        data = head + b"\n\nHello\n"
        mail = read_mail(email.message_from_bytes(data, policy=email.policy.default), data)
        assert [amount.cents for amount in mail.amounts] == [1_200_000]
        assert phrases_in(mail.text, ["for sure"])

    @pytest.mark.parametrize(
        ("words", "currency", "units"),
        [
            ("SEK 1 250 000", "SEK", 1_250_000),
            ("12 500 zł", "PLN", 12_500),
            ("¥1,250,000", "JPY", 1_250_000),
            ("価格は125万円です", "JPY", 1_250_000),
            ("R$ 1.250,00", "BRL", 1_250),
            ("A$5,000", "AUD", 5_000),
            ("₹12,50,000", "INR", 1_250_000),
            ("CHF 1’250.–", "CHF", 1_250),
            ("12.000,5 EUR", "EUR", 12_000.5),
            ("for EUR\n12,000 a year", "EUR", 12_000),
            ("for 12,000\nEUR a year", "EUR", 12_000),
            ("for USD 1.5\nmillion", "USD", 1_500_000),
            ("2\n\nEUR\n\n500", "EUR", 500),
        ],
    )
    def test_amounts_are_read_as_they_are_written_elsewhere(self, words: str, currency: str, units: float) -> None:
        """In other currencies and forms, and with a line's or a cell's end within: none of them may go unseen."""
        message = email.message_from_bytes(
            b"Content-Type: text/plain; charset=utf-8\n\n" + words.encode(), policy=email.policy.default
        )
        assert read_mail(message, b"").amounts == (Amount(currency=currency, cents=int(units * 100)),)

    def test_an_amount_is_read_from_a_table(self) -> None:
        """Currency and figure are in cells of their own."""
        table = b"Content-Type: text/html\n\n<table><tr>\n<td>EUR</td>\n<td>48,000.00</td>\n</tr></table>"
        message = email.message_from_bytes(table, policy=email.policy.default)
        assert read_mail(message, b"").amounts == (Amount(currency="EUR", cents=4_800_000),)

    def test_a_damaged_message_is_read_as_far_as_it_goes(self, tmp_path: Path) -> None:
        """Unknown charsets, broken encodings and headers do not end the review."""
        head = "To: a@acme.example\nSubject: =?utf-8?b?//?=\nContent-Type: text/plain; charset=no-such"
        assert read(eml(tmp_path, head, "Gr\u00fc\u00dfe")).domains == {"acme.example": 1}

    def test_the_digest_is_that_of_the_message(self, tmp_path: Path) -> None:
        """The same message has the same digest; another word makes another one."""
        first, again = read(REPLY).digest, read(REPLY).digest
        changed = tmp_path / "reply.eml"
        changed.write_bytes(REPLY.read_bytes().replace(b"two", b"six"))
        assert first == again != read(changed).digest


class TestHostileMessages:
    """Messages that nobody's mail program would write."""

    PIECES = st.sampled_from(
        [
            "a@acme.example",
            "<",
            ">",
            "@",
            ",",
            ";",
            ":",
            '"',
            "(",
            ")",
            "=?utf-8?q?=",
            "?=",
            "\\",
            "\t",
            "\r\n ",
            "é",
            "x" * 70,
        ]
    )
    HEADERS = st.sampled_from(
        [
            "To",
            "Cc",
            "Bcc",
            "From",
            "Subject",
            "Date",
            "Content-Type",
            "Content-Disposition",
            "Content-Transfer-Encoding",
        ]
    )
    VALUES = st.lists(PIECES | st.text(max_size=8), max_size=8).map("".join)

    @given(st.lists(st.tuples(HEADERS, VALUES), max_size=6), st.binary(max_size=60))
    @settings(max_examples=300)
    def test_are_read_without_an_error(self, headers: list[tuple[str, str]], body: bytes) -> None:
        """Whatever stands in headers and body, there is a record of it, and no address or name in it."""
        head = "".join(f"{name}: {value}\r\n" for name, value in headers).encode("utf-8", "replace")
        message = email.message_from_bytes(head + b"\r\n" + body, policy=email.policy.default)
        mail = read_mail(message, b"")
        assert Mail.model_validate_json(mail.model_dump_json()) == mail.model_copy(update={"text": ""})
        assert "a@acme" not in mail.model_dump_json() + mail.text
        assert claim_of(Recipients(domains=mail.domains, unreadable=mail.unreadable).sentence) is not None
        assert claim_of(Attached(files=mail.attachments).sentence) is not None

    @given(VALUES)
    @settings(max_examples=300)
    def test_lose_no_recipient(self, value: str) -> None:
        """A field that says something about recipients gives at least one, readable or not: nobody slips through."""
        head = f"To: {value}\r\n\r\nHello".encode("utf-8", "replace")
        message = email.message_from_bytes(head, policy=email.policy.default)
        mail = read_mail(message, b"")
        if any("a@acme.example" in str(raw) for name, raw in message.raw_items() if name == "To"):
            assert mail.domains or mail.unreadable

    def test_a_header_that_is_nested_without_end_is_unreadable(self, tmp_path: Path) -> None:
        """Not a failure of the review: anybody can send such a header."""
        many = "(" * 5_000
        mail = read(eml(tmp_path, f"From: ann@acme.example{many}\nTo: ann@acme.example{many}\nSubject: {many}"))

        assert (mail.domains, mail.unreadable) == ({}, 1)

    @pytest.mark.parametrize("kind", ["message/rfc822\n", "multipart/mixed; boundary=b{0}\n\n--b{0}"])
    def test_parts_that_are_nested_without_end_are_refused(self, tmp_path: Path, kind: str) -> None:
        """With the reason, instead of a failure somewhere in the reader."""
        path = tmp_path / "deep.eml"
        nested = "".join(f"Content-Type: {kind.format(at)}\n" for at in range(1_500))
        path.write_text(f"From: ann@acme.example\nMIME-Version: 1.0\n{nested}", encoding="ascii", newline="\n")

        with pytest.raises(ComplianceError, match="nested more than 30 deep"):
            read_mailbox(path)

    @pytest.mark.parametrize("run", ["a", ".", "a@", "a@b.", "a."])
    def test_a_long_run_of_signs_is_read_in_one_pass(self, tmp_path: Path, run: str) -> None:
        """An attached key or a picture in the text; with the square of its length it would take hours."""
        assert read(eml(tmp_path, "To: ann@acme.example", run * 1_000_000)).domains == {"acme.example": 1}


class TestWithoutAddresses:
    """Taking addresses out of a text."""

    @pytest.mark.parametrize(
        "text",
        [
            "a.b+c@acme.example",
            "<a@acme.example>",
            "mailto:a@acme.example?subject=x",
            "a@b@acme.example",
            "é@münchen.example",
        ],
    )
    def test_leaves_none(self, text: str) -> None:
        """However it is spelt, nothing with an @ is left that is an address."""
        assert "acme" not in without_addresses(text)
        assert "münchen" not in without_addresses(text)
