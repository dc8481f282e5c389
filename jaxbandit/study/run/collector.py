"""The results of a batch on the host, collected part by part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from jaxbandit.study.specify.study import Study


class BatchCollector:
    """Collects the kept rounds of a batch's curves, its trajectories, and facts of its instances, part by part.

    ``before`` is the number of points before round 1 that the metrics count.
    """

    def __init__(self, study: Study, before: int) -> None:
        self.study, self.before = study, before
        self.kept = study.keep.rounds(study.horizon)
        self.pieces: dict[str, list[np.ndarray]] = {}
        self.last: dict[str, np.ndarray] = {}

    def begin(self, indices: jax.Array) -> None:
        """Add the points before round 1, if they count."""
        if self.before:
            self._add("before_index", indices)

    def add(self, first: int, seen: Mapping[str, jax.Array], curves: Mapping[str, jax.Array], facts: Mapping[str, jax.Array]) -> None:
        """Add what was seen and measured in the rounds from ``first`` on; waits for the devices.

        The curves of round 1 begin with the points before it.
        """
        before = self.before if first == 1 else 0
        for name, values in curves.items():
            curve = np.asarray(values)
            self.last[name] = curve[:, -1]
            if before:
                self._add(f"before_{name}", curve[:, :before])
            rounds = curve.shape[1] - before
            inside = self.kept[(self.kept >= first) & (self.kept < first + rounds)] - first + before
            self._add(name, curve if len(inside) == curve.shape[1] else curve[:, inside])
        for name, values in seen.items() if self.study.trajectories else ():
            self._add(f"seen_{name}", values)
        for name, values in facts.items() if first == 1 else ():
            self._add(f"fact_{name}", values)

    def _add(self, name: str, values: Any) -> None:
        self.pieces.setdefault(name, []).append(np.asarray(values))

    def means(self, count: int) -> dict[str, float]:
        """Return the means of the curves now, over the first ``count`` trials."""
        return {name: float(np.mean(self.last[name][:count])) for name in self.study.metrics if name in self.last}

    def lines(self, runs: Sequence[str]) -> dict[str, float]:
        """Return the mean of the first metric now for each run, given the run of each of the first trials."""
        metric = next((name for name in self.study.metrics if name in self.last), None)
        if metric is None:
            return {}
        values, labels = self.last[metric], np.asarray(runs)
        return {label: float(np.mean(values[: len(labels)][labels == label])) for label in dict.fromkeys(runs)}

    def arrays(self) -> dict[str, np.ndarray]:
        """Return what has been collected so far, for a checkpoint."""
        return {f"g_{name}": _joined(pieces) for name, pieces in self.pieces.items()}

    def restore(self, leaves: Mapping[str, np.ndarray]) -> None:
        """Go on from the arrays of a checkpoint."""
        self.pieces = {name.removeprefix("g_"): [array] for name, array in leaves.items() if name.startswith("g_")}

    def finished(self, ended: Mapping[str, jax.Array], count: int) -> dict[str, np.ndarray]:
        """Return all that is known of the first ``count`` trials of the batch, given what was known of them when they ended."""
        collected = {name: _joined(pieces) for name, pieces in self.pieces.items()}
        arrays = collected | {f"end_{name}": np.asarray(values) for name, values in ended.items()}
        return {name: array[:count] for name, array in arrays.items()}


def _joined(pieces: list[np.ndarray]) -> np.ndarray:
    """Return the pieces joined along the rounds."""
    return pieces[0] if len(pieces) == 1 else np.concatenate(pieces, axis=1)
