"""The names of projects, stages and pipelines, and their rules."""

import keyword
import re
import sys
from enum import StrEnum

_PROJECT = re.compile(r"[A-Za-z](?:[A-Za-z0-9_-]*[A-Za-z0-9])?")
_IDENTIFIER = re.compile(r"[a-z][a-z0-9_]*")
_RESERVED = {
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
    """The template of a new project."""

    AGENTS = "agents"
    """Three agents under contracts: research, write, edit."""
    REVIEW = "review"
    """An agent examines a draft, a person decides."""
    MINIMAL = "minimal"
    """A function and an agent."""


class Addition(StrEnum):
    """A part that can be added to a project."""

    STAGE = "stage"
    PIPELINE = "pipeline"


def package_of(name: str) -> str:
    """Return the Python package of a project.

    Raises:
        ValueError: The name is not allowed.

    Example:
        >>> package_of("Release-Notes")
        'release_notes'
    """
    if not _PROJECT.fullmatch(name):
        raise ValueError(f"{name!r} is not a project's name: use letters, digits, '-' and '_', a letter first")
    package = name.lower().replace("-", "_")
    if package in _RESERVED or keyword.iskeyword(package):
        raise ValueError(f"{name!r} is already the name of a Python module or a library; choose another")
    return package


def identifier(name: str) -> str:
    """Return the name of a stage or pipeline.

    Raises:
        ValueError: The name is not a lower-case Python identifier.
    """
    if not _IDENTIFIER.fullmatch(name) or keyword.iskeyword(name):
        raise ValueError(f"{name!r} cannot name a function: use lower-case letters, digits and '_', a letter first")
    return name
