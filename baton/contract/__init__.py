"""The handoff contract: what the receiving agent is to do, and may know and use."""
