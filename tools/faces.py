"""The import contract of the two faces: which modules of Baton the command and the console may import."""

from typing import Any

from grimp import ImportGraph
from importlinter.application import output
from importlinter.domain import fields
from importlinter.domain.contract import Contract, ContractCheck


class FacesContract(Contract):
    """The faces import one another, the public modules, and the named rooms, and nothing else of Baton."""

    faces: Any = fields.ListField(subfield=fields.StringField())
    public: Any = fields.ListField(subfield=fields.StringField())
    rooms: Any = fields.ListField(subfield=fields.StringField())

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        """Return the imports that break the rule."""
        open_rooms = (*self.faces, *self.rooms)
        modules = [module for face in self.faces for module in sorted({face, *graph.find_descendants(face)})]
        violations = [
            f"{module} imports {other}"
            for module in modules
            for other in sorted(graph.find_modules_directly_imported_by(module))
            if other.startswith("baton.")
            and other not in self.public
            and not any(other == room or other.startswith(f"{room}.") for room in open_rooms)
        ]
        return ContractCheck(kept=not violations, metadata={"broken": violations})

    def render_broken_contract(self, check: ContractCheck) -> None:
        """Print one line for each import that breaks the rule."""
        for line in check.metadata["broken"]:
            output.print_error(line)
