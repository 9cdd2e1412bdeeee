"""What Pydantic AI raises, as a stage is to see it."""

import pytest
from pydantic_ai import models
from pydantic_ai.exceptions import (
    ContentFilterError,
    FallbackExceptionGroup,
    ModelHTTPError,
    ModelRequestRejectedError,
    ModelRequestTimeout,
    UnexpectedModelBehavior,
    UserError,
)

from baton.agents.pydantic_ai_run import translate_error
from baton.errors import AgentError, PatchError

REJECTED = ModelRequestRejectedError("gpt-x", "marker-1", body="marker-1")
BUSY = ModelHTTPError(503, "gpt-x", body="marker-1")


class TestReported:
    """`reported`."""

    @pytest.mark.parametrize(
        ("error", "permanent"),
        [
            pytest.param(REJECTED, True, id="a refused request"),
            pytest.param(BUSY, False, id="a busy provider"),
            pytest.param(FallbackExceptionGroup("all", [REJECTED, BUSY]), False, id="one of several may recover"),
            pytest.param(FallbackExceptionGroup("all", [REJECTED, REJECTED]), True, id="none of several does"),
            pytest.param(ModelRequestTimeout("gpt-x", 5), False, id="too slow"),
            pytest.param(ContentFilterError("filtered", "marker-1"), True, id="a content filter"),
            pytest.param(UnexpectedModelBehavior("odd", "marker-1"), False, id="an answer that cannot be read"),
            pytest.param(UserError("Set the key"), True, id="a wrong set-up"),
        ],
    )
    def test_it_says_whether_another_run_may_help(self, error: Exception, permanent: bool) -> None:
        """And nothing of what the provider said."""
        translated = translate_error(error, "plan")

        assert isinstance(translated, AgentError)
        assert translated.permanent is permanent
        assert "agent 'plan'" in str(translated)
        assert "marker-1" not in str(translated)

    def test_a_code_that_looks_like_a_key_is_left_out(self) -> None:
        """A provider may put anything there."""
        error = ModelHTTPError(401, "gpt-x", provider_error_code="sk-0123456789")

        assert "sk-" not in str(translate_error(error, "plan"))

    def test_an_answer_that_stays_unusable_is_for_the_agent_to_mend(self) -> None:
        """Another attempt, and no run of the same again."""
        assert isinstance(
            translate_error(UnexpectedModelBehavior("Exceeded maximum output retries (1)"), "plan"), PatchError
        )

    def test_an_error_from_outside_the_framework_is_unchanged(self) -> None:
        """A tool's own error is the stage's."""
        error = ValueError("no such customer")

        assert translate_error(error, "plan") is error

    def test_a_test_without_a_test_model_gets_an_error(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """And not of a provider, which nobody asked; what a tool raises meanwhile stays what it is."""
        monkeypatch.setattr(models, "ALLOW_MODEL_REQUESTS", False)
        with pytest.raises(RuntimeError) as raised:
            models.check_allow_model_requests()

        translated = translate_error(raised.value, "plan")
        assert isinstance(translated, AgentError)
        assert translated.permanent
        assert "agent 'plan' cannot call a model: pydantic_ai.models.ALLOW_MODEL_REQUESTS" in str(translated)
        other = RuntimeError("Model requests are what my tool counts")
        assert translate_error(other, "plan") is other
