"""Whether a pipeline's code fits what its run has recorded: a state of the run, not an exception in its code.

A worker keeps it outside of the run. Once the code does not fit, no step returns to it, and each workflow task of the
run fails as a whole, so nothing that the code asked for is sent. The run continues on a worker whose code fits.
"""

from collections.abc import Callable


class Fit:
    """Whether a run's code fits the run's past.

    Attributes:
        misfit: Why it does not fit; empty while it does.
        waiting: By number, the recorded steps that wait until earlier ones are restored: why the code does not fit if
            nothing can bring those.
        left: Returns how many recorded steps the code has not asked for, which it has to do before it ends.
        release: Drops the recorded steps when the worker drops the run. They are part of cycles: left to the garbage
            collector, those of some long runs held up the workflow task of another for half a second.

    Example:
        >>> fit = Fit()
        >>> fit.suspend("step 2 was recorded as stage 'pay'")
        >>> fit.suspend("a consequence of the first")
        >>> fit.misfit
        "step 2 was recorded as stage 'pay'"
    """

    def __init__(self) -> None:
        self.misfit = ""
        self.waiting: dict[int, str] = {}
        self.left: Callable[[], int] = lambda: 0
        self.release: Callable[[], None] = lambda: None

    def suspend(self, why: str) -> None:
        """Note that the code does not fit; the first reason stays."""
        self.misfit = self.misfit or why

    def end(self) -> None:
        """Note that the code has ended, in whatever way."""
        if left := self.left():
            self.suspend(
                f"the code ends before {left} of the recorded steps; it has changed. The run continues once workers "
                "have code that fits"
            )
