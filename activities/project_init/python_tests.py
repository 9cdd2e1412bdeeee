"""How a Python project's tests are run, judged by what stands in them.

`unittest` enters packages alone and knows tests by their files' names; where it finds none, up to Python 3.11, it
ends well. So it is named with the folders in which it finds those there are, or not at all.
"""

import re
from collections.abc import Iterable
from shlex import quote

from activities.project_init.files import SourceTree

_FOR_PYTEST = re.compile(r"^(import|from) pytest\b|^(async )?def test", re.MULTILINE)
_READ_BY_PYTEST = re.compile(r"(^|/)(test_[^/]*|[^/]*_test|conftest)\.py$")
_FOR_DJANGO = re.compile(r"^(from|import) django\b", re.MULTILINE)
_TEST = re.compile(r"\bunittest\b|^[ \t]+(async )?def test", re.MULTILINE)
_NAME = re.compile(r"test\w*\.py|\w+(_tests?\.py)")


def python_tests(tree: SourceTree, folder: str, paths: Iterable[str], *, with_pytest: bool) -> list[str]:
    """Return the calls that together run the Python tests of a folder, from there; none where that is not known.

    Args:
        tree: The project.
        folder: The folder of the manifest, "" for the top.
        paths: The Python tests in it and below.
        with_pytest: Whether the project is known to use pytest.
    """
    if with_pytest:
        return ["python -m pytest"]
    texts = {path: tree.text(path) or "" for path in paths}
    if any(_FOR_PYTEST.search(text) for path, text in texts.items() if _READ_BY_PYTEST.search(path)):
        return ["python -m pytest"]  # of functions unittest runs none
    if f"{folder}/manage.py".lstrip("/") in tree.by_path and any(map(_FOR_DJANGO.search, texts.values())):
        return ["python manage.py test"]
    tests = [path for path, text in texts.items() if _TEST.search(text)]
    if any("unittest" in texts[path] for path in tests):
        return sorted({call for path in tests if (call := _discovery(tree, folder, path))})
    return ["python -m pytest"] if tests else []


def _discovery(tree: SourceTree, folder: str, path: str) -> str:
    """Return the call of `unittest` that finds a test; "" for one whose name no pattern of tests has."""
    start, _, name = path.rpartition("/")
    named = _NAME.fullmatch(name)
    if named is None:
        return ""
    while start != folder and f"{start}/__init__.py" in tree.by_path:
        start = start.rpartition("/")[0]
    inside = start.removeprefix(folder).strip("/")
    return "".join(
        (
            "python -m unittest discover",
            f" -s {quote(inside)}" if inside else "",
            f" -p '*{named[1]}'" if named[1] else "",
        )
    )
