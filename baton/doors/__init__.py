"""Doors that others know: one HTTP service, and one file for each protocol that it speaks."""
