"""The cost of building a surrogate, predicted before it is paid: from its size, and from how a factorisation has begun.

Pivoted Cholesky leaves out less of the prior variance with every column. Its residual falls ever more slowly for rough kernels, like a
power of the number of columns, and at best exponentially; so going on at the latest rate gives the fewest columns that can be expected.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

from jaxbandit.core.checks import InvalidArgument
from jaxbandit.core.memory import host_memory, in_units
from jaxbandit.core.notes import say

# Seconds on one core of a Xeon; the order of magnitude is what matters.
PER_COLUMN = 2.0e-3  # a column of the kernel matrix, and Python
PER_MULTIPLY = 2.0e-9  # of the columns before with a new one, read from memory
PER_ROTATED = 5.0e-10  # multiply-adds of the rotation to principal directions
PER_EIGEN = 4.0e-10  # of the cube of an axis' points: eigenvectors of its kernel matrix
PER_CONTRACTED = 1.0e-9  # multiply-adds of products of axes' features with a table

FIRST_LOOK = 128  # columns: enough to have gone round a domain's corners
DOUBT = 4.0  # at the first look a factorisation goes on unless it would need so many times the columns that it may have
SURE = 4 * FIRST_LOOK  # columns from which that doubt, which falls with their number, is gone
SOON = 1.0  # seconds: what takes no longer is not looked at
LONG = 2.0  # seconds from which the user is told
TOO_LONG = 60.0  # seconds that are spent only on what was asked for by name
# In memory, of features: themselves, rotated, and their squares; of an axis' kernel matrix: itself, its eigenvectors, and the solver's own.
COPIES = 3
TABLES = 40  # in memory, of the features of an axis over a range of length-scales, of which there are as many as it has Chebyshev points


def seconds_of_columns(points: int, columns: float) -> float:
    """Return the seconds of a pivoted Cholesky factorisation of a kernel on ``points`` points, and of its rotation."""
    cholesky = PER_COLUMN * columns + PER_MULTIPLY * points * columns**2 / 2
    return cholesky + PER_ROTATED * (points * columns**2 + columns**3)


@dataclasses.dataclass(frozen=True)
class Outlook:
    """Prospects of a factorisation that is under way.

    Attributes:
      points: number of points ``M``.
      done: columns that there are.
      most: columns that it may have.
      columns: fewest columns that can be expected to reach the tolerance; infinite where the residual does not fall.
    """

    points: int
    done: int
    most: int
    columns: float

    @property
    def hopeless(self) -> bool:
        """Say whether the tolerance is out of reach."""
        return self.columns > max(1.0, DOUBT * FIRST_LOOK / self.done) * self.most

    @property
    def seconds(self) -> float:
        """Seconds that the factorisation takes in all."""
        return seconds_of_columns(self.points, min(self.columns, self.most))


GoOn: TypeAlias = Callable[[Outlook], bool]
"""Function that decides whether a factorisation goes on, asked at its first look and whenever its columns have doubled since."""


def looks(points: int, most: int) -> set[int]:
    """Return the numbers of columns at which a factorisation is looked at, none for one that ends soon anyway."""
    if seconds_of_columns(points, most) <= SOON:
        return set()
    return {FIRST_LOOK << power for power in range(max(most // FIRST_LOOK, 1).bit_length()) if FIRST_LOOK << power < most}


def look_ahead(points: int, most: int, residuals: Sequence[float], tolerance: float) -> Outlook:
    """Return the prospects after ``len(residuals)`` columns, whose relative residuals these are."""
    done = len(residuals)
    before, now = residuals[done // 2 - 1], residuals[-1]
    fallen = math.log(before / now) if now > 0 else math.inf
    left = math.log(now / tolerance) if now > tolerance else 0.0
    columns = done + (done - done // 2) * left / fallen if fallen > 0 else math.inf
    return Outlook(points=points, done=done, most=most, columns=columns)


def unasked(outlook: Outlook) -> bool:
    """Decide on features that nobody asked for by name: no longer than a minute, and nothing that is hopeless."""
    if outlook.hopeless or outlook.seconds > TOO_LONG:
        return False
    if outlook.done == SURE:
        _tell(outlook)
    return True


def asked_for(outlook: Outlook) -> bool:
    """Decide on features that were asked for by name: they may take as long as they do, which is said, but must fit memory.

    Raises:
      InvalidArgument: when they do not.
    """
    columns = min(outlook.columns, outlook.points)
    needed = int(COPIES * 8 * columns * outlook.points)
    if needed > host_memory():
        raise InvalidArgument(
            f"form: 'features' on {outlook.points:,} points needs {columns:,.0f} features or more, which take {in_units(needed)}, and this"
            f" machine has {in_units(host_memory())}; use form='rows' with horizon=, fewer points, or a smoother kernel"
        )
    if outlook.done == FIRST_LOOK:
        _tell(outlook)
    return True


def for_a_range(outlook: Outlook) -> bool:
    """Decide on the pivots of an axis of a ranged model, which is asked for by name; where they take long, it is said.

    Raises:
      InvalidArgument: when their features do not fit memory.
    """
    columns = min(outlook.columns, outlook.points)
    needed = int(TABLES * 8 * columns * outlook.points)
    if needed > host_memory():
        raise InvalidArgument(
            f"domain: an axis of {outlook.points:,} points needs {columns:,.0f} features or more for these length-scales, which take"
            f" {in_units(needed)}, and this machine has {in_units(host_memory())}; give fewer points, a larger low= or a smoother kernel"
        )
    if outlook.done == FIRST_LOOK and outlook.seconds > LONG:
        say(f"ranged: building {columns:,.0f} features or more on an axis of {outlook.points:,} points, at least {outlook.seconds:,.0f} s")
    return True


def axes_unasked(points: Sequence[int]) -> bool:
    """Decide on eigenvectors of axes of so many points, for a product form that nobody asked for by name: no longer than a minute."""
    if _bytes_of_axes(points) > host_memory() or seconds_of_axes(points) > TOO_LONG:
        return False
    _tell_of_axes(points)
    return True


def axes_asked_for(points: Sequence[int]) -> bool:
    """Decide on eigenvectors of axes of so many points, for a product form asked for by name: they must fit memory.

    Raises:
      InvalidArgument: when they do not.
    """
    needed = _bytes_of_axes(points)
    if needed > host_memory():
        raise InvalidArgument(
            f"form: 'product' needs eigenvectors of an axis of {max(points):,} points, which take {in_units(needed)}, and this machine has"
            f" {in_units(host_memory())}; use form='rows' with horizon=, or fewer points"
        )
    _tell_of_axes(points)
    return True


def seconds_of_axes(points: Sequence[int]) -> float:
    """Return the seconds of the eigenvectors of kernel matrices on axes of so many points."""
    return PER_EIGEN * sum(float(size) ** 3 for size in points)


def tell_of_products(what: str, points: Sequence[int], features: Sequence[int], tables: int = 1) -> None:
    """Say that choosing among products of axes' ``features`` takes long, where it does.

    Args:
      what: form that is built.
      points: points of each axis.
      features: features of each axis; one axis is contracted after the other, and a search by halves looks at several subsets.
      tables: kernels for which a subset is looked at.
    """
    axes = range(len(points))
    work = sum(math.prod(points[: axis + 1]) * math.prod(features[axis:]) for axis in axes) * tables
    seconds = PER_CONTRACTED * work * max(math.prod(features), 2).bit_length()
    if seconds > LONG:
        say(f"{what}: choosing products of features on {math.prod(points):,} points, about {seconds:,.0f} s")


def _bytes_of_axes(points: Sequence[int]) -> int:
    return COPIES * 8 * max(points) ** 2


def _tell_of_axes(points: Sequence[int]) -> None:
    seconds = seconds_of_axes(points)
    if seconds > LONG:
        say(
            f"surrogate: building the product form on axes of {', '.join(f'{size:,}' for size in points)} points, about {seconds:,.0f} s;"
            " form='rows' with horizon= takes seconds"
        )


def _tell(outlook: Outlook) -> None:
    if outlook.seconds <= LONG:
        return
    other = "; form='rows' with horizon= takes seconds" if outlook.seconds > TOO_LONG else ""
    say(
        f"surrogate: building {min(outlook.columns, outlook.most):,.0f} features or more on {outlook.points:,} points, at least"
        f" {outlook.seconds:,.0f} s{other}"
    )
