"""The stages of the pipeline `project_init`: read a project, document, index and verify it.

Plain functions over files with deterministic output. The source is never written to and never executed.

```
stages      the four stages, and the agent that plans the roadmap and writes the documents
files       the project's files and the output folder
commands    manifests and commands
detect      languages, licences, imports, and the conclusions
pages       the five documents
knowledge   the full-text index, and queries
verify      checks of all results
```
"""
