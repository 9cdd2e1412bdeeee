"""Whether a pipeline's code fits what its run has recorded: a state of the run, not an exception in its code.

A worker keeps it outside of the run. Once the code does not fit, no step returns to it, and each workflow task of the
run fails as a whole, so nothing that the code asked for is sent. The run continues on a worker whose code fits.
"""


class Fit:
    """Whether a run's code fits the run's past.

    Attributes:
        misfit: Why it does not fit; empty while it does.

    Example:
        >>> fit = Fit()
        >>> fit.suspend("step 2 was recorded as stage 'pay'")
        >>> fit.suspend("a consequence of the first")
        >>> fit.misfit
        "step 2 was recorded as stage 'pay'"
    """

    def __init__(self) -> None:
        self.misfit = ""

    def suspend(self, why: str) -> None:
        """Note that the code does not fit; the first reason stays."""
        self.misfit = self.misfit or why
