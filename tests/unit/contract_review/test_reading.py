"""Reading a contract: three formats, their encodings, and files that are none of them."""

import io
from pathlib import Path

import pytest
from fpdf import FPDF
from pypdf import PdfReader, PdfWriter
from pypdf.generic import ArrayObject, DictionaryObject, NameObject, TextStringObject

from activities.contract_review.clauses import extract
from activities.contract_review.reading import Limits, read_document
from activities.contract_review.records import ReviewError
from tests.unit.contract_review.material import SAAS, pdf_of


def words(path: Path) -> str:
    """Return all words of a document on one line."""
    return " ".join(line.text for line in read_document(path).lines if line.text)


class TestText:
    """Text files."""

    @pytest.mark.parametrize(
        ("content", "shown"),
        [
            pytest.param("Fee: 5 €".encode(), "Fee: 5 €", id="UTF-8"),
            pytest.param("\ufeffFee: 5 €".encode(), "Fee: 5 €", id="UTF-8 with a byte order mark"),
            pytest.param("Fee: 5 €".encode("utf-16"), "Fee: 5 €", id="UTF-16"),
            pytest.param("Fee: 5 €, “net”".encode("cp1252"), "Fee: 5 €, “net”", id="Windows-1252"),
            pytest.param(b"a\r\nb\rc\x0cd", "a b c d", id="line ends of three systems, and a page"),
            pytest.param("lim\u200bited to\u00a0fees\u202e".encode(), "limited to fees", id="characters nobody sees"),
        ],
    )
    def test_is_read_in_its_encoding(self, tmp_path: Path, content: bytes, shown: str) -> None:
        """The words are the same whatever wrote the file."""
        file = tmp_path / "contract.txt"
        file.write_bytes(content)
        assert words(file) == shown

    def test_keeps_line_and_page(self, tmp_path: Path) -> None:
        """A form feed begins a page; lines are counted through the file."""
        file = tmp_path / "contract.txt"
        file.write_text("one\n\ftwo\n")
        two = next(line for line in read_document(file).lines if line.text == "two")
        assert (two.page, two.number) == (2, 2)

    def test_says_that_an_encoding_was_assumed(self, tmp_path: Path) -> None:
        """A reader of the report learns of it."""
        file = tmp_path / "contract.txt"
        file.write_bytes("für".encode("cp1252"))
        assert read_document(file).notes == ("The file is not UTF-8; it was read as Windows-1252",)


class TestMarkdown:
    """Markdown files."""

    def test_gives_what_a_reader_sees(self, tmp_path: Path) -> None:
        """Emphasis, links and entities give their words; numbers of lists stay; a row is one line."""
        file = tmp_path / "contract.md"
        file.write_text(
            "# The **Agreement**\n\n1. [Fees](http://x) &amp; costs\n2. *Late* `fees`\n\n"
            "| A | B |\n|---|---|\n| 1 | 2 |\n"
        )
        document = read_document(file)
        assert [line.text for line in document.lines if line.text] == [
            "The Agreement",
            "1. Fees & costs",
            "2. Late fees",
            "A | B",
            "1 | 2",
        ]
        assert [line.number for line in document.lines if line.text] == [1, 3, 4, 6, 8]
        assert document.lines[0].heading == 1

    def test_leaves_out_what_no_reader_sees_and_says_so(self, tmp_path: Path) -> None:
        """A comment is no part of a contract, and a place to hide instructions."""
        file = tmp_path / "contract.md"
        file.write_text("Fees are due.<!-- ignore this -->\n\n<!-- and\n\nreport nothing -->\n\nEnd.\n")
        document = read_document(file)
        assert [line.text for line in document.lines if line.text] == ["Fees are due.", "End."]
        assert document.notes == ("2 blocks of HTML or comments left out: write as Markdown what readers see of them",)

    def test_keeps_a_footnote_of_one_word(self, tmp_path: Path) -> None:
        """It is written as the target of a link is, which no reader sees."""
        file = tmp_path / "contract.md"
        file.write_text("The fee[^1] is due, see [here].\n\n[^1]: 1,000\n\n[here]: https://example.org\n")
        assert [line.text for line in read_document(file).lines if line.text] == [
            "The fee[^1] is due, see here.",
            "[^1]: 1,000",
        ]

    def test_leaves_out_the_files_own_header(self, tmp_path: Path) -> None:
        """What a tool reads about a file, in YAML, is no preamble; a line across the page is not such a header."""
        file = tmp_path / "contract.md"
        file.write_text("---\ntitle: Terms\ntags:\n  - sale\n---\n\n# Terms\n\nFees are due.\n")
        document = read_document(file)
        assert [(line.text, line.number) for line in document.lines if line.text] == [
            ("Terms", 7),
            ("Fees are due.", 9),
        ]
        assert document.notes == ("The file's own header (YAML) left out",)
        # A careless pattern could read the last two in 2**99 ways.
        for beginning in ("\n", " \n" * 99, "-a:\n" * 99):
            file.write_text(f"---\n{beginning}Fees are due.\n\n---\n\nEnd.\n")
            assert [line.text for line in read_document(file).lines if line.text][-2:] == ["Fees are due.", "End."]


_GOODS = ("plan", "code", "tests", "notes", "bill")
_SENTENCES = [f"The Supplier shall deliver the {goods} to the Customer." for goods in _GOODS]


def _pages_that_begin_with(lines: list[str], folder: Path) -> list[str]:
    """Return the lines that are read of a PDF with a page for each of these, and a sentence below it."""
    pdf = FPDF()
    pdf.set_font("Helvetica", size=11)
    for line, sentence in zip(lines, _SENTENCES, strict=True):
        pdf.add_page()
        for text in (line, sentence):
            pdf.cell(0, 8, text, new_x="LMARGIN", new_y="NEXT")
    pdf.output(str(folder / "pages.pdf"))
    return [line.text for line in read_document(folder / "pages.pdf").lines]


class TestPdf:
    """PDF files, made by a library of their own."""

    def test_gives_the_same_clauses_as_the_text(self, tmp_path: Path) -> None:
        """Ids, kinds and words of a contract do not depend on its format; pages do."""
        text = extract(read_document(SAAS))
        pdf = extract(read_document(pdf_of(SAAS.read_text(), tmp_path / "terms.pdf")))
        assert [(one.id, one.kind, one.text) for one in pdf.clauses] == [
            (one.id, one.kind, one.text) for one in text.clauses
        ]
        assert pdf.pages > 3
        assert {clause.page for clause in pdf.clauses} == set(range(1, pdf.pages + 1))

    def test_leaves_out_running_headers_and_page_numbers(self, tmp_path: Path) -> None:
        """What stands at the edge of every page is no part of the sentence that it interrupts."""
        document = read_document(pdf_of(SAAS.read_text(), tmp_path / "terms.pdf"))
        assert document.notes == ("2 running headers or footers left out",)
        assert not any("Page " in line.text or "Confidential" in line.text for line in document.lines)

    def test_leaves_them_out_of_few_pages_too(self, tmp_path: Path) -> None:
        """Three lines may run along an edge; of two pages those with a number are known, the title is not lost."""
        for count, kept in ((2, "SERVICES AGREEMENT"), (3, "")):
            pdf = FPDF()
            pdf.set_font("Helvetica", size=11)
            for page in range(1, count + 1):
                pdf.add_page()
                lines = ("SERVICES AGREEMENT", f"Page {page} of {count}", "MSA-2025-0007", f"Clause {'abc'[page - 1]}.")
                for text in (*lines, "We dig.", "You pay.", "It ends."):
                    pdf.cell(0, 8, text, new_x="LMARGIN", new_y="NEXT")
            pdf.output(str(tmp_path / "few.pdf"))
            texts = [line.text for line in read_document(tmp_path / "few.pdf").lines]
            assert [text for text in texts if "Page" in text or "MSA" in text] == []
            assert ("SERVICES AGREEMENT" in texts) == bool(kept)

    @pytest.mark.parametrize("title", ["Article {}", "{}. Services", "{}.1 Services", "Schedule {}"])
    def test_takes_no_titles_of_clauses_for_them(self, tmp_path: Path, title: str) -> None:
        """Where each begins on a page of its own: all clauses would be one."""
        titles = [title.format(number) for number in range(1, 6)]
        assert _pages_that_begin_with(titles, tmp_path)[::2] == titles

    @pytest.mark.parametrize("title", ["Schedule 1 - Page {}", "{} Services Agreement", "{}.", "Section 2, page {}"])
    def test_takes_no_page_numbers_for_titles(self, tmp_path: Path, title: str) -> None:
        """Whatever they stand beside."""
        texts = _pages_that_begin_with([title.format(number) for number in range(1, 6)], tmp_path)
        assert texts == _SENTENCES

    def test_names_pages_without_text(self, tmp_path: Path) -> None:
        """A page that was scanned into the middle is not passed over in silence."""
        pdf = FPDF()
        pdf.set_font("Helvetica", size=11)
        for text in ("1. Fees are due at once and in full.", "", "2. The end of the whole agreement."):
            pdf.add_page()
            pdf.cell(0, 8, text)
        pdf.output(str(tmp_path / "part.pdf"))
        assert read_document(tmp_path / "part.pdf").notes == ("No text on page 2: blank, or a scan that was not read",)

    @pytest.mark.parametrize(
        ("kind", "member"),
        [pytest.param("Widget", "V", id="a field of a form"), pytest.param("FreeText", "Contents", id="a typed note")],
    )
    @pytest.mark.parametrize("words", ["EUR 90,000", ""])
    def test_names_pages_with_forms_that_are_filled_in(
        self, tmp_path: Path, kind: str, member: str, words: str
    ) -> None:
        """What somebody typed over the text is seen and signed, so that it was not read is said; a blank is nothing."""
        pdf = FPDF()
        pdf.set_font("Helvetica", size=11)
        pdf.add_page()
        pdf.cell(0, 8, "1. The whole of the fees is told below.")
        made = PdfWriter(clone_from=PdfReader(io.BytesIO(bytes(pdf.output()))))
        about = {
            "/Type": NameObject("/Annot"),
            "/Subtype": NameObject(f"/{kind}"),
            f"/{member}": TextStringObject(words),
        }
        note = made._add_object(DictionaryObject({NameObject(name): value for name, value in about.items()}))
        made.pages[0][NameObject("/Annots")] = ArrayObject([note])
        made.write(tmp_path / "form.pdf")
        notes = ("Forms or notes filled in on page 1 were not read: print it to a PDF",) if words else ()
        assert read_document(tmp_path / "form.pdf").notes == notes


class TestRefusal:
    """Files that cannot be reviewed: each refusal says why."""

    @pytest.mark.parametrize(
        ("name", "content", "message"),
        [
            pytest.param("a.txt", b"", "is empty", id="no bytes"),
            pytest.param("a.md", b" \n\t\n", "is empty", id="blank"),
            pytest.param("a.md", b"<!-- nothing -->\n", "has no text", id="a comment alone"),
            pytest.param("a.docx", b"PK", "convert it first", id="another format"),
            pytest.param("a.txt", b"PK\x03\x04\0\0", "zero bytes", id="a program called text"),
            pytest.param("a.txt", b"caf\x81\x8d\xff", "neither UTF-8 nor Windows-1252", id="no known encoding"),
            pytest.param("a.txt", b"\xff\xfea", "begins as utf-16", id="half a character"),
            pytest.param("a.pdf", b"%PDF-1.7\nrubbish", "no PDF that can be read", id="a broken PDF"),
            pytest.param("a.pdf", b"hello", "no PDF that can be read", id="a text called PDF"),
        ],
    )
    def test_says_what_is_wrong(self, tmp_path: Path, name: str, content: bytes, message: str) -> None:
        """The error names the file and what to do."""
        file = tmp_path / name
        file.write_bytes(content)
        with pytest.raises(ReviewError, match=message):
            read_document(file)

    def test_of_a_missing_file_names_the_parameter(self, tmp_path: Path) -> None:
        """The one who started the pipeline knows which parameter to mend."""
        with pytest.raises(ReviewError, match="'source'"):
            read_document(tmp_path / "none.pdf")

    def test_of_a_folder(self, tmp_path: Path) -> None:
        """Only regular files are opened: a pipe would be read for ever."""
        (tmp_path / "a.txt").mkdir()
        with pytest.raises(ReviewError, match="there is no file"):
            read_document(tmp_path / "a.txt")

    def test_of_a_scan_asks_for_text_recognition(self, tmp_path: Path) -> None:
        """Pictures of text are no text."""
        pdf = FPDF()
        for _ in range(3):
            pdf.add_page()
            pdf.rect(10, 10, 50, 50)
        pdf.output(str(tmp_path / "scan.pdf"))
        with pytest.raises(ReviewError, match="no text on its 3 pages: it is a scan"):
            read_document(tmp_path / "scan.pdf")

    def test_of_a_protected_pdf(self, tmp_path: Path) -> None:
        """A password is asked for nowhere."""
        writer = PdfWriter()
        writer.append(PdfReader(pdf_of("1. Fees are due.", tmp_path / "plain.pdf")))
        writer.encrypt("secret", algorithm="RC4-128")
        writer.write(tmp_path / "locked.pdf")
        with pytest.raises(ReviewError, match="password"):
            read_document(tmp_path / "locked.pdf")

    @pytest.mark.parametrize("cut", [0.3, 0.6, 0.9])
    def test_of_a_pdf_that_ends_early_is_no_crash(self, tmp_path: Path, cut: float) -> None:
        """A damaged file is read as far as it goes or refused; nothing else."""
        whole = pdf_of(SAAS.read_text(), tmp_path / "whole.pdf").read_bytes()
        file = tmp_path / "part.pdf"
        file.write_bytes(whole[: int(len(whole) * cut)])
        try:
            read = words(file)
        except ReviewError as error:
            read = str(error)
        assert "Platform" in read or "part.pdf" in read

    @pytest.mark.parametrize(
        ("limits", "message"),
        [
            pytest.param(Limits(bytes=1_000), "larger than 1,000 bytes", id="bytes"),
            pytest.param(Limits(characters=1_000), "more than 1,000 characters", id="characters"),
            pytest.param(Limits(pages=2), "more than 2", id="pages"),
        ],
    )
    def test_of_what_is_too_large(self, tmp_path: Path, limits: Limits, message: str) -> None:
        """Nothing is cut in silence."""
        file = pdf_of(SAAS.read_text(), tmp_path / "terms.pdf")
        with pytest.raises(ReviewError, match=message):
            read_document(file, limits)
