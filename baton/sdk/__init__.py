"""The points at which Baton meets Temporal's SDK."""
