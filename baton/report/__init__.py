"""The handoff report: Markdown written and read."""
