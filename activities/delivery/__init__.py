"""The work of the shipped pipeline `delivery`: a change to a git repository, tested, reviewed and offered as a branch.

It is told what to change (a diff, texts to replace, or a command that makes the change) and works in a worktree of
its own: the user's working copy is never touched. The project's tests really run; so whoever may start this pipeline
may run commands on its worker.

```
records      what is asked for, and what the stages find and hand on
worktree     Worktree.of(plan, task_id)             the branch under work; every operation may be repeated
changes      make_change(tree, change)              a diff, edits, or a command
drafting     draft_change(context, model, …)        the change that a model proposes, where one is configured
testing      run_tests(plan, folder, commit)        the project's tests, with limits of time and output
reviewing    review_diff / analyse_diff             what must not be offered, and what to look at
stages       the six stages that do this in a pipeline
```
"""
