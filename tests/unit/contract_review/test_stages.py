"""The four stages without a server: parameters, what goes into the baton, and what they cost."""

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pydantic import JsonValue

from activities.contract_review.agents import spend_of
from activities.contract_review.records import ContractBaton, ContractPatch, Extraction, Prices, ReviewError
from activities.contract_review.stages import STAGES, analyse_clauses, extract_clauses, score_risk, write_summary
from baton import StageContext, StageResult, apply_patch, estimate_tokens
from baton.artifacts.store import MemoryArtifactStore
from baton.core.rendering import render
from tests.unit.contract_review.material import NDA, SAAS, SERVICES

ORDER = (extract_clauses, analyse_clauses, score_risk, write_summary)


@pytest.fixture(autouse=True)
def _by_rules_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take away whatever model this machine has configured."""
    for name in ("BATON_LLM_URL", "BATON_LLM_MODEL", "BATON_LLM_KEY"):
        monkeypatch.delenv(name, raising=False)


async def run_all(params: dict[str, JsonValue]) -> tuple[ContractBaton, list[StageResult], MemoryArtifactStore]:
    """Run the four stages one after the other, as the pipeline does."""
    store, baton, results = MemoryArtifactStore(), ContractBaton(goal="Review it"), []
    for stage in ORDER:
        context = StageContext.for_test(baton, params=params, artifacts=store)
        result: StageResult = await stage(context)
        patch = result.baton_patch
        assert isinstance(patch, ContractPatch)
        written: list[JsonValue] = [ref.model_dump(mode="json", exclude_none=True) for ref in context.artifacts.refs]
        baton = apply_patch(baton, {**patch.to_json_object(), "artifacts": written})
        results.append(result)
    return baton, results, store


class TestStages:
    """All four, one after the other."""

    @pytest.mark.parametrize("path", [SERVICES, NDA, SAAS], ids=lambda path: path.stem)
    async def test_keep_the_baton_small(self, tmp_path: Path, path: Path) -> None:
        """At the end the baton is still a record of conclusions: no more than 2,000 tokens as a prompt (S1 L33)."""
        baton, _, _ = await run_all({"source": str(path), "output": str(tmp_path)})
        assert estimate_tokens(render(baton, max_tokens=10_000)) < 2_000
        assert len(baton.decision_log) == 4
        assert [ref.id for ref in baton.artifacts] == ["clauses", "findings", "risks", "report", "report-data"]

    async def test_keep_names_and_sentences_out_of_the_baton(self, tmp_path: Path) -> None:
        """Who the parties are and what they agreed stands in the artifacts alone."""
        baton, results, store = await run_all({"source": str(SAAS), "output": str(tmp_path)})
        extraction = Extraction.model_validate_json(await store.get(baton.artifacts[0].hash))
        told = baton.model_dump_json() + "".join(result.model_dump_json() for result in results)
        assert not [name for name in extraction.parties().values() if name in told]
        assert not [one.id for one in extraction.clauses if len(one.text) > 40 and one.text[:40] in told]

    async def test_flag_the_risks_with_score_and_treatment(self, tmp_path: Path) -> None:
        """The third agent completes what the second began."""
        baton, _, _ = await run_all({"source": str(SERVICES), "output": str(tmp_path)})
        assert len(baton.risk_flags) == 24
        first = baton.risk_flags[0]
        assert (first.rule, first.clause, first.score, first.treatment) == ("CHG-1", "2.3", 16, "avoid")
        assert {key.id: key.kind for key in baton.extracted_clauses}["9.2"] == "liability"
        assert baton.constraints == ["scoringFramework:iso31000", "riskAppetite:6"]

    async def test_cost_tokens_and_by_prices_money(self, tmp_path: Path) -> None:
        """Each stage counts what it read and wrote; money is asked for only where a price is given."""
        params: dict[str, JsonValue] = {"source": str(NDA), "output": str(tmp_path)}
        _, free, _ = await run_all(params)
        priced: JsonValue = {"prompt_per_million": 2.5, "completion_per_million": 10}
        _, paid, _ = await run_all({**params, "prices": priced})
        prices = Prices(prompt_per_million=Decimal("2.5"), completion_per_million=Decimal(10))
        for without, with_ in zip(free, paid, strict=True):
            tokens = without.spend.prompt_tokens, without.spend.completion_tokens
            assert min(tokens) > 0
            assert without.spend.micro_usd == 0
            assert with_.spend == spend_of(*tokens, prices)
            assert with_.spend.micro_usd > 0

    async def test_declare_what_they_write(self) -> None:
        """No stage may write the goal; names are those of the pipeline's steps."""
        assert [stage.spec.name for stage in ORDER] == [
            "extract-clauses",
            "analyse-clauses",
            "score-risk",
            "write-summary",
        ]
        assert list(ORDER) == STAGES
        assert all("goal" not in (stage.spec.writes or {"goal"}) for stage in ORDER)


class TestParameters:
    """What the one who starts the pipeline can get wrong."""

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            pytest.param({"source": None}, "needs the parameter 'source'", id="no source"),
            pytest.param({"output": 3}, "needs the parameter 'output'", id="output is no text"),
            pytest.param({"policy": {"apetite": 3}}, "'policy' cannot be used: apetite", id="a typing mistake"),
            pytest.param({"policy": {"appetite": 26}}, "'policy' cannot be used: appetite", id="beyond the scale"),
            pytest.param({"policy": "strict"}, "'policy' cannot be used", id="no record"),
            pytest.param({"prices": {"prompt_per_million": -1}}, "'prices' cannot be used", id="below nothing"),
        ],
    )
    async def test_are_refused_with_the_reason(self, tmp_path: Path, change: dict[str, Any], message: str) -> None:
        """The first stage says what is wrong, before any work is done."""
        params = {"source": str(NDA), "output": str(tmp_path), **change}
        context = StageContext.for_test(ContractBaton(goal="Review it"), params=params)
        with pytest.raises(ReviewError, match=message):
            await extract_clauses(context)

    @pytest.mark.parametrize(
        "text",
        [
            pytest.param(
                "DIENSTLEISTUNGSVERTRAG\n\n§ 1 Haftung\nDer Auftragnehmer haftet unbeschränkt für Vorsatz und grobe "
                "Fahrlässigkeit.\n\n§ 2 Kündigung\nDer Vertrag kann mit einer Frist von sechs Monaten gekündigt "
                "werden. Es gilt das Recht der Schweiz.\n",
                id="German",
            ),
            pytest.param(
                "本合同由双方签订。甲方应当按月支付服务费用、任何一方可以提前三十日通知解除本合同。" * 8, id="Chinese"
            ),
        ],
    )
    async def test_of_a_contract_in_another_language_are_refused(self, tmp_path: Path, text: str) -> None:
        """A clause on termination that the rules cannot read is not reported as missing."""
        (tmp_path / "contract.txt").write_text(text, "utf-8")
        with pytest.raises(ReviewError, match=r"'contract.txt' is not in English, as it seems"):
            await run_all({"source": str(tmp_path / "contract.txt"), "output": str(tmp_path / "out")})

    async def test_of_a_policy_move_the_appetite(self, tmp_path: Path) -> None:
        """The reviewing side says what it accepts, and the verdict follows."""
        params: dict[str, JsonValue] = {"source": str(SERVICES), "output": str(tmp_path), "policy": {"appetite": 25}}
        _, results, _ = await run_all(params)
        assert results[-1].output == {
            "verdict": "sign",
            "risks": 24,
            "above_appetite": 0,
            "report": str(tmp_path / "REPORT.md"),
            "data": str(tmp_path / "report.json"),
        }
