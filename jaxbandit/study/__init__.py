"""Running studies and keeping what they gave: results as xarray datasets, audit traces, files written whole or not at all.

Needs the ``study`` extra (``pip install "jaxbandit[study]"``).
"""

from jaxbandit.study.audit import audit
from jaxbandit.study.checkpoints import CheckpointMismatch
from jaxbandit.study.comparison import Comparison
from jaxbandit.study.engine import forget, run_study
from jaxbandit.study.files import CannotWrite, ExistingOutput, prepare_directory, prepare_file, write_whole
from jaxbandit.study.lines import Entry, Line, Specification
from jaxbandit.study.planning import Plan, make_plan
from jaxbandit.study.progress import Progress, Reporter
from jaxbandit.study.rerun import rerun
from jaxbandit.study.results import TrialsFailed, flagged, raise_if_failed, read_results, write_results
from jaxbandit.study.runtime import compile_quickly, use_all_cores
from jaxbandit.study.spec import Contender, Model, Study, from_toml
from jaxbandit.study.thinning import Keep
from jaxbandit.study.tuning import tune

__all__ = [
    "CannotWrite",
    "CheckpointMismatch",
    "Comparison",
    "Contender",
    "Entry",
    "ExistingOutput",
    "Keep",
    "Line",
    "Model",
    "Plan",
    "Progress",
    "Reporter",
    "Specification",
    "Study",
    "TrialsFailed",
    "audit",
    "compile_quickly",
    "flagged",
    "forget",
    "from_toml",
    "make_plan",
    "prepare_directory",
    "prepare_file",
    "raise_if_failed",
    "read_results",
    "rerun",
    "run_study",
    "tune",
    "use_all_cores",
    "write_results",
    "write_whole",
]
