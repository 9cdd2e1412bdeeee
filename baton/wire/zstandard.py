"""Zstandard: the standard library's module, or its backport, and the dictionaries that ship with the package."""

import sys
from functools import cache
from importlib import resources

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

__all__ = ["load_dictionary", "zstd"]


@cache
def load_dictionary(package: str, file: str) -> zstd.ZstdDict:
    """Load a dictionary that is a text file of a package; text mode makes line ends the same on every system."""
    text = resources.files(package).joinpath(file).read_text(encoding="ascii")
    return zstd.ZstdDict(text.encode("ascii"), is_raw=True)
