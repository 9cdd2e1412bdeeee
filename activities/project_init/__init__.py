"""The stages of the pipeline `project_init`: read a project, document, index and verify it.

Plain functions over files; the same folder gives the same bytes. The source is never written to and never executed.

```
stages      the four stages
agents      the agent that plans the roadmap and writes the documents
detect      languages, manifests, commands, licences, and what follows from them
structure   what the Python modules import
pages       the five documents
knowledge   the full-text index, and queries
verify      checks of all of it
```
"""
