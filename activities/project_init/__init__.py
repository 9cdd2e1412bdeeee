"""The stages of the pipeline `project_init`: read a project, document, index and verify it."""
