"""The work of the shipped pipeline `code_review`: a security auditor and a performance reviewer, and who merges.

Real analysers do the reviewing, on a project, on what changed since a commit, or on what a diff changes. The source
is read once and never written to, configured by, or run. Every finding has its file and line; what was not looked
at is said; what a comment in the source suppresses is reported as suppressed.

```
records      what the reviewers find and hand on, as JSON
sources      snapshot_of_project / _of_changes / _of_diff -> Snapshot    the code under review
passages     passages_between(old, new)                                  which lines of a text that is
analysers    bandit, ruff, radon, loops -> Found                         and what a reviewer makes of it
laying_out   where they work: a folder of their own, without configuration
claims       ask_model(...) -> Found                                     a model's findings, where one is configured
loops        find_loops(file) -> list[Finding]                           our own rules on loops
reporting    report_of(review, snapshot) -> HandoffReport                and what the coordinator adds
sarif        to_sarif(snapshot, reviews) -> str                          SARIF 2.1.0
stages       the four stages that do this in a pipeline
```
"""
