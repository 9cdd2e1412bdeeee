"""Pipelines and stages: what a workflow constructs, and what an activity runs."""
