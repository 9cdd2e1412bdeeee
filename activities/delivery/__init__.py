"""The work of the shipped pipeline `delivery`: a change to a git repository, tested, reviewed and offered as a branch.

The change is ordered (a diff, texts to replace, a command) or drafted by a model. It is made and tested in a checkout
of its own, in a sandbox; the repository gets a branch only when a person has approved it.

```
records      Order, Plan, Draft, …     what is asked for, and what the stages hand on
sandbox      Sandbox, run_program      where the change under test runs, and what it can reach
repository   Repository                commits outside of the user's branches, and the branch that is offered
changes      make_change, run_tests    a diff, edits or a command; the project's tests
implementer  Implementer               the agent that decides what a round changes
review       review                    what must not be offered, and what to look at
stages       STAGES                    the stages of the pipeline
```
"""
