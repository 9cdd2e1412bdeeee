"""What the tests of `contract_review` share: contracts as files and as PDF, and reviews by rules."""

from pathlib import Path

from fpdf import FPDF

from activities.contract_review.clauses import extract, read_document
from activities.contract_review.records import Finding, Policy, Report
from activities.contract_review.report import score, summarise
from activities.contract_review.rules import analyse

CONTRACTS = Path(__file__).parents[2] / "data" / "contracts"
SERVICES, NDA, SAAS = (CONTRACTS / name for name in ("services_agreement.md", "nda.txt", "saas_terms.txt"))


def reviewed(path: Path, policy: Policy | None = None) -> Report:
    """Return the report on a contract, by rules."""
    report = analyse(extract(read_document(path)), policy or Policy())
    return summarise(score(report, (policy or Policy()).appetite))


def reviewed_text(folder: Path, text: str, policy: Policy | None = None, name: str = "contract.txt") -> Report:
    (folder / name).write_text(text, "utf-8")
    return reviewed(folder / name, policy)


def found(folder: Path, text: str, policy: Policy | None = None) -> dict[str, Finding]:
    """Return the findings in clauses between a Supplier and a Customer by rule, without missing clauses."""
    parties = 'This Agreement is made between Ash Ltd (the "Supplier") and Birch Ltd (the "Customer").\n\n'
    report = reviewed_text(folder, "AGREEMENT\n\n" + parties + text, policy)
    return {finding.rule: finding for finding in report.findings if not finding.absent}


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
