"""Contracts of a long run: what is left out for good is counted, and not looked at again."""

from datetime import timedelta

import pytest

from baton.contract.compiler import Compiled, compile_contract
from baton.contract.records import SessionEvent
from baton.contract.session import MAX_OPEN_EVENTS, Session, SessionState
from baton.contract.validation import validate_contract
from tests.contract.contract_material import NOW, event, request, result


def compiled(session: Session, *events: SessionEvent, minutes: float = 0, max_tokens: int | None = 200) -> Compiled:
    """Add events to a session, and compile a contract so many minutes later."""
    session.events += events
    now, settled = NOW + timedelta(minutes=minutes), dict(session.settled)
    asked = request(created_at=now, max_tokens=max_tokens)
    contract = compile_contract(session.events, asked, settled=settled)
    session.settle(contract, now)
    return contract


class TestSession:
    def test_what_never_crosses_is_counted_once_and_not_kept(self) -> None:
        """The contract counts it for good, and its labels are sent once."""
        session = Session()
        call = event("tool_call", id="call", tool_name="crm.lookup", call_id="k")
        old = result("The price is 5", 600, id="old", call_id="k")
        first = compiled(session, event("brainstorm", "What if", id="idea"), call, old, result("It is open", id="new"))
        sent = session.left_out(persisted=True)
        second = compiled(session, minutes=1)

        assert sent == {"idea": "type:brainstorm", "old": "stale:crm.lookup"}
        assert [kept.id for kept in session.events] == ["new"]
        assert session.left_out(persisted=True) == {}
        assert first.contract.excluded_counts == second.contract.excluded_counts
        assert not validate_contract(second.contract, now=NOW, report=second.report).errors

    @pytest.mark.parametrize("max_tokens", [200, None])
    def test_the_work_of_a_contract_does_not_grow_with_the_run(self, max_tokens: int | None) -> None:
        """However many decisions were made, a bounded number of events is looked at; all are counted."""
        session = Session()
        for number in range(3):
            decisions = [
                event("decision", f"Take option {number}.{nth}", id=f"{number}.{nth}", accepted=True)
                for nth in range(MAX_OPEN_EVENTS)
            ]
            contract = compiled(session, *decisions, max_tokens=max_tokens)
            assert len(session.events) == MAX_OPEN_EVENTS
        last = compiled(session, max_tokens=max_tokens)

        assert len(contract.report.dispositions) == 2 * MAX_OPEN_EVENTS
        assert sum((last.contract.excluded_counts or {}).values()) + len(last.contract.facts) == 3 * MAX_OPEN_EVENTS
        assert set(session.left_out(persisted=True)) >= {"0.0", "1.0"}

    def test_a_run_that_continues_has_the_same_session(self) -> None:
        """It names nothing again, also what no kept message has named yet."""
        session = Session()
        compiled(session, event("brainstorm", "What if", id="idea"), result("It is open", id="new"))
        assert session.left_out(persisted=False) == {"idea": "type:brainstorm"}
        carried = SessionState.model_validate_json(session.state().model_dump_json())
        restored = Session(carried)

        assert compiled(restored, minutes=1) == compiled(session, minutes=1)
        assert restored.left_out(persisted=True) == {"idea": "type:brainstorm"}
        assert restored.left_out(persisted=True) == {}
