"""What the tests of `contract_review` share: contracts as files and as PDF, and reviews by rules."""

from pathlib import Path

from fpdf import FPDF

from activities.contract_review.clauses import extract, locate, read_document
from activities.contract_review.records import Passage, Report
from activities.contract_review.report import find_untraceable, score, summarise

CONTRACTS = Path(__file__).parents[2] / "data" / "contracts"
SERVICES, NDA, SAAS = (CONTRACTS / name for name in ("services_agreement.md", "nda.txt", "saas_terms.txt"))


def reviewed(path: Path) -> Report:
    """Return the report on a contract, by rules, after proving each of its lines."""
    document = read_document(path)
    report = summarise(score(locate(extract(document)), 6))
    assert find_untraceable(report, document) == []
    return report


def reviewed_text(folder: Path, text: str, name: str = "contract.txt") -> Report:
    (folder / name).write_text(text, "utf-8")
    return reviewed(folder / name)


def passages_of(report: Report, number: str) -> list[Passage]:
    """Return the passages of the clauses that begin with a number or name."""
    clauses = {clause.id for clause in report.clauses if clause.text.startswith(number)}
    return [item for item in report.passages if item.clause in clauses]


def words_of(report: Report, number: str) -> set[tuple[str, str]]:
    """Return what was found in a clause: topic or sort of words, and the words."""
    return {(mark.name, mark.words) for item in passages_of(report, number) for mark in item.marks}


def pdf_of(text: str, place: Path) -> Path:
    """Write a text as a PDF of several pages with a running header and page numbers, and return its path."""

    class Pages(FPDF):
        def header(self) -> None:
            self.cell(0, 8, "Tidewater Cloud Service - Confidential", new_x="LMARGIN", new_y="NEXT")

        def footer(self) -> None:
            self.set_y(-15)
            self.cell(0, 8, f"Page {self.page_no()} of 9")

    pdf = Pages(format=(148, 210))
    pdf.set_font("Helvetica", size=11)
    pdf.add_page()
    for paragraph in text.split("\n\n"):
        pdf.multi_cell(0, 6, paragraph, align="L", new_x="LMARGIN", new_y="NEXT")
        pdf.ln(3)
    pdf.output(str(place))
    return place
