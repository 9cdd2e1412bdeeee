"""Clauses: where they begin, what they are called, what they are about, and what is no clause."""

import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest

from activities.contract_review.clauses import extract
from activities.contract_review.reading import read_document
from activities.contract_review.records import Extraction
from tests.unit.contract_review.material import NDA, SAAS, SERVICES, clauses_of, extracted


def outline(extraction: Extraction) -> list[tuple[str, str | None]]:
    """Return id and parent of every clause after the preamble."""
    return [(clause.id, clause.parent) for clause in extraction.clauses[1:]]


def words(texts: Iterable[str]) -> Counter[str]:
    """Count the words of texts."""
    return Counter(re.findall(r"[a-z]{2,}", " ".join(texts).lower()))


class TestExtract:
    """Taking a contract apart."""

    @pytest.mark.parametrize("path", [SERVICES, NDA, SAAS], ids=lambda path: path.stem)
    def test_keeps_every_word_once(self, path: Path) -> None:
        """No word of a contract is lost, and none is told twice: each is in a clause, a title or a label."""
        document = read_document(path)
        extraction = extract(document)
        written = words(line.text for line in document.lines)
        told = words(clause.text for clause in extraction.clauses)
        named = words([extraction.title, *(f"{clause.id} {clause.title}" for clause in extraction.clauses)])
        assert not written - told - named
        assert not told - written

    @pytest.mark.parametrize("path", [SERVICES, NDA, SAAS], ids=lambda path: path.stem)
    def test_places_each_clause_where_its_words_are(self, path: Path) -> None:
        """A clause's first words stand on its first line or just below, its last words on its last."""
        document = read_document(path)
        lines = {(line.page, line.number): line.text for line in document.lines}
        for clause in extract(document).clauses:
            if clause.text:
                assert clause.text[-20:].strip() in " ".join(
                    lines.get((clause.last_page, clause.last_line - back), "") for back in (1, 0)
                )
                assert (clause.page, clause.line) <= (clause.last_page, clause.last_line)

    def test_numbers_points_below_their_clause(self) -> None:
        """(b)(i) is a point of (b), which is one of 2.2."""
        clauses = clauses_of(extract(read_document(SERVICES)))
        assert clauses["2.2(b)(i)"].parent == "2.2(b)"
        assert clauses["2.2(c)"].parent == "2.2"
        assert clauses["2.2(c)"].point

    @pytest.mark.parametrize(
        ("text", "ids"),
        [
            pytest.param(
                "1. Fees\n1.1 Fees are due.\n1.2 Tax is added.\n2. Term\nTwo years.\n",
                [("1", None), ("1.1", "1"), ("1.2", "1"), ("2", None)],
                id="decimal numbers",
            ),
            pytest.param(
                "Payment:\nThe Customer shall pay.\n\nTermination::\n\nEither party may end it.\n\n"
                "Limitation of liability:\n\nIt is capped.\n\nIn the event of what is told below:\n\nIt ends.\n",
                [("H1", None), ("H2", None), ("H3", None)],
                id="titles with a colon",
            ),
            pytest.param(
                "Sec. 1. Fees.\nFees are due.\nSec. 2. Term.\nTwo years.\n",
                [("Sec. 1", None), ("Sec. 2", None)],
                id="sections in short",
            ),
            pytest.param(
                "Clause No. 1 Fees\nFees are due.\nClause No. 2 Term\nTwo years.\n",
                [("Clause 1", None), ("Clause 2", None)],
                id="clauses by number",
            ),
            pytest.param(
                "1. FEES AND TAXES.\n1.1 They are due.\n2. Sums in Dispute.\n2.1 They are not.\n",
                [("1", None), ("1.1", "1"), ("2", None), ("2.1", "2")],
                id="titles with a full stop",
            ),
            pytest.param(
                "ARTICLE I - FEES\n\nSection 1.1 Due Date. Fees are due.\n\n"
                "ARTICLE II - TERM\n\nSection 2.1 Length. A year.\n",
                [
                    ("Article I", None),
                    ("Section 1.1", "Article I"),
                    ("Article II", None),
                    ("Section 2.1", "Article II"),
                ],
                id="articles in Roman numbers",
            ),
            pytest.param(
                "Article 1. Fees\nSection 1. Due Date. Fees are due.\nArticle 2. Term\nSection 1. Length. A year.\n",
                [
                    ("Article 1", None),
                    ("Article 1 Section 1", "Article 1"),
                    ("Article 2", None),
                    ("Article 2 Section 1", "Article 2"),
                ],
                id="sections counted anew in each article",
            ),
            pytest.param("§ 1 Fees\nThey are due.\n§ 2 Term\nA year.\n", [("§ 1", None), ("§ 2", None)], id="signs"),
            pytest.param(
                "FEES\n\nThey are due.\n\nTERM AND END\n\nA year.\n",
                [("H1", None), ("H2", None)],
                id="headings in capitals",
            ),
            pytest.param(
                "1. Fees\nThey are due.\n\nSCHEDULE A - SERVICES\n\n1. We dig.\n2. We fill.\n",
                [("1", None), ("Schedule A", None), ("Schedule A 1", "Schedule A"), ("Schedule A 2", "Schedule A")],
                id="a schedule with numbers of its own",
            ),
            pytest.param(
                "1. Fees\nThey are due within\n30 days after the invoice, or\n"
                "12.5 months, and in 3. cases.\n2. Term\nA year.\n",
                [("1", None), ("2", None)],
                id="numbers at the beginning of a broken line",
            ),
            pytest.param(
                "1. Fees\nAs stated in\nSection 9 of the Act and under\n"
                "7. The order, they are due.\n2. Term\nA year.\n",
                [("1", None), ("2", None)],
                id="references at the beginning of a broken line",
            ),
            pytest.param(
                "1. Fees\nDue.\n3. Term\nA year.\n", [("1", None), ("3", None)], id="a clause that was struck"
            ),
            pytest.param("1. Fees\n1. Fees\nDue.\n", [("1", None)], id="a number that does not go on"),
            pytest.param(
                "(1) Fees. Due:\n(a) at once;\n(i) in cash.\n(2) Term. A year.\n",
                [("(1)", None), ("(1)(a)", "(1)"), ("(1)(a)(i)", "(1)(a)"), ("(2)", None)],
                id="numbers in brackets alone",
            ),
            pytest.param("a) We dig.\n\nb) You pay.\n", [("(a)", None), ("(b)", None)], id="letters alone"),
            pytest.param(
                "".join(f"{letter}. Duty {letter}\nIt is done.\n" for letter in "ABCDEFGHIJ"),
                [(letter, None) for letter in "ABCDEFGHIJ"],
                id="capital letters, of which C and I are Roman numbers as well",
            ),
            pytest.param(
                "ARTICLE ONE\nFEES\n\nSection 1.01 Due Date. At once.\n\nARTICLE TWO\nTERM\n\nA year.\n",
                [("Article ONE", None), ("Section 1.01", "Article ONE"), ("Article TWO", None)],
                id="articles in words",
            ),
            pytest.param(
                "1.0 FEES\n1.1 They are due.\n2.0 TERM\n2.1 A year.\n",
                [("1.0", None), ("1.1", "1.0"), ("2.0", None), ("2.1", "2.0")],
                id="numbers that end in nought",
            ),
            pytest.param(
                "1 - Fees\nThey are due.\n2 – Term\nA year.\n", [("1", None), ("2", None)], id="numbers and a dash"
            ),
            pytest.param(
                "Payment Terms\n\nThey are due.\n\nLimitation of liability\n\nNone is.\n",
                [("H1", None), ("H2", None)],
                id="titles that stand alone",
            ),
            pytest.param(
                "Payment Terms\n\nThey are due:\n\n(a) at once; and\n\n(b) in cash.\n\n"
                "Limitation of liability\n\nNone is.\n",
                [("H1", None), ("H1(a)", "H1"), ("H1(b)", "H1"), ("H2", None)],
                id="titles that stand alone, and points below them",
            ),
            pytest.param(
                "Date: May 2026\n\nPayment Terms. They are due.\nAt once.\n\nNo cap. There is none.\n\n"
                "Governing law: That of York.\n\nThe rest. It stays.\n",
                [("H1", None), ("H2", None), ("H3", None)],
                id="titles that run into their paragraphs",
            ),
            pytest.param(
                "Payment Terms\n\nThey are due each month.\n\nLiability\n\nNone is.\n\n"
                "IN WITNESS WHEREOF we sign.\n\nASH LTD\n\nAnn, its director.\n",
                [("H1", None), ("H2", None), ("H3", None), ("H4", None)],
                id="titles that stand alone, above signatures",
            ),
            pytest.param(
                "(1) Fees. They are due each month.\n(2) Term. A year.\n\nSUPPLIER: ASH LTD\n\nAnn, its director.\n",
                [("(1)", None), ("(2)", None), ("H1", None)],
                id="numbers in brackets above signatures",
            ),
            pytest.param(
                "A. Fees\nThey are due.\nB. Term\nA year.\n\nEXHIBIT A\n\n1. Services\nWe dig.\n",
                [("A", None), ("B", None), ("Exhibit A", None), ("Exhibit A 1", "Exhibit A")],
                id="capital letters above an exhibit",
            ),
            pytest.param(
                "1. Fees ........ 2\n2. Term ........ 3\n\n1. Fees\nDue.\n2. Term\nA year.\n",
                [("1", None), ("2", None)],
                id="a table of contents",
            ),
        ],
    )
    def test_reads_numbering(self, tmp_path: Path, text: str, ids: list[tuple[str, str | None]]) -> None:
        """Each usual way to number clauses gives their ids and what they belong to."""
        assert outline(extracted(tmp_path, "Agreement between two parties.\n\n" + text)) == ids

    def test_counts_on_as_markdown_does(self, tmp_path: Path) -> None:
        """A list whose items all say `1.` is shown as 1, 2, 3, and a list within an item counts anew."""
        items = ["1. **Fees.** Due.", "   1. At once.", "   1. In cash.", "1. **Term.** A year.", "4. **End.** None."]
        text = "\n".join(["# Agreement", "", *items])
        extraction = extracted(tmp_path, text, "contract.md")
        assert outline(extraction) == [("1", None), ("1.1", "1"), ("1.2", "1"), ("2", None), ("4", None)]
        assert [clause.title for clause in extraction.clauses] == ["Agreement", "Fees", "Fees", "Fees", "Term", "End"]

    def test_takes_a_list_below_a_number_for_its_points(self, tmp_path: Path) -> None:
        """Markdown counts it from 1: the second point opened clause 2, and the real one was lost in it."""
        text = "# Terms\n\n## 1. Fees\n\n1. Ash pays.\n   1. Within a week.\n2. Elm waits.\n\n## 2. Secrecy\n\nKept.\n"
        clauses = extracted(tmp_path, text, "c.md").clauses
        assert [(one.id, one.kind, one.text) for one in clauses[1:]] == [
            ("1", "payment", ""),
            ("1(1)", "payment", "Ash pays. (1.1) Within a week."),
            ("1(2)", "payment", "Elm waits."),
            ("2", "general", "Kept."),
        ]

    def test_takes_a_bold_title_beside_numbers_for_a_clause(self, tmp_path: Path) -> None:
        """Only after the first number, for a stamp may stand above it, and where it names what contracts settle."""
        text = (
            "# Terms\n\n**Confidential**\n\n## 1. Fees\n\nAsh pays.\n\n**Ash Ltd**\n\n**Limitation of liability:**\n\n"
            "It is unlimited.\n\n1. For Ash.\n2. For Elm.\n\n## 2. Secrecy\n\nKept.\n"
        )
        clauses = extracted(tmp_path, text, "c.md").clauses
        assert clauses[2].title == "Limitation of liability"
        assert [(one.id, one.kind, one.parent, one.text) for one in clauses] == [
            ("Preamble", "parties", None, "Confidential"),
            ("1", "payment", None, "Ash pays. Ash Ltd"),
            ("H1", "liability", None, "It is unlimited."),
            ("H1(1)", "liability", "H1", "For Ash."),
            ("H1(2)", "liability", "H1", "For Elm."),
            ("2", "general", None, "Kept."),
        ]

    def test_reads_titles_without_numbers_at_the_head_of_paragraphs(self, tmp_path: Path) -> None:
        """In bold type or in a list of Markdown; the words behind them are the clause's."""
        text = "# Terms\n\nFor Ash.\n\n- **Fees.** Ash pays.\n- **Term**: A year.\n\n**Audits.** One a year.\n"
        clauses = extracted(tmp_path, text, "c.md").clauses
        assert [(one.title, one.kind, one.text) for one in clauses] == [
            ("Terms", "parties", "For Ash."),
            ("Fees", "payment", "Ash pays."),
            ("Term", "term", "A year."),
            ("Audits", "audit", "One a year."),
        ]

    def test_says_that_it_may_be_no_contract(self, tmp_path: Path) -> None:
        """What is missing in a recipe says nothing of a contract."""
        [note] = extracted(tmp_path, "# Pie\n\n1. Peel the apples.\n2. Bake them.\n", "pie.md").notes
        assert note.endswith("it may be no contract")
        assert extracted(tmp_path, "# Terms\n\n1. Peel the apples.\n2. Bake them.\n", "pie.md").notes == ()

    def test_makes_one_clause_of_a_contract_without_any(self, tmp_path: Path) -> None:
        """A letter is a contract, too."""
        clauses = extracted(tmp_path, "We sell you the boat for EUR 9,000.\nYou fetch it in May.\n").clauses
        assert [(one.id, one.text) for one in clauses] == [
            ("Preamble", "We sell you the boat for EUR 9,000. You fetch it in May.")
        ]

    def test_makes_no_clauses_of_the_lines_of_an_address(self, tmp_path: Path) -> None:
        """A letter has lines that stand alone as titles do, and names the parties below them."""
        letter = "Ash Ltd\nLondon\n\nElm Ltd\nYork\n\nDear Sirs\n\nConsulting Services\n\n"
        extraction = extracted(tmp_path, f"{letter}Ash Ltd (the “Supplier”) will dig.\n")
        assert outline(extraction) == []
        assert [fact.role for fact in extraction.facts] == ["Supplier"]

    def test_tells_the_number_of_a_house_from_the_first_clause(self, tmp_path: Path) -> None:
        """An address may begin as a clause does, and the clause that is counted so comes after it."""
        extraction = extracted(
            tmp_path, "Made between\n\nAsh Ltd\n1 High Street\nYork\n\n1. Fees\nDue.\n2. Term\nA year.\n"
        )
        assert [(one.id, one.title) for one in extraction.clauses[1:]] == [("1", "Fees"), ("2", "Term")]
        assert extraction.clauses[0].text == "Made between Ash Ltd 1 High Street York"

    @pytest.mark.parametrize(
        ("rows", "found"),
        [
            pytest.param(
                "| No. | Clause | Wording |\n|---|---|---|\n| 1 | Fees | The Customer shall pay EUR 9. |\n"
                "| 1.1 | Late payment | Interest of 1.5% per month is due. |\n"
                "| 2. | Term | It renews for terms of 3 years. |\n",
                [("1", "Fees", 5), ("1.1", "Late payment", 6), ("2", "Term", 7)],
                id="number, title and wording",
            ),
            pytest.param(
                "| Clause | Wording |\n|---|---|\n| Fees | The Customer shall pay EUR 9. |\n"
                "| Limitation of liability | The liability is unlimited. |\n",
                [("H1", "Fees", 5), ("H2", "Limitation of liability", 6)],
                id="title and wording",
            ),
            pytest.param(
                "| | |\n|---|---|\n| 1 | The Customer shall pay EUR 9. |\n| 2 | The contract ends in May 2027. |\n",
                [("1", "1", 5), ("2", "2", 6)],
                id="number and wording",
            ),
        ],
    )
    def test_reads_a_table_of_clauses(self, tmp_path: Path, rows: str, found: list[tuple[str, str, int]]) -> None:
        """Of a contract that stands in a table each row is a clause, and no word of it is lost."""
        extraction = extracted(tmp_path, f"# Agreement\n\n{rows}", "contract.md")
        assert [(one.id, one.title, one.line) for one in extraction.clauses[1:]] == found
        told = words([text for one in extraction.clauses for text in (one.title, one.text)])
        assert words([rows]) - told == Counter()

    def test_makes_no_clauses_of_what_is_listed_in_one(self, tmp_path: Path) -> None:
        """A table beside clauses, of milestones or prices, belongs to the clause it stands in."""
        listed = (
            "| 1 | Design | The Supplier shall show it by May. |\n|---|---|---|\n| 2 | Test | It is run by June. |\n"
        )
        clauses = "## 1. Fees\n\nThe Customer shall pay, within 30 days of each milestone, what it is worth:\n\n"
        text = f"# Agreement\n\n{clauses}{listed}\n## 2. Term\n\nThe Agreement ends one year after its signature.\n"
        assert outline(extracted(tmp_path, text, "contract.md")) == [("1", None), ("2", None)]

    def test_finds_the_title_below_a_company_name(self, tmp_path: Path) -> None:
        """The parties are named below the title, wherever that stands."""
        text = (
            'Ash Ltd\n\nNON-DISCLOSURE AGREEMENT\n\nBetween Ash Ltd ("Ash") and Elm Ltd ("Elm").\n\n1. Term\nA year.\n'
        )
        extraction = extracted(tmp_path, text)
        assert (extraction.title, extraction.type) == ("NON-DISCLOSURE AGREEMENT", "nda")
        assert extraction.parties() == {"Ash": "Ash Ltd", "Elm": "Elm Ltd"}
        assert outline(extraction) == [("1", None)]

    def test_takes_a_title_without_its_full_stop(self, tmp_path: Path) -> None:
        """A title is a title with a full stop, too; a short sentence is none."""
        clauses = clauses_of(extracted(tmp_path, "A letter.\n\n1. FEES AND TAXES.\n1.1 They are due.\n2. It ends.\n"))
        assert (clauses["1"].title, clauses["1"].text, clauses["1.1"].title) == ("FEES AND TAXES", "", "FEES AND TAXES")
        assert clauses["2"].text == "It ends."

    @pytest.mark.parametrize(
        ("text", "title", "words"),
        [
            pytest.param(
                "6. WARRANTIES; DISCLAIMER\nALL IS PROVIDED AS IT STANDS AND WITHOUT ANY WARRANTY.\n",
                "WARRANTIES; DISCLAIMER",
                "ALL IS PROVIDED AS IT STANDS AND WITHOUT ANY WARRANTY.",
                id="capitals above a paragraph in capitals",
            ),
            pytest.param(
                "6. IN NO EVENT SHALL ASH OR\nITS STAFF BE LIABLE FOR MORE.\n",
                "6",
                "IN NO EVENT SHALL ASH OR ITS STAFF BE LIABLE FOR MORE.",
                id="the first line of a paragraph in capitals",
            ),
            pytest.param(
                "6. This Agreement commences on the Effective\nDate and ends a year later.\n",
                "6",
                "This Agreement commences on the Effective Date and ends a year later.",
                id="the first line of a narrow column",
            ),
        ],
    )
    def test_tells_a_title_from_a_broken_line(self, tmp_path: Path, text: str, title: str, words: str) -> None:
        """A title ends of itself; a sentence that a page broke goes on."""
        before = "".join(f"{number}. We dig.\n" for number in range(1, 6))
        clause = clauses_of(extracted(tmp_path, f"A letter.\n\n{before}{text}"))["6"]
        assert (clause.title, clause.text) == (title, words)

    def test_takes_the_title_of_an_article_from_the_line_below(self, tmp_path: Path) -> None:
        """Articles have their numbers on a line of their own, and sections without a kind have theirs from it."""
        text = "A letter.\n\nARTICLE I\nTERM\n\nSection 1.1 At Will. It goes on.\n\nARTICLE II\nThe fee is due.\n"
        clauses = clauses_of(extracted(tmp_path, text))
        assert [(one.title, one.text) for one in clauses.values()][1:] == [
            ("TERM", ""),
            ("At Will", "It goes on."),
            ("Article II", "The fee is due."),
        ]
        assert clauses["Section 1.1"].kind == "term"

    def test_gives_each_clause_an_id_of_its_own(self, tmp_path: Path) -> None:
        """Two schedules of the same name are told apart."""
        extraction = extracted(tmp_path, "A letter.\n\nSCHEDULE A\n\nOne.\n\nSCHEDULE A\n\nTwo.\n")
        assert [clause.id for clause in extraction.clauses] == ["Preamble", "Schedule A", "Schedule A (2)"]

    def test_is_the_same_each_time(self) -> None:
        """Neither clock nor chance is in it."""
        assert extract(read_document(SERVICES)) == extract(read_document(SERVICES))


class TestHostile:
    """Texts that are made to be slow, or to be something else."""

    def test_reads_five_megabytes(self, tmp_path: Path) -> None:
        """A text of 5 MB is read whole, on one path that is linear in its length."""
        part = "The Supplier may change the fees of EUR 1 000 within thirty (30) days of 1 March 2026. "
        text = "1. Fees\n" + part * (5_000_000 // len(part)) + "\n2. Term\nA year.\n"
        clauses = clauses_of(extracted(tmp_path, text))
        assert len(clauses["1"].text) > 4_900_000
        assert clauses["2"].text == "A year."

    @pytest.mark.parametrize(
        "text",
        [
            pytest.param("1 000 000 " * 20_000, id="groups of digits"),
            pytest.param("1." * 100_000, id="a number without end"),
            pytest.param('("A' * 50_000, id="roles that never close"),
            pytest.param("one hundred and " * 20_000, id="words of numbers"),
            pytest.param(("(a) x\n(i) y\n" * 10_000), id="points that begin again"),
            pytest.param("SCHEDULE A\n\nx\n\n" * 5_000, id="the same heading again and again"),
            pytest.param("1. A\n" + "".join(f"1.{n} B\n" for n in range(1, 8_000)), id="thousands of clauses"),
            pytest.param("..." * 60_000, id="dots"),
            pytest.param("may the " * 40_000, id="the beginnings of rules"),
        ],
    )
    @pytest.mark.timeout(60)
    def test_is_not_slowed_down(self, tmp_path: Path, text: str) -> None:
        """Text of some hundred KB that is made for backtracking is read all the same."""
        assert extracted(tmp_path, "A letter.\n\n" + text).clauses
