"""Facts: parties, terms, dates, amounts, periods and percentages, and what cannot be read for certain."""

from pathlib import Path

import pytest

from activities.contract_review.clauses import extract
from activities.contract_review.reading import read_document
from activities.contract_review.records import FactKind
from tests.unit.contract_review.material import NDA, SAAS, SERVICES, extracted


class TestFindFacts:
    """Reading facts in clauses."""

    @pytest.mark.parametrize(
        ("path", "parties"),
        [
            pytest.param(
                SERVICES,
                {"Supplier": "Halden Analytics Ltd", "Customer": "Northmoor Logistics B.V."},
                id="with addresses",
            ),
            pytest.param(
                NDA, {"Calder": "Calder Robotics, Inc.", "Ostrava": "Ostrava Castings s.r.o."}, id="with forms"
            ),
            pytest.param(
                SAAS,
                {"Provider": "Tidewater Software GmbH", "Customer": "Fenwick Dairies Cooperative"},
                id="with towns",
            ),
        ],
    )
    def test_names_the_parties_by_role(self, path: Path, parties: dict[str, str]) -> None:
        """A party's name is told from its address, form and description; the agreement itself is none."""
        assert extract(read_document(path)).parties() == parties

    def test_names_the_parties_of_a_preamble_in_capitals(self, tmp_path: Path) -> None:
        """`(THE "SUPPLIER")` defines a role as the same words in small letters do."""
        text = 'AGREEMENT\n\nBETWEEN ASH LTD (THE "SUPPLIER") AND ELM LTD (THE "CUSTOMER").\n\n1. FEES\nNONE.\n'
        assert extracted(tmp_path, text).parties() == {"SUPPLIER": "ASH LTD", "CUSTOMER": "ELM LTD"}

    @pytest.mark.parametrize(
        ("text", "kind", "value"),
        [
            pytest.param("on 2026-03-01", "date", "2026-03-01", id="ISO date"),
            pytest.param("on the 1st day of March 2026", "date", "2026-03-01", id="spoken date"),
            pytest.param("on March 1, 2026", "date", "2026-03-01", id="American date"),
            pytest.param("on 25/03/2026", "date", "2026-03-25", id="slashes that can be one day only"),
            pytest.param("on 03/04/2026", "date", "", id="slashes that can be two days"),
            pytest.param("on 31 February 2026", "date", "", id="a day that never comes"),
            pytest.param("pay EUR 1,250.50 now", "amount", "EUR 1250.50", id="English amount"),
            pytest.param("pay EUR 1.250,50 now", "amount", "EUR 1250.50", id="continental amount"),
            pytest.param("pay $1.5 million now", "amount", "USD 1500000.00", id="millions"),
            pytest.param("pay 20 000 euros now", "amount", "EUR 20000.00", id="currency behind"),
            pytest.param("pay €48K now", "amount", "EUR 48000.00", id="thousands by a letter"),
            pytest.param("pay 2,5 Mio. EUR now", "amount", "EUR 2500000.00", id="a continental short form"),
            pytest.param("pay EUR 2,5 Million now", "amount", "EUR 2500000.00", id="a decimal comma"),
            pytest.param("pay USD 2bn now", "amount", "USD 2000000000.00", id="billions by two letters"),
            pytest.param("pay 48 TEUR now", "amount", "EUR 48000.00", id="a currency of thousands"),
            pytest.param("pay 48.000 Euro now", "amount", "EUR 48000.00", id="a currency with a capital"),
            pytest.param("pay for 2025 EUR 120,000 now", "amount", "EUR 120000.00", id="a year before the currency"),
            pytest.param("in thirty (30) days", "period", "30 days", id="words and figures"),
            pytest.param("in 10 business days", "period", "10 days", id="business days"),
            pytest.param("in twenty-four months", "period", "24 months", id="words alone"),
            pytest.param("at 1.5% per month", "percentage", "1.5 % per month", id="a rate"),
            pytest.param("at 8 percent per annum", "percentage", "8 % per annum", id="a yearly rate"),
            pytest.param("“Fees” means money", "definition", "Fees", id="a term"),
        ],
    )
    def test_reads_values(self, tmp_path: Path, text: str, kind: FactKind, value: str) -> None:
        """Each fact has a form to compute with, or none where it can be read two ways."""
        facts = extracted(tmp_path, f"We agree {text} and so on.").facts
        assert [fact.value for fact in facts if fact.kind == kind] == [value]

    @pytest.mark.parametrize("path", [SERVICES, NDA, SAAS], ids=lambda path: path.stem)
    def test_quotes_what_the_clause_says(self, path: Path) -> None:
        """The words of every fact stand in the clause it names."""
        extraction = extract(read_document(path))
        texts = {clause.id: clause.text for clause in extraction.clauses}
        assert extraction.facts
        assert all(fact.quote in texts[fact.clause] for fact in extraction.facts)
