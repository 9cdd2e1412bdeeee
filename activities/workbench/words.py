"""Numbers of things, as sentences have them."""


def counted(count: int, noun: str, plural: str = "") -> str:
    """Return a number and its noun.

    Example:
        >>> counted(1, "file"), counted(1200, "file"), counted(0, "entry", "entries")
        ('1 file', '1,200 files', '0 entries')
    """
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"
