"""Draw the picture of the rooms in docs/architecture.md, from the import contract.

Run `python tools/floors.py`.
The contract "a room knows those below it only" in pyproject.toml lists every room, and `make lint` proves it. The
words beside a room are the first line of its docstring.
"""

import ast
import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "architecture.md"
PICTURE = re.compile(r"(?<=<!-- drawn by tools/floors\.py -->\n)```text\n.*?```\n", re.DOTALL)
CONTRACT = "a room knows those below it only"


def layers() -> list[list[str]]:
    """Return the rooms of each floor, from the top."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    contract = next(contract for contract in settings["contracts"] if contract["name"] == CONTRACT)
    return [layer.split(" | ") for layer in contract["layers"] if not layer.startswith("_")]


def summary(room: str) -> str:
    """Return the first sentence of a room's docstring."""
    package = ROOT / "baton" / room / "__init__.py"
    module = package if package.exists() else ROOT / "baton" / f"{room}.py"
    docstring = ast.get_docstring(ast.parse(module.read_text(encoding="utf-8"))) or ""
    return docstring.partition("\n")[0].rstrip(".")


def picture() -> str:
    """Return the page's block: one line for each room, an empty line between floors."""
    floors = ["\n".join(f"{room:<12}{summary(room)}" for room in layer) for layer in layers()]
    return "```text\n" + "\n\n".join(floors) + "\n```\n"


def drawn(page: str) -> str:
    """Return the page with the picture as it has to be."""
    return PICTURE.sub(lambda _: picture(), page)


if __name__ == "__main__":
    PAGE.write_text(drawn(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
