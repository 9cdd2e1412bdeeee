"""The stages of the pipeline `delivery`: a change to a git repository, tested, reviewed and offered as a branch.

The change is ordered (a diff, text edits, a command) or drafted by a model. It is made and tested in a sandbox, in a
separate checkout; the repository gets a branch only after a person approves it.
"""
