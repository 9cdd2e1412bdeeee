"""Baton's stages of the nodes of the LangGraph graph."""

from baton.agents.langgraph import node_stage
from benchmarks.peers import graph

plan = node_stage(graph.plan, name="node_plan")
implement = node_stage(graph.implement, name="node_implement")
review = node_stage(graph.review, name="node_review")
release = node_stage(graph.release, name="node_release")

STAGES = (plan, implement, review, release)
