"""Finding the experiments: every module of this package that defines ``EXPERIMENT``."""

from __future__ import annotations

import functools
import importlib
import pkgutil

import experiments
from experiments.common.experiment import Experiment


@functools.cache
def find_experiments() -> dict[str, Experiment]:
    """Return all experiments by name, in the order of their ``position``, those of equal position by name.

    Modules are imported here, which can start a JAX device, so call :func:`jaxbandit.study.use_all_cores` before.
    """
    found = [module.EXPERIMENT for module in map(importlib.import_module, module_names()) if "EXPERIMENT" in vars(module)]
    return {experiment.name: experiment for experiment in sorted(found, key=lambda experiment: (experiment.position, experiment.name))}


def module_names() -> list[str]:
    """Return the names of all modules that may define an experiment: all but ``__main__`` modules, which run something when imported."""
    modules = pkgutil.walk_packages(experiments.__path__, f"{experiments.__name__}.")
    return [module.name for module in modules if not module.name.endswith(".__main__")]
