"""Compiled programs of studies: compiled together where several are needed, and let go when others were used later.

Those that were used last stay in this process, as the programs of ``jax.jit`` do, so that a study which is run again compiles nothing.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeAlias

import jax

from jaxbandit.core.pytree import float_dtype
from jaxbandit.engine.programs import advance_all, play_all
from jaxbandit.results.measured import measure_all
from jaxbandit.study.progress import Compiling
from jaxbandit.study.runtime import cores

Lower: TypeAlias = Callable[[], jax.stages.Lowered]
Shelf: TypeAlias = OrderedDict[Hashable, jax.stages.Compiled]

# Each takes memory; on two cores four of them wait, so that no core is idle while the longest is compiled.
MAX_COMPILED_TOGETHER = 6
CACHE_HIT = "/jax/compilation_cache/cache_hits"  # JAX's name of the event
MOST_KEPT = 48  # programs: each holds memory maps, of which a process has few
KEPT: Shelf = OrderedDict()
"""Programs of the studies of this process by what they are made of, those used last at the end."""


def circumstances() -> Hashable:
    """Return all settings of JAX that a compiled program depends on."""
    return str(float_dtype()), tuple((name, str(value)) for name, value in jax.config.values.items())


class Programs:
    """Compiled programs by name.

    Attributes:
      waited: seconds spent on compilation so far.
      charged: the same, of the programs that have been asked for; those made together share their seconds.
      made: number of programs compiled so far.
      missing: number of those still to be compiled, as far as that is known.
    """

    def __init__(
        self, note: Callable[[str], None] = lambda line: None, compiling: Callable[[Compiling], None] = lambda compiling: None
    ) -> None:
        self.note, self.compiling = note, compiling
        self.waited = self.charged = 0.0
        self.made = self.missing = 0
        self._around = circumstances()
        self._owed: dict[Hashable, float] = {}

    @property
    def seconds_left(self) -> float:
        """Seconds that compilation may still take, by what it took so far."""
        return self.missing * self.waited / self.made if self.made else 0.0

    def get(self, name: Hashable, later: Callable[[], Iterable[tuple[Hashable, Lower | None]]]) -> jax.stages.Compiled:
        """Return a program, compiled unless it is known.

        Args:
          name: name of the program.
          later: gives the names of all programs that will be asked for, this one first, with what lowers them, ``None`` for what cannot
            be lowered yet. The first that are missing are compiled together.
        """
        place = (name, self._around)
        if place not in KEPT:
            needed: dict[Hashable, Lower | None] = {}
            for other, lower in later():
                needed.setdefault(other, lower)
            wanted = {other: lower for other, lower in needed.items() if (other, self._around) not in KEPT}
            ready = [(other, lower) for other, lower in wanted.items() if lower is not None]
            self._compile(ready[: _together(len(ready))], len(wanted))
            self.missing = sum((other, self._around) not in KEPT for other in wanted)
        KEPT.move_to_end(place)
        while len(KEPT) > MOST_KEPT:
            KEPT.popitem(last=False)
            for function in (play_all, advance_all, measure_all):  # let JAX's own caches drop what is not held here
                function.clear_cache()  # type: ignore[attr-defined]  # the stub lacks it
        self.charged += self._owed.pop(name, 0.0)
        return KEPT[place]

    def _compile(self, missing: list[tuple[Hashable, Lower]], wanted: int) -> None:
        """Compile programs together, of ``wanted`` ones that the rest of the run needs."""
        start = time.perf_counter()
        self.compiling(Compiling(first=self.made + 1, last=self.made + len(missing), total=self.made + wanted))
        with FoundOnDisk() as found, ThreadPoolExecutor(min(len(missing), cores())) as pool:
            # Traced and lowered here, for that depends on settings of this thread, while those before are compiled.
            compiled = [pool.submit(found.compiled, lower()) for _, lower in missing]
            programs, loaded = zip(*(one.result() for one in compiled), strict=True)
        seconds = time.perf_counter() - start
        self.waited += seconds
        self.made += len(missing)
        for (name, _), program in zip(missing, programs, strict=True):
            KEPT[name, self._around] = program
            self._owed[name] = seconds / len(missing)
        counts = (("compiled", len(missing) - sum(loaded), ""), ("loaded", sum(loaded), "compiled "))
        said = [f"{verb} {count} {kind}program{'' if count == 1 else 's'}" for verb, count, kind in counts if count]
        self.note(f"{' and '.join(said)} in {seconds:.1f} s")


def _together(ready: int) -> int:
    """Return how many of the programs that could be compiled now are, in rounds of about the same number."""
    rounds = -(-ready // (MAX_COMPILED_TOGETHER if cores() > 1 else 1))
    return -(-ready // max(rounds, 1))


class FoundOnDisk:
    """Compiles and notices, while it is open, which programs were not compiled but found in the cache on disk."""

    def __enter__(self) -> FoundOnDisk:
        self._found: Counter[int] = Counter()  # by thread: JAX tells in the one that compiles
        jax.monitoring.register_event_listener(self._heard)
        return self

    def __exit__(self, *_: object) -> None:
        jax.monitoring.unregister_event_listener(self._heard)

    def _heard(self, event: str, **_: object) -> None:
        if event == CACHE_HIT:
            self._found[threading.get_ident()] += 1

    def compiled(self, lowered: jax.stages.Lowered) -> tuple[jax.stages.Compiled, bool]:
        """Return a program, and whether it was on disk."""
        thread = threading.get_ident()
        before = self._found[thread]
        return lowered.compile(), self._found[thread] > before
