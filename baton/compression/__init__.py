"""Old turns give way to a summary before a handoff outgrows its budget."""
