"""What an agent's prompt holds: every part whole while the window has room, and one declared order of giving way.

The model's window, less what the answer needs, is the only budget. What the agent can still read with `read_artifact`
gives way first. Task, goal, constraints and required inputs never do: where they do not fit, there is no prompt. What
is shown a part of is read page by page, and only what the handoff names.
"""

import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal, TypeAlias

from baton.contract.compiler import importance
from baton.contract.draft import render_contract
from baton.contract.records import Fact, HandoffContract
from baton.core.baton import Baton
from baton.core.messages import PromptPart
from baton.core.rendering import MIN_TOKENS, PromptTooLargeError, conversation, render
from baton.handoff.records import Turn
from baton.wire.json_values import Json
from baton.wire.text import TokenEstimator, fence, single_line

READ_ARTIFACT = "read_artifact"
"""The tool that every agent has for what its contract or its inputs name."""
MAX_ANSWER_TOKENS = 32_000
"""The most tokens of a window that are kept for the answer."""

FILES = "BATON_FILES"
"""The environment variable that names the folder with the texts, for a program; `index.json` in it has their files."""
Reads: TypeAlias = Literal["tool", "files"]
"""How an agent reads what its prompt shows a part of: by the tool `read_artifact`, or in the folder of `FILES`."""
_REST: Mapping[Reads | None, str] = {
    "tool": f"read the rest with `{READ_ARTIFACT}`",
    "files": f"for the rest see `index.json` in the folder that the variable `{FILES}` names",
    None: "the rest is not shown",
}
_KEPT_WHOLE = frozenset({"goal", "constraints"})
_TRIES = 8  # an estimator may charge more for a whole than for its parts


class Kind(StrEnum):
    """What kind of part it is."""

    ARTIFACT = "artifact"
    INPUT = "input"
    CONVERSATION = "conversation"
    FACTS = "facts"
    BATON = "baton"
    FIXED = "fixed"


GIVES_WAY: Mapping[Kind, int] = {
    Kind.ARTIFACT: 0,
    Kind.INPUT: 256,
    Kind.CONVERSATION: 0,
    Kind.FACTS: 0,
    Kind.BATON: MIN_TOKENS,
}
"""The order in which parts give way, and to how few tokens each of a kind does; within a kind the longest first."""


def prompt_tokens(window: int, beside: int = 0) -> int:
    """Return how many tokens a prompt may have: the window, less a fifth for the answer, less what stands beside it."""
    return window - min(window // 5, MAX_ANSWER_TOKENS) - beside


@dataclass(frozen=True)
class NamedText:
    """A text with a name: an input, or an artifact in the work scope.

    Attributes:
        kind: `Kind.INPUT` or `Kind.ARTIFACT`.
        id: What `read_artifact` takes.
        text: The text; None where it cannot be shown.
        required: Whether it must be whole.
        why: Why it cannot be shown.
    """

    kind: Kind
    id: str
    text: str | None
    required: bool = False
    why: str = ""


@dataclass(frozen=True)
class Material:
    """What may stand in a prompt.

    Attributes:
        baton: The baton.
        earlier_decisions: How many decisions were not handed over.
        contract: The contract, if there is one.
        claims: The whole claims of facts that the contract shortens, by event.
        summary: The older conversation.
        turns: The newer conversation.
        findings: Why the attempt before was refused.
        texts: Inputs and artifacts.
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
    """A prompt that fits.

    Attributes:
        pages: Its pages, each with the heading above its fence.
        parts: What it holds, and what was left out.
        text: All of it, each page inside a data fence of its own.
        tokens: What the text costs.
    """

    pages: Sequence[tuple[str, str]]
    parts: list[PromptPart]
    text: str
    tokens: int


def assemble(
    material: Material, allowed: int, estimator: TokenEstimator, nonce: str, *, reads: Reads | None = "tool"
) -> Prompt:
    """Return the prompt for an agent.

    Args:
        material: What may stand in it.
        allowed: The most tokens that it may cost (`prompt_tokens`).
        estimator: Counts tokens.
        nonce: A part of the fences that no author of the material can know.
        reads: How the agent reads the rest; None if it cannot.

    Raises:
        PromptTooLargeError: What must be whole does not fit; the message has the sizes.
    """
    made = _Assembly(material, estimator, _REST[reads], estimator(fence("", nonce)))
    room = allowed
    for _ in range(_TRIES):
        made.fit(room, allowed)
        pages = made.pages()
        text = "\n".join(f"{heading}{fence(page, nonce)}" for heading, page in pages)
        tokens = estimator(text)
        if tokens <= allowed:
            return Prompt(pages, made.parts(), text, tokens)
        room -= tokens - allowed
    raise PromptTooLargeError(made.needed(), allowed)


class _Piece(ABC):
    """A part of the prompt, whole at first.

    Attributes:
        name: Its name for people.
        kind: What kind of part it is.
        whole: The tokens of all of it.
        text: What is shown.
        tokens: The tokens of what is shown.
        why: What is not shown; empty if it is whole.
    """

    def __init__(self, name: str, kind: Kind, estimator: TokenEstimator, *, required: bool = False) -> None:
        self.name = name
        self.kind = kind
        self.required = required
        self.why = ""
        self._estimator = estimator
        self._measure()
        self.whole = self.tokens

    def _measure(self) -> None:
        """Note what is shown now, and what it costs."""
        self.text = self._written()
        self.tokens = self._estimator(self.text)

    @abstractmethod
    def _written(self) -> str:
        """Return what is to be shown now."""

    @abstractmethod
    def shrink(self, room: int) -> None:
        """Show less, if possible at most ``room`` tokens."""


class _Fixed(_Piece):
    """A part that never gives way."""

    def __init__(self, name: str, title: str, rows: Sequence[str], estimator: TokenEstimator) -> None:
        listed = "\n".join(f"- {single_line(row)}" for row in rows)
        self._rows = f"**{title}:**\n{listed}\n"
        super().__init__(name, Kind.FIXED, estimator, required=True)

    def _written(self) -> str:
        return self._rows

    def shrink(self, room: int) -> None:
        """Stay as it is."""


class _Page(_Piece):
    """The baton; its own page says what is left out of it."""

    def __init__(self, material: Material, estimator: TokenEstimator) -> None:
        self._material = material
        self._most = sys.maxsize
        super().__init__("baton", Kind.BATON, estimator)

    def _written(self) -> str:
        return render(
            self._material.baton,
            max_tokens=self._most,
            estimator=self._estimator,
            keep=_KEPT_WHOLE,
            earlier_decisions=self._material.earlier_decisions,
        )

    def shrink(self, room: int) -> None:
        self._most = max(room, MIN_TOKENS)
        self._measure()
        self.why = f"baton: {self.tokens:,} of {self.whole:,} tokens; the page counts what is left out"


class _Facts(_Piece):
    """The contract with its facts; the least important give way first, long ones to their beginning before that."""

    def __init__(
        self, contract: HandoffContract, claims: Mapping[str, str], estimator: TokenEstimator, rest: str
    ) -> None:
        self._contract = contract
        self._claims = dict(claims)
        self._facts = list(contract.facts)
        self._rest = rest
        super().__init__("contract", Kind.FACTS, estimator)

    def _written(self) -> str:
        shown = render_contract(self._contract.model_copy(update={"facts": [self._shown(one) for one in self._facts]}))
        gone = len(self._contract.facts) - len(self._facts)
        return f"{shown}(+{gone} more facts, for which there is no room)\n" if gone else shown

    def shrink(self, room: int) -> None:
        least = sorted(self._facts, key=importance, reverse=True)
        for fact in least:
            if self.tokens > room and self._claims.pop(fact.event_id, None) is not None:
                self._measure()
        for fact in least:
            if self.tokens > room:
                self._facts.remove(fact)
                self._measure()
        total, shown = len(self._contract.facts), len(self._facts)
        self.why = f"facts: {shown:,} of {total:,}; the least sure and the oldest are left out"

    def _shown(self, fact: Fact) -> Fact:
        claim = self._claims.get(fact.event_id)
        if claim is None and fact.whole is not None:
            claim = f"{fact.claim} ({self._rest}, id {fact.event_id!r})"
        return fact if claim is None else fact.model_copy(update={"claim": claim})


class _Conversation(_Piece):
    """What was said; the oldest goes first."""

    def __init__(self, material: Material, estimator: TokenEstimator) -> None:
        self._summary = material.summary
        self._turns = list(material.turns)
        self._gone = 0
        super().__init__("conversation", Kind.CONVERSATION, estimator)

    def _written(self) -> str:
        said = conversation(self._summary, self._turns)
        return f"{said}(+{self._gone} earlier turns, for which there is no room)\n" if self._gone else said

    def shrink(self, room: int) -> None:
        self._summary, self._gone = "", self._gone + bool(self._summary)
        total = self._gone + len(self._turns)
        self._measure()
        while self._turns and self.tokens > room:
            del self._turns[0]
            self._gone += 1
            self._measure()
        self.why = f"conversation: {len(self._turns):,} of {total:,} turns; the oldest are left out"


class _Named(_Piece):
    """An input or an artifact, on a page of its own; an artifact's id is of an agent's making, so it is data."""

    def __init__(self, given: NamedText, estimator: TokenEstimator, rest: str) -> None:
        self._whole = given.text or ""
        self._shown = len(self._whole)
        self._rest = rest
        self._label = single_line(given.id)
        super().__init__(f"{given.kind.value} {given.id}", given.kind, estimator, required=given.required)

    def heading(self) -> str:
        """Return what stands above the fence."""
        if self.kind is Kind.ARTIFACT:
            return "Artifact in the work scope:\n"
        cut = self._shown < len(self._whole)
        return f"Input {self._notice()}\n" if cut else f"Input `{self._label}`:\n"

    def body(self) -> str:
        """Return what stands inside the fence."""
        shown = self._whole[: self._shown]
        if self.kind is not Kind.ARTIFACT:
            return shown
        return f"{self._notice() if self._shown < len(self._whole) else self._label}\n\n{shown}"

    def _written(self) -> str:
        return f"{self.heading()}{self.body()}\n"

    def shrink(self, room: int) -> None:
        while self._shown and self.tokens > room:
            self._shown = min(self._shown - 1, self._shown * max(room, 1) // self.tokens)
            self._measure()
        if self._shown < len(self._whole):
            self.why = self._notice()

    def _notice(self) -> str:
        return f"{self._label}: {self._shown:,} of {len(self._whole):,} characters; {self._rest}"


class _Assembly:
    """The parts of one prompt while they give way."""

    def __init__(self, material: Material, estimator: TokenEstimator, rest: str, fence: int) -> None:
        self._count = estimator
        self._baton = material.baton
        self._fence = fence
        main: list[_Piece] = []
        if material.contract is not None:
            main.append(_Facts(material.contract, material.claims, estimator, rest))
        main.append(_Page(material, estimator))
        if material.contract is None and (material.turns or material.summary):
            main.append(_Conversation(material, estimator))  # under a contract no agent reads a raw conversation
        if unshown := [f"{one.id}: {one.why}" for one in material.texts if one.text is None]:
            main.append(_Fixed("not shown", "Not Shown", unshown, estimator))
            main[-1].why = "; ".join(unshown)
        if material.findings:
            main.append(_Fixed("findings", "Why Your Last Answer Was Refused", material.findings, estimator))
        self._main = main
        self._named = [_Named(one, estimator, rest) for one in material.texts if one.text is not None]
        bare = material.contract and render_contract(material.contract.model_copy(update={"facts": []}))
        self._contract = estimator(bare) if bare else 0

    @property
    def _pieces(self) -> list[_Piece]:
        return [*self._main, *self._named]

    def pages(self) -> list[tuple[str, str]]:
        """Return the pages: one for what was handed on, one for each input and artifact."""
        handed = "\n".join(piece.text for piece in self._main)
        return [("", handed), *((piece.heading(), piece.body()) for piece in self._named)]

    def parts(self) -> list[PromptPart]:
        """Return what the prompt holds."""
        return [PromptPart(name=one.name, tokens=one.whole, shown=one.tokens, why=one.why) for one in self._pieces]

    def needed(self) -> dict[str, int]:
        """Return the tokens of what must be whole."""
        rules = "".join(f"- {single_line(rule)}\n" for rule in self._baton.constraints)
        known = {
            "task and terms": self._contract,
            "goal": self._count(self._baton.goal),
            "constraints": self._count(rules),
        }
        fixed = {one.name: one.whole for one in self._pieces if one.required}
        return {name: tokens for name, tokens in {**known, **fixed}.items() if tokens}

    def fit(self, room: int, allowed: int) -> None:
        """Let parts give way in their order until they take at most ``room`` tokens."""
        order = [*GIVES_WAY.items(), (Kind.INPUT, 0), (Kind.BATON, MIN_TOKENS)]
        for kind, least in order:
            group = [one for one in self._pieces if one.kind is kind and not one.required]
            left = room - self._taken() + sum(one.tokens for one in group)
            try:
                _share(group, left, least)
            except PromptTooLargeError:  # the page alone knows what it must keep
                raise PromptTooLargeError(self.needed(), allowed) from None
        if self._taken() > room:
            raise PromptTooLargeError(self.needed(), allowed)

    def _taken(self) -> int:
        """Return the tokens of all parts and their fences."""
        return sum(one.tokens for one in self._pieces) + self._fence * (1 + len(self._named))


def _share(group: Iterable[_Piece], room: int, least: int) -> None:
    """Share room among parts: short ones stay whole, the others get the same each, and ``least`` in any case."""
    ordered = sorted(group, key=lambda one: one.tokens)
    for place, piece in enumerate(ordered):
        most = max(room // (len(ordered) - place), least)
        if piece.tokens > most:
            piece.shrink(most)
        room -= piece.tokens


MAX_READ = 16_000
"""The most characters that one call of `read_artifact` returns."""
_MOST_NAMED = 20


def unknown_id(id: str, named: Iterable[str]) -> dict[str, Json]:
    """Return the error for an agent that asked for what its handoff does not name."""
    known = ", ".join(map(repr, sorted(named)[:_MOST_NAMED])) or "none"
    return {"error": f"no artifact {id!r} is named in your handoff; named are: {known}"}


def read_page(id: str, text: str | None, offset: int, limit: int) -> dict[str, Json]:
    """Return a part of a text for an agent; an error where there is no text to be had.

    Args:
        id: By what name it was asked for.
        text: The whole text.
        offset: Where to begin, in characters.
        limit: How many characters, at most `MAX_READ`.

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
    """Return what a session notes of a page that was read: the place, and not the text; None of an error."""
    if "error" in page:
        return None
    begin, end = page["offset"], page["offset"] + len(page["text"])
    return f"{READ_ARTIFACT} {page['id']}: characters {begin:,} to {end:,} of {page['characters']:,}"
