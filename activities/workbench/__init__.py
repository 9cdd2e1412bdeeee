"""Words and parameters that the shipped pipelines share."""
