"""What the README's figures come from: Baton measured beside what it is compared with, in one run.

`python -m benchmarks` (or `make bench`) starts the servers and workers it needs, takes turns between the two
sides of every comparison, prints tables and writes `results.json` beside this file. `docs/benchmarks.md`
says what is measured and how to read it.

* `benchmarks.samples`: the batons and patches that travel, out of `benchmarks.prose`
* `benchmarks.stages`, `benchmarks.raw`: the same stages, with Baton and by hand
* `benchmarks.workflows`: the pipelines, one a file, as a team would have them
* `benchmarks.worker`: a worker process; `benchmarks.rig`: servers, workers and clients of a run
* `benchmarks.load`: one turn of one side; `benchmarks.compare`: sides that take turns
* `benchmarks.measures`, `benchmarks.history`, `benchmarks.startup`: what is measured
* `benchmarks.report`: goals, tables and `results.json`; `benchmarks.table`: the same as Markdown
"""
