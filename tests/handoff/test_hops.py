"""The ping-pong guard."""

from hypothesis import given
from hypothesis import strategies as st

from baton.handoff.records import HOP_WINDOW, MAX_HOPS, Hop, Trail, loop_reason

NOWHERE = Trail(hops=0, recent=[])


def hop(sender: str, receiver: str, state: int = 0) -> Hop:
    return Hop(sender=sender, receiver=receiver, state=f"sha256:{state:064x}")


def walk(hops: list[Hop]) -> tuple[int, str | None]:
    """Return how many hops take place before the guard ends the chain, and why it does."""
    trail = NOWHERE
    for index, hop in enumerate(hops):
        if reason := loop_reason(trail, hop):
            return index, reason
        trail = trail.with_hop(hop)
    return len(hops), None


class TestLoopReason:
    def test_two_agents_that_pass_the_same_thing_are_stopped(self) -> None:
        """Back and forth without any change is what never ends by itself."""
        count, reason = walk([hop("a", "b"), hop("b", "a")] * 20)

        assert count == 4
        assert reason is not None
        assert "the same state to 'b' more than 2 times" in reason

    def test_a_loop_that_makes_progress_may_go_on_for_a_while(self) -> None:
        """Write, review, write again; and then a person is asked."""
        count, reason = walk([hop("a", "b", n) if n % 2 == 0 else hop("b", "a", n) for n in range(40)])

        assert count == 12
        assert reason is not None
        assert "more than 6 times within 16 handoffs" in reason

    def test_a_slow_loop_is_outside_the_window(self) -> None:
        """The same two agents may meet again later in a long chain."""
        ring = [hop(str(n % 9), str((n + 1) % 9), state=0) for n in range(45)]

        assert walk(ring) == (45, None)

    def test_larger_circles_are_seen_too(self) -> None:
        """Three agents in a ring, with an unchanged state."""
        assert walk([hop("a", "b"), hop("b", "c"), hop("c", "a")] * 5)[0] == 6

    def test_a_chain_has_a_maximum(self) -> None:
        """A task has a maximum number of handoffs."""
        count, reason = walk([hop(f"agent-{n}", f"agent-{n + 1}", state=n) for n in range(300)])

        assert count == 256
        assert reason is not None
        assert "handed on 256 times, at most 256" in reason

    def test_a_straight_pipeline_never_meets_it(self) -> None:
        """The usual limits leave room for every shipped pipeline."""
        assert walk([hop(f"s{n}", f"s{n + 1}", state=n) for n in range(200)]) == (200, None)

    @given(st.lists(st.builds(hop, st.sampled_from("ab"), st.sampled_from("ab"), st.integers(0, 3)), max_size=80))
    def test_every_chain_ends(self, hops: list[Hop]) -> None:
        """No chain is longer than the maximum, and no trail longer than the window."""
        trail = NOWHERE
        for item in hops:
            if loop_reason(trail, item) is None:
                trail = trail.with_hop(item)

        assert trail.hops <= MAX_HOPS
        assert len(trail.recent) <= HOP_WINDOW


class TestTrail:
    def test_it_travels(self) -> None:
        """The guard sees a chain that crosses pipelines, because the trail is in the message."""
        trail = NOWHERE.with_hop(hop("a", "b")).with_hop(hop("b", "c"))

        assert Trail.from_json_object(trail.to_json_object()) == trail
        assert trail.to_json_object()["hops"] == 2
