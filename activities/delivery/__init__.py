"""The stages of the pipeline `delivery`: a change to a git repository, tested, reviewed and offered as a branch."""
