"""The handoff contract: the task, the facts and the tools of the receiving agent."""
