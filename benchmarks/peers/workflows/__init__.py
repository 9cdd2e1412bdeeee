"""Baton's pipelines of the same agents, each in a module of its own, as a team writes them.

The sandbox loads a workflow's module for each run, with all that is in it.
"""
