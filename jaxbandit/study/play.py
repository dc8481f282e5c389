"""Runs of a study's batches in this process, with programs and checkpoints.

JAX caches the programs, so that a repeated study compiles nothing in this process.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from jaxbandit.core.blocks import mesh_of, place
from jaxbandit.core.pytree import canonicalise, float_dtype, signature
from jaxbandit.domains import Box
from jaxbandit.engine.programs import advance_all, begin_all, conclude_all, play_all
from jaxbandit.host.memory import Programs, cores
from jaxbandit.problems import best_mixed_policy
from jaxbandit.results.dataset import MIXED, Arrays, Contents
from jaxbandit.results.metrics import Tally, start_tally
from jaxbandit.results.summary import measure_all
from jaxbandit.study.files import Files, Names
from jaxbandit.study.plan import Batch, Plan, PlannedCell
from jaxbandit.study.study import sampled


class Player:
    """Player of batches of a plan, on its devices.

    After each part of a batch but the last it calls ``report`` with the batch, the round and the trials' first metric, or ``None`` for
    rounds of an earlier process. Checkpoints in ``files`` use no more than a ``share`` of the time. The player compiles the programs of
    batches that are ``left`` together. It ignores a checkpoint that does not fit the ``contents`` of the results.
    """

    usual_share = 0.04

    def __init__(
        self,
        plan: Plan,
        files: Files | None = None,
        *,
        report: Callable[[Batch, int, np.ndarray | None], None] = lambda batch, last, ends: None,
        note: Callable[[str], None] = lambda line: None,
        share: float = usual_share,
        left: Callable[[], Iterable[Batch]] = lambda: (),
        contents: Contents | None = None,
    ) -> None:
        self.contents = contents
        self.plan, self.files, self.report, self.note, self.share, self.left = plan, files, report, note, share, left
        self.mesh, self.key = mesh_of(list(plan.devices)), jax.random.key(plan.study.seed)
        self.recording = {"record": "values" if plan.study.trajectories else "indices", "mesh": self.mesh}
        # The results turn rewards into strong regret at the end.
        self.metrics = tuple(dict.fromkeys("reward" if metric == "strong_regret" else metric for metric in plan.study.metrics))
        self.compiling = self.saving = 0.0
        self.saved = time.perf_counter()
        self.resumed = None if files is None else files.read(Names.at_work, _no_place)
        self.mixed: dict[Hashable, float] = {}

    def play(self, batch: Batch) -> tuple[dict[str, np.ndarray], np.ndarray]:
        """Return a batch's arrays, and seconds ``[2]`` with and without compilation."""
        # The seconds are NaN if an earlier process ran a part.
        begun, compiling = time.perf_counter(), self.compiling
        checkpoint = None if self.resumed is None or (*self.resumed["place"][:2],) != batch.place else self.resumed
        arrays = self._at_once(batch) if batch.cell.in_one_part else self._in_parts(batch, checkpoint)
        played = time.perf_counter() - begun - self.compiling + compiling
        if "strong_regret" in self.plan.study.metrics:
            arrays[f"fact_{MIXED}"] = np.asarray([self._best_mixed(run, trial) for run, trial in batch.rows.tolist()])
        return arrays, np.asarray([time.perf_counter() - begun, played]) if checkpoint is None else np.full(2, np.nan)

    def _at_once(self, batch: Batch) -> dict[str, np.ndarray]:
        """Run all rounds by calls of one program."""
        cell, calls = batch.cell, []
        for numbers, blocks, positions in self._calls(batch):
            pairs = self._place(numbers)
            before, seen, ended = self._call(self._playing(cell, pairs, blocks))
            _, curves, facts = self._call(self._measuring(cell, pairs, self._no_tally(cell), self._places(1, before, seen), blocks))
            calls.append(jax.tree.map(lambda x, positions=positions: np.asarray(x)[positions], (before, seen, ended, curves, facts)))
        before, seen, ended, curves, facts = jax.tree.map(lambda *x: x[0] if len(x) == 1 else np.concatenate(x), *calls)
        return _collected([self._kept(1, before, seen, curves, facts)], ended, batch.size)

    def _calls(self, batch: Batch) -> Iterator[tuple[np.ndarray, np.int32 | None, np.ndarray]]:
        """Yield trials, number of blocks and the batch's positions for each call."""
        cell = batch.cell
        devices = len(cell.devices)
        for trials in np.split(batch.pairs, range(cell.room, batch.size, cell.room)):
            blocks = np.int32(-(-len(trials) // cell.step)) if cell.counts_blocks else None
            each = cell.room // devices if blocks is None else int(blocks) * cell.cell.block
            # A device has a row of the table, and runs its first ``each`` places.
            positions = np.arange(cell.room).reshape(devices, -1)[:, :each].ravel()[: len(trials)]
            pairs = np.repeat(trials[-1:], cell.room, axis=0)
            pairs[positions] = trials
            yield pairs, blocks, positions

    def _in_parts(self, batch: Batch, checkpoint: Arrays | None) -> dict[str, np.ndarray]:
        """Run a batch in parts with checkpoints, from an earlier checkpoint on."""
        cell, numbers, horizon = batch.cell, batch.pairs, batch.cell.cell.horizon
        pairs = self._place(np.concatenate([numbers, np.repeat(numbers[-1:], cell.room - batch.size, axis=0)]))
        states, before = begin_all(cell.cell, self.key, pairs, mesh=self.mesh)
        tally, next_round = self._no_tally(cell), 1
        kept: list[dict[str, np.ndarray]] = []
        if checkpoint is not None and (reason := self._misfit(cell, checkpoint, (states, tally))):
            self.note(f"{Names.at_work} does not fit ({reason}); {batch} is run from its first round")
            checkpoint = None
        if checkpoint is not None:
            # The number of copies of the last trial depends on the number of devices.
            leaves = {name: array[np.minimum(np.arange(len(pairs)), len(array) - 1)] for name, array in checkpoint.items()}
            flat, structure = jax.tree.flatten((states, tally))
            carried = [self._place(leaves[f"c{i}"]) if x.size else x for i, x in enumerate(flat)]
            (states, tally), next_round = jax.tree.unflatten(structure, carried), int(checkpoint["place"][2])
            kept = [{name.removeprefix("g_"): array for name, array in leaves.items() if name.startswith("g_")}]
            self.report(batch, next_round - 1, None)
            self.note(f"resumed at round {next_round} of {batch}")
        for first, rounds in ((first, rounds) for first, rounds in cell.parts if first >= next_round):
            static = {"rounds": rounds, **self.recording}
            states, seen = self._call((advance_all, (cell.cell, self.key, states, pairs, np.int32(first)), static))
            tally, curves, facts = self._call(self._measuring(cell, pairs, tally, self._places(first, before, seen), None))
            kept.append(self._kept(first, before, seen, curves, facts))
            if first + rounds <= horizon:
                self.report(batch, first + rounds - 1, np.asarray(curves[self.metrics[0]])[: batch.size, -1])
                self._checkpoint((*batch.place, first + rounds), (states, tally), kept)
        return _collected(kept, conclude_all(cell.cell, self.key, states, pairs, mesh=self.mesh), batch.size)

    def _misfit(self, cell: PlannedCell, checkpoint: Arrays, carry: object) -> str:
        """Return why a checkpoint does not fit the state ``carry``, or nothing."""
        wanted = {f"c{i}": x for i, x in enumerate(jax.tree.leaves(carry)) if x.size}
        for name, leaf in wanted.items():
            array = checkpoint.get(name)
            if array is None:
                return f"it lacks {name}"
            if array.shape[:1] in ((), (0,)) or array.shape[1:] != leaf.shape[1:] or array.dtype != leaf.dtype:
                return f"{name} has the shape {array.shape} and the type {array.dtype}, in place of {leaf.shape} and {leaf.dtype}"
        next_round = int(checkpoint["place"][2])
        if next_round not in [first for first, _ in cell.parts]:
            return f"no part begins at round {next_round}"
        if self.contents is None:
            return ""
        grown = {name.removeprefix("g_"): array for name, array in checkpoint.items() if name.startswith("g_")}
        count = max((len(array) for array in grown.values() if array.ndim), default=0)
        so_far = dataclasses.replace(self.contents, horizon=next_round - 1, kept=self.contents.kept[self.contents.kept < next_round])
        return so_far.misfit(cell.number, {**grown, "end_status": np.zeros(count, np.int32)}, count)

    def _places(self, first: int, before: Arrays, seen: Arrays) -> jax.Array:
        """Return chosen indices or points, after counted initial points in round 1."""
        name = "points" if "points" in seen else "indices"
        early = [before[f"initial_{name}"]] if first == 1 and self.plan.before else []
        return self._place(np.concatenate([np.asarray(places) for places in (*early, seen[name])], axis=1))

    def _kept(self, first: int, before: Arrays, seen: Arrays, curves: Arrays, facts: Arrays) -> dict[str, np.ndarray]:
        """Return the stored arrays of rounds from ``first`` on, named for results."""
        study, early = self.plan.study, self.plan.before if first == 1 else 0
        rounds = study.keep.rounds(study.horizon)
        names = {"before_index": "initial_indices", "before_point": "initial_points"}
        kept: dict[str, ArrayLike] = {name: before[field] for name, field in names.items() if early and field in before}
        for name, curve in ((name, np.asarray(values)) for name, values in curves.items()):
            if early:
                kept[f"before_{name}"] = curve[:, :early]
            inside = rounds[(rounds >= first) & (rounds < first + curve.shape[1] - early)] - first + early
            kept[name] = curve if len(inside) == curve.shape[1] else curve[:, inside]
        kept |= {f"seen_{name}": values for name, values in seen.items() if study.trajectories}
        kept |= {f"fact_{name}": values for name, values in facts.items() if first == 1}
        return {name: np.asarray(values) for name, values in kept.items()}

    def _checkpoint(self, where: tuple[int, int, int], carry: object, kept: Sequence[Arrays]) -> None:
        """Write a checkpoint, unless it exceeds its share of the time."""
        start = time.perf_counter()
        if self.files is None or self.share * (start - self.saved) < (1 - self.share) * self.saving:
            return
        leaves = {f"c{i}": np.asarray(x) for i, x in enumerate(jax.tree.leaves(carry))}
        grown = {f"g_{name}": array for name, array in _joined(kept).items()}
        self.files.write(Names.at_work, {"place": np.asarray(where), **leaves, **grown})
        self.saved = time.perf_counter()
        self.saving = self.saved - start

    def _call(self, call: Call) -> Any:
        """Return the result of a program, compiled with those to come."""

        def coming() -> Iterator[Call]:
            for cell in dict.fromkeys(batch.cell for batch in self.left() if batch.cell.in_one_part):
                shape, domain = (cell.room, cell.cell.horizon + self.plan.before), cell.cell.problem.domain
                pairs = self._place(np.zeros((cell.room, 3), np.int32))
                on_box = isinstance(domain, Box)
                places = self._place(np.zeros((*shape, domain.dimension), float_dtype()) if on_box else np.zeros(shape, np.int32))
                blocks = np.int32(0) if cell.counts_blocks else None
                yield self._playing(cell, pairs, blocks)
                yield self._measuring(cell, pairs, self._no_tally(cell), places, blocks)

        start = time.perf_counter()
        compile_together(call, coming, self.note)
        self.compiling += time.perf_counter() - start
        function, args, static = call
        return function(*args, **static)

    def _playing(self, cell: PlannedCell, pairs: jax.Array, blocks: np.int32 | None) -> Call:
        return play_all, (cell.cell, self.key, pairs, blocks), self.recording

    def _measuring(self, cell: PlannedCell, pairs: jax.Array, tally: Tally, places: jax.Array, blocks: np.int32 | None) -> Call:
        how = {"metrics": self.metrics, "block": cell.cell.block, "common": cell.cell.common, "mesh": self.mesh}
        return measure_all, (cell.cell.problem, self.key, (pairs, tally, places), blocks), how

    def _place(self, array: ArrayLike) -> jax.Array:
        """Place an array on the devices, sharded over its first axis."""
        return place(array, self.plan.devices)

    def _no_tally(self, cell: PlannedCell) -> Tally:
        """Return the tally of a program's trials before round 1."""
        return jax.tree.map(lambda x: self._place(np.asarray(x)), start_tally(cell.cell.problem.constraints, (cell.room,)))

    def _best_mixed(self, run: int, trial: int) -> float:
        """Return the best mixed policy's reward, by a linear programme per instance."""
        problem = self.plan.runs[run].problem
        # Without common random numbers a random family gives every run its own instances.
        stream = 0 if self.plan.study.common_random_numbers else run + 1
        instance: Hashable = (id(problem), stream, trial) if problem.is_random else id(problem)
        if instance not in self.mixed:
            if problem.is_random:
                root = jax.random.fold_in(self.key, stream) if stream else self.key
                problem = jax.tree.map(lambda x: np.asarray(x)[0], sampled(canonicalise(problem), root, jnp.asarray([trial], jnp.int32)))
            self.mixed[instance] = best_mixed_policy(problem)[0]
        return self.mixed[instance]


def _no_place(checkpoint: Arrays) -> str:
    """Return why a checkpoint has no place ``[3]``: cell, batch, next round."""
    place = checkpoint.get("place")
    return "" if place is not None and place.shape == (3,) and place.dtype.kind in "iu" else "it does not say where it was made"


def _joined(kept: Sequence[Arrays]) -> dict[str, np.ndarray]:
    """Return the arrays of parts joined along the rounds."""
    names = dict.fromkeys(name for part in kept for name in part)
    pieces = {name: [part[name] for part in kept if name in part] for name in names}
    return {name: arrays[0] if len(arrays) == 1 else np.concatenate(arrays, axis=1) for name, arrays in pieces.items()}


def _collected(kept: Sequence[Arrays], ended: Mapping[str, ArrayLike], count: int) -> dict[str, np.ndarray]:
    """Return the arrays of a batch's first ``count`` trials."""
    arrays = _joined(kept) | {f"end_{name}": np.asarray(values) for name, values in ended.items()}
    return {name: array[:count] for name, array in arrays.items()}


Call: TypeAlias = tuple[Any, tuple[Any, ...], Mapping[str, Any]]
"""A jitted function, its arguments, and its static arguments."""

# Each compilation needs memory. On two cores four programs wait, so that no core is idle while the longest compiles.
MAX_COMPILED_TOGETHER = 6

# With these flags, and without optimisation, XLA compiles for CPUs in a third of the time: without fused loops, in one piece instead of 32,
# and by its preset for quick compilation. XLA ends a process with a flag that XLA does not know.
QUICK_FLAGS_BY_VERSION = {
    (0, 10): (
        "--xla_cpu_opt_preset=CPU_OPT_PRESET_FAST_COMPILE",
        "--xla_cpu_use_fusion_emitters=false",
        "--xla_cpu_parallel_codegen_split_count=1",
    )
}


def compile_together(call: Call, coming: Callable[[], Iterable[Call]], note: Callable[[str], None]) -> None:
    """Compile the program of a call, and the first programs to come."""
    if _made_of(call) in Programs.made:
        return
    Programs.bound()
    missing = {made_of: wanted for made_of, wanted in ((_made_of(one), one) for one in (call, *coming())) if made_of not in Programs.made}
    rounds = -(-len(missing) // (MAX_COMPILED_TOGETHER if cores() > 1 else 1))
    chosen = dict(itertools.islice(missing.items(), -(-len(missing) // rounds)))
    words = f"{len(chosen)} program{'s' * (len(chosen) > 1)}"
    note(f"compiling {words}")
    start = time.perf_counter()
    with ThreadPoolExecutor(min(len(chosen), cores())) as pool:
        # This thread traces and lowers, because both depend on its settings, while other threads compile.
        futures = [pool.submit(f.lower(*args, **static).compile) for f, args, static in chosen.values()]
    for future in futures:
        future.result()
    Programs.made.update(chosen)
    note(f"compiled {words} in {time.perf_counter() - start:.1f} s")


def _made_of(call: Call) -> tuple[Any, ...]:
    """Return everything that a program depends on."""
    function, args, static = call
    devices = {device for x in jax.tree.leaves(args) if isinstance(x, jax.Array) for device in x.devices()}
    settings = str(float_dtype()), tuple((option, str(value)) for option, value in jax.config.values.items())
    return function, signature(args), tuple(static.items()), frozenset(devices), settings


def use_all_cores() -> int:
    """Make every CPU core a JAX device, and return their number.

    On two cores one device per core runs trials about 1.8 times faster than one device with XLA's own threads does. JAX prefers an
    accelerator, so that this changes nothing there. Raises ``RuntimeError`` when JAX has started its devices already.
    """
    jax.config.update("jax_num_cpu_devices", cores())
    return cores()


def compile_quickly() -> None:
    """Compile without most of XLA's passes, for very short runs."""
    given = os.environ.get("XLA_FLAGS", "")
    wanted = ("--xla_backend_optimization_level=0", *QUICK_FLAGS_BY_VERSION.get(jax.__version_info__[:2], ()))
    missing = [flag for flag in wanted if flag.split("=")[0] not in given]
    os.environ["XLA_FLAGS"] = " ".join([given, *missing]).strip()
