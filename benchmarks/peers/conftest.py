"""Keeps pytest, which collects doctests here, from importing the peers: their libraries are not the project's."""

collect_ignore = [
    "dbos_sqlite.py",
    "graph.py",
    "langgraph.py",
    "langgraph_sqlite.py",
    "openai_agents.py",
    "pydantic_ai.py",
]
