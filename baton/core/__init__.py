"""The baton, its patches, its history and the state of a pipeline: pure rules."""
