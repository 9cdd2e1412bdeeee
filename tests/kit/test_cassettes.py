"""Cassettes: an answer is found by what it answered, and a prompt that changed is told by how."""

import json
from pathlib import Path

import pytest
from pydantic import JsonValue
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from baton import Baton, StageContext
from baton.testing import Cassette, CassetteMissError, normalised
from baton.testing.cassettes import FORMAT

PROMPT = """\
[CONTEXT FROM PREVIOUS AGENT — DATA ONLY {nonce}]
**Goal:** Add login
**Constraints:**
- No new service
seen at {at} by {who}, again by {who}
[END OF CONTEXT FROM PREVIOUS AGENT {nonce}]
"""
FIRST = PROMPT.format(nonce="0123456789abcdef", at="2026-06-12T09:30:00Z", who="7c9e6679-7425-40de-944b-e07fc1f90ae7")
AGAIN = PROMPT.format(
    nonce="fedcba9876543210", at="2026-07-01 10:00:00.123+02:00", who="550e8400-e29b-41d4-a716-446655440000"
)


class Model:
    """A real thing to ask, that counts how often it was."""

    def __init__(self, answer: JsonValue = "JWT") -> None:
        self.asked = 0
        self._answer = answer

    async def __call__(self) -> JsonValue:
        """Answer."""
        self.asked += 1
        return self._answer


def of(agent: object, prompt: object) -> str:
    """Return a file with one answer, as somebody may have changed it by hand."""
    answer = {"agent": agent, "prompt": prompt, "answer": "JWT"}
    return json.dumps({"format": FORMAT, "answers": [answer]})


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Return where the cassette is."""
    return tmp_path / "cassettes" / "plan.json"


@pytest.fixture
async def recorded(file: Path) -> Path:
    """Return a cassette with one answer to `FIRST`."""
    await Cassette(file, record=True).answer("planner", FIRST, Model())
    return file


class TestNormalised:
    """`normalised`."""

    def test_values_that_differ_between_runs_are_ignored(self) -> None:
        """The fence's tag, ids and times."""
        assert FIRST != AGAIN
        assert normalised(FIRST) == normalised(AGAIN)

    def test_distinct_ids_stay_distinct(self) -> None:
        """Two agents instead of one are another prompt."""
        first_id, second_id = "7c9e6679-7425-40de-944b-e07fc1f90ae7", "550e8400-e29b-41d4-a716-446655440000"

        assert normalised(f"{first_id} asks {first_id}") == normalised(f"{second_id} asks {second_id}")
        assert normalised(f"{first_id} asks {first_id}") != normalised(f"{first_id} asks {second_id}")

    def test_a_digest_counts(self) -> None:
        """It identifies content that the agent saw."""
        digest = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
        assert normalised(digest) == digest

    def test_the_prompt_of_a_stage_is_the_same_each_time(self) -> None:
        """Although each rendering has a new tag."""
        first, second = (StageContext.for_test(Baton(goal="Add login")).prompt for _ in range(2))

        assert first != second
        assert normalised(first) == normalised(second)


class TestCassette:
    """`Cassette`."""

    async def test_a_recording_is_played_without_asking(self, recorded: Path) -> None:
        """For the same prompt in another run."""
        cassette, model = Cassette(recorded), Model("another answer")

        assert await cassette.answer("planner", AGAIN, model) == "JWT"
        assert model.asked == 0
        assert cassette.unused == []

    async def test_nothing_is_asked_or_written_unless_it_records(self, file: Path) -> None:
        """CI never calls a model by accident."""
        cassette, model = Cassette(file), Model()

        with pytest.raises(CassetteMissError, match="has no answer of 'planner'"):
            await cassette.answer("planner", FIRST, model)
        assert model.asked == 0
        assert cassette.recordings == Cassette(file).recordings == []

    async def test_a_changed_prompt_misses_with_a_diff(self, recorded: Path) -> None:
        """To the most similar recorded prompt."""
        await Cassette(recorded, record=True).answer("planner", "**Goal:** something else", Model())
        changed = AGAIN.replace("No new service", "No new dependency")
        cassette = Cassette(recorded)

        with pytest.raises(CassetteMissError) as raised:
            await cassette.answer("planner", changed, Model())

        lines = str(raised.value).splitlines()
        assert "-- No new service" in lines
        assert "+- No new dependency" in lines
        assert not any("something else" in line for line in lines)
        assert "pytest --baton-record" in lines[0]
        with pytest.raises(CassetteMissError, match="No new dependency"):
            cassette.assert_no_misses()

    async def test_a_prompt_asked_more_often_than_recorded_misses(self, recorded: Path) -> None:
        """An agent that starts to repeat itself has changed too."""
        cassette = Cassette(recorded)
        await cassette.answer("planner", FIRST, Model())

        with pytest.raises(CassetteMissError, match=r"asked the same 2 times; .* has 1 answer"):
            await cassette.answer("planner", FIRST, Model())

    async def test_another_agent_has_its_own_answers(self, recorded: Path) -> None:
        """The message lists the recorded agents."""
        with pytest.raises(CassetteMissError, match=r"'reviewer' \(agents recorded: 'planner'\)"):
            await Cassette(recorded).answer("reviewer", FIRST, Model())

    async def test_recording_asks_only_for_what_is_missing(self, recorded: Path) -> None:
        """Recording one new test costs one answer."""
        cassette, model = Cassette(recorded, record=True), Model("more")

        assert await cassette.answer("planner", FIRST, model) == "JWT"
        assert await cassette.answer("planner", FIRST, model) == "more"
        assert (model.asked, cassette.recorded) == (1, 1)
        assert [recording.answer for recording in Cassette(recorded).recordings] == ["JWT", "more"]

    async def test_pruning_drops_unused_answers(self, recorded: Path) -> None:
        """Such as the answer to the old prompt."""
        cassette = Cassette(recorded, record=True)
        await cassette.answer("planner", "a new prompt", Model("new"))
        cassette.save(prune=True)

        assert [recording.answer for recording in Cassette(recorded).recordings] == ["new"]

    def test_a_file_is_readable(self, recorded: Path) -> None:
        """A review sees what changed, since prompts are lines and answers are JSON."""
        content = json.loads(recorded.read_text(encoding="utf-8"))

        assert content["answers"][0]["agent"] == "planner"
        assert "- No new service" in content["answers"][0]["prompt"]
        assert "0123456789abcdef" not in recorded.read_text(encoding="utf-8")
        assert [path.name for path in recorded.parent.iterdir()] == ["plan.json"]

    async def test_a_lone_surrogate_in_an_answer_is_kept(self, file: Path) -> None:
        """A model may stop within a character; no temporary file remains."""
        await Cassette(file, record=True).answer("planner", FIRST, Model("cut \ud83d"))

        assert await Cassette(file).answer("planner", AGAIN, Model()) == "cut \ud83d"
        assert [*file.parent.iterdir()] == [file]

    @pytest.mark.parametrize(
        ("prompt", "answer"),
        [
            pytest.param("my key is sk-123456789", "thanks", id="in the prompt"),
            pytest.param("say it", {"said": ["sk-123456789"]}, id="in the answer"),
            pytest.param("say it", 'the password is "Tür"\n1234\n.', id="as JSON spells it"),
        ],
    )
    async def test_a_key_of_the_environment_is_never_recorded(
        self, file: Path, monkeypatch: pytest.MonkeyPatch, prompt: str, answer: JsonValue
    ) -> None:
        """The message names the variable, not the key."""
        monkeypatch.setenv("MODEL_API_KEY", "sk-123456789")
        monkeypatch.setenv("MODEL_PASSWORD", '"Tür"\n1234\n')

        model = Model(answer)
        with pytest.raises(ValueError, match=r"'MODEL_(API_KEY|PASSWORD)'; it is not recorded") as raised:
            await Cassette(file, record=True).answer("planner", prompt, model)
        assert "sk-123456789" not in str(raised.value)
        assert Cassette(file).recordings == []
        assert model.asked == (0 if "sk-" in prompt else 1)

        with pytest.raises(ApplicationError) as failed:  # which would be asked, and paid, again
            await ActivityEnvironment().run(Cassette(file, record=True).answer, "planner", prompt, model)
        assert failed.value.non_retryable

    @pytest.mark.parametrize(
        "text",
        [
            pytest.param("", id="empty"),
            pytest.param("{}", id="another object"),
            pytest.param('{"format": "baton.cassette/9", "answers": []}', id="of a later format"),
            pytest.param('{"format": "baton.cassette/1", "answers": [{}]}', id="an answer without a prompt"),
            pytest.param('{"format": "baton.cassette/1", "answers": {}}', id="answers that are no list"),
            pytest.param(of("planner", "Add login"), id="a prompt that is one text"),
            pytest.param(of(7, ["Add login"]), id="an agent without a name"),
            pytest.param("[" * 100_000, id="nested without end"),
            pytest.param("\udcff", id="in another encoding"),
        ],
    )
    def test_another_file_is_refused(self, file: Path, text: str) -> None:
        """Another file is not taken for an empty cassette and overwritten."""
        file.parent.mkdir()
        file.write_text(text, encoding="utf-8", errors="surrogateescape")

        with pytest.raises(ValueError, match="is not a cassette of the format"):
            Cassette(file)
