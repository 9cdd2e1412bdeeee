"""The stages of the pipeline `code_review`: a security auditor beside a performance reviewer, and a coordinator.

The source is read once; nothing in it is executed and none of its configuration is used. Every finding names its file
and line, what was not analysed is named, and what a comment in the source suppresses is reported as suppressed.

```
stages      the four stages
agents      the reviewers
sources     the snapshot of the code under review
analysers   bandit and ruff
reports     handoff reports, and SARIF 2.1.0
```
"""
