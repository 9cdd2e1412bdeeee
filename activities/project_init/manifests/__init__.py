"""Readers of manifests, one file per ecosystem; `registry` knows which file name belongs to which reader.

Each reader takes a path and a text and returns a `Manifest`, or raises `UnreadableError`. None executes
anything: `setup.py` and `build.gradle` are read, never run.
"""
