"""The stages of the pipeline `project_init`: read a project, document, index and verify it.

Plain functions over files with deterministic output. The source is never written to and never executed.
"""
