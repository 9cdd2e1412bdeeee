"""The test kit: a real server, whole runs, scripted and recorded agents, attacks, replays, and a search for leaks.

```
server.py     local_server, time_skipping_server        running.py    pipeline_worker, run_pipeline
scripts.py    Expect, Script, scripted_stage            agents.py     ScriptedAgent, RecordedAgent
cassettes.py  Cassette: an agent's answers in a file    replaying.py  assert_replays, assert_replays_folder
surfaces.py   everything a run left behind, as text     markers.py    assert_not_seen, assert_seen
tampering.py  attacks on handoffs                       chains.py     attacks on the ledger's records
gates.py      answers: what a receiver makes of them    background.py an event loop in a thread
plugin.py     pytest's fixtures and options
```
Only `plugin.py` needs pytest; the rest works with any framework, and everything here is what Baton's own tests
use. A stage alone needs none of it: call it like the function it is, with `StageContext.for_test` if it takes a
context.

```python
async def test_delivery_plans_before_it_implements(baton_worker):
    async with baton_worker([Delivery], [plan, implement]) as worker:
        run = await run_pipeline(worker, Delivery.run, PipelineInput(goal="Add OAuth2 login"))
    assert [step.name for step in run.record.steps] == ["plan", "implement"]
    assert run.baton.decision_log == ["Chose JWT over sessions"]
    await assert_replays(run.handle, [Delivery])
```

The names are loaded when they are first asked for: pytest loads the plugin at every start, in projects that do not
use it as well, and must not pay for the rest.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from baton.testing.agents import RecordedAgent, ScriptedAgent, Scripts
    from baton.testing.background import BackgroundLoop
    from baton.testing.cassettes import Cassette, CassetteMissError, normalised
    from baton.testing.chains import CHAIN_ATTACKS, edited, opened_past_guards
    from baton.testing.gates import answers
    from baton.testing.markers import assert_not_seen, assert_seen, sightings
    from baton.testing.replaying import assert_replays, assert_replays_folder
    from baton.testing.running import PipelineRun, pipeline_worker, run_pipeline
    from baton.testing.scripts import Expect, Script, ScriptedStage, ScriptError, scripted_stage
    from baton.testing.server import (
        TEST_OPTIONS,
        TEST_SETTINGS,
        RemoteServer,
        TimeSkipper,
        connected,
        ended_too_soon,
        local_server,
        time_skipping_server,
    )
    from baton.testing.surfaces import LogCapture, Surfaces, surfaces_of
    from baton.testing.tampering import (
        JSON_PLAIN,
        changed,
        flips,
        forged,
        handoff_attacks,
        readdressed,
        sealed_handoffs,
        signal_raw,
        truncations,
        unsigned,
        without,
    )

_HOMES = {
    "agents": ("RecordedAgent", "ScriptedAgent", "Scripts"),
    "background": ("BackgroundLoop",),
    "cassettes": ("Cassette", "CassetteMissError", "normalised"),
    "chains": ("CHAIN_ATTACKS", "edited", "opened_past_guards"),
    "gates": ("answers",),
    "markers": ("assert_not_seen", "assert_seen", "sightings"),
    "replaying": ("assert_replays", "assert_replays_folder"),
    "running": ("PipelineRun", "pipeline_worker", "run_pipeline"),
    "scripts": ("Expect", "Script", "ScriptError", "ScriptedStage", "scripted_stage"),
    "server": (
        "TEST_OPTIONS",
        "TEST_SETTINGS",
        "RemoteServer",
        "TimeSkipper",
        "connected",
        "ended_too_soon",
        "local_server",
        "time_skipping_server",
    ),
    "surfaces": ("LogCapture", "Surfaces", "surfaces_of"),
    "tampering": (
        "JSON_PLAIN",
        "changed",
        "flips",
        "forged",
        "handoff_attacks",
        "readdressed",
        "sealed_handoffs",
        "signal_raw",
        "truncations",
        "unsigned",
        "without",
    ),
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [  # noqa: RUF022 - in the order of the map above
    "local_server",
    "time_skipping_server",
    "RemoteServer",
    "TEST_OPTIONS",
    "TEST_SETTINGS",
    "TimeSkipper",
    "connected",
    "ended_too_soon",
    "BackgroundLoop",
    "pipeline_worker",
    "run_pipeline",
    "PipelineRun",
    "Expect",
    "Script",
    "ScriptError",
    "ScriptedStage",
    "scripted_stage",
    "ScriptedAgent",
    "RecordedAgent",
    "Scripts",
    "Cassette",
    "CassetteMissError",
    "normalised",
    "assert_replays",
    "assert_replays_folder",
    "Surfaces",
    "LogCapture",
    "surfaces_of",
    "assert_not_seen",
    "assert_seen",
    "sightings",
    "sealed_handoffs",
    "handoff_attacks",
    "changed",
    "without",
    "unsigned",
    "forged",
    "readdressed",
    "flips",
    "truncations",
    "answers",
    "signal_raw",
    "JSON_PLAIN",
    "CHAIN_ATTACKS",
    "edited",
    "opened_past_guards",
]


def __getattr__(name: str) -> Any:
    """Load a name's module when the name is first asked for."""
    if name not in _HOME:
        raise AttributeError(f"module 'baton.testing' has no attribute {name!r}")
    value = getattr(import_module(f"baton.testing.{_HOME[name]}"), name)
    globals()[name] = value
    return value
