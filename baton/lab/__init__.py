"""The lab: recorded stages run again, with and without a change, without an effect outside. Loaded on first use.

| to | names |
|---|---|
| make a cohort | `make_cohort`, `read_cases`, `Cohort`, `Case`, `Should`, `Judging`, `pack` |
| keep it | `load_cohort`, `save_cohort`, `load_results`, `save_results`, `last_results`, `list_cohorts` |
| run it | `run_lab`, `LabOptions`, `Lane`, `Overrides`, `Unrecorded`, `BASELINE` |
| learn terms from runs | `read_uses`, `propose`, `Proposal` |
| judge it | `report`, `gate`, `refusals`, `ranked`, `Limits`, `LaneReport`, `Compared`, `Mark`, `Results`, `Outcome` |
| let a model judge | `ModelJudge`, `JUDGE_PROMPT` |
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from baton.core.lab import LabCall as LabCall
    from baton.core.lab import Overrides as Overrides
    from baton.core.lab import RecordedCall as RecordedCall
    from baton.core.lab import Unrecorded as Unrecorded
    from baton.lab.client_cases import make_cohort as make_cohort
    from baton.lab.client_cases import read_cases as read_cases
    from baton.lab.client_run import pack as pack
    from baton.lab.client_run import run_lab as run_lab
    from baton.lab.files import FOLDER as FOLDER
    from baton.lab.files import cohort_file as cohort_file
    from baton.lab.files import last_results as last_results
    from baton.lab.files import list_cohorts as list_cohorts
    from baton.lab.files import load_cohort as load_cohort
    from baton.lab.files import load_results as load_results
    from baton.lab.files import results_file as results_file
    from baton.lab.files import save_cohort as save_cohort
    from baton.lab.files import save_results as save_results
    from baton.lab.judging import DECISION as DECISION
    from baton.lab.judging import OUTPUT as OUTPUT
    from baton.lab.judging import SCHEMA as SCHEMA
    from baton.lab.judging import SHOULD as SHOULD
    from baton.lab.judging import Compared as Compared
    from baton.lab.judging import Judge as Judge
    from baton.lab.judging import LaneReport as LaneReport
    from baton.lab.judging import Limits as Limits
    from baton.lab.judging import Mark as Mark
    from baton.lab.judging import decided as decided
    from baton.lab.judging import decision_of as decision_of
    from baton.lab.judging import distinct as distinct
    from baton.lab.judging import gate as gate
    from baton.lab.judging import prompt_changes as prompt_changes
    from baton.lab.judging import ranked as ranked
    from baton.lab.judging import refusals as refusals
    from baton.lab.judging import report as report
    from baton.lab.model_judge import JUDGE_PROMPT as JUDGE_PROMPT
    from baton.lab.model_judge import ModelJudge as ModelJudge
    from baton.lab.records import BASELINE as BASELINE
    from baton.lab.records import Case as Case
    from baton.lab.records import Cohort as Cohort
    from baton.lab.records import Figure as Figure
    from baton.lab.records import Judging as Judging
    from baton.lab.records import LabError as LabError
    from baton.lab.records import LabOptions as LabOptions
    from baton.lab.records import Lane as Lane
    from baton.lab.records import Outcome as Outcome
    from baton.lab.records import Results as Results
    from baton.lab.records import Should as Should
    from baton.runs.client_usage import Proposal as Proposal
    from baton.runs.client_usage import propose as propose
    from baton.runs.client_usage import read_uses as read_uses
else:
    from baton.lazy import lazy_exports

    __getattr__, __dir__, __all__ = lazy_exports(__name__, __file__)
