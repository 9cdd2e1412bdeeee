"""What a decision may rest on: certain facts of the right tool, in words of a known form, that nothing contradicts."""

import pytest

from activities.compliance_review.claims import Claim, Evidence, Fact, Recipients, Status
from tests.shipped.compliance_review.material import known

ACTIVE = Status(customer="C-7", status="active")


class TestEvidence:
    def test_takes_what_the_right_tool_said_with_success(self) -> None:
        """High confidence, the right source, and a sentence that a rule can parse."""
        backed = Evidence(known(ACTIVE)).one(Status, customer="C-7")
        assert backed is not None
        assert (backed.claim, backed.event) == (ACTIVE, "e1")

    @pytest.mark.parametrize(
        "fact",
        [
            pytest.param(Fact("e1", ACTIVE.sentence, ACTIVE.tool, "medium"), id="a model's word"),
            pytest.param(Fact("e1", ACTIVE.sentence, ACTIVE.tool, "low"), id="a fallback"),
            pytest.param(Fact("e1", ACTIVE.sentence, "user", "unverified"), id="a person's word"),
            pytest.param(Fact("e1", ACTIVE.sentence, "policy.search", "high"), id="another tool"),
            pytest.param(Fact("e1", "The account is fine.", ACTIVE.tool, "high"), id="free words"),
        ],
    )
    def test_sets_the_rest_aside(self, fact: Fact) -> None:
        """It is listed as set aside, and proves nothing (S5-fields-i)."""
        evidence = Evidence([fact])
        assert evidence.one(Status) is None
        assert evidence.set_aside == ("e1",)

    def test_believes_neither_of_two_that_contradict_each_other(self) -> None:
        """Two contradictory answers prove neither."""
        evidence = Evidence(
            known(ACTIVE, Status(customer="C-7", status="closed"), Status(customer="C-8", status="active"))
        )
        assert [backed.claim.customer for backed in evidence.all(Status)] == ["C-8"]
        assert evidence.set_aside == ("e1", "e2")

    def test_takes_one_fact_of_two_lines_for_no_contradiction(self) -> None:
        """The same entry on two lines of a register says the same."""
        evidence = Evidence(known(*(ACTIVE.model_copy(update={"line": line}) for line in (2, 9))))
        assert (len(evidence.all(Status)), evidence.set_aside) == (2, ())

    @pytest.mark.parametrize("again", [ACTIVE, Recipients(domains={})])
    def test_takes_what_is_said_twice_once(self, again: Claim) -> None:
        """The same answer from two calls is one fact."""
        assert len(Evidence(known(ACTIVE, again, ACTIVE)).all(Status)) == 1
