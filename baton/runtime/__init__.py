"""What the parts of one run share: approvals, handlers, visibility."""
