"""What a pipeline may spend, and what it has spent."""
