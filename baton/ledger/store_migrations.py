"""The migrations of the ledger's tables, in order; a released one is never changed."""

from collections.abc import Callable, Mapping

from baton.ledger import store_r0001 as r0001_chains
from baton.ledger import store_r0002 as r0002_tiers
from baton.ledger import store_r0003 as r0003_roles

MIGRATIONS: Mapping[str, Callable[[str], list[str]]] = {
    "0001": r0001_chains.statements,
    "0002": r0002_tiers.statements,
    "0003": r0003_roles.statements,
}
"""What makes each revision of the one before it: a function from the dialect to statements."""
