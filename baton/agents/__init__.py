"""Optional extras: agent frameworks and other systems that a stage may use."""
