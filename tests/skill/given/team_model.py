"""The team's model. Here it answers from a script, one answer for each request, and keeps what it was asked."""

from dataclasses import dataclass, field
from typing import Any

from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel


@dataclass
class Script:
    """What the model answers next: a text, or the members of an answer in JSON.

    Attributes:
        answers: The answers, in order.
        prompts: The whole of each request: instructions, and what the user turns say.
        instructions: The instructions of each request.
    """

    answers: list[Any] = field(default_factory=list)
    prompts: list[str] = field(default_factory=list)
    instructions: list[str] = field(default_factory=list)

    def answer(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        """Answer a request."""
        requests = [message for message in messages if isinstance(message, ModelRequest)]
        parts = [str(getattr(part, "content", "")) for request in requests for part in request.parts]
        self.instructions.append(info.instructions or "")
        self.prompts.append("\n".join([self.instructions[-1], *parts]))
        if not self.answers:
            raise ModelHTTPError(400, "script", "asked more often than the script has answers")
        answer = self.answers.pop(0)
        if isinstance(answer, str):
            return ModelResponse([TextPart(answer)])
        return ModelResponse([ToolCallPart(info.output_tools[0].name, answer)])


SCRIPT = Script()
MODEL = FunctionModel(SCRIPT.answer)
