"""The migrations of the ledger's tables, in order; a released one is never changed."""

from collections.abc import Callable, Mapping

from baton.edge.ledger.migrations import r0001_chains, r0002_tiers, r0003_roles

MIGRATIONS: Mapping[str, Callable[[str], list[str]]] = {
    "0001": r0001_chains.statements,
    "0002": r0002_tiers.statements,
    "0003": r0003_roles.statements,
}
"""What makes each revision of the one before it: a function from the dialect to statements."""
