"""Running comparisons and keeping what they gave: results as xarray datasets, audit traces, files written whole or not at all.

Needs the ``study`` extra (``pip install "jaxbandit[study]"``).
"""

from jaxbandit.study.audit import audit
from jaxbandit.study.comparison import Comparison, Entry, run
from jaxbandit.study.files import ExistingOutput, prepare_directory, prepare_file, write_whole
from jaxbandit.study.runtime import compile_quickly, use_all_cores
from jaxbandit.study.tuning import tune

__all__ = [
    "Comparison",
    "Entry",
    "ExistingOutput",
    "audit",
    "compile_quickly",
    "prepare_directory",
    "prepare_file",
    "run",
    "tune",
    "use_all_cores",
    "write_whole",
]
