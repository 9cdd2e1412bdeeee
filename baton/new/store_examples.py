"""The examples, in the wheel and in a checkout, and copies of them.

They run offline, each in one file or with the modules beside it that it imports.
"""

import json
import re
import shutil
from pathlib import Path

from baton.errors import BatonError

_IN_WHEEL = Path(__file__).with_name("examples")
EXAMPLES = _IN_WHEEL if _IN_WHEEL.exists() else Path(__file__).parents[2] / "examples"
_IMPORTED = re.compile(r"\b(?:from|import) (\w+)")


def examples() -> dict[str, str]:
    """Return the first sentence of each example, by name."""
    return {path.stem: _describe(path) for path in sorted(EXAMPLES.iterdir()) if path.suffix in (".py", ".ipynb")}


def _describe(path: Path) -> str:
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".ipynb":
        return str(json.loads(text)["cells"][0]["source"][0]).strip("# \n")
    return text.split('"""')[1].splitlines()[0]


def copy_example(name: str, folder: Path) -> list[str]:
    """Copy an example into a folder, and return the names of its files.

    Args:
        name: One of `examples()`.
        folder: Where to.

    Raises:
        BatonError: The example does not exist, or a file of that name is there already; nothing was written.
    """
    files = [path for path in EXAMPLES.glob(f"{name}.*") if path.stem in examples()]
    if not files:
        raise BatonError(f"there is no example {name!r}; there are {', '.join(examples())}")
    imported = {match for path in files for match in _IMPORTED.findall(path.read_text(encoding="utf-8"))}
    files += [EXAMPLES / f"{other}.py" for other in sorted(imported - {name}) if (EXAMPLES / f"{other}.py").exists()]
    if taken := [path.name for path in files if (folder / path.name).exists()]:
        raise BatonError(f"{', '.join(taken)} exists already; go to another folder")
    for path in files:
        shutil.copy(path, folder)
    return [path.name for path in files]
