"""Reading a contract: three formats, encodings, unsupported files, and texts that are not contracts."""

from pathlib import Path

import pytest
from fpdf import FPDF

from activities.contract_review.clauses import check_contract, extract, read_document
from activities.contract_review.records import ReviewError
from activities.contract_review.report import DATA, MARKS, REPORT, to_markdown, write_report
from activities.pages import check_folder
from activities.pages import text as escaped
from tests.shipped.contract_review.material import NDA, SAAS, SERVICES, pdf_of, reviewed, reviewed_text


def read(folder: Path, content: bytes | str, name: str = "a.txt") -> str:
    """Return the words of a file on one line."""
    (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)
    return " ".join(line.text for line in read_document(folder / name).lines if line.text)


def test_words_are_the_same_whatever_wrote_the_file(tmp_path: Path) -> None:
    """Encodings, line ends, and invisible characters."""
    for content, words in (
        ("Fee: 5 €".encode(), "Fee: 5 €"),
        ("\ufeffFee: 5 €".encode(), "Fee: 5 €"),
        ("Fee: 5 €".encode("utf-16"), "Fee: 5 €"),
        ("Fee: 5 €, “net”".encode("cp1252"), "Fee: 5 €, “net”"),
        (b"a\r\nb\rc\x0cd", "a b c d"),
        ("lim\u200bited to\u00a0fees\u202e".encode(), "limited to fees"),
    ):
        assert read(tmp_path, content) == words


def test_markdown_is_read_as_it_is_shown(tmp_path: Path) -> None:
    """Emphasis and links give their words, and comments are noted."""
    text = (
        '# A **b** [c](http://d) <a id="1">e</a>\n\n1. First\n2. Second\n\n<!-- hidden\n-->\n\nOne <!-- too --> two\n\n'
        "| a | b |\n|---|---|\n| c | d |\n"
    )
    assert read(tmp_path, text, "a.md") == "A b c e 1. First 2. Second One two a | b c | d"
    document = read_document(tmp_path / "a.md")
    assert [line.number for line in document.lines if line.text.startswith("One")] == [9]
    assert any("2 comments" in note for note in document.notes)


def test_a_pdf_is_read_without_running_lines_and_with_its_gaps_named(tmp_path: Path) -> None:
    """Headers and footers are not part of a sentence; a scanned page is reported."""
    document = read_document(pdf_of(SAAS.read_text(), tmp_path / "a.pdf"))
    words = " ".join(line.text for line in document.lines)
    assert "Confidential Page" not in words
    assert "of 9" not in words
    assert document.pages > 2
    pdf = FPDF()
    pdf.set_font("Helvetica", size=11)
    pdf.add_page()
    pdf.multi_cell(0, 6, "This Agreement is long enough to be read.")
    pdf.add_page()
    pdf.output(str(tmp_path / "gap.pdf"))
    assert any("No text on page 2" in note for note in read_document(tmp_path / "gap.pdf").notes)


def test_a_file_that_cannot_be_read_is_refused_with_a_reason(tmp_path: Path) -> None:
    """The error names the file and what to do."""
    for name, content, message in (
        ("a.txt", b"", "is empty"),
        ("a.md", b" \n\t\n", "is empty"),
        ("a.md", b"<!-- nothing -->\n", "has no text"),
        ("a.docx", b"PK", "convert it first"),
        ("a.txt", b"PK\x03\x04\0\0", "zero bytes"),
        ("a.txt", b"caf\x81\x8d\xff", "not valid utf-8 or cp1252"),
        ("a.pdf", b"%PDF-1.7\nrubbish", "not a PDF that can be read"),
    ):
        with pytest.raises(ReviewError, match=message):
            read(tmp_path, content, name)
    pdf = FPDF()
    pdf.add_page()
    pdf.output(str(tmp_path / "scan.pdf"))
    for place, message in ((tmp_path / "scan.pdf", "it is a scan"), (tmp_path / "none.txt", "does not exist")):
        with pytest.raises(ReviewError, match=message):
            read_document(place)
    protected = FPDF()
    protected.set_encryption(owner_password="o", user_password="u")
    protected.add_page()
    protected.output(str(tmp_path / "locked.pdf"))
    with pytest.raises(ReviewError, match="password"):
        read_document(tmp_path / "locked.pdf")


def test_what_is_no_contract_is_not_reviewed(tmp_path: Path) -> None:
    """A README, a form, a letter, another language, another script, one word: each is rejected with its reason."""
    readme = (Path(__file__).parents[3] / "README.md").read_text()
    form = "APPLICATION FORM\n\nName: ________\nDate of birth: ________\nPlease tick the boxes that apply to you.\n" * 4
    letter = (
        "Dear Ms Doe, thank you for the nice dinner on the terrace. It was a pleasure to see you and the dogs. " * 3
    )
    german = "Der Lieferant erbringt die Leistungen. Der Kunde zahlt die Vergütung innerhalb von dreißig Tagen. " * 5
    for name, text, message in (
        ("readme.md", readme, "does not read as a contract"),
        ("form.txt", form, "does not read as a contract"),
        ("letter.txt", letter, "does not read as a contract"),
        ("german.txt", german, "does not read as English"),
        ("arabic.txt", "عقد بين الطرفين " * 20, "does not read as English"),
        ("word.txt", "Agreement", "it has 1 words"),
    ):
        (tmp_path / name).write_text(text)
        with pytest.raises(ReviewError, match=message):
            check_contract(read_document(tmp_path / name))
    for path in (SERVICES, NDA, SAAS):
        check_contract(read_document(path))


def test_clauses_keep_number_title_and_place(tmp_path: Path) -> None:
    """A clause is cited by its line; its number stays as it is written, and may repeat."""
    text = (
        "SUPPLY AGREEMENT\n\nBetween two.\n\n1. Fees\n1.1 They are due within\n30 days of receipt, or\n"
        "5.2 Times that at the latest.\n1.2 Nothing else.\n2. LIABILITY. Each party is liable.\n\nSCHEDULE A - PRICES\n"
        "1. One\n2. Two\n"
    )
    (tmp_path / "a.txt").write_text(text)
    clauses = {clause.id: clause for clause in extract(read_document(tmp_path / "a.txt")).clauses}
    assert list(clauses) == [f"line {number}" for number in (1, 5, 6, 9, 10, 12, 13, 14)]
    assert clauses["line 6"].text == "1.1 They are due within 30 days of receipt, or 5.2 Times that at the latest."
    assert (clauses["line 10"].title, clauses["line 10"].topic) == ("LIABILITY", "liability")
    titles = {clause.title for clause in extract(read_document(NDA)).clauses}
    assert {"PURPOSE", "Confidential Information", "Exclusions", "TERM"} <= titles
    for path, sides in (
        (NDA, {"Calder", "Ostrava"}),
        (SERVICES, {"Supplier", "Customer"}),
        (SAAS, {"Provider", "Customer"}),
    ):
        assert sides <= {name.quote for name in extract(read_document(path)).names}


def test_titles_without_numbers_part_a_contract(tmp_path: Path) -> None:
    """Also around numbered lists, and the same in a PDF."""
    text = (
        'SERVICES AGREEMENT\n\nThis Agreement is between Ash Ltd (the "Supplier") and Birch Ltd (the "Customer").\n\n'
        "Fees\nThe Customer pays as follows:\n1. EUR 100 at the start.\n2. EUR 200 at the end.\n\nTermination\nThe "
        "Supplier may terminate this Agreement on 5 days' notice.\n\nGoverning Law\nThe law of Ohio applies.\n"
    )
    (tmp_path / "a.txt").write_text(text)
    for source in (tmp_path / "a.txt", pdf_of(text, tmp_path / "a.pdf")):
        report = reviewed(source)
        topics = {clause.title: clause.topic for clause in report.clauses}
        assert (topics["Fees"], topics["Termination"], topics["Governing Law"]) == (
            "payment",
            "termination",
            "governing_law",
        )
        assert "5 days" in {mark.words for passage in report.passages for mark in passage.marks}


def test_a_report_replaces_its_own_and_no_other(tmp_path: Path) -> None:
    """Somebody else's REPORT.md stays, and the error says so; ours is written again."""
    report, document = reviewed(SAAS), read_document(SAAS)
    for _ in range(2):
        write_report(report, document, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [REPORT, DATA]
    for name in (REPORT, DATA):
        (tmp_path / "other").mkdir(exist_ok=True)
        (tmp_path / "other" / name).write_text("# My own report\n")
        with pytest.raises(ReviewError, match="not written by this pipeline"):
            check_folder(tmp_path / "other", MARKS, ReviewError)
        with pytest.raises(ReviewError, match="not written by this pipeline"):
            write_report(report, document, tmp_path / "other")
        assert (tmp_path / "other" / name).read_text() == "# My own report\n"
        (tmp_path / "other" / name).unlink()


def test_words_of_the_contract_are_no_markup_of_the_report(tmp_path: Path) -> None:
    """Neither a heading nor a link, an image, a tag or a row of a table."""
    hostile = "1. Fees\n# All | fees ![x](http://evil/x) <script> [pay](http://evil) **shall not** be refunded.\n"
    markdown = to_markdown(reviewed_text(tmp_path, f"AGREEMENT\n\nBetween two.\n\n{hostile}"))
    assert "y](http" not in markdown
    assert "\\<script>" in markdown
    assert escaped("a|b") == "a\\|b"
