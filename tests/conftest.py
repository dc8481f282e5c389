"""Strict numerics and shared caches of every test.

Ranks and dtypes never promote implicitly. Compiled programs, and the time of each file, are kept for the next run, of another clone, too.
Each ring has a budget of programs.
"""

import collections
import functools
import gc
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

# Matrices are small, and threads that wait for each other slow the workers.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import hypothesis
import jax
import jax.monitoring
import pytest

import jaxbandit
from jaxbandit.host.files import write_whole
from jaxbandit.study.play import QUICK_FLAGS_BY_VERSION

# Failures in these modules then show values, too.
pytest.register_assert_rewrite("tests.support")

from tests.support.counted import COMPILED  # noqa: E402
from tests.support.golden import Golden  # noqa: E402

jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_numpy_dtype_promotion", "strict")

# Examples compile programs on busy machines.
hypothesis.settings.register_profile("any machine", deadline=None)
hypothesis.settings.load_profile("any machine")

# Child processes of these files compile with LLVM's passes, as users' programs do: 1,000 rounds on 2,500 points.
OPTIMISED = {"experiments/test_command_line.py"}

TESTS = Path(__file__).parent
# Linux allows a process 65,530 maps, and every compiled program has some.
MAPS = Path("/proc/self/maps")
# Studies have the same limit. Dropping the programs takes 1.6 CPU s.
MANY = 32_000

# A ring and a few files may compile so many programs.
BUDGETS = json.loads((TESTS / "programs.json").read_text())
PROGRAMS = collections.Counter()
SECONDS = collections.Counter()
CACHE, BEFORE = pytest.StashKey[Path | None](), pytest.StashKey[dict[str, float]]()


def _count(event: str, seconds: float, **about: object) -> None:
    PROGRAMS["compiled"] += event == COMPILED


jax.monitoring.register_event_duration_secs_listener(_count)


def relative(path: Path) -> str:
    """The name of a test file, from this folder."""
    return path.relative_to(TESTS).as_posix()


def compile_quickly() -> None:
    """Let XLA and LLVM skip most passes, here and in child processes.

    Programs do not name the Python lines that each operation comes from, a twelfth of the time to lower and to compile. XLA for a CPU goes
    without passes that cost more than they save in runs as short as these; it ends a process that gives it a flag which it does not know,
    so only versions that know the flags get them. JAX reads all this once, when it starts its backend.
    """
    os.environ.setdefault("JAX_TRACEBACK_IN_LOCATIONS_LIMIT", "0")
    jax.config.update("jax_traceback_in_locations_limit", int(os.environ["JAX_TRACEBACK_IN_LOCATIONS_LIMIT"]))
    jax.config.update("jax_disable_most_optimizations", True)
    given, known = os.environ.get("XLA_FLAGS", ""), QUICK_FLAGS_BY_VERSION.get(jax.__version_info__[:2], ())
    loops = ["--xla_disable_hlo_passes=simplify-while-loops,while-loop-invariant-code-motion,while-loop-constant-sinking"] if known else []
    os.environ["XLA_FLAGS"] = " ".join([given, *(flag for flag in (*known, *loops) if flag not in given)]).strip()


def keep_to_a_core(worker: int) -> None:
    """Keep this process and its children to one core.

    Workers that have all cores take a tenth more time. Systems other than Linux leave it to the scheduler.
    """
    if hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[worker % len(cores)]})


def pytest_configure(config: pytest.Config) -> None:
    # Tracing makes many objects and few cycles.
    gc.set_threshold(50_000, 20, 50)
    gc.freeze()
    if not config.option.as_users:
        compile_quickly()
    # The environment is that of the process that hands out the tests.
    if hasattr(config, "workerinput"):
        keep_to_a_core(int(config.workerinput["workerid"].removeprefix("gw")))
        config.stash[BEFORE] = config.workerinput["seconds"]
        if not jax.config.values["jax_compilation_cache_dir"]:
            # Otherwise sessions would use the user's cache.
            jaxbandit.enable_cache(None)
        return
    config.stash[CACHE] = jaxbandit.enable_cache(Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "jaxbandit-tests")
    known = _seconds_known(config)
    # The first run of another ring uses the times of the quick ring.
    config.stash[BEFORE] = known.get(config.option.markexpr, known.get("", {}))
    if config.pluginmanager.has_plugin("xdist"):
        config.pluginmanager.register(ToldToWorkers())
    # Child processes inherit these settings.
    if config.stash[CACHE] is not None:
        settings = ["jax_persistent_cache_min_compile_time_secs", "jax_persistent_cache_min_entry_size_bytes"]
        settings += ["jax_compilation_cache_dir", "jax_compilation_cache_max_size"]
        os.environ |= {name.upper(): str(jax.config.values[name]) for name in settings}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--write-golden", action="store_true", help="write golden files in place of comparing with them (with -n 0)")
    parser.addoption("--as-users", action="store_true", help="compile as users' programs are compiled, without a flag that saves time")


@pytest.fixture
def on_cpu() -> None:
    """Skip a test of CPUs on other devices."""
    if jax.default_backend() != "cpu":
        pytest.skip("of CPUs")


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str], Any]:
    """Gives golden files by their names."""
    return functools.partial(Golden, write=request.config.option.write_golden)


class ToldToWorkers:
    """Tell workers the files' times, and add up their programs.

    All workers have to collect the tests in one order.
    """

    def pytest_configure_node(self, node: Any) -> None:
        node.workerinput["seconds"] = node.config.stash[BEFORE]

    def pytest_testnodedown(self, node: Any) -> None:
        # A killed worker reports nothing.
        PROGRAMS["compiled"] += getattr(node, "workeroutput", {}).get("programs", 0)


def _seconds_known(config: pytest.Config) -> dict[str, dict[str, float]]:
    """How long files took in earlier runs, by the ring."""
    file = (config.stash[CACHE] or TESTS) / "seconds.json"
    return json.loads(file.read_text()) if file.exists() else {}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep some full cases in the quick ring, and sort files.

    ``@pytest.mark.full(but=("rpol",))`` stands for all cases of a test but those in whose name a part between hyphens is "rpol".
    """
    for item in items:
        mark = item.get_closest_marker("full")
        if mark is not None and mark.kwargs and set(item.callspec.id.split("-")) & set(mark.kwargs["but"]):
            item.own_markers = [own for own in item.own_markers if own.name != "full"]
    seconds = config.stash[BEFORE]
    items.sort(key=lambda item: -seconds.get(relative(item.path), 0.0))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    # A test may have changed the directory.
    SECONDS[report.fspath.removeprefix("tests/")] += report.duration


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Keep the files' times, and check the number of programs."""
    # Pytest collects garbage repeatedly when it ends.
    gc.freeze()
    config = session.config
    whole = [config.rootpath / argument for argument in config.args] == [TESTS] and not config.option.keyword
    if hasattr(config, "workerinput"):
        config.workeroutput["programs"] = PROGRAMS["compiled"]
        return
    made, budget = PROGRAMS["compiled"], BUDGETS["rings"].get(config.option.markexpr)
    if whole and budget is not None:
        print(f"\n{made} programs compiled; the budget of this ring in tests/programs.json is {budget}")
        session.exitstatus = session.exitstatus or int(made > budget)
    if config.stash[CACHE] is None or not whole:
        return
    rings = _seconds_known(config) | {config.option.markexpr: {name: round(time, 1) for name, time in SECONDS.items()}}
    write_whole(config.stash[CACHE] / "seconds.json", lambda path: path.write_text(json.dumps(rings)))


@pytest.fixture(scope="module", autouse=True)
def _compilation(request: pytest.FixtureRequest) -> Iterator[None]:
    """Drop programs at the limit of maps, and set children's passes."""
    name, before = relative(request.path), PROGRAMS["compiled"]
    if MAPS.exists() and MAPS.read_bytes().count(b"\n") > MANY:
        jax.clear_caches()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAX_DISABLE_MOST_OPTIMIZATIONS", str(int(not request.config.option.as_users and name not in OPTIMISED)))
        yield
    # Programs and their traces stay, and no collection need look at them.
    gc.freeze()
    made, budget = PROGRAMS["compiled"] - before, BUDGETS["files"].get(name)
    assert budget is None or made <= budget, f"{name} compiled {made} programs; its budget in tests/programs.json is {budget}"


@pytest.fixture
def optimised() -> Iterator[None]:
    """Compile a test's own functions with all passes."""
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", False)
    yield
    jax.config.update("jax_disable_most_optimizations", before)
