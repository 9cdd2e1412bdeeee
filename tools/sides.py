"""The import contract "a module runs where its name says".

A room of Baton is a package for one concept. The first word of a module's name says where its code may run:
`workflow*` in the workflow sandbox, `activity*` in a worker, `store*` touches disks, keys and sockets, `client*` in
services. Any other name is plain: no I/O, clock, randomness or keys.
"""

from typing import Any

from grimp import ImportGraph
from importlinter.application import output
from importlinter.domain import fields
from importlinter.domain.contract import Contract, ContractCheck

MAY_IMPORT = {
    "plain": {"plain"},
    "workflow": {"plain", "workflow"},
    "activity": {"plain", "store", "activity"},
    "store": {"plain", "store"},
    "client": {"plain", "store", "client"},
}
PACKAGES = {
    "temporalio": {"workflow", "activity", "client"},
    "cryptography": {"store"},
    "sqlite3": {"store"},
    "psycopg": {"store"},
    "obstore": {"store"},
    "jsonschema_rs": {"store"},
    "opentelemetry": {"store"},
    "splintr": {"store"},
    "copier": {"store"},
    "starlette": {"client"},
    "uvicorn": {"client"},
    "a2a": {"client"},
    "ag_ui": {"client"},
    "typer": set(),
    "rich": set(),
}


def side(module: str) -> str:
    """Return the side of a module: where it may run."""
    word = module.rpartition(".")[2].partition("_")[0]
    return word if word in MAY_IMPORT else "plain"


class SidesContract(Contract):
    """Every module of the named rooms imports only what its side may import."""

    rooms: Any = fields.SetField(subfield=fields.StringField())

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        """Return the imports that break the rule."""
        rooms = {f"baton.{room}" for room in self.rooms}
        modules = {module for room in rooms for module in {room, *graph.find_descendants(room)}}
        violations = [
            f"{module} ({side(module)}) imports {other}"
            for module in sorted(modules)
            for other in sorted(graph.find_modules_directly_imported_by(module))
            if (other in modules and side(other) not in MAY_IMPORT[side(module)])
            or side(module) not in PACKAGES.get(other.partition(".")[0], {side(module)})
        ]
        return ContractCheck(kept=not violations, metadata={"broken": violations})

    def render_broken_contract(self, check: ContractCheck) -> None:
        """Print one line for each import that breaks the rule."""
        for line in check.metadata["broken"]:
            output.print_error(line)
