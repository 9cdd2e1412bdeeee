"""The test kit: a real server, whole runs, scripted and recorded agents, attacks, replays, and a search for leaks."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from baton.handoff.sealed import SealError as SealError
    from baton.handoff.store_signing import open_sealed as open_sealed
    from baton.testing.cassettes import Cassette as Cassette
    from baton.testing.cassettes import CassetteMissError as CassetteMissError
    from baton.testing.cassettes import RecordedAgent as RecordedAgent
    from baton.testing.cassettes import normalised as normalised
    from baton.testing.ledger_attacks import opened_past_guards as opened_past_guards
    from baton.testing.running import TEST_OPTIONS as TEST_OPTIONS
    from baton.testing.running import TEST_SETTINGS as TEST_SETTINGS
    from baton.testing.running import BackgroundLoop as BackgroundLoop
    from baton.testing.running import PipelineRun as PipelineRun
    from baton.testing.running import RemoteServer as RemoteServer
    from baton.testing.running import TimeSkipper as TimeSkipper
    from baton.testing.running import assert_replays as assert_replays
    from baton.testing.running import assert_replays_folder as assert_replays_folder
    from baton.testing.running import connected as connected
    from baton.testing.running import ended_too_soon as ended_too_soon
    from baton.testing.running import local_server as local_server
    from baton.testing.running import pipeline_worker as pipeline_worker
    from baton.testing.running import run_pipeline as run_pipeline
    from baton.testing.running import temporary_plugin as temporary_plugin
    from baton.testing.running import time_skipping_server as time_skipping_server
    from baton.testing.scripts import Expect as Expect
    from baton.testing.scripts import Script as Script
    from baton.testing.scripts import ScriptedAgent as ScriptedAgent
    from baton.testing.scripts import ScriptedStage as ScriptedStage
    from baton.testing.scripts import ScriptError as ScriptError
    from baton.testing.scripts import Scripts as Scripts
    from baton.testing.scripts import scripted_stage as scripted_stage
    from baton.testing.surfaces import LogCapture as LogCapture
    from baton.testing.surfaces import Surfaces as Surfaces
    from baton.testing.surfaces import assert_not_seen as assert_not_seen
    from baton.testing.surfaces import assert_seen as assert_seen
    from baton.testing.surfaces import sightings as sightings
    from baton.testing.surfaces import surfaces_of as surfaces_of
    from baton.testing.tampering import JSON_PLAIN as JSON_PLAIN
    from baton.testing.tampering import altered as altered
    from baton.testing.tampering import answers as answers
    from baton.testing.tampering import flips as flips
    from baton.testing.tampering import forged as forged
    from baton.testing.tampering import handoff_attacks as handoff_attacks
    from baton.testing.tampering import readdressed as readdressed
    from baton.testing.tampering import sealed_handoffs as sealed_handoffs
    from baton.testing.tampering import signal_raw as signal_raw
    from baton.testing.tampering import truncations as truncations
    from baton.testing.tampering import unsigned as unsigned
    from baton.testing.tampering import without as without
else:
    from baton.lazy import lazy_exports

    __getattr__, __dir__, __all__ = lazy_exports(__name__, __file__)
