"""What a model claims of the code counts only as far as the code bears it out."""

from typing import Any

import pytest

from activities.code_review.claims import ask_model
from activities.code_review.records import Finding, Snapshot, SourceText
from activities.workbench.asking import configured_model
from baton import Baton, StageContext
from tests.unit.contract_review.material import chat_service

TEXT = "def f(x):\n    return eval(x)\n\n\ndef g(x):\n    return eval(x)\n"


async def claimed(
    monkeypatch: pytest.MonkeyPatch, files: list[SourceText], *claims: dict[str, Any]
) -> tuple[list[Finding], int, list[str]]:
    """Return the findings, how many claims were dropped, and what the model was shown."""
    answer = {"baton_patch": {}, "output": {"findings": [*claims]}}
    with chat_service({"answer": answer}) as service:
        for name, value in (("URL", service.url), ("MODEL", "small"), ("KEY", "sk-secret")):
            monkeypatch.setenv(f"BATON_LLM_{name}", value)
        model = configured_model()
        assert model is not None
        context = StageContext.for_test(Baton(goal="Review"))
        found, dropped = await ask_model(context, model, "security", Snapshot(name="p", files=tuple(files)))
    return found.findings, dropped, service.prompts()


def claim(**members: Any) -> dict[str, Any]:
    """Return a claim that holds, with some members changed."""
    told = {"path": "a.py", "line": 6, "quote": "return eval(x)", "severity": "high", "message": "Runs its input"}
    return {**told, **members}


class TestAskModel:
    """Claims against code."""

    async def test_places_a_claim_where_its_words_stand(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Of several places the nearest to the line it names; the line's number is the code's, not the model's."""
        file = SourceText(path="a.py", language="Python", text=TEXT)
        findings, dropped, _ = await claimed(monkeypatch, [file], claim(line=5), claim(line=1))
        assert [(one.line, one.rule, one.by) for one in findings] == [
            (6, "MODEL-security", ("small",)),
            (2, "MODEL-security", ("small",)),
        ]
        assert dropped == 0

    @pytest.mark.parametrize(
        "members",
        [
            pytest.param({"path": "b.py"}, id="another file"),
            pytest.param({"quote": "return exec(x)"}, id="words that are not there"),
            pytest.param({"quote": "x"}, id="words that stand everywhere"),
            pytest.param({"quote": "   "}, id="no words"),
        ],
    )
    async def test_drops_and_counts_what_is_not_borne_out(
        self, monkeypatch: pytest.MonkeyPatch, members: dict[str, Any]
    ) -> None:
        """A model's word alone is no finding."""
        file = SourceText(path="a.py", language="Python", text=TEXT)
        findings, dropped, _ = await claimed(monkeypatch, [file], claim(**members))
        assert (findings, dropped) == ([], 1)

    async def test_shows_the_code_in_portions(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """What does not fit into one prompt is asked about in the next."""
        files = [SourceText(path=f"{n}.go", language="Go", text=f"// mark-{n}\n" + "x\n" * 20_000) for n in range(3)]
        _, _, prompts = await claimed(monkeypatch, files)
        assert [[n for n in range(3) if f"mark-{n}" in prompt] for prompt in prompts] == [[0], [1], [2]]
