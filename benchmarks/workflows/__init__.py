"""The pipelines that are measured, one a file: a worker's sandbox loads the file of a workflow at every start."""
