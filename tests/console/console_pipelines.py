"""The pipelines that the console's tests look at: agents, branches, a child, an approval, artifacts of every kind."""

import json
import struct
import zlib
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from pydantic import BaseModel, Field

from baton import (
    Baton,
    BatonPatch,
    ContractTerms,
    Exhibit,
    Pipeline,
    Retries,
    Spend,
    StageContext,
    StageResult,
    pipeline,
    stage,
)
from baton.agents import AgentAnswer, AgentWork, agent_stage

NOTES = "# Release notes\n\n| entry | kind |\n|---|---|\n| log in with OAuth2 | feat |\n\n- **fix**: keep the session\n"
CHANGES = "--- a/login.py\n+++ b/login.py\n@@ -1,2 +1,2 @@\n def login():\n-    return None\n+    return session()\n"
EMAIL = "<b>jane.marker</b>@example.org"
SARIF = {
    "version": "2.1.0",
    "runs": [
        {
            "tool": {"driver": {"name": "linter", "rules": [{"id": "S105"}]}},
            "results": [
                {
                    "ruleId": "S105",
                    "level": "error",
                    "message": {"text": "hard-coded password"},
                    "locations": [
                        {
                            "physicalLocation": {
                                "artifactLocation": {"uri": "src/login.py"},
                                "region": {"startLine": 7},
                            }
                        }
                    ],
                }
            ],
        }
    ],
}


def png(width: int = 8, height: int = 8) -> bytes:
    """Return a small blue picture."""

    def part(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = b"".join(b"\0" + b"\x20\x60\xb0" * width for _ in range(height))
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + part(b"IHDR", head) + part(b"IDAT", zlib.compress(rows)) + part(b"IEND", b"")


class Sizes(BaseModel):
    """What whoever approves fills in."""

    percent: int = Field(default=5, ge=1, le=100)
    note: str = ""


async def read_log(lines: int = 3) -> str:
    """Return a log."""
    return "\n".join(f"line {number}" for number in range(lines))


class Researcher:
    """An agent that reads a log by a tool, and answers with a patch."""

    name = "research"

    async def run(self, work: AgentWork) -> AgentAnswer:
        """Answer."""
        for tool in work.tools:
            if tool.name == "read_log":
                await tool.call({"lines": 2})
        patch = {"decision_log": ["Use OAuth2"], "current_state": ["Log read", "Two entries"]}
        return AgentAnswer(patch=patch, spend=Spend(micro_usd=12_000, prompt_tokens=1_500, completion_tokens=90))


class Careless:
    """An agent whose first answer breaks a rule."""

    name = "draft"

    async def run(self, work: AgentWork) -> AgentAnswer:
        """Answer; once it was told what was wrong, rightly."""
        state = [f"Notes drafted {len(work.findings)}"] if work.findings else "not a list"
        return AgentAnswer(
            patch={"current_state": state},
            output={"text": NOTES},
            spend=Spend(micro_usd=20_000, prompt_tokens=2_000, completion_tokens=400),
        )


research = agent_stage(Researcher(), tools=[read_log])
draft = agent_stage(Careless(), attempts=3, window=4_000)


@stage
async def collect(context: StageContext[Baton]) -> BatonPatch:
    """Write an artifact of each kind that the console can show."""
    await context.artifacts.write("notes", NOTES, type="notes", path="NOTES.md", summary="the notes")
    await context.artifacts.write("changes", CHANGES, type="diff", path="login.diff")
    await context.artifacts.write("findings", json.dumps(SARIF), type="sarif", path="lint.sarif")
    await context.artifacts.write("prices", "item,euros\nink,3\npaper,4\n", type="table", path="prices.csv")
    await context.artifacts.write("picture", png(), type="image", path="picture.png")
    await context.artifacts.write("data", json.dumps({"a": [1, {"b": None}]}), type="data", path="data.json")
    return BatonPatch(current_state=["Collected", "Six artifacts"], decision_log=["Kept all six"])


@stage
async def check(context: StageContext[Baton]) -> StageResult:
    """Run the tests."""
    return StageResult(baton_patch=BatonPatch(acceptance=["pytest passes"]), output={"passed": 12})


@stage
async def document(context: StageContext[Baton]) -> BatonPatch:
    """Write the documentation."""
    return BatonPatch(work_scope=["README.md"])


@stage(retries=Retries(attempts=1))
async def breaks(context: StageContext[Baton]) -> BatonPatch:
    """Fail for good."""
    raise ConnectionError(str(context.params.get("why", "the model is gone")))


@stage
async def echo(context: StageContext[Baton]) -> StageResult:
    """Return what it is given as patch, output and artifact: for hostile text in every field."""
    text = str(context.params["text"])
    await context.artifacts.write("echo", text, type=text[:100] or "t", path="echo.md", summary=text)
    patch = BatonPatch(current_state=[text], decision_log=[text], open_questions=[text], acceptance=[text])
    return StageResult(baton_patch=patch, output={"text": text, text[:50]: [text]})


@stage(personal_data=["email"])
async def register(context: StageContext[Baton]) -> BatonPatch:
    """Seal what is known of a person."""
    await context.personal.write(f"jane-{context.given.task_id}", {"email": EMAIL})
    return BatonPatch(current_state=["Registered"])


@stage
async def tick(context: StageContext[Baton]) -> BatonPatch:
    """Note one more decision."""
    return BatonPatch(decision_log=[f"Round {len(context.baton.decision_log)}"])


@stage(retries=Retries(attempts=1))
async def count_letters(context: StageContext[Baton]) -> StageResult:
    """Count the letters of an item; item 7 cannot be counted."""
    item = int(str(context.inputs["item"]))
    if item == 7:
        raise ValueError("no such letter")
    return StageResult(output=item, spend=Spend(micro_usd=1_000))


def _part(number: int) -> Any:
    async def part(context: StageContext[Baton]) -> BatonPatch:
        if number == 7:
            raise ValueError("no such part")
        return BatonPatch()

    part.__name__ = part.__qualname__ = f"part_{number}"
    return stage(retries=Retries(attempts=1))(part)


PARTS = [_part(number) for number in range(14)]


@pipeline
async def fans(p: Pipeline) -> object:
    """More stages at once than a picture has lanes, of which one fails."""
    await p.stage(tick)
    await p.fan_out(*PARTS)
    return None


@pipeline
async def maps(p: Pipeline) -> object:
    """One stage for each of many items, of which one fails."""
    await p.map(count_letters, list(range(1, int(str(p.params["items"])) + 1)), at_most=50)
    return None


@pipeline
async def nested(p: Pipeline) -> object:
    """A run inside a run inside a run."""
    depth = int(str(p.params["depth"]))
    if depth:
        await p.child(nested, f"Level {depth}", params={"depth": depth - 1}, name="below")
    await p.stage(tick)
    return None


@pipeline
async def checks(p: Pipeline) -> object:
    """A part of the work that another pipeline does."""
    await p.stage(check)
    return None


@pipeline(contracts=ContractTerms())
async def release(p: Pipeline) -> object:
    """Everything that a relay can have, and at its end a person."""
    await p.stage(research)
    drafted = await p.stage(draft, inputs={"style": "plain English"})
    await p.stage(collect)
    await p.fan_out(check, document)
    await p.child(checks, "Check the release", name="checks")
    decided = await p.approve(
        "release manager",
        within=timedelta(days=2),
        asks="Ship it?",
        shows={"draft": drafted, "changes": Exhibit.diff("one\ntwo\n", "one\n2\n"), "notes": p.baton.artifacts[0]},
        answer=Sizes,
        who=["ann", "group:release"],
    )
    return decided.data


@pipeline
async def failing(p: Pipeline) -> object:
    """A run that fails at its second step, or after as many as the parameter says."""
    for _ in range(int(str(p.params.get("steps", 1)))):
        await p.stage(tick)
    await p.stage(breaks, params={"why": str(p.params.get("why", "the model is gone"))})
    return None


@pipeline
async def echoes(p: Pipeline) -> object:
    """Hostile text in every field, then a person who is shown it."""
    text = str(p.params["text"])
    done = await p.stage(echo)
    await p.approve(
        text[:150] or "t", within=timedelta(days=1), asks=text[:2_000], shows={"shown": text, "output": done}
    )
    return done.output


@pipeline
async def registers(p: Pipeline) -> object:
    """A run that knows a person."""
    await p.stage(register)
    return None


@pipeline
async def long(p: Pipeline) -> object:
    """As many steps as the parameter says."""
    for _ in range(int(str(p.params["steps"]))):
        await p.stage(tick)
    return None


PIPELINES = [release, checks, failing, echoes, registers, long, maps, nested, fans]
STAGES: list[Callable[..., Any]] = [
    research,
    draft,
    collect,
    check,
    document,
    breaks,
    echo,
    register,
    tick,
    count_letters,
    *PARTS,
]
