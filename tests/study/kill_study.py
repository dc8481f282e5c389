"""Kill and resume a study, and compare it with an uninterrupted run.

Run it by ``python tests/study/kill_study.py --kills 20``.
"""

import argparse
import contextlib
import io
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from jaxbandit.cli import main
from jaxbandit.study.files import Names

ONE_CELL = """
trials = 12
horizon = {horizon}
keep = {{every = 3}}

[model]
kernel = {{type = "SquaredExponential", length_scale = 1.0}}
noise_variance = 0.05

[problem.sine]
type = "sine_delayed"
points_per_axis = 12

[delay.late]
type = "Poisson"
mean = 4.0

[algorithm.rpol]
type = "Rpol"
sweep = {{"estimator.reward_width" = [1.0, 3.0]}}
"""

TWO_CELLS = (
    ONE_CELL
    + """
[algorithm.thompson]
type = "Cbo"
estimator = {{type = "Thompson"}}
reward_clip = 7.0
cost_clip = 2.0
"""
)


def command(base: Path, out: str, *options: str) -> list[str]:
    """Return a run with two batches a cell and many checkpoints."""
    # The tests' cache may be one of the system's.
    cache = os.environ.get("JAX_COMPILATION_CACHE_DIR", str(base / "cache"))
    fixed = ["--no-figure", "--segment", "10", "--checkpoint-share", "1", "--cache", cache, "--memory", "6MiB"]
    own = [word for path in base.glob("*.py") for word in ("--with", str(path))]
    return ["run", str(base / "study.toml"), "--out", str(base / out), *fixed, *own, *options]


def done(arguments: list[str]) -> tuple[int, str, str]:
    """Exit status of a command in this process, and what it prints."""
    with contextlib.redirect_stdout(io.StringIO()) as printed, contextlib.redirect_stderr(io.StringIO()) as said:
        status = main(arguments)
    return status, printed.getvalue(), said.getvalue()


def differences(base: Path, out: str) -> list[str]:
    """Return the variables that differ from the uninterrupted run in any bit."""
    whole, resumed = (xr.load_dataset(base / name / "results.nc", engine="h5netcdf") for name in ("whole", out))
    assert list(whole.data_vars) == list(resumed.data_vars)
    timed = ("run_seconds", "playing_seconds")
    return [name for name in whole.data_vars if name not in timed and whole[name].values.tobytes() != resumed[name].values.tobytes()]


def killed(arguments: list[str], since: Path, after: float) -> bool:
    """Return whether a process killed after ``after`` seconds was still running.

    The seconds count from the first time that a file of its run is there.
    """
    quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen([sys.executable, "-m", "jaxbandit", *arguments], cwd=Path(__file__).parents[2], **quiet)
    while not since.exists() and process.poll() is None:
        time.sleep(0.01)
    try:
        process.wait(after)
        return False
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGKILL)
        process.wait()
        return True


def resume(base: Path, out: str) -> str:
    """Run to the end, and return the progress that it printed first."""
    status, printed, said = done(command(base, out, "--resume"))
    if "--force runs again" in printed:
        return "after the results were written"
    if status == 2 and ("holds no run" in said or "is no directory" in said):
        assert done(command(base, out, "--force"))[0] == 0
        return "before the first checkpoint"
    assert status == 0, said
    return next((line for line in said.splitlines() if line.startswith("resumed")), "between two batches")


def kill_and_compare(kills: int, horizon: int, seed: int, report: object = print, study: str = TWO_CELLS, own: str = "") -> int:
    """Return the number of resumed runs that differ from the uninterrupted one.

    ``own`` is the text of a file of classes.
    """
    rng, wrong = random.Random(seed), 0
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder)
        (base / "study.toml").write_text(study.format(horizon=horizon))
        if own:
            (base / "rules_of_mine.py").write_text(own)
        status, _, said = done(command(base, "whole"))
        assert status == 0, said
        seconds = float(xr.load_dataset(base / "whole" / "results.nc", engine="h5netcdf").playing_seconds.max())
        for number in range(kills):
            after, out = rng.uniform(0.0, 1.0) * seconds, f"run{number}"
            # The run then has its directory, or its first checkpoint.
            since = base / out / (Names.lock if number % 5 == 4 else Names.at_work)
            while not killed(command(base, out), since, after):
                after *= 0.8
                subprocess.run(["rm", "-r", str(base / out)], check=True)
            where = resume(base, out)
            different = differences(base, out)
            wrong += bool(different)
            report(f"kill {number + 1} after {after:.2f} of {seconds:.2f} s, {where}: {different or 'the same bits'}")  # type: ignore[operator]
    return wrong


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20, metavar="N")
    parser.add_argument("--horizon", type=int, default=300, metavar="T")
    parser.add_argument("--seed", type=int, default=0, metavar="S")
    options = parser.parse_args()
    np.seterr(all="raise")
    wrong = kill_and_compare(options.kills, options.horizon, options.seed)
    print(f"{wrong} of {options.kills} resumed runs differ")
    sys.exit(bool(wrong))
