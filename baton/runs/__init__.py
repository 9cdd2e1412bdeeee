"""Runs: read, listed, followed, rolled back, forked and replayed."""
