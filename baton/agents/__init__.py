"""Agents as stages: the port, the adapters of frameworks, prices. Each name is loaded on first use."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from baton.agents.a2a_agent import A2AAgent as A2AAgent
    from baton.agents.answers import AgentAnswer as AgentAnswer
    from baton.agents.answers import AnswerForm as AnswerForm
    from baton.agents.chat_completions import chat_agent as chat_agent
    from baton.agents.current_work import TakesNotes as TakesNotes
    from baton.agents.current_work import current_requester as current_requester
    from baton.agents.current_work import new_notes as new_notes
    from baton.agents.definitions import AgentDefinition as AgentDefinition
    from baton.agents.definitions import defined_stage as defined_stage
    from baton.agents.definitions import read_agent_file as read_agent_file
    from baton.agents.lab import RunsInLab as RunsInLab
    from baton.agents.langchain_watch import notes_tools as notes_tools
    from baton.agents.langchain_watch import read_artifact as read_artifact
    from baton.agents.langgraph import LangGraphAgent as LangGraphAgent
    from baton.agents.openai_agents import OpenAIAgent as OpenAIAgent
    from baton.agents.openai_agents import contract_input_filter as contract_input_filter
    from baton.agents.openai_agents import provider as provider
    from baton.agents.port import Agent as Agent
    from baton.agents.port import AgentLimits as AgentLimits
    from baton.agents.port import AgentWork as AgentWork
    from baton.agents.port import BringsTools as BringsTools
    from baton.agents.port import KnowsWindow as KnowsWindow
    from baton.agents.port import ReadsArtifacts as ReadsArtifacts
    from baton.agents.port import agent_stage as agent_stage
    from baton.agents.pydantic_ai import PydanticAgent as PydanticAgent
    from baton.agents.pydantic_ai_durable import DurableAgent as DurableAgent
    from baton.agents.pydantic_ai_durable import DurableAgentsPlugin as DurableAgentsPlugin
    from baton.agents.pydantic_ai_durable import UnderContract as UnderContract
    from baton.agents.sub_agents import agent_tool as agent_tool
    from baton.agents.subprocess_agent import SubprocessAgent as SubprocessAgent
    from baton.agents.tools import AgentTool as AgentTool
    from baton.core.notes import Notes as Notes
    from baton.errors import AgentError as AgentError
    from baton.errors import PatchError as PatchError
    from baton.pipelines.activity_stage import AgentTerms as AgentTerms
    from baton.wire.money import Price as Price
    from baton.wire.money import Usage as Usage
else:
    from baton.lazy import lazy_exports

    __getattr__, __dir__, __all__ = lazy_exports(__name__, __file__)
