"""What a batch gives, on the host, as it comes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from jaxbandit.simulate.segments import Opening, Part
from jaxbandit.study.lines import Specification


class Gathered:
    """The curves of a batch, thinned, and its trajectories, part by part."""

    def __init__(self, study: Specification, opening: Opening) -> None:
        self.study, self.opening = study, opening
        self.kept = study.keep.rounds(study.horizon)
        self.pieces: dict[str, list[np.ndarray]] = {}
        self.last: dict[str, np.ndarray] = {}

    def add(self, first: int, part: Part) -> None:
        """What was seen in the rounds from ``first`` on; waits for the devices."""
        for name, values in part.curves.items():
            curve = np.asarray(values)
            inside = self.kept[(self.kept >= first) & (self.kept < first + curve.shape[1])] - first
            whole = len(inside) == curve.shape[1]
            self.pieces.setdefault(name, []).append(curve if whole else curve[:, inside])
            self.last[name] = curve[:, -1]
        for name, values in part.seen.items():
            self.pieces.setdefault(f"seen_{name}", []).append(np.asarray(values))

    def means(self, count: int) -> dict[str, float]:
        """Of the curves now, over the first ``count`` trials."""
        return {name: float(np.mean(self.last[name][:count])) for name in self.study.metrics if name in self.last}

    def arrays(self) -> dict[str, np.ndarray]:
        """What has come so far, for a checkpoint."""
        return {f"g_{name}": _joined(pieces) for name, pieces in self.pieces.items()}

    def restore(self, leaves: dict[str, np.ndarray]) -> None:
        """Go on from a checkpoint."""
        self.pieces = {name.removeprefix("g_"): [array] for name, array in leaves.items() if name.startswith("g_")}

    def part(self, ended: dict[str, Any], count: int) -> dict[str, np.ndarray]:
        """All that is known of the first ``count`` trials of the batch, which have ended."""
        return {name: np.asarray(array)[:count] for name, array in self._items(ended)}

    def _items(self, ended: dict[str, Any]) -> Iterator[tuple[str, Any]]:
        for name, pieces in self.pieces.items():
            yield name, _joined(pieces)
        for name, array in ended.items():
            yield f"end_{name}", array
        best = self.opening.optimum
        for name in ("value", "feasible_fraction", "slater_slack"):
            yield f"optimum_{name}", getattr(best, name)
        if self.opening.curves is not None:
            yield "before_index", self.opening.indices
            for name in self.pieces:
                if hasattr(self.opening.curves, name):
                    yield f"before_{name}", getattr(self.opening.curves, name)


def _joined(pieces: list[np.ndarray]) -> np.ndarray:
    """Along the rounds."""
    return pieces[0] if len(pieces) == 1 else np.concatenate(pieces, axis=1)
