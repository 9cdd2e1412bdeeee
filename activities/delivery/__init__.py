"""The stages of the pipeline `delivery`: a change to a git repository, tested, reviewed and offered as a branch.

The change is ordered (a diff, text edits, a command) or drafted by a model. It is made and tested in a sandbox, in a
separate checkout; the repository gets a branch only after a person approves it.

```
records      Order, Plan, Draft, …     the order, and the records of the stages
sandbox      Sandbox, run_program      runs the change under test, and limits its access
repository   Repository                commits outside the user's branches, and the offered branch
changes      make_change, Implementer  a diff, edits or a command; the tests; the agent that drafts a change
review       review                    blocking and other remarks on a change
stages       STAGES                    the stages of the pipeline
```
"""
