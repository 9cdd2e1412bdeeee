"""An agent's prompt: complete if it fits the context window, otherwise shortened in one declared order.

The only limit is the context window minus the room for the answer. Texts that the agent can still read with
`read_artifact` are shortened first. Task, goal, constraints and required inputs never are: if they do not fit, there is
no prompt. The agent reads the rest of a shortened text page by page, and only texts that its handoff names.
"""

import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal, TypeAlias

from baton.contract.compiler import rank_fact
from baton.contract.draft import render_contract
from baton.contract.records import Fact, HandoffContract
from baton.core.baton import Baton
from baton.core.inputs import readable_text
from baton.core.messages import PromptPart
from baton.core.rendering import MIN_TOKENS, PromptTooLargeError, conversation, render
from baton.core.turns import Turn
from baton.report.records import find_report
from baton.report.rendering import render_for_agent
from baton.wire.json_values import Json
from baton.wire.text import TokenEstimator, fence, fit_length, single_line

READ_ARTIFACT = "read_artifact"
"""The tool by which an agent reads texts that its contract or inputs name."""
HANDOFF_REPORT = "handoff_report"
"""The name in a prompt of the report that the step before answered with."""
MAX_ANSWER_TOKENS = 32_000
"""The most tokens reserved for the answer."""

FILES = "BATON_FILES"
"""The environment variable of the folder with a program's texts; `index.json` there lists the files."""
Reads: TypeAlias = Literal["tool", "files"]
"""How an agent reads the rest of a shortened text: with the tool `read_artifact`, or in the folder of `FILES`."""
_REST_HINTS: Mapping[Reads | None, str] = {
    "tool": f"read the rest with `{READ_ARTIFACT}`",
    "files": f"for the rest see `index.json` in the folder that the variable `{FILES}` names",
    None: "the rest is not shown",
}
_KEPT_FIELDS = frozenset({"goal", "constraints"})
_SHOWN_WHOLE = frozenset({"decision_log"})  # all decisions that the stage gets, if there is room
_MAX_PASSES = 8  # an estimator may count more tokens for a text than for its parts


class PartKind(StrEnum):
    """The kind of a part."""

    ARTIFACT = "artifact"
    INPUT = "input"
    CONVERSATION = "conversation"
    FACTS = "facts"
    BATON = "baton"
    FIXED = "fixed"


SHRINK_ORDER: Mapping[PartKind, int] = {
    PartKind.ARTIFACT: 0,
    PartKind.INPUT: 256,
    PartKind.CONVERSATION: 0,
    PartKind.FACTS: 0,
    PartKind.BATON: MIN_TOKENS,
}
"""The order in which parts are shortened, with the least tokens of each; within a kind the longest first."""


def prompt_tokens(window: int, beside: int = 0) -> int:
    """Return the most tokens of a prompt: the window minus a fifth for the answer and the tokens beside it."""
    return window - min(window // 5, MAX_ANSWER_TOKENS) - beside


@dataclass(frozen=True)
class NamedText:
    """An input, or an artifact in the work scope; without a text, ``why`` says why it cannot be shown.

    Attributes:
        by: The stage or child that answered it; empty if the pipeline gives it.
    """

    kind: PartKind
    id: str
    text: str | None
    required: bool = False
    why: str = ""
    by: str = ""


@dataclass(frozen=True)
class Material:
    """The material for a prompt.

    Attributes:
        claims: The full claims of facts that the contract shortens, by event id.
        findings: Why the previous attempt was rejected.
    """

    baton: Baton
    earlier_decisions: int = 0
    contract: HandoffContract | None = None
    claims: Mapping[str, str] = field(default_factory=dict)
    summary: str = ""
    turns: Sequence[Turn] = ()
    findings: Sequence[str] = ()
    texts: Sequence[NamedText] = ()


@dataclass(frozen=True)
class Prompt:
    """A prompt that fits: pages with headings, and as one text with each page in its own data fence."""

    pages: Sequence[tuple[str, str]]
    parts: list[PromptPart]
    text: str
    tokens: int


def assemble(
    material: Material, allowed: int, estimator: TokenEstimator, nonce: str, *, reads: Reads | None = "tool"
) -> Prompt:
    """Return the prompt for an agent.

    Args:
        material: The material.
        allowed: The most tokens (`prompt_tokens`).
        estimator: Counts tokens.
        nonce: A random part of the fences, unknown to the authors of the material.
        reads: How the agent reads the rest of shortened texts; None if it cannot.

    Raises:
        PromptTooLargeError: The required parts do not fit; the message has the sizes.
    """
    assembly = _Assembly(material, estimator, _REST_HINTS[reads], estimator(fence("", nonce)))
    room = allowed
    for _ in range(_MAX_PASSES):
        assembly.fit(room, allowed)
        pages = assembly.pages()
        text = "\n".join(f"{heading}{fence(page, nonce)}" for heading, page in pages)
        tokens = estimator(text)
        if tokens <= allowed:
            return Prompt(pages, assembly.parts(), text, tokens)
        room -= tokens - allowed
    raise PromptTooLargeError(assembly.needed(), allowed)


class _Piece(ABC):
    """A part of the prompt, complete at first; ``why`` says what was left out."""

    def __init__(self, name: str, kind: PartKind, estimator: TokenEstimator, *, required: bool = False) -> None:
        self.name = name
        self.kind = kind
        self.required = required
        self.why = ""
        self._estimator = estimator
        self._update()
        self.whole = self.tokens

    def _update(self) -> None:
        """Render the part again and count its tokens."""
        self.text = self._render()
        self.tokens = self._estimator(self.text)

    @abstractmethod
    def _render(self) -> str:
        """Return the current text."""

    @abstractmethod
    def shrink(self, room: int) -> None:
        """Shorten the part, if possible to ``room`` tokens."""


class _Fixed(_Piece):
    """A part that is never shortened."""

    def __init__(self, name: str, title: str, rows: Sequence[str], estimator: TokenEstimator) -> None:
        listed = "\n".join(f"- {single_line(row)}" for row in rows)
        self._rows = f"**{title}:**\n{listed}\n"
        super().__init__(name, PartKind.FIXED, estimator, required=True)

    def _render(self) -> str:
        return self._rows

    def shrink(self, room: int) -> None:
        """Do nothing."""


class _Page(_Piece):
    """The baton; its page counts what is left out."""

    def __init__(self, material: Material, estimator: TokenEstimator) -> None:
        self._material = material
        self._max_tokens = sys.maxsize
        super().__init__("baton", PartKind.BATON, estimator)

    def _render(self) -> str:
        return render(
            self._material.baton,
            max_tokens=self._max_tokens,
            estimator=self._estimator,
            keep=_KEPT_FIELDS,
            emphasis=_SHOWN_WHOLE,
            earlier_decisions=self._material.earlier_decisions,
        )

    def shrink(self, room: int) -> None:
        self._max_tokens = max(room, MIN_TOKENS)
        self._update()
        self.why = f"baton: {self.tokens:,} of {self.whole:,} tokens; the page counts what is left out"


class _Facts(_Piece):
    """The contract; first long claims are shortened, then facts removed, the least important first."""

    def __init__(
        self, contract: HandoffContract, claims: Mapping[str, str], estimator: TokenEstimator, rest: str
    ) -> None:
        self._contract = contract
        self._claims = dict(claims)
        self._facts = list(contract.facts)
        self._rest = rest
        super().__init__("contract", PartKind.FACTS, estimator)

    def _render(self) -> str:
        facts = [self._with_claim(fact) for fact in self._facts]
        text = render_contract(self._contract.model_copy(update={"facts": facts}))
        left_out = len(self._contract.facts) - len(facts)
        return f"{text}(+{left_out} more facts, for which there is no room)\n" if left_out else text

    def shrink(self, room: int) -> None:
        by_importance = sorted(self._facts, key=rank_fact, reverse=True)
        for fact in by_importance:
            if self.tokens > room and self._claims.pop(fact.event_id, None) is not None:
                self._update()
        for fact in by_importance:
            if self.tokens > room:
                self._facts.remove(fact)
                self._update()
        total, shown = len(self._contract.facts), len(self._facts)
        self.why = f"facts: {shown:,} of {total:,}; the least sure and the oldest are left out"

    def _with_claim(self, fact: Fact) -> Fact:
        claim = self._claims.get(fact.event_id)
        if claim is None and fact.whole is not None:
            claim = f"{fact.claim} ({self._rest}, id {fact.event_id!r})"
        return fact if claim is None else fact.model_copy(update={"claim": claim})


class _Conversation(_Piece):
    """The conversation; the oldest turns are removed first."""

    def __init__(self, material: Material, estimator: TokenEstimator) -> None:
        self._summary = material.summary
        self._turns = list(material.turns)
        self._removed = 0
        super().__init__("conversation", PartKind.CONVERSATION, estimator)

    def _render(self) -> str:
        text = conversation(self._summary, self._turns)
        return f"{text}(+{self._removed} earlier turns, for which there is no room)\n" if self._removed else text

    def shrink(self, room: int) -> None:
        self._summary, self._removed = "", self._removed + bool(self._summary)
        total = self._removed + len(self._turns)
        self._update()
        while self._turns and self.tokens > room:
            del self._turns[0]
            self._removed += 1
            self._update()
        self.why = f"conversation: {len(self._turns):,} of {total:,} turns; the oldest are left out"


class _Named(_Piece):
    """An input or artifact on its own page. An agent chose the artifact's id, so the id is data."""

    def __init__(self, source: NamedText, estimator: TokenEstimator, rest: str) -> None:
        self._full_text = source.text or ""
        self._length = len(self._full_text)
        self._rest = rest
        self._label = single_line(source.id)
        self._by = f", answered by `{single_line(source.by)}`" if source.by else ""
        super().__init__(f"{source.kind.value} {source.id}", source.kind, estimator, required=source.required)

    def heading(self) -> str:
        """Return the text above the fence."""
        if self.kind is PartKind.ARTIFACT:
            return "Artifact in the work scope:\n"
        return f"Input {self._notice()}{self._by}\n" if self._is_cut else f"Input `{self._label}`{self._by}:\n"

    def body(self) -> str:
        """Return the text inside the fence."""
        shown = self._full_text[: self._length]
        if self.kind is not PartKind.ARTIFACT:
            return shown
        return f"{self._notice() if self._is_cut else self._label}\n\n{shown}"

    def _render(self) -> str:
        return f"{self.heading()}{self.body()}\n"

    def shrink(self, room: int) -> None:
        self._length = fit_length(self._length, room, self._tokens_of)
        if self._is_cut:
            self.why = self._notice()

    def _tokens_of(self, length: int) -> int:
        """Render the first characters only, and return the tokens of the part."""
        self._length = length
        self._update()
        return self.tokens

    @property
    def _is_cut(self) -> bool:
        return self._length < len(self._full_text)

    def _notice(self) -> str:
        return f"{self._label}: {self._length:,} of {len(self._full_text):,} characters; {self._rest}"


class _Assembly:
    """The parts of one prompt while it is fitted."""

    def __init__(self, material: Material, estimator: TokenEstimator, rest: str, fence: int) -> None:
        self._estimator = estimator
        self._baton = material.baton
        self._fence_tokens = fence
        main: list[_Piece] = []
        if material.contract is not None:
            main.append(_Facts(material.contract, material.claims, estimator, rest))
        main.append(_Page(material, estimator))
        if material.contract is None and (material.turns or material.summary):
            main.append(_Conversation(material, estimator))  # under a contract no agent reads a raw conversation
        if omitted := [f"{source.id}: {source.why}" for source in material.texts if source.text is None]:
            main.append(_Fixed("not shown", "Not Shown", omitted, estimator))
            main[-1].why = "; ".join(omitted)
        if material.findings:
            main.append(_Fixed("findings", "Why Your Last Answer Was Rejected", material.findings, estimator))
        self._main = main
        self._named = [_Named(source, estimator, rest) for source in material.texts if source.text is not None]
        terms = material.contract and render_contract(material.contract.model_copy(update={"facts": []}))
        self._terms_tokens = estimator(terms) if terms else 0

    @property
    def _pieces(self) -> list[_Piece]:
        return [*self._main, *self._named]

    def pages(self) -> list[tuple[str, str]]:
        """Return the pages: the main page, and one for each input and artifact."""
        main = "\n".join(piece.text for piece in self._main)
        return [("", main), *((piece.heading(), piece.body()) for piece in self._named)]

    def parts(self) -> list[PromptPart]:
        """Return the parts, and what was left out of each."""
        return [
            PromptPart(name=piece.name, tokens=piece.whole, shown=piece.tokens, why=piece.why) for piece in self._pieces
        ]

    def needed(self) -> dict[str, int]:
        """Return the tokens of the required parts."""
        rules = "".join(f"- {single_line(rule)}\n" for rule in self._baton.constraints)
        needed = {
            "task and terms": self._terms_tokens,
            "goal": self._estimator(self._baton.goal),
            "constraints": self._estimator(rules),
            **{piece.name: piece.whole for piece in self._pieces if piece.required},
        }
        return {name: tokens for name, tokens in needed.items() if tokens}

    def fit(self, room: int, allowed: int) -> None:
        """Shorten parts in their order until they have at most ``room`` tokens."""
        order = [*SHRINK_ORDER.items(), (PartKind.INPUT, 0), (PartKind.BATON, MIN_TOKENS)]
        for kind, minimum in order:
            group = [piece for piece in self._pieces if piece.kind is kind and not piece.required]
            available = room - self._total() + sum(piece.tokens for piece in group)
            try:
                _fit_group(group, available, minimum)
            except PromptTooLargeError:  # of the baton alone; the error must name all required parts
                raise PromptTooLargeError(self.needed(), allowed) from None
        if self._total() > room:
            raise PromptTooLargeError(self.needed(), allowed)

    def _total(self) -> int:
        """Return the tokens of all parts and their fences."""
        return sum(piece.tokens for piece in self._pieces) + self._fence_tokens * (1 + len(self._named))


def _fit_group(group: Iterable[_Piece], room: int, minimum: int) -> None:
    """Share room among parts: short ones stay complete, the others get equal shares of at least ``minimum``."""
    ordered = sorted(group, key=lambda piece: piece.tokens)
    for index, piece in enumerate(ordered):
        share = max(room // (len(ordered) - index), minimum)
        if piece.tokens > share:
            piece.shrink(share)
        room -= piece.tokens


MAX_READ = 16_000
"""The most characters that one call of `read_artifact` returns."""
_MAX_NAMED = 20


def unknown_id(id: str, ids: Iterable[str]) -> dict[str, Json]:
    """Return the error for an agent that asked for an id its handoff does not name."""
    known = ", ".join(map(repr, sorted(ids)[:_MAX_NAMED])) or "none"
    return {"error": f"no artifact {id!r} is named in your handoff; named are: {known}"}


def shown_text(value: Json) -> str:
    """Return an input as prompts and `read_artifact` show it: a report as Markdown, other JSON as readable lines."""
    report = find_report(value)
    return readable_text(value) if report is None else render_for_agent(report)


def read_page(id: str, text: str | None, offset: int, limit: int) -> dict[str, Json]:
    """Return a part of a text for an agent, or an error if there is no text.

    Args:
        id: The id that the agent asked for.
        text: The full text.
        offset: The first character.
        limit: The number of characters, at most `MAX_READ`.

    Example:
        >>> read_page("draft", "Batons travel.", 7, 6)
        {'id': 'draft', 'characters': 14, 'offset': 7, 'text': 'travel', 'next': 13}
    """
    if text is None:
        return {"error": f"the artifact {id!r} is not text, or is not in this worker's store"}
    begin = min(max(offset, 0), len(text))
    end = min(begin + min(max(limit, 1), MAX_READ), len(text))
    rest = {"next": end} if end < len(text) else {}
    return {"id": id, "characters": len(text), "offset": begin, "text": text[begin:end], **rest}


def page_note(page: Mapping[str, Any]) -> str | None:
    """Return a session note on a page that was read, with its range but not its text; None for an error."""
    if "error" in page:
        return None
    begin, end = page["offset"], page["offset"] + len(page["text"])
    return f"{READ_ARTIFACT} {page['id']}: characters {begin:,} to {end:,} of {page['characters']:,}"
