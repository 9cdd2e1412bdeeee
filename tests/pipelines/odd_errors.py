"""Errors that cannot be stored as they are, that never end, or that would end a worker."""

from temporalio.exceptions import ApplicationError

LONG = "x" * 3_000_000
HALF = "\ud83d"


class Base(BaseException):
    """Not an Exception."""


class Mute(Exception):  # noqa: N818 - named for what it does
    """An error whose text cannot be asked for."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


def _with_cause(error: BaseException, cause: BaseException) -> BaseException:
    error.__cause__ = cause
    return error


def _nested(depth: int) -> ExceptionGroup[Exception]:
    group: ExceptionGroup[Exception] = ExceptionGroup("group", [ValueError("short")])
    for _ in range(depth):
        group = ExceptionGroup("group", [group])
    return group


def odd_error(how: str) -> BaseException:
    """Return the error of that name."""
    short = ValueError("short")
    match how:
        case "long":
            return ValueError(LONG)
        case "half":
            return ValueError(f"{HALF} is half a character")
        case "mute":
            return Mute()
        case "deep group":
            return _nested(2_000)
        case "long type":
            return ApplicationError("short", type="T" * 3_000_000, non_retryable=True)
        case "half type":
            return ApplicationError("short", type=HALF, non_retryable=True)
        case "long failure":
            return ApplicationError(LONG, type="Odd", non_retryable=True)
        case "long cause":
            return _with_cause(short, KeyError(LONG))
        case "mute cause":
            return _with_cause(short, Mute())
        case "group as cause":
            return _with_cause(short, ExceptionGroup(LONG + HALF, [KeyError("inner")]))
        case "own cause":
            return _with_cause(short, short)
        case "cycle":
            return _with_cause(short, _with_cause(KeyError("other"), short))
        case "many causes":
            error: BaseException = short
            for _ in range(3_000):
                error = _with_cause(ValueError("short"), error)
            return error
        case "exit":
            return SystemExit(3)
        case "interrupt":
            return KeyboardInterrupt()
        case "base":
            return Base("mine")
    raise AssertionError(how)


NO_EXCEPTION = "which is not an Exception; raise another error"
ODD_ERRORS = {
    "long": ("ValueError", "x" * 19_999 + "…"),
    "half": ("ValueError", "\\ud83d is half a character"),
    "mute": ("Mute", "(without a text: its __str__ failed)"),
    "deep group": ("ValueError", "short"),
    "long type": ("T" * 199 + "…", "short"),
    "half type": ("\\ud83d", "short"),
    "long failure": ("Odd", "x" * 19_999 + "…"),
    "long cause": ("ValueError", "short"),
    "mute cause": ("ValueError", "short"),
    "group as cause": ("ValueError", "short"),
    "own cause": ("ValueError", "short"),
    "cycle": ("ValueError", "short"),
    "many causes": ("ValueError", "short"),
    "exit": ("RuntimeError", f"it raised SystemExit(3), {NO_EXCEPTION}"),
    "interrupt": ("RuntimeError", f"it raised KeyboardInterrupt(), {NO_EXCEPTION}"),
    "base": ("RuntimeError", f"it raised Base(mine), {NO_EXCEPTION}"),
}
"""The type and the text of the failure, by the error's name."""
