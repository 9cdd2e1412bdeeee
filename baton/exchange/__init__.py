"""Handoffs between pipelines, streams, and agents outside."""
