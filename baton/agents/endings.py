"""What becomes of an answer that its model did not bring to an end, the same under every framework.

An answer that was cut off is the model's own to mend: it is told to be briefer, within the attempts of its stage. What
the model refused, or a filter of its provider stopped, would be stopped again, and be paid again: the stage fails.
"""

from baton.errors import AgentError, PatchError

NO_USABLE_FORM = "the model did not answer in a form that can be used; answer in the form asked for"
"""What an agent is told whose framework found its answer malformed, and would quote it."""

_CUT_OFF = frozenset({"length", "max_tokens", "max_output_tokens", "model_length"})
_STOPPED = frozenset(
    {
        "refusal",
        "content_filter",
        "content_filtered",
        "guardrail_intervened",
        "safety",
        "prohibited_content",
        "blocklist",
        "spii",
    }
)


def cut_off() -> PatchError:
    """Return what a stage raises for an answer that reached the most tokens that a model may write."""
    return PatchError(["the answer was cut off at the most tokens a model may write; answer more briefly"])


def stopped(agent: str) -> AgentError:
    """Return what a stage raises for an answer that a model refused, or that a filter of its provider stopped.

    Frameworks take the one for the other, so it names both; what the model or the provider said of it is left out.
    """
    return AgentError(
        f"agent {agent!r}: the model refused to answer, or its provider's content filter stopped it; "
        "change what it is asked, or its model",
        permanent=True,
    )


def unfinished(reason: object, agent: str) -> AgentError | PatchError | None:
    """Return what a stage raises for an answer that did not come to its own end; None if it did.

    Args:
        reason: Why it ended, in its provider's word, as OpenAI, Anthropic, Google and Bedrock spell it.
        agent: The agent's name.

    Example:
        >>> print(unfinished("MAX_TOKENS", "plan"))
        the answer was cut off at the most tokens a model may write; answer more briefly
        >>> unfinished("refusal", "plan").permanent
        True
        >>> unfinished("stop", "plan") is None
        True
    """
    word = reason.lower() if isinstance(reason, str) else None
    if word in _CUT_OFF:
        return cut_off()
    return stopped(agent) if word in _STOPPED else None
