"""Reading a mailbox: which e-mail is proposed, whom it goes to, what it says, and files that are not a mailbox."""

import email
import email.policy
import time
from email.message import EmailMessage
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from activities.compliance_review.claims import Amount, ComplianceError, Mail, Recipients, find_phrases, parse_claim
from activities.compliance_review.mail import Note, read_mail, read_mailbox, read_notes, remove_addresses
from tests.shipped.compliance_review.material import OFFER, REPLY

OWN = frozenset({"northwind.example"})


def read(path: Path) -> Mail:
    """Read the proposed e-mail of a file."""
    mailbox = read_mailbox(path)
    return read_mail(mailbox.proposed, mailbox.data)


def read_bytes(data: bytes) -> Mail:
    """Read an e-mail from bytes."""
    return read_mail(email.message_from_bytes(data, policy=email.policy.default), data)


def eml(folder: Path, head: str, body: str = "Hello") -> Path:
    """Write an e-mail with these headers, and return its path."""
    path = folder / "mail.eml"
    path.write_bytes(f"{head.strip()}\n\n{body}\n".encode())
    return path


def words(mail: Mail) -> str:
    """Return the text of a readable e-mail."""
    assert mail.text is not None
    return mail.text


class TestReadMailbox:
    def test_is_the_named_the_marked_or_the_only_one(self, tmp_path: Path) -> None:
        """A Message-ID takes precedence over X-Unsent; the other messages are the earlier ones."""
        mailbox = read_mailbox(OFFER)
        assert mailbox.proposed["subject"] == "Offer for the second year"
        assert [message["subject"] for message in mailbox.earlier] == ["Renewal", "Re: Renewal"]
        for named in ("<a1@acme.example>", "a1@acme.example"):
            assert read_mailbox(OFFER, named).proposed["subject"] == "Renewal"
        assert read(eml(tmp_path, "To: a@acme.example")).domains == {"acme.example": 1}

    def test_refuses_what_it_cannot_be_sure_of(self, tmp_path: Path) -> None:
        """Two drafts are ambiguous; a line of the text does not start another message."""
        start = b"From ann@own.example Thu Jan  1 10:00:00 2026\nTo: a@b.example\n\n"
        for name, content, message in (
            ("a.txt", b"To: a@b.example", "expected .mbox or .eml"),
            ("a.mbox", b"", "0 messages, and 0 of them"),
            ("a.eml", b"", "no header of an e-mail"),
            ("a.eml", b"just words\n", "no header of an e-mail"),
            ("a.mbox", b"\xef\xbb\xbfFrom a@b.example", "line 1 of 'a.mbox' is not the beginning"),
            ("a.mbox", b"To: a@b.example\n\nx\n", "line 1 of 'a.mbox' is not the beginning"),
            ("a.mbox", start + b"Hello\n\nFrom now on\nwe promise it.\n", "line 6 of 'a.mbox' is not the beginning"),
            ("a.mbox", start + b"From 10:00 to 11:00 we\nare out\n", "line 4 of 'a.mbox' is not the beginning"),
            ("a.mbox", start + b"From 10:00 to 11:00", "line 4 of 'a.mbox' is not the beginning"),
            ("a.mbox", OFFER.read_bytes() * 2, "6 messages, and 2 of them"),
        ):
            (tmp_path / name).write_bytes(content)
            with pytest.raises(ComplianceError, match=message) as raised:
                read_mailbox(tmp_path / name)
            assert "@" not in str(raised.value)
        with pytest.raises(ComplianceError, match="cannot be read"):
            read_mailbox(tmp_path / "none.mbox")

    def test_knows_how_mail_programs_begin_a_message(self, tmp_path: Path) -> None:
        """With either line end, after empty lines."""
        for who in (b"From - Thu", b"From MAILER-DAEMON Thu", b"From 17@xxx Thu"):
            text = b"\n" + who + b" Jan  1 10:00:00 2026\nTo: a@b.example\nX-Unsent: 1\n\n>From now on\n"
            for content in (text, text.replace(b"\n", b"\r\n")):
                (tmp_path / "x.mbox").write_bytes(content)
                assert read(tmp_path / "x.mbox").domains == {"b.example": 1}


class TestRecipients:
    def test_are_counted_by_domain(self, tmp_path: Path) -> None:
        """Copies count; an unreadable address is counted, never skipped."""
        two = {"acme.example": 1, "birch.example": 1}
        cases: tuple[tuple[str, dict[str, int], int], ...] = (
            ("To: a@acme.example, b@acme.example", {"acme.example": 2}, 0),
            ("To: a@acme.example\nBcc: b@birch.example", two, 0),
            ('To: "Doe, Jane" <a@ACME.Example>', {"acme.example": 1}, 0),
            ('To: "ok@own.example" <a@evil.example>', {"evil.example": 1}, 0),
            ("To: Friends: a@acme.example, b@birch.example;", two, 0),
            ("To: a@münchen.example", {}, 1),
            ("To: a@acme.example\nTo: b@birch.example", two, 0),
            ("To: nobody in particular", {}, 1),
            ("To: a@acme.example, nonsense", {"acme.example": 1}, 1),
            ("To: a@acme.example; b@evil.example", {"acme.example": 1}, 1),
            ("To: a@acme.example b@evil.example", {"acme.example": 1}, 1),
            ("To: <@evil.example:a@acme.example>", {"acme.example": 1}, 1),
            ("To: undisclosed-recipients:;", {}, 1),
            ("To: (a@acme.example", {}, 1),
            ("Subject: x", {}, 0),
        )
        for head, domains, unreadable in cases:
            mail = read(eml(tmp_path, head))
            assert (mail.domains, mail.unreadable) == (domains, unreadable), head

    def test_leave_no_address_in_the_record(self) -> None:
        """The record of a mailbox names no person."""
        mail = read(OFFER)
        assert "@" not in mail.model_dump_json() + repr(mail) + words(mail)
        assert "Jane" not in mail.model_dump_json() + repr(mail)
        for text in ("a.b+c@acme.example", "<a@acme.example>", "mailto:a@acme.example?subject=x", "a@b@acme.example"):
            assert "acme" not in remove_addresses(text)


class TestContents:
    def test_each_phrase_is_on_the_line_that_is_named(self) -> None:
        """The subject is line 1; a phrase across lines is named by its first."""
        text = words(read_bytes(b"Subject: Off the record\n\nHello,\nas promised, we\nguarantee it.\n"))
        found = find_phrases(text, ["we guarantee", "off the record", "never"])
        lines = [text.split("\n")[line - 1] for line in found.values()]
        assert (sorted(found), lines) == ([1, 2], ["as promised, we", "Off the record"])

    def test_words_are_read_wherever_a_reader_sees_them(self) -> None:
        """In the other half of a message, in an attached text, in HTML with its breaks, in a second subject."""
        message = EmailMessage()
        message.set_content("Hello")
        message.add_alternative("<p>We <b>guaran</b>tee</p><style>p{}</style>", subtype="html")
        message.add_attachment("off the record", filename="notes.txt")
        text = words(read_mail(message, b""))
        assert find_phrases(text, ["we guarantee", "off the record"]).keys() == {1, 2}
        assert "p{}" not in text
        for html in (
            "<p>As promised, we<br>guarantee it for</p>1000 EUR",
            "<div>we</div><div>guarantee it</div><ul><li>Item 5</li><li>1000 EUR</li></ul>",
            "<p>we <b>gu</b>arant<a href='x'>ee</a></p>10<span>00</span> EUR",
        ):
            mail = read_bytes(b"Content-Type: text/html\n\n" + html.encode())
            assert find_phrases(words(mail), ["we guarantee"])
            assert mail.amounts == (Amount(currency="EUR", cents=100_000),)
        for head in (
            "Subject: Hello\nSubject: For sure: € 12000".encode(),
            "Content-Type: message/rfc822\n\nSubject: For sure: € 12000".encode(),
            b"Subject: =?windows-1252?Q?For_sure:_=80_12000?=",
        ):
            mail = read_bytes(head + b"\n\nHello\n")
            assert [amount.cents for amount in mail.amounts] == [1_200_000]
            assert find_phrases(words(mail), ["for sure"])

    def test_a_text_in_its_charset_is_read_and_another_one_is_unreadable(self) -> None:
        """Mail programs guess a wrong charset differently, so the text counts as unreadable."""
        body = "We guarantee € 12000 – für Sie.\n"
        for head, charset, readable in (
            ("Content-Type: text/plain; charset=us-ascii", "utf-8", True),
            ("Content-Type: text/plain", "utf-8", True),
            ("Subject: x", "utf-8", True),
            ("Content-Type: text/plain; charset=utf-8", "utf-16", False),
            ("Content-Type: text/plain; charset=iso-8859-1", "cp1252", False),
            ("Content-Type: multipart/mixed", "utf-8", True),
            ("Content-Type: text/plain; charset=utf-8", "cp1252", False),
            ("Content-Type: text/plain; charset=nobody-knows", "cp1252", False),
            ("Content-Type: text/plain; charset=gb2312", "gbk", False),
        ):
            mail = read_bytes(head.encode() + b"\n\n" + body.encode(charset, "replace"))
            if readable:
                assert mail.amounts == (Amount(currency="EUR", cents=1_200_000),), head
                assert find_phrases(words(mail), ["we guarantee"])
            elif "gb2312" not in head:
                assert mail.text is None, head
        assert read_bytes(b"Content-Type: text/plain; charset=gb2312\n\n" + "朱镕基".encode("gbk")).text is None
        assert read_bytes("Subject: For sure: € 12000".encode("cp1252") + b"\n\nHello\n").text is None

    def test_amounts_are_read_as_they_are_written_elsewhere(self) -> None:
        """In other currencies and forms, and with the end of a line or a table's cell within."""
        for amount_text, currency, units in (
            ("SEK 1 250 000", "SEK", 1_250_000),
            ("¥1,250,000", "JPY", 1_250_000),
            ("CHF 1’250.–", "CHF", 1_250),
            ("12.000,5 EUR", "EUR", 12_000.5),
            ("for EUR\n12,000 a year", "EUR", 12_000),
            ("for 12,000\nEUR a year", "EUR", 12_000),
            ("for USD 1.5\nmillion", "USD", 1_500_000),
        ):
            mail = read_bytes(b"Content-Type: text/plain; charset=utf-8\n\n" + amount_text.encode())
            assert mail.amounts == (Amount(currency=currency, cents=int(units * 100)),), amount_text
        table = b"Content-Type: text/html\n\n<table><tr>\n<td>EUR</td>\n<td>48,000.00</td>\n</tr></table>"
        assert read_bytes(table).amounts == (Amount(currency="EUR", cents=4_800_000),)

    def test_the_digest_is_that_of_the_message(self, tmp_path: Path) -> None:
        """The same message has the same digest; a changed word changes it."""
        changed = tmp_path / "reply.eml"
        changed.write_bytes(REPLY.read_bytes().replace(b"two", b"six"))
        assert read(REPLY).digest == read(REPLY).digest != read(changed).digest


class TestPhrases:
    def test_are_found_in_whatever_form(self) -> None:
        """Replaced quotation marks and dashes, ligatures, capitals."""
        for text, phrase in (
            ("We gua\u200brantee it.", "we guarantee"),
            ("\uff37\uff45 guarantee it.", "we guarantee"),
            ("We\u00a0guarantee it.", "WE GUARANTEE"),
            ("a \ufb01nal re\u00adfund", "final refund"),
            ("You can’t lose with us.", "can't lose"),
            ("It is risk\u2011free.", "risk-free"),
            ("GARANTIERTE GRÖSSE", "garantierte größe"),
            ("Un résultat garanti", "re\u0301sultat garanti"),
        ):
            assert find_phrases(text, ["nothing of it", phrase]).keys() == {2}, text
        for text, phrase in (("It is refundable", "refund"), ("préfund", "fund"), ("any text", "\u00ad")):
            assert find_phrases(text, [phrase]) == {}, text

    def test_take_a_hostile_text_in_one_pass(self, tmp_path: Path) -> None:
        """Many blanks within a phrase, and long runs of address characters."""
        began = time.perf_counter()
        assert find_phrases(("off" + " " * 50_000) * 4, ["off the record"]) == {}
        for run in ("a", ".", "a@", "a@b.", "a."):
            assert read(eml(tmp_path, "To: ann@acme.example", run * 300_000)).domains == {"acme.example": 1}
        assert time.perf_counter() - began < 60


class TestNotes:
    def test_are_told_apart(self) -> None:
        """The brainstorm, the rejected assumption and the debate of the sample each get their kind (S5-prob-a)."""
        notes = read_notes(read_mailbox(OFFER).earlier, OWN)
        assert [note.kind for note in notes] == ["history", "brainstorm", "rejected_assumption", "internal_note"]
        assert notes[1:3] == [
            Note(kind="brainstorm", text="What if we just skip the compliance check?"),
            Note(kind="rejected_assumption", text="Pricing is the only factor"),
        ]
        assert "(an address) says yes" in notes[3].text

    def test_from_outside_are_history_and_all_are_bounded(self) -> None:
        """An outside message is history as a whole; a thread of thousands of paragraphs is cut."""
        for sender, text, kinds in (
            ("nobody in particular", "What if we skip the check?", ["history"]),
            ("a@northwind.example", "A note." + "\n" * 400_000 + "Another.", ["internal_note"] * 2),
            ("a@northwind.example", "A note.\n\n" * 1_000, ["internal_note"] * 200),
        ):
            message = EmailMessage()
            message["From"] = sender
            message.set_content(text)
            assert [note.kind for note in read_notes([message], OWN)] == kinds


class TestHostileMessages:
    PIECES = st.sampled_from(["a@acme.example", "<", ">", "@", ",", ";", ":", '"', "(", ")", "=?utf-8?q?=", "?=", "\\"])
    NAMES = st.sampled_from(["To", "Cc", "From", "Subject", "Content-Type", "Content-Disposition", "Date"])
    VALUES = st.lists(PIECES | st.text(max_size=8), max_size=8).map("".join)

    @given(st.lists(st.tuples(NAMES, VALUES), max_size=6), st.binary(max_size=60))
    @settings(max_examples=200)
    def test_are_read_without_an_error(self, headers: list[tuple[str, str]], body: bytes) -> None:
        """Any headers and body give a record without addresses and names."""
        head = "".join(f"{name}: {value}\r\n" for name, value in headers).encode("utf-8", "replace")
        mail = read_bytes(head + b"\r\n" + body)
        assert "a@acme" not in mail.model_dump_json() + (mail.text or "")
        assert parse_claim(Recipients(domains=mail.domains, unreadable=mail.unreadable).sentence) is not None

    @given(VALUES)
    @settings(max_examples=200)
    def test_lose_no_recipient(self, value: str) -> None:
        """A field that names a recipient gives at least one, readable or not."""
        data = f"To: {value}\r\n\r\nHello".encode("utf-8", "replace")
        raw = email.message_from_bytes(data, policy=email.policy.default).raw_items()
        mail = read_bytes(data)
        if any("a@acme.example" in str(text) for name, text in raw if name == "To"):
            assert mail.domains or mail.unreadable

    def test_nested_without_end_are_unreadable_or_refused(self, tmp_path: Path) -> None:
        """With the reason, instead of a crash of the parser."""
        many = "(" * 5_000
        mail = read(eml(tmp_path, f"From: ann@acme.example{many}\nTo: ann@acme.example{many}\nSubject: {many}"))
        assert (mail.domains, mail.unreadable) == ({}, 1)
        for kind in ("message/rfc822\n", "multipart/mixed; boundary=b{0}\n\n--b{0}"):
            nested = "".join(f"Content-Type: {kind.format(at)}\n" for at in range(1_500))
            (tmp_path / "deep.eml").write_text(f"From: ann@acme.example\nMIME-Version: 1.0\n{nested}", newline="\n")
            with pytest.raises(ComplianceError, match="nested more than 30"):
                read_mailbox(tmp_path / "deep.eml")
