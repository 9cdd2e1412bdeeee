"""What a project, a stage or a pipeline may be called."""

import keyword
import re
import sys
from enum import StrEnum

_PROJECT = re.compile(r"[A-Za-z](?:[A-Za-z0-9_-]*[A-Za-z0-9])?")
_IDENTIFIER = re.compile(r"[a-z][a-z0-9_]*")
_TAKEN = {
    *sys.stdlib_module_names,
    "baton",
    "pydantic",
    "pydantic_ai",
    "pytest",
    "service",
    "temporalio",
    "tests",
    "worker",
}


class Template(StrEnum):
    """What a new project holds at first."""

    AGENTS = "agents"
    """Three agents under contracts: research, write, edit."""
    REVIEW = "review"
    """An agent examines a draft, a person decides."""
    MINIMAL = "minimal"
    """A function and an agent."""


class Addition(StrEnum):
    """What is added to a project."""

    STAGE = "stage"
    PIPELINE = "pipeline"


def package_of(name: str) -> str:
    """Return the Python package of a project.

    Raises:
        ValueError: The project cannot have this name.

    Example:
        >>> package_of("Release-Notes")
        'release_notes'
    """
    if not _PROJECT.fullmatch(name):
        raise ValueError(f"{name!r} is not a project's name: letters, digits, '-' and '_', with a letter first")
    package = name.lower().replace("-", "_")
    if package in _TAKEN or keyword.iskeyword(package):
        raise ValueError(f"{name!r} is a name that Python or a library has already; choose another")
    return package


def identifier(name: str) -> str:
    """Return the name of a stage or pipeline.

    Raises:
        ValueError: It is not the name of a Python function in small letters.
    """
    if not _IDENTIFIER.fullmatch(name) or keyword.iskeyword(name):
        raise ValueError(f"{name!r} cannot name a function: small letters, digits and '_', with a letter first")
    return name
