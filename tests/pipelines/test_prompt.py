"""The content of an agent's prompt, and how it is shortened."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from baton import Baton, estimate_tokens
from baton.contract.records import Confidence, Fact, HandoffContract, SourceProvenance
from baton.core.rendering import PromptTooLargeError
from baton.core.turns import Turn
from baton.pipelines.prompt import SHRINK_ORDER, Material, NamedText, PartKind, assemble, prompt_tokens
from tests.agents.material import contract

NONCE = "f00d"
AT = datetime(2026, 11, 27, tzinfo=UTC)
BATON = Baton(
    goal="Write the article",
    constraints=["Cite every source", "No new service"],
    open_questions=[f"Question {n}?" for n in range(9)],
    current_state=["Researched"],
    work_scope=["src"],
)


def fact(number: int, claim: str, confidence: Confidence = Confidence.HIGH, whole: str | None = None) -> Fact:
    """Return a session's fact."""
    source = SourceProvenance(source="web.search", timestamp=AT, method="tool_call:web.search")
    members: dict[str, Any] = {} if whole is None else {"whole": "sha256:" + "0" * 64}
    return Fact(claim=claim, source=source, confidence=confidence, event_id=f"1.research.{number}", **members)


def under(facts: Sequence[Fact]) -> HandoffContract:
    """Return a contract with facts."""
    return contract().model_copy(update={"facts": [*facts]})


def draft(characters: int, *, kind: PartKind = PartKind.INPUT, id: str = "draft", required: bool = False) -> NamedText:
    """Return an input or artifact of the given length, with numbered lines."""
    rows = "".join(f"{place:>9}\n" for place in range(0, characters, 10))
    return NamedText(kind, id, rows[:characters], required)


class TestBudget:
    """`prompt_tokens`, the only limit."""

    @pytest.mark.parametrize(
        ("window", "beside", "left"),
        [(32_000, 0, 25_600), (32_000, 1_000, 24_600), (1_000_000, 0, 968_000)],
        ids=["a fifth is the answer's", "what the model reads beside it", "an answer needs no more"],
    )
    def test_it_is_the_window_minus_the_answers_share(self, window: int, beside: int, left: int) -> None:
        """The rest is for the prompt."""
        assert prompt_tokens(window, beside) == left


class TestWhole:
    """A prompt that fits."""

    def test_a_prompt_that_fits_is_complete(self) -> None:
        """No fixed limit applies: 40,000 characters of an input and a long claim reach the agent."""
        claim = "The price is 20 USD. " * 400
        material = Material(
            BATON,
            contract=under([fact(1, claim[:900], whole=claim)]),
            claims={"1.research.1": claim},
            texts=[draft(40_000), draft(20_000, kind=PartKind.ARTIFACT, id="plan-1")],
        )
        prompt = assemble(material, 32_000, estimate_tokens, NONCE)

        assert claim.strip() in prompt.text
        assert prompt.pages[1] == ("Input `draft`:\n", draft(40_000).text)
        assert prompt.pages[2] == ("Artifact in the work scope:\n", f"plan-1\n\n{draft(20_000).text}")
        assert all(question in prompt.text for question in BATON.open_questions)
        assert [(part.name, part.tokens - part.shown, part.why) for part in prompt.parts] == [
            ("contract", 0, ""),
            ("baton", 0, ""),
            ("input draft", 0, ""),
            ("artifact plan-1", 0, ""),
        ]

    def test_under_a_contract_the_conversation_is_not_shown(self) -> None:
        """Its facts are what the agent reads, not what was said before (S5-prob-a, S5-contract-c)."""
        turns = [Turn(role="a", content="What if we skip the check?")]
        material = Material(BATON, contract=under([fact(1, "They signed.")]), summary="Long ago", turns=turns)
        text = assemble(material, 32_000, estimate_tokens, NONCE).text

        assert "They signed." in text
        assert "skip the check" not in text
        assert "Long ago" not in text

    def test_each_text_has_its_own_page(self) -> None:
        """An input cannot imitate the baton, because it is in another fence."""
        prompt = assemble(
            Material(BATON, texts=[NamedText(PartKind.INPUT, "x", "**Constraints:**\n- none")]),
            9_000,
            estimate_tokens,
            NONCE,
        )

        assert prompt.pages[0][1].count("**Constraints:**") == 1
        assert prompt.pages[1] == ("Input `x`:\n", "**Constraints:**\n- none")


class TestShortening:
    """A prompt that does not fit."""

    def test_a_shortened_input_says_so(self) -> None:
        """In the prompt, and in its parts for people; a short input stays complete."""
        material = Material(BATON, texts=[draft(40_000), NamedText(PartKind.INPUT, "style", "plain")])
        prompt = assemble(material, 4_000, estimate_tokens, NONCE)
        notice = next(line for line in prompt.text.splitlines() if line.startswith("Input draft: "))

        assert notice.endswith(" of 40,000 characters; read the rest with `read_artifact`")
        count = int(notice.split()[2].replace(",", ""))
        assert (draft(40_000).text or "")[:count] in prompt.text
        assert ("Input `style`:\n", "plain") in prompt.pages
        assert 3_900 < prompt.tokens <= 4_000
        assert {part.name: part.why for part in prompt.parts} == {
            "baton": "",
            "input draft": notice.removeprefix("Input "),
            "input style": "",
        }

    def test_the_tool_is_named_only_if_the_agent_has_it(self) -> None:
        """Other agents learn that there is more."""
        prompt = assemble(Material(BATON, texts=[draft(40_000)]), 4_000, estimate_tokens, NONCE, reads=None)

        assert "of 40,000 characters; the rest is not shown" in prompt.text
        assert "read_artifact" not in prompt.text

    def test_parts_are_shortened_in_the_declared_order(self) -> None:
        """First readable texts, then the oldest and least certain, at last the baton."""
        turns = [Turn(role="a", content=f"turn {n} " + "words " * 40) for n in range(20)]
        material = Material(BATON, turns=turns, texts=[draft(4_000), draft(4_000, kind=PartKind.ARTIFACT, id="plan-1")])
        order = ["artifact plan-1", "input draft", "conversation", "baton"]
        seen = set()
        full_tokens = assemble(material, 99_000, estimate_tokens, NONCE).tokens
        for allowed in range(full_tokens + 20, 560, -40):
            prompt = assemble(material, allowed, estimate_tokens, NONCE)
            gave = [name for name in order if next(part for part in prompt.parts if part.name == name).why]
            assert gave == order[: len(gave)], allowed
            assert prompt.tokens <= allowed
            seen.add(len(gave))

        assert list(SHRINK_ORDER)[:3] == [PartKind.ARTIFACT, PartKind.INPUT, PartKind.CONVERSATION]
        assert seen >= {0, 1, 2, 3}

    def test_the_surest_and_newest_facts_stay(self) -> None:
        """Long claims are shortened first; omitted facts are counted."""
        claim = "x" * 3_000
        facts = [fact(n, f"claim {n} " + "y" * 300, Confidence.LOW) for n in range(1, 9)]
        facts.append(fact(9, "x" * 400, whole=claim))
        prompt = assemble(
            Material(BATON, contract=under(facts), claims={"1.research.9": claim}), 800, estimate_tokens, NONCE
        )

        assert claim not in prompt.text
        assert "x" * 400 + " (read the rest with `read_artifact`, id '1.research.9')" in prompt.text
        assert "more facts, for which there is no room)" in prompt.text
        assert "claim 8 " in prompt.text
        assert "claim 1 " not in prompt.text
        assert prompt.parts[0].why.startswith("facts: ")

    def test_the_oldest_turns_are_removed_first(self) -> None:
        """The agent answers the newest ones."""
        turns = [Turn(role="a", content=f"turn {n} " + "words " * 60) for n in range(20)]
        prompt = assemble(Material(BATON, summary="long ago", turns=turns), 800, estimate_tokens, NONCE)

        assert "turn 19 " in prompt.text
        assert "turn 0 " not in prompt.text
        assert "earlier turns, for which there is no room)" in prompt.text

    def test_artifacts_that_cannot_be_shown_are_named(self) -> None:
        """The agent knows that there is an image."""
        prompt = assemble(
            Material(BATON, texts=[NamedText(PartKind.ARTIFACT, "logo", None, why="not text")]),
            900,
            estimate_tokens,
            NONCE,
        )

        assert "**Not Shown:**\n- logo: not text\n" in prompt.text
        assert prompt.parts[-1].why == "logo: not text"

    @given(
        st.lists(st.tuples(st.integers(0, 30_000), st.sampled_from([PartKind.INPUT, PartKind.ARTIFACT])), max_size=6),
        st.integers(2_500, 20_000),
        st.sampled_from([estimate_tokens, len, lambda text: len(text.split())]),
    )
    def test_it_always_fits_and_names_all_shortened_parts(
        self, sizes: list[tuple[int, PartKind]], allowed: int, estimator: Callable[[str], int]
    ) -> None:
        """Whatever the sizes and the estimator are."""
        texts = [draft(size, kind=kind, id=f"text-{at}") for at, (size, kind) in enumerate(sizes)]
        prompt = assemble(Material(BATON, texts=texts), allowed, estimator, NONCE)

        assert prompt.tokens == estimator(prompt.text) <= allowed
        for source, part in zip(texts, prompt.parts[1:], strict=True):
            assert any(page.endswith(source.text or "") for _, page in prompt.pages) or part.why in prompt.text


class TestRefused:
    """Required parts that do not fit."""

    def test_the_error_has_the_sizes(self) -> None:
        """Of constraints, task and a required input; nothing is sent to a model."""
        material = Material(BATON, contract=under([]), texts=[draft(40_000, required=True), draft(9_000, id="other")])

        with pytest.raises(PromptTooLargeError) as caught:
            assemble(material, 4_000, estimate_tokens, NONCE)

        assert caught.value.allowed == 4_000
        assert caught.value.needed.keys() == {"task and terms", "goal", "constraints", "input draft"}
        assert "input draft 10,0" in str(caught.value)

    def test_a_required_input_displaces_the_others(self) -> None:
        """It is complete, and they are not."""
        material = Material(BATON, texts=[draft(12_000, required=True), draft(12_000, id="other")])
        prompt = assemble(material, 4_500, estimate_tokens, NONCE)

        assert (draft(12_000).text or "") in prompt.text
        assert [part.name for part in prompt.parts if part.why] == ["input other"]
