"""The tokens of outside agents, which can change while the service runs."""

from temporalio.client import Client

from baton.client import serve_outside
from baton.handoff.store_safeguards import Safeguards
from baton.outside.client_external import OutsideAgents
from tests.exchange.test_outside_service import TOKENS, call


async def test_a_token_is_changed_while_the_service_runs(sealing: Client, safeguards: Safeguards) -> None:
    """From then on only the new one counts; a token that would be refused at the start belongs to nobody."""
    tokens = dict(TOKENS)
    async with (
        safeguards.shared().open() as guarded,
        serve_outside(OutsideAgents(sealing, guarded.gate), tokens) as url,
    ):
        nothing = f"{url}/handoffs/x/claim?workflow=none"  # who is let in learns that there is no such pipeline
        assert (await call(nothing, {}))[0] == 409
        for changed, carried, status in (
            ("another-token-9876543210", TOKENS["reviewer"], 401),
            ("another-token-9876543210", "another-token-9876543210", 409),
            (TOKENS["painter"], TOKENS["painter"], 401),
            ("short", "short", 401),
            ("", "", 401),
            (TOKENS["reviewer"], TOKENS["reviewer"], 409),
        ):
            tokens["reviewer"] = changed
            assert (await call(nothing, {}, token=carried))[0] == status
