"""The session that the fidelity figures are about: five agents, and what the first one has to hand on.

The first agent finds 12 numbers, 6 paths and 4 prohibitions, makes 8 decisions with reasons, thinks aloud and rejects
ideas, among work on files of this project as `benchmarks.sessions` has it. The others do work of their own, and never
repeat what the first one said. As a program, this is the agent of a command line.
"""

import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from baton.agents.notes import INSTRUCTIONS
from baton.core.notes import Notes
from benchmarks.prose import GOAL
from benchmarks.sessions import make_thought, tool_calls

ROLES = ("research", "design", "build", "review", "release")
"""The agents, in order."""

DECISIONS = (
    "Invoice numbers come from one database sequence, because gaps are legal and doubles are not",
    "The outbox relay stays in the monolith until March, because two relays would send every event twice",
    "Amounts are integers of the smallest unit, because the tax office compares them byte by byte",
    "Refunds are moved last, because their approval needs the old session store",
    "The service reads exchange rates once a day, because invoices of one day have to agree",
    "Retries stop after five attempts, because providers charge for each one from then on",
    "The switch is made tenant by tenant, because support can look after forty at a time",
    "The old tables stay readable for a quarter, because the audit of the year begins in May",
)
NUMBERS = {
    "418.7 ms": "The page of an invoice answers in 418.7 ms at the 95th percentile",
    "61,204": "The longest night run wrote 61,204 invoices",
    "0.37 %": "Card payments that need a second attempt are 0.37 % of all",
    "5.83 GB": "The table of positions has 5.83 GB with its indexes",
    "1,973": "There are 1,973 tenants with a tax rule of their own",
    "27.4 s": "The outbox is 27.4 s behind when the relay restarts",
    "94.6 %": "Tests cover 94.6 % of the lines of the rounding code",
    "12,880": "Resellers have 12,880 open credit notes",
    "3.062 s": "A cold start of the service takes 3.062 s",
    "742 kB": "The export of a month has 742 kB for a typical tenant",
    "88,415": "Support answered 88,415 questions about invoices last year",
    "16.25 h": "The way back was rehearsed in 16.25 h of work",
}
"""The sentence of each number."""
PATHS = {
    "services/billing/app/outbox_relay.py": "Events leave through services/billing/app/outbox_relay.py",
    "services/billing/app/retry_policy.py": "How often a payment is tried is in services/billing/app/retry_policy.py",
    "monolith/lib/tax/rounding_table.rb": "Taxes are rounded by monolith/lib/tax/rounding_table.rb",
    "deploy/billing/canary-values.yaml": "The share of the canary is set in deploy/billing/canary-values.yaml",
    "tests/contract/test_invoice_numbers.py": "Doubles are caught by tests/contract/test_invoice_numbers.py",
    "tools/compare/shadow_invoices.py": "Old and new invoices are compared by tools/compare/shadow_invoices.py",
}
"""The sentence of each path."""
PROHIBITIONS = (
    "Never log a card number, not even its last four digits",
    "Nothing may be deployed to billing between November 20 and December 2",
    "Do not change the public REST API for clients older than 4.2",
    "Whoever may refund must not approve the same refund",
)
THOUGHTS = (
    "The queue is the bottleneck and not the database",
    "Most tenants would accept a day of read-only billing",
    "The old export is not used by anybody any more",
    "The rounding differences come from the tax table of 2019",
    "The mobile app can be left for a later release",
)
REJECTED = {
    "Both databases are written at once during the switch": "That would leave two truths if one is down, so no.",
    "Invoice numbers are random so that no sequence is needed": "No, the tax office wants them in order.",
    "The nightly run is rewritten in Rust before the move": "No, that would be a second project inside the first.",
}
"""The ideas that the first agent rejects, and its words when it does."""
_LABELS = ("thought:", "rejected:", "Thought:", "Rejected:")


@dataclass(frozen=True)
class Step:
    """A turn of an agent that calls a tool.

    Attributes:
        said: What the agent says beside the call.
        tool: The tool.
        arguments: Its arguments.
        output: What it returns.
    """

    said: str
    tool: str
    arguments: dict[str, str]
    output: str


@dataclass(frozen=True)
class Script:
    """What an agent does: its turns, and the text and the notes at the end.

    Attributes:
        steps: The turns, each with a call of a tool.
        text: The text that it answers with.
        notes: What it notes if it is asked for notes.
    """

    steps: list[Step] = field(default_factory=list)
    text: str = ""
    notes: Notes = field(default_factory=Notes)

    def closing(self, prompt: str) -> str:
        """Return the last answer: the text, and the notes if ``prompt`` asks for them."""
        return f"{self.text}\n\n{self.notes.render()}" if INSTRUCTIONS in prompt else self.text


@dataclass(frozen=True)
class Found:
    """What of the planted session stands in a prompt: shares of its kind, and how many thoughts pass for facts."""

    decisions: float
    prohibitions: float
    numbers: float
    paths: float
    thoughts_as_facts: int


def find_planted(prompt: str) -> Found:
    """Look for what was planted: every sentence, number and path by its exact text.

    A thought or a rejected idea passes for a fact if a line has it and does not say what it is: by a word before it,
    or by the words with which it was dropped.

    Example:
        >>> find_planted(f"{PROHIBITIONS[0]}. thought: {THOUGHTS[0]}")
        Found(decisions=0.0, prohibitions=0.25, numbers=0.0, paths=0.0, thoughts_as_facts=0)
        >>> find_planted(THOUGHTS[0]).thoughts_as_facts
        1
    """
    lines = prompt.splitlines()
    ideas = {**dict.fromkeys(THOUGHTS, _LABELS), **{idea: (*_LABELS, why) for idea, why in REJECTED.items()}}
    unmarked = [
        idea
        for idea, marks in ideas.items()
        if any(idea in line and not any(mark in line for mark in marks) for line in lines)
    ]
    decisions, prohibitions, numbers, paths = (
        _share(texts, prompt) for texts in (DECISIONS, PROHIBITIONS, NUMBERS, PATHS)
    )
    return Found(decisions, prohibitions, numbers, paths, thoughts_as_facts=len(unmarked))


def _share(texts: Iterable[str], prompt: str) -> float:
    """Return the share of the texts that stand in a prompt."""
    found = [text in prompt for text in texts]
    return sum(found) / len(found)


@cache
def script(role: str) -> Script:
    """Return what an agent does.

    Example:
        >>> [len(script(role).steps) for role in ROLES]
        [19, 15, 15, 15, 15]
    """
    seq = ROLES.index(role) + 1
    calls = [(tool, arguments, output) for tool, arguments, output, _ in tool_calls(seq)]
    if seq == 1:
        for place, call in zip((3, 7, 11, 16), _planted_calls(), strict=True):
            calls.insert(place, call)
        said = [*_planted_sayings()]
        notes = Notes(
            decided=[*DECISIONS],
            done=["The billing code and its load report are read"],
            facts=[f"{sentence} (source: the load report)" for sentence in NUMBERS.values()] + [*PATHS.values()],
            must=[*PROHIBITIONS],
            open=["Who signs off the first invoice run of the new service?"],
            rejected=[*REJECTED],
            thoughts=[*THOUGHTS],
        )
    else:
        said = []
        notes = Notes(
            decided=[f"In the part of {role}, step {number} goes first: it unblocks the rest" for number in (1, 2)],
            done=[f"The part of {role} is finished and checked"],
            facts=[f"{role} found {number} open tickets in area {number} (source: the tracker)" for number in (3, 4)],
            open=[f"Which team takes over from {role}?"],
        )
    said += [make_thought(seq, number) for number in range(len(said), len(calls))]
    steps = [Step(text, *call) for text, call in zip(said, calls, strict=True)]
    return Script(steps, f"The part of {role} in this: {GOAL}. It is done, and the next agent can begin.", notes)


def _planted_calls() -> list[tuple[str, dict[str, str], str]]:
    """Return the calls whose results have the prohibitions, the numbers and the paths."""
    rules = "\n".join(f"- {rule}." for rule in PROHIBITIONS)
    numbers = [f"{sentence}." for sentence in NUMBERS.values()]
    matches = "\n".join(f"{path}:12: {sentence}" for path, sentence in PATHS.items())
    return [
        ("read_file", {"path": "docs/billing/rules.md"}, f"# Rules of billing\n\n{rules}"),
        ("read_file", {"path": "load/report-1.txt"}, "\n".join(numbers[:6])),
        ("read_file", {"path": "load/report-2.txt"}, "\n".join(numbers[6:])),
        ("search", {"pattern": "invoice", "path": "."}, matches),
    ]


def _planted_sayings() -> Iterable[str]:
    """Yield what the first agent says beside its calls: it decides, thinks aloud, and drops ideas again."""
    ideas = [*REJECTED.items()]
    for number, decision in enumerate(DECISIONS):
        yield f"{decision}."
        if number < len(THOUGHTS):
            yield f"{THOUGHTS[number]}."
        elif number - len(THOUGHTS) < len(ideas):
            idea, why_not = ideas[number - len(THOUGHTS)]
            yield f"{idea}. {why_not}"


@cache
def _outputs() -> dict[tuple[str, ...], str]:
    steps = [step for role in ROLES for step in script(role).steps]
    return {(step.tool, *step.arguments.values()): step.output for step in steps}


def read_file(path: str) -> str:
    """Return the beginning of a file."""
    return _outputs()["read_file", path]


def search(pattern: str, path: str) -> str:
    """Return the lines of a file that match a pattern."""
    return _outputs()["search", pattern, path]


def run_tests(path: str) -> str:
    """Run the tests in a file, and return what they print."""
    return _outputs()["run_tests", path]


TOOLS: tuple[Any, ...] = (read_file, search, run_tests)
"""What the agents may call."""


def main() -> None:
    """Be the agent of a command line: read the prompt, keep it in a file, and print the last answer."""
    role, kept = sys.argv[1:]
    prompt = sys.stdin.read()
    Path(kept).write_text(prompt, encoding="utf-8")
    print(script(role).closing(prompt))


if __name__ == "__main__":
    main()
