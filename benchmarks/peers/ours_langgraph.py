"""Baton's stages of the nodes of the LangGraph graph."""

from baton.agents import LangGraphAgent, agent_stage
from benchmarks.peers import graph

plan = agent_stage(LangGraphAgent(graph.plan), name="node_plan")
implement = agent_stage(LangGraphAgent(graph.implement), name="node_implement")
review = agent_stage(LangGraphAgent(graph.review), name="node_review")
release = agent_stage(LangGraphAgent(graph.release), name="node_release")

STAGES = (plan, implement, review, release)
