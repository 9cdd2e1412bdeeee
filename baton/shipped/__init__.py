"""The shipped pipelines as an installed program: `python -m baton.shipped` is what `python worker.py` is in a checkout.

In the wheel this package holds `worker.py`, `workflows` and `activities` as they stand at the top of the checkout. They
are a program, not a library: their names are on the path of the process that runs them, and of no other.
"""
