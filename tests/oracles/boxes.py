"""Points scaled to a box."""

from tests.oracles.gaussian_process import Matrix

# Methods that evaluate pairs of points, or functions apart.


def box(points: Matrix, side: float = 1.0) -> Matrix:
    """The points in their bounding box, scaled to ``[0, side]^d``."""
    return side * (points - points.min(0)) / (points.max(0) - points.min(0))
