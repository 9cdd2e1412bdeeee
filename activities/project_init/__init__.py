"""The work of the shipped pipeline `project_init`: read a project, document, index and verify it (S1 L66-82).

Plain synchronous functions over files: no model, no network, no clock. The same directory gives the same
bytes. The source is never written to, and never executed.

```
records        what the four stages find and hand on, as JSON
files          survey(root) -> SourceTree        every file, its hash, and what was left out and why
detect         detect(tree) -> TechStack         languages, manifests, technologies, commands, licences
document       document(tree, stack, out)        PROJECT, ARCHITECTURE, COMMANDS, ROADMAP and AGENTS.md
knowledge      build_index(tree, docs, out)      one SQLite file with full-text search
search         query(index, text)                what the index answers, with file and lines
verify         verify(tree, stack, docs, index, out)   proves that all of it holds
store          the output folder: guarded, written atomically, results saved and loaded between stages
stages         the four stages that do this in a pipeline
__main__       `python -m activities.project_init inspect DIR` and `... query OUT "how do I run the tests"`
```

The rest are their parts: `listing` and `ignore` (which files), `languages`, `roles`, `licenses`, `manifests`,
`technologies`, `services`, `runners`, `entrypoints`, `calls`, `commands` and `conventions`, `house_rules`,
`conclusions`; `structure`, `imports`, `areas`, `roadmap`, `pages`, `markdown`; `chunks`; `links`, `resolve`; and the
careful readers `parsing` and `outline`.
"""
