"""What the stages of several shipped pipelines work with: programs, git, diffs, tools, models, parameters.

```
programs    run_program(command, …) -> Ran        a program with limits of time and output, and nothing left behind
git         Git(folder)                           git with hooks, monitors and the user's configuration switched off
diffs       parse_diff(text) -> tuple[FileDiff]   unified diffs: read, applied to a text, and the lines they add
using       use(context, tool, work, claim)       a tool under the contract, and what is known of its result
parameters  required_text(params, name, …) -> str  a parameter that a pipeline cannot do without
asking      configured_model() -> Model | None    a model, where the worker has one, for an answer of a given shape
```
"""
