"""The shipped pipelines as an installed program: `python -m baton.shipped` runs `worker.py` of a checkout.

In the wheel this package contains `worker.py`, `workflows` and `activities` from the top of the checkout. They are a
program, not a library: only the process that runs them has them on its path.
"""
