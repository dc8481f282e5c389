"""Studies in batches, with results as datasets and audit traces.

A study passes through a module for each step. A list of :class:`Run` (``runs``) makes a :class:`Study` (``study``), and a :class:`Plan`
(``plan``) cuts the study into cells and batches, which ``play`` computes and ``run`` stores.

Needs the ``study`` extra (``pip install "jaxbandit[study]"``).
"""

from jaxbandit.core.doors import Parser
from jaxbandit.host.executors import TaskFailed, WorkerMismatch, WorkersLost, connected, spread
from jaxbandit.host.files import CannotWrite, ExistingOutput, ended, prepare_directory, prepare_file, write_whole
from jaxbandit.results.dataset import flags_in_words, sweeps_without_effect, to_dataframe
from jaxbandit.results.files import read_results, write_results
from jaxbandit.study.bundle import Verification, bundle, verify
from jaxbandit.study.catalogue import own_algorithm
from jaxbandit.study.files import CheckpointMismatch, DirectoryInUse, HeldDirectory, hold_directory, interrupted
from jaxbandit.study.plan import Plan, make_plan
from jaxbandit.study.play import compile_quickly, use_all_cores
from jaxbandit.study.progress import Progress, Reporter
from jaxbandit.study.run import BatchFailed, forget, made_before, run_study
from jaxbandit.study.runs import Model, Policy, Run, grid
from jaxbandit.study.study import Keep, Study, from_table, from_toml
from jaxbandit.study.trial import audit, rerun
from jaxbandit.study.tuning import tune

__all__ = ["BatchFailed", "CannotWrite", "CheckpointMismatch", "DirectoryInUse", "ExistingOutput", "HeldDirectory", "Keep", "Model"]
__all__ += ["Parser", "Plan", "Policy", "Progress", "Reporter", "Run", "Study", "TaskFailed", "WorkerMismatch", "WorkersLost"]
__all__ += ["Verification", "audit", "bundle", "compile_quickly", "connected", "ended", "flags_in_words", "forget", "from_table"]
__all__ += ["from_toml", "grid", "hold_directory", "interrupted", "made_before", "make_plan", "own_algorithm", "prepare_directory"]
__all__ += [
    "prepare_file",
    "read_results",
    "rerun",
    "run_study",
    "spread",
    "sweeps_without_effect",
    "to_dataframe",
    "tune",
    "use_all_cores",
]
__all__ += ["verify", "write_results", "write_whole"]
__dir__ = __all__.copy
