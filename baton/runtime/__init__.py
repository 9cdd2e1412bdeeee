"""What the parts of one run share: questions, handlers, visibility."""
