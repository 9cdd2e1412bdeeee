"""The canonical form of JSON, and digests over it."""

import hashlib
import json
import math
from pathlib import Path
from typing import Any

import pytest
import rfc8785
from hypothesis import given

from baton.wire.json_values import digest
from tests.core.material import json_objects

DOCUMENTS = Path(__file__).parents[1] / "data/rfc8785"


class TestDigest:
    @pytest.mark.parametrize("path", sorted((DOCUMENTS / "input").glob("*.json")), ids=lambda path: path.stem)
    def test_it_is_taken_over_the_published_canonical_form(self, path: Path) -> None:
        """The documents of the RFC's own repository have the digests of their published canonical bytes."""
        canonical = (DOCUMENTS / "output" / path.name).read_bytes()

        actual = digest(json.loads(path.read_text(encoding="utf-8")))

        assert actual == "sha256:" + hashlib.sha256(canonical).hexdigest()

    def test_all_six_documents_are_there(self) -> None:
        """A missing document would prove less."""
        assert len(list((DOCUMENTS / "input").glob("*.json"))) == 6

    @given(json_objects)
    def test_the_order_of_members_does_not_matter(self, document: dict[str, Any]) -> None:
        """Two writers of the same baton agree on its digest."""
        assert digest(dict(reversed(document.items()))) == digest(document)

    @pytest.mark.parametrize(
        "value",
        [
            pytest.param(2**53, id="a whole number beyond what a double holds"),
            pytest.param(math.nan, id="not a number"),
            pytest.param(math.inf, id="infinity"),
            pytest.param("\ud800", id="half a character"),
            pytest.param({1: "a"}, id="a key that is no text"),
            pytest.param({"a": {1, 2}}, id="a set"),
        ],
    )
    def test_a_value_outside_json_has_no_digest(self, value: Any) -> None:
        """A digest that another reader cannot recompute is refused instead of guessed."""
        with pytest.raises(rfc8785.CanonicalizationError):
            digest(value)
