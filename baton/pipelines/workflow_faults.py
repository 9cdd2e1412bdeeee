"""Which exceptions end a run: all of them, but for the one that says that the code does not fit the history."""

from abc import ABCMeta

from temporalio.workflow import NondeterminismError


class AnyFault(Exception, metaclass=ABCMeta):  # noqa: N818 - it stands for all, and is never raised
    """Stands for every exception in Temporal's list of those that fail a run instead of its task.

    A task that fails is tried again for ever, and a run whose code raises would never end. The exception is
    `NondeterminismError` itself, by which Temporal says that the code does not fit the history: such a run
    waits until fitting code is deployed. (Its subclass for what the sandbox forbids is a fault like any other.)

    Example:
        >>> isinstance(KeyError("x"), AnyFault), issubclass(NondeterminismError, AnyFault)
        (True, False)
    """

    @classmethod
    def __subclasshook__(cls, kind: type) -> bool:
        """Return whether exceptions of a kind end a run."""
        return issubclass(kind, Exception) and kind is not NondeterminismError
