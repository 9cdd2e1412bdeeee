"""Two agents write and review release notes, and an editor approves them."""
