"""What the tests of `contract_review` share: contracts as files and as PDF, reviews, and a service that answers."""

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from fpdf import FPDF

from activities.contract_review.analysis import analyse
from activities.contract_review.clauses import extract
from activities.contract_review.reading import read_document
from activities.contract_review.records import Analysis, Clause, Extraction, Finding, Policy, Report
from activities.contract_review.risk import assess
from activities.contract_review.summary import summarise

CONTRACTS = Path(__file__).parents[2] / "data" / "contracts"
SERVICES, NDA, SAAS = (CONTRACTS / name for name in ("services_agreement.md", "nda.txt", "saas_terms.txt"))


def extracted(folder: Path, text: str, name: str = "contract.txt") -> Extraction:
    """Return what is extracted from a text."""
    file = folder / name
    file.write_text(text, "utf-8")
    return extract(read_document(file))


def found(folder: Path, text: str, policy: Policy | None = None) -> dict[str, Finding]:
    """Return what is found in clauses between a Supplier and a Customer: finding by rule."""
    parties = 'This Agreement is made between Ash Ltd (the "Supplier") and Birch Ltd (the "Customer").\n\n'
    analysis = analyse(extracted(folder, "AGREEMENT\n\n" + parties + text), policy or Policy())
    return {finding.rule: finding for finding in analysis.findings if not finding.absent}


def reviewed(path: Path, policy: Policy | None = None) -> Report:
    """Return the report on a contract, by rules."""
    extraction = extract(read_document(path))
    analysis: Analysis = analyse(extraction, policy or Policy())
    risks = assess(analysis, policy or Policy())
    summary = summarise(extraction, analysis, risks)
    return Report(summary=summary, extraction=extraction, analysis=analysis, risks=risks)


def clauses_of(extraction: Extraction) -> dict[str, Clause]:
    """Return the clauses by id."""
    return {clause.id: clause for clause in extraction.clauses}


def pdf_of(text: str, place: Path, *, running: bool = True) -> Path:
    """Write a text as a PDF of several pages with a running header and page numbers, and return its path."""

    class Pages(FPDF):
        def header(self) -> None:
            if running:
                self.cell(0, 8, "Tidewater Cloud Service - Confidential", new_x="LMARGIN", new_y="NEXT")

        def footer(self) -> None:
            if running:
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


@dataclass
class Service:
    """A service that speaks chat completions on this machine.

    Attributes:
        url: Its base.
        asked: The requests so far: path, headers, body.
    """

    url: str = ""
    asked: list[tuple[str, dict[str, str], dict[str, Any]]] = field(default_factory=list)

    def prompts(self) -> list[str]:
        """Return the user turns so far."""
        return [body["messages"][1]["content"] for _, _, body in self.asked]


Answers = Mapping[str, Any] | Callable[[dict[str, Any]], tuple[int, bytes]]


@contextmanager
def chat_service(answers: Answers) -> Iterator[Service]:
    """Run a chat completions service inside the `with` block.

    Args:
        answers: What to answer, by the name of the schema that is asked for; or a function from the request's body
            to status and body.
    """
    service = Service()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            service.asked.append((self.path, dict(self.headers), body))
            status, content = answers(body) if callable(answers) else _completion(answers, body)
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    service.url = f"http://127.0.0.1:{server.server_port}/v1"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield service
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _completion(answers: Mapping[str, Any], body: dict[str, Any]) -> tuple[int, bytes]:
    answer = answers[body["response_format"]["json_schema"]["name"]]
    text = answer if isinstance(answer, str) else json.dumps(answer)
    message = {"role": "assistant", "content": text}
    usage = {"prompt_tokens": 1_000, "completion_tokens": 200, "total_tokens": 1_200}
    choices = [{"index": 0, "message": message, "finish_reason": "stop"}]
    return 200, json.dumps({"object": "chat.completion", "choices": choices, "usage": usage}).encode()
