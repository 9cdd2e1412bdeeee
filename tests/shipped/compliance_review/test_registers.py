"""Asking the registers: what they say, how old it is, and registers that cannot be asked."""

from collections.abc import Callable
from datetime import UTC, date, datetime
from pathlib import Path

import pytest

from activities.compliance_review.claims import Amount, Claim, Customer, Quote, RegisterError, Status
from activities.compliance_review.policy import Answer, CustomerRow, Registers
from tests.shipped.compliance_review.material import NOON, RECORDS

Ask = Callable[[Registers], list[Answer]]
SAMPLE = Registers(RECORDS, lambda: NOON)
EUR_48K = Amount(currency="EUR", cents=4_800_000)


def registers(folder: Path, name: str, content: str) -> Registers:
    (folder / name).write_text(content)
    return Registers(folder, lambda: NOON)


class TestLookUps:
    @pytest.mark.parametrize(
        ("ask", "claim"),
        [
            pytest.param(
                lambda registers: registers.lookup_customer("acme.example"),
                Customer(domain="acme.example", customer="C-1007", tier="enterprise", line=2),
                id="a customer's domain",
            ),
            pytest.param(
                lambda registers: registers.lookup_customer("stranger.example"),
                Customer(domain="stranger.example"),
                id="nobody's domain",
            ),
            pytest.param(
                lambda registers: registers.lookup_pricing("C-1007"),
                Quote(customer="C-1007", quote="Q-2231", quoted_on=date(2026, 6, 2), amount=EUR_48K, line=2),
                id="a quote",
            ),
            pytest.param(lambda registers: registers.lookup_pricing("C-1012"), Quote(customer="C-1012"), id="no quote"),
            pytest.param(
                lambda registers: registers.read_customer_status("C-1012"),
                Status(customer="C-1012", status="suspended", line=3),
                id="a status",
            ),
        ],
    )
    def test_say_what_is_on_record(self, ask: Ask, claim: Claim) -> None:
        """Both the presence and the absence of an entry are claims."""
        assert [answer.claim for answer in ask(SAMPLE)] == [claim]

    def test_an_answer_has_the_line_that_its_row_has(self, tmp_path: Path) -> None:
        """Also below a cell of two lines and an empty line; a line without the words is no answer."""
        text = 'customer,domain,note\nC-1,acme.example,"two\nlines"\n\nC-2,birch.example,one\n'
        asked = registers(tmp_path, "customers.csv", text)
        lines = [asked.lookup_customer(domain)[0].claim.line for domain in ("acme.example", "birch.example")]
        assert lines == [2, 5]
        for row in asked._read_rows("customers", CustomerRow):
            with pytest.raises(RegisterError, match=rf"line {row.line + 1} does not have '{row.customer}'"):
                asked._prove("customers", row.model_copy(update={"line": row.line + 1}), Customer(domain=row.domain))

    def test_a_domain_is_known_however_it_is_spelt(self, tmp_path: Path) -> None:
        """One capital letter in the register made every customer of it unknown."""
        (tmp_path / "customers.csv").write_text("customer,domain\nC-1,Acme.Example\nC-2,müller.example\n", "utf-8")
        registers = Registers(tmp_path, lambda: NOON)
        [answer] = registers.lookup_customer("acme.example")
        assert answer.claim == Customer(domain="acme.example", customer="C-1", tier="standard", line=2)


class TestRetrieval:
    def test_is_now_for_a_register_that_is_read_now(self) -> None:
        """A live register's answer is fresh."""
        assert SAMPLE.lookup_customer("acme.example")[0].retrieved_at == NOON

    def test_is_when_it_was_copied_for_a_copy(self) -> None:
        """A fact has the time at which its data was retrieved, not that of the call (S5-fm-b)."""
        assert SAMPLE.lookup_pricing("C-1007")[0].retrieved_at == datetime(2026, 6, 27, 8, 40, tzinfo=UTC)


class TestBrokenRegisters:
    @pytest.mark.parametrize(
        ("name", "content", "message"),
        [
            pytest.param("others.csv", "", "'customers.csv' cannot be read", id="missing"),
            pytest.param("customers.csv", "customer\nC-7", "check domain", id="a row without a domain"),
            pytest.param(
                "customers.csv", "customer,domain\nJane Doe,acme.example", "check customer", id="a name as reference"
            ),
            pytest.param(
                "customers.csv",
                "customer,domain\nC-1,acme.example\nC-2,acme.example",
                "2 customers at the domain 'acme.example'",
                id="two answers",
            ),
            pytest.param(
                "customers.csv",
                "customer,domain,retrieved_at\nC-1,acme.example,yesterday",
                "check retrieved_at",
                id="no time",
            ),
        ],
    )
    def test_say_nothing(self, tmp_path: Path, name: str, content: str, message: str) -> None:
        """An unreadable register is a tool error, never a negative answer; the message quotes no cell."""
        with pytest.raises(RegisterError, match=message) as raised:
            registers(tmp_path, name, content).lookup_customer("acme.example")
        assert "Jane" not in str(raised.value)
