"""What a batch gives, on the host, as it comes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from jaxbandit.study.lines import Specification


class Gathered:
    """The curves of a batch, thinned, its trajectories, and facts of its instances, part by part.

    ``before`` is the number of points before round 1 that the metrics count.
    """

    def __init__(self, study: Specification, before: int) -> None:
        self.study, self.before = study, before
        self.kept = study.keep.rounds(study.horizon)
        self.pieces: dict[str, list[np.ndarray]] = {}
        self.last: dict[str, np.ndarray] = {}

    def add(self, first: int, seen: Mapping[str, Any], curves: Mapping[str, Any], facts: Mapping[str, Any]) -> None:
        """What was seen in the rounds from ``first`` on, and measured, from round 1 on with the points before; waits for the devices."""
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

    def begin(self, indices: Any) -> None:
        """The points before round 1 that count."""
        if self.before:
            self._add("before_index", indices)

    def _add(self, name: str, values: Any) -> None:
        self.pieces.setdefault(name, []).append(np.asarray(values))

    def means(self, count: int) -> dict[str, float]:
        """Of the curves now, over the first ``count`` trials."""
        return {name: float(np.mean(self.last[name][:count])) for name in self.study.metrics if name in self.last}

    def arrays(self) -> dict[str, np.ndarray]:
        """What has come so far, for a checkpoint."""
        return {f"g_{name}": _joined(pieces) for name, pieces in self.pieces.items()}

    def restore(self, leaves: dict[str, np.ndarray]) -> None:
        """Go on from a checkpoint."""
        self.pieces = {name.removeprefix("g_"): [array] for name, array in leaves.items() if name.startswith("g_")}

    def part(self, ended: Mapping[str, Any], count: int) -> dict[str, np.ndarray]:
        """All that is known of the first ``count`` trials of the batch, which have ended."""
        arrays = {name: _joined(pieces) for name, pieces in self.pieces.items()} | {f"end_{name}": values for name, values in ended.items()}
        return {name: np.asarray(array)[:count] for name, array in arrays.items()}


def _joined(pieces: list[np.ndarray]) -> np.ndarray:
    """Along the rounds."""
    return pieces[0] if len(pieces) == 1 else np.concatenate(pieces, axis=1)
