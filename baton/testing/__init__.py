"""The test kit: a real server, pipeline runs, scripted and recorded agents, replays, attacks."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from baton.testing.approval_attacks import APPROVAL_ATTACKS as APPROVAL_ATTACKS
    from baton.testing.approval_attacks import ATTACKED_STAGES as ATTACKED_STAGES
    from baton.testing.approval_attacks import attack_an_approval as attack_an_approval
    from baton.testing.approval_attacks import attacked_payment as attacked_payment
    from baton.testing.cassettes import Cassette as Cassette
    from baton.testing.cassettes import CassetteMissError as CassetteMissError
    from baton.testing.cassettes import RecordedAgent as RecordedAgent
    from baton.testing.cassettes import normalised as normalised
    from baton.testing.handoff_attacks import copy_handoff as copy_handoff
    from baton.testing.handoff_attacks import play_again as play_again
    from baton.testing.lab import assert_cohort as assert_cohort
    from baton.testing.ledger_attacks import opened_past_guards as opened_past_guards
    from baton.testing.replies import Replies as Replies
    from baton.testing.replies import RepliesError as RepliesError
    from baton.testing.replies import Reply as Reply
    from baton.testing.running import TEST_OPTIONS as TEST_OPTIONS
    from baton.testing.running import TEST_SETTINGS as TEST_SETTINGS
    from baton.testing.running import BackgroundLoop as BackgroundLoop
    from baton.testing.running import PipelineRun as PipelineRun
    from baton.testing.running import TimeSkipper as TimeSkipper
    from baton.testing.running import assert_replays as assert_replays
    from baton.testing.running import assert_replays_folder as assert_replays_folder
    from baton.testing.running import connected as connected
    from baton.testing.running import ended_too_soon as ended_too_soon
    from baton.testing.running import local_server as local_server
    from baton.testing.running import pipeline_worker as pipeline_worker
    from baton.testing.running import run_pipeline as run_pipeline
    from baton.testing.running import temporary_plugin as temporary_plugin
    from baton.testing.scripts import Expect as Expect
    from baton.testing.scripts import Script as Script
    from baton.testing.scripts import ScriptedAgent as ScriptedAgent
    from baton.testing.scripts import ScriptedStage as ScriptedStage
    from baton.testing.scripts import ScriptError as ScriptError
    from baton.testing.scripts import Scripts as Scripts
    from baton.testing.scripts import scripted_stage as scripted_stage
else:
    from baton.lazy import lazy_exports

    __getattr__, __dir__, __all__ = lazy_exports(__name__, __file__)
