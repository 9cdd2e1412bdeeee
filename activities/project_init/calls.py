"""How a program is started from its sources: in which folder, and by which call.

A monorepo has several places to start from. What is imported or run is named from the closest one, not from the top.
"""

from shlex import quote

from activities.project_init.files import SourceTree

_PYTHON_MANIFESTS = ("pyproject.toml", "setup.py", "setup.cfg", "Pipfile", "requirements.txt")


def python_main(tree: SourceTree, folder: str) -> tuple[str, str]:
    """Return the folder to be in, and the call that starts a Python package with a main module there.

    Args:
        tree: The project.
        folder: The folder with the `__main__.py`, not the top.

    Returns:
        The closest folder above with a Python manifest, the top if there is none; and `python -m` with the name
        under which the package is imported there. One in a folder that no name can have is called by its path.
    """
    home = _closest(tree, folder.rpartition("/")[0], _PYTHON_MANIFESTS)
    inside = folder.removeprefix(home).strip("/")
    parts = inside.removeprefix("src/").split("/")
    is_importable = all(part.isidentifier() for part in parts)
    return home, f"python -m {'.'.join(parts)}" if is_importable else f"python {quote(inside)}"


def go_main(tree: SourceTree, folder: str) -> tuple[str, str]:
    """Return the folder to be in, and the call that starts a Go program: each module runs its own alone.

    Args:
        tree: The project.
        folder: The program's folder.
    """
    home = _closest(tree, folder, ("go.mod",))
    inside = folder.removeprefix(home).strip("/")
    return home, f"go run {quote('./' + inside)}" if inside else "go run ."


def _closest(tree: SourceTree, folder: str, names: tuple[str, ...]) -> str:
    """Return the closest folder, from ``folder`` up, that holds one of the files; the top if none does."""
    while folder and not any(f"{folder}/{name}" in tree.by_path for name in names):
        folder = folder.rpartition("/")[0]
    return folder
