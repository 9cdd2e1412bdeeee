"""What a clause, and a contract, is about: by its title and its words."""

from pathlib import Path

import pytest

from activities.contract_review.clauses import extract
from activities.contract_review.reading import read_document
from activities.contract_review.records import Clause, Kind
from tests.unit.contract_review.material import NDA, SAAS, SERVICES, clauses_of


class TestKinds:
    """What a clause is about."""

    @pytest.mark.parametrize(
        ("path", "kinds"),
        [
            pytest.param(
                SERVICES,
                {
                    "3.2": "term",
                    "4.2": "payment",
                    "5.2": "confidentiality",
                    "6.2": "intellectual_property",
                    "8.1": "indemnity",
                    "9.2": "liability",
                    "11.1": "non_compete",
                    "12.1": "assignment",
                    "13.1": "governing_law",
                    "14.1": "entire_agreement",
                    "14.3": "data_protection",
                },
                id="services agreement",
            ),
            pytest.param(
                NDA,
                {"Section 2.1": "confidentiality", "Section 4.1": "term", "Section 5.2": "governing_law"},
                id="non-disclosure agreement",
            ),
            pytest.param(
                SAAS,
                {
                    "3.1": "service_levels",
                    "6.2": "data_protection",
                    "8.1": "warranty",
                    "10.1": "audit",
                    "11.1": "termination",
                },
                id="subscription terms",
            ),
        ],
    )
    def test_are_told_by_title_and_words(self, path: Path, kinds: dict[str, Kind]) -> None:
        """A clause has the kind that its title or its words say, or its parent's."""
        clauses: dict[str, Clause] = clauses_of(extract(read_document(path)))
        assert {id: clauses[id].kind for id in kinds} == kinds

    @pytest.mark.parametrize(("path", "kind"), [(SERVICES, "services"), (NDA, "nda"), (SAAS, "saas")])
    def test_of_the_contract_is_told_by_its_title(self, path: Path, kind: str) -> None:
        """What is expected of a contract depends on it."""
        assert extract(read_document(path)).type == kind
