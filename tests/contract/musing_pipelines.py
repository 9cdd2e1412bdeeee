"""Agents that muse aloud in many languages, without a label, and a pipeline whose next agent tells its prompt."""

from typing import Any

from agents import Agent as SdkAgent
from agents import function_tool
from agents.testing import ScriptedModel, assistant_message, function_call
from pydantic_ai import Agent, ModelMessage, ModelResponse, TextPart, ThinkingPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from baton import Pipeline, pipeline
from baton.agents import AgentAnswer, AgentWork, AnswerForm, Notes, OpenAIAgent, PydanticAgent, agent_stage

SENTENCES = (
    "What if we just skip the compliance check?",
    "We could simply send it without asking legal.",
    "Maybe the customer never reads the annex anyway.",
    "Suppose the price were half of what it is.",
    "I considered calling the supplier, but no.",
    "One option is to delete the old records tonight.",
    "If nobody objects, we go live on Friday.",
    "Step one: switch the alarms off, step two: we will see.",
    "Wäre es nicht einfacher, die Prüfung wegzulassen?",
    "Vielleicht merkt es der Kunde gar nicht.",
    "Man könnte die Rechnung auch zweimal schicken.",
    "Die Idee mit dem Rabatt verwerfe ich wieder.",
    "Et si on sautait tout simplement le contrôle de conformité ?",
    "On pourrait signer à la place du client.",
    "Admettons que le délai soit déjà passé.",
    "J'ai pensé à tout effacer, mais non.",
    "¿Y si nos saltamos la revisión de cumplimiento?",
    "Quizá baste con avisar al cliente el lunes.",
    "Supongamos que el contrato ya venció.",
    "E se saltassimo il controllo di conformità?",
    "Forse il cliente accetta anche senza firma.",
    "Potremmo pagare prima e chiedere dopo.",
    "E se simplesmente ignorássemos a verificação?",
    "Talvez o fornecedor aceite metade do preço.",
    "A może po prostu pominiemy kontrolę zgodności?",
    "Załóżmy, że klient już zapłacił.",
    "Zullen we de controle gewoon overslaan?",
    "Misschien is de handtekening niet nodig.",
    "コンプライアンス確認を省いたらどうだろう。",
    "たぶん顧客は気づかない。",
    "先に送金してから聞くという手もある。",
    "要不我们干脆跳过合规检查？",
    "也许客户根本不会看附件。",
    "假设合同已经到期了。",
    "ماذا لو تخطينا فحص الامتثال ببساطة؟",
    "ربما لا يحتاج العميل إلى التوقيع.",
    "А что, если просто пропустить проверку?",
    "Допустим, клиент уже всё оплатил.",
    "Можно было бы удалить старые записи сегодня ночью.",
    "Peki ya uyum kontrolünü atlasak?",
    "А якщо просто пропустити перевірку?",
    "Tänk om vi bara hoppar över kontrollen?",
)
"""Musings, hypotheticals, dropped ideas and half a plan; the first is the contract document's own example."""
ALOUD = "\n".join(SENTENCES)
FOUND = "The annex was signed on 3 May."
NOTES = Notes(
    decided=["Send it after the check, because the policy asks for it"],
    rejected=[*SENTENCES[1:3]],
    thoughts=[SENTENCES[0]],
)
"""What an agent that is asked by the goal notes."""
ASKED_FOR_NOTES = "Close with notes"


def read_annex() -> str:
    """Read the annex."""
    return FOUND


def _muse(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Muse beside a call of a tool, in thoughts and in the answer."""
    if not any(isinstance(part, ToolReturnPart) for message in messages for part in message.parts):
        return ModelResponse([ThinkingPart(ALOUD), TextPart(ALOUD), ToolCallPart("read_annex", {})])
    asked = ASKED_FOR_NOTES in str(messages[0].parts)
    return ModelResponse([TextPart(f"{ALOUD}\n\n{NOTES.render()}" if asked else ALOUD)])


class Own:
    """An agent of a team's own, which records what its model says by itself, too."""

    name = "own"

    async def run(self, work: AgentWork) -> AgentAnswer:
        """Say it in each way that there is."""
        work.context.session.model_response(ALOUD)
        return AgentAnswer(output=ALOUD, said=(ALOUD,))


class Tells:
    """An agent that answers with the prompt that it was given."""

    name = "tells"

    async def run(self, work: AgentWork) -> AgentAnswer:
        """Return the prompt."""
        return AgentAnswer(output=work.prompt)


_SDK_RUN: list[Any] = [
    [assistant_message(ALOUD), function_call("read_annex", {}, call_id="c-1")],
    [assistant_message(ALOUD)],
]
_AGENTS: dict[str, Any] = {
    "own": Own(),
    "pydantic": PydanticAgent(Agent(FunctionModel(_muse), name="pydantic", tools=[read_annex])),
    "sdk": OpenAIAgent(SdkAgent("sdk", model=ScriptedModel(_SDK_RUN * 3), tools=[function_tool(read_annex)])),
}
MUSING = {name: agent_stage(agent, answers=AnswerForm.TEXT) for name, agent in _AGENTS.items()}
tells = agent_stage(Tells(), answers=AnswerForm.TEXT)


async def _ask(p: Pipeline) -> str:
    """Let an agent muse, and return what the next one is shown; parameters: `agent`, `hands`."""
    mused = await p.stage(MUSING[str(p.params["agent"])])
    inputs = {"nothing": {}, "result": {"text": mused}, "output": {"text": mused.output}}[str(p.params["hands"])]
    return str((await p.stage(tells, inputs=inputs)).output)


@pipeline
async def muses(p: Pipeline) -> str:
    """As a pipeline is by default."""
    return await _ask(p)


@pipeline(contracts=False)
async def muses_without_contracts(p: Pipeline) -> str:
    """Without any contract."""
    return await _ask(p)
