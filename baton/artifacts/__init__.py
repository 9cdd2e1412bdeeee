"""Work products outside the baton: references, and the stores that hold the bytes."""
