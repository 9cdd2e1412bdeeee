"""How long a pipeline of the tests waits for what is to come."""

from datetime import timedelta

IN_TIME = timedelta(minutes=2)
"""Enough for a slow machine, or one that pauses for a while."""
