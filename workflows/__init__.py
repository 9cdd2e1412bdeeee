"""The pipelines that ship with a checkout, one file each; `worker.py` runs them."""
