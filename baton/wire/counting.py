"""Numbers of things, as sentences have them."""


def counted(number: int, what: str) -> str:
    """Return a number of things in words.

    Args:
        number: How many.
        what: One of them; several take an `s`.

    Example:
        >>> counted(1, "record"), counted(2_000, "record"), counted(0, "time")
        ('1 record', '2,000 records', '0 times')
    """
    return f"{number:,} {what}{'' if number == 1 else 's'}"
