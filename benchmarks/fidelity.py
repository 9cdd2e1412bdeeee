"""What an agent four handoffs later still knows of a planted session, by every adapter of Baton and as peers do it.

The first of five agents decides, finds, forbids and thinks (`benchmarks.planted`). Nothing is passed on by hand. What
stands of it in the prompt of the fifth is found by its exact text, and the prompt's tokens are counted (o200k_base).
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from baton import BatonPlugin, PipelineInput, Safeguards, WorkerParts, open_store
from baton.client import Connection, connect
from baton.compression.store_tokens import exact_counter
from baton.testing import pipeline_worker, run_pipeline
from benchmarks.chains import ADAPTERS, CHAINS, make_chains
from benchmarks.compare import Effort
from benchmarks.peers.passing import PEERS, summarise
from benchmarks.planted import ROLES, Found, find_planted, script
from benchmarks.prose import GOAL
from benchmarks.report import Findings
from benchmarks.rig import Rig
from benchmarks.scripted import READ, chat_server
from benchmarks.workflows.fidelity import passes_on, passes_on_without_contracts

COLUMNS = ("fifth prompt of", "decisions", "prohibitions", "numbers", "paths", "thoughts as facts", "tokens", "1 of")
PIPELINES = {"": passes_on, ", without contracts": passes_on_without_contracts}


@dataclass(frozen=True)
class Handed:
    """The prompt of a fifth agent: what it has of the planted session, and its size."""

    found: Found
    tokens: int

    def row(self, side: str, transcript: int) -> tuple[str, ...]:
        """Return the row of the table."""
        found = self.found
        shares = (found.decisions, found.prohibitions, found.numbers, found.paths)
        size = (str(found.thoughts_as_facts), f"{self.tokens:,}", f"{transcript / self.tokens:.1f}")
        return side, *(f"{share:.2f}" for share in shares), *size


async def fidelity(rig: Rig, effort: Effort) -> Findings:
    """Run the chain through every adapter, with and without contracts, and as the peers pass things on."""
    baton = await run_chains(rig, ADAPTERS[:1] if effort.quick else ADAPTERS)
    count = exact_counter()
    text = transcript()
    size = count(text)
    findings = Findings(f"What the fifth agent knows, of a transcript of {size:,} tokens", COLUMNS)
    findings.rows.extend(handed.row(f"Baton: {side}", size) for side, handed in baton.items())
    for title, run in PEERS.items():
        READ.clear()
        await run(GOAL)
        findings.rows.append(_look_at_read().row(title, size))
    room = max(handed.tokens for handed in baton.values())
    summaries: dict[str, Callable[[], str]] = {
        "extractive summary of the transcript": lambda: text,
        "extractive summary of what agents said": spoken,
    }
    for title, source in summaries.items():
        summary = summarise(source(), room, count)
        findings.rows.append(Handed(find_planted(summary), count(summary)).row(title, size))
    findings.values.update(figures([*baton.values()], size))
    return findings


def figures(prompts: list[Handed], transcript_tokens: int) -> dict[str, float]:
    """Return the figures of the report: of each the worst among the prompts."""
    found = [prompt.found for prompt in prompts]
    return {
        "fidelity_decisions": min(item.decisions for item in found),
        "fidelity_prohibitions": min(item.prohibitions for item in found),
        "fidelity_numbers": min(item.numbers for item in found),
        "fidelity_paths": min(item.paths for item in found),
        "fidelity_thoughts_as_facts": max(item.thoughts_as_facts for item in found),
        "fidelity_tokens_vs_transcript": min(transcript_tokens / prompt.tokens for prompt in prompts),
    }


async def run_chains(rig: Rig, adapters: tuple[str, ...]) -> dict[str, Handed]:
    """Return the prompt of the fifth agent of each chain, as a worker with all safeguards runs it."""
    server = await rig.server()
    parts = WorkerParts(artifacts=open_store(rig.folder / "fidelity"), counter=exact_counter())
    plugin = BatonPlugin(parts, safeguards=Safeguards.development(rig.folder))
    client = await connect(Connection(address=server.address), plugins=[plugin])
    prompts: dict[str, Handed] = {}
    with chat_server() as url:
        make_chains(adapters, url, rig.folder)
        stages = [stage for adapter in adapters for stage in CHAINS[adapter]]
        async with pipeline_worker(client, [*PIPELINES.values()], stages) as worker:
            for adapter in adapters:
                for suffix, chain in PIPELINES.items():
                    READ.clear()
                    await run_pipeline(worker, chain, PipelineInput(goal=GOAL, params={"chain": adapter}))
                    for role in set(ROLES) - READ.keys():  # a program keeps what it read in a file
                        READ[role] = (rig.folder / f"{role}.md").read_text(encoding="utf-8")
                    prompts[f"{adapter}{suffix}"] = _look_at_read()
    return prompts


def transcript() -> str:
    """Return what the first four agents said, called and were answered."""
    parts = [GOAL]
    for role in ROLES[:-1]:
        for step in script(role).steps:
            parts += [step.said, f"{step.tool} {step.arguments}", step.output]
        parts.append(script(role).text)
    return "\n".join(parts)


def spoken() -> str:
    """Return what the first four agents said."""
    said = [[step.said for step in script(role).steps] + [script(role).text] for role in ROLES[:-1]]
    return "\n".join([GOAL, *(text for texts in said for text in texts)])


def _look_at_read() -> Handed:
    """Look into the prompt of the fifth agent, and into all prompts but the first for thoughts."""
    found = {role: find_planted(READ[role]) for role in ROLES[1:]}
    thoughts = max(item.thoughts_as_facts for item in found.values())
    prompt = READ[ROLES[-1]]
    return Handed(replace(found[ROLES[-1]], thoughts_as_facts=thoughts), exact_counter()(prompt))
