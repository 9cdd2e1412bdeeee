"""The shipped pipelines, one file each; `worker.py` runs them."""
