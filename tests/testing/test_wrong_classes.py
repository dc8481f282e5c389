"""Classes that keep or break one promise of their role."""

import math
import random
from pathlib import Path
from typing import Annotated, Any

import jax
import jax.numpy as jnp
import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pytest

import jaxbandit as jb
from jaxbandit import delays, feedback, fields, kernels, problems, testing
from jaxbandit.kernels.functions import Stationary, distance
from jaxbandit.problems.base import Optimum

# Kernels.


@jb.pytree
class Matern72(Stationary):
    """Matern 7/2, perhaps with a wrong factor or a spectrum."""

    factor: float = jb.static(default=2 / 5)
    cubic: float = jb.static(default=1 / 15)

    def _at(self, squared: Any) -> Any:
        r = math.sqrt(7) * distance(squared)
        return (1 + r + self.factor * r**2 + self.cubic * r**3) * jnp.exp(-r)


@jb.pytree
class Declared72(Matern72):
    """The same, with its spectral density declared."""

    spectrum = 7


@jb.pytree
class Own(kernels.Kernel):
    """Kernel of the distance on an axis, perhaps wrong."""

    of: Any = jb.static(default=lambda r: jnp.exp(-r))
    variance: float = jb.static(default=1.0)
    axis: Any = jb.static(default=None)

    def __call__(self, x: Any, y: Any) -> Any:
        return self.of(jnp.sum(jnp.abs(jnp.asarray(x)[:, None] - jnp.asarray(y)[None]), axis=-1))

    def diag(self, x: Any) -> Any:
        return jnp.full(jnp.shape(x)[0], self.variance, jnp.asarray(x).dtype)

    def along_axes(self, dimension: int) -> Any:
        return (self.axis or self,) * dimension


@jax.custom_jvp
def steep(r: Any) -> Any:
    """An exponential whose derivative lacks a factor."""
    return jnp.exp(-r)


steep.defjvp(lambda primals, tangents: (jnp.exp(-primals[0]), -0.5 * jnp.exp(-primals[0]) * tangents[0]))


@jb.pytree
class WithSteep(kernels.Kernel):
    """A kernel with a wrong derivative."""

    length_scale: Annotated[float, fields.positive] = 0.5

    def __call__(self, x: Any, y: Any) -> Any:
        r = jnp.abs(jnp.asarray(x)[:, None, 0] - jnp.asarray(y)[None, :, 0])
        return steep(r / self.length_scale)


@jb.pytree
class Lopsided(Own):
    """A kernel that is not symmetric."""

    def __call__(self, x: Any, y: Any) -> Any:
        return super().__call__(x, 1.01 * jnp.asarray(y))


def matern72(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The formula, in NumPy."""
    r = np.sqrt(7) * np.linalg.norm(x[:, None] - y[None], axis=-1)
    return (1 + r + 2 / 5 * r**2 + r**3 / 15) * np.exp(-r)


KERNELS = {
    "3/5 for 2/5": (Matern72(factor=3 / 5), {}, "Matern72: must be positive semi-definite, got a least eigenvalue of -0"),
    "1/5 for 2/5, by its spectrum": (Declared72(factor=1 / 5), {}, "Declared72: is its formula: .* expected .*"),
    "1/14 for 1/15, by its formula": (Matern72(cubic=1 / 14), {"formula": matern72}, "Matern72: is its formula"),
    "a diagonal of another variance": (Own(variance=2.0), {}, r"Own: diag is the diagonal: 2 at \[0\], expected 1"),
    "factors of another kernel": (Own(axis=kernels.Constant()), {}, "Own: is the product of along_axes"),
    "no covariance function": (Own(of=lambda r: jnp.where(r < 1, 1.0, 0.0)), {}, "Own: must be positive semi-definite"),
    "NaN at equal points": (Own(of=lambda r: jnp.sin(r) / r), {}, "Own: must give finite covariances"),
    "not symmetric": (Lopsided(), {}, "Lopsided: is symmetric"),
    "a wrong derivative": (WithSteep(), {}, "WithSteep: gradient by hyper-parameter 0, times its value"),
    "a gradient that is NaN": (Own(of=lambda r: jnp.exp(-jnp.sqrt(r * r))), {}, "Own: must have finite gradients"),
    "float16": (Own(of=lambda r: jnp.exp(-r).astype(np.float16)), {}, r"Own: must give float64 \[47, 47\]"),
}


@pytest.mark.full(but=("3/5 for 2/5",))
@pytest.mark.parametrize(("kernel", "options", "words"), KERNELS.values(), ids=KERNELS)
def test_wrong_kernels_are_found(kernel: Any, options: Any, words: str) -> None:
    with pytest.raises(AssertionError, match=words):
        testing.check_kernel(kernel, **options)


@pytest.mark.full
def test_right_kernels_pass() -> None:
    assert isinstance(testing.check_kernel(Matern72, formula=matern72), Matern72)
    testing.check_kernel(Declared72(length_scale=0.4))
    testing.check_kernel(Own)
    with pytest.raises(AssertionError, match="cannot be called without arguments, give an instance"):
        testing.check_kernel(matern72)
    with pytest.raises(AssertionError, match="must be a Kernel, or a class or function that makes one, got 3"):
        testing.check_kernel(3)


# Policies.


@jb.pytree
class Masked(feedback.Wait):
    """Take in the values that ``mask`` lets through."""

    name = "masked"
    mask: Any = jb.static(default=lambda given: given.present)

    def taken(self, given: Any, chosen: Any) -> Any:
        return super().taken(given, chosen) & self.mask(given)


@jb.pytree
class Peeking(feedback.Wait):
    """Take in values before they arrive."""

    name = "peeking"

    def taken(self, given: Any, chosen: Any) -> Any:
        return jnp.broadcast_to((given.ages == 0)[:, None], given.present.shape)


@jb.pytree
class Doubling(feedback.Wait):
    """Take in late values with a factor."""

    name = "doubling"
    factor: float = 2.0

    def learn(self, learner: Any, posterior: Any, given: Any) -> Any:
        late = (given.ages > 0)[:, None]
        return super().learn(learner, posterior, jb.replace(given, values=jnp.where(late, self.factor * given.values, given.values)))


@jb.pytree
class WithoutDesign(feedback.Wait):
    """Take in no initial design."""

    name = "without-design"

    def condition(self, learner: Any, posterior: Any, index: Any, values: Any) -> Any:
        return posterior


@jb.pytree
class Swapped(feedback.Wait):
    """Take each output's values for the other's, where they are late."""

    name = "swapped"

    def learn(self, learner: Any, posterior: Any, given: Any) -> Any:
        late = (given.ages > 0)[:, None]
        return super().learn(learner, posterior, jb.replace(given, values=jnp.where(late, given.values[:, ::-1], given.values)))


POLICIES = {
    "deaf": (Masked(mask=lambda given: jnp.zeros_like(given.present)), "Masked: without delay is Wait: mean after round 1"),
    "deaf to what is late": (Masked(mask=lambda given: (given.ages == 0)[:, None]), "Masked: is Wait once nothing is under way: mean"),
    "deaf to an output": (Masked(mask=lambda given: jnp.array([[True, False]])), "Masked: without delay is Wait"),
    "deaf to a late output": (Masked(mask=lambda given: (given.ages == 0)[:, None] | jnp.array([[True, False]])), "Masked: is Wait once"),
    "peeking": (Peeking(), "Peeking: is Wait once nothing|Peeking: knows nothing that is under way"),
    "a wrong factor": (Doubling(), "Doubling: is Wait once nothing is under way: mean"),
    "no initial design": (WithoutDesign(), "WithoutDesign: without delay is Wait: mean after round 0"),
    "swapped outputs": (Swapped(), "Swapped: is Wait once nothing is under way"),
}


@pytest.mark.full(but=("deaf",))
@pytest.mark.parametrize(("policy", "words"), POLICIES.values(), ids=POLICIES)
def test_wrong_policies_are_found(policy: Any, words: str) -> None:
    with pytest.raises(AssertionError, match=words):
        testing.check_policy(policy)


@pytest.mark.full
@pytest.mark.parametrize(
    ("policy", "words"),
    [
        (Peeking(), "Peeking: knows nothing that is under way"),
        (POLICIES["deaf to what is late"][0], "Masked: learns what arrives: a value of output 0 .* got a change of 0"),
        (Swapped(), "Swapped: learns what arrives|Swapped: keeps outputs apart"),
    ],
)
def test_wrong_policies_are_found_where_late_values_may_be_weighed(policy: Any, words: str) -> None:
    with pytest.raises(AssertionError, match=words):
        testing.check_policy(policy, equals_wait=False)


@pytest.mark.full
def test_right_policies_pass() -> None:
    testing.check_policy(Masked)
    testing.check_policy(Doubling(factor=0.5), equals_wait=False)
    testing.check_policy(feedback.Censor(window=4), late=3)
    with pytest.raises(AssertionError, match="Censor: is Wait once nothing is under way"):
        testing.check_policy(feedback.Censor(window=2), late=3)


# Delays.


@jb.pytree
class Dice(delays.Delay):
    """Delays of 1 to 6 rounds."""

    average: float = 3.5
    rest: float = jb.static(default=0.0)
    lost: float = 0.0
    pair: Any = jb.static(default=(1.75, 0.0))
    joint = False

    @property
    def mean(self) -> Any:
        return self.average

    @property
    def sub_exponential(self) -> Any:
        return self.pair

    def draw(self, key: Any, outputs: int) -> Any:
        drawn = jax.random.randint(key, (outputs,), 1, 7)
        return jnp.where(jax.random.uniform(key, (outputs,)) < self.lost, delays.NEVER, drawn).astype(jnp.int32)

    def quantile(self, q: float) -> int:
        return math.ceil(6 * q + self.rest)


@jb.pytree
class Joined(Dice):
    """The same, said to arrive together."""

    joint = True


DELAYS = {
    "a wrong mean": (Dice(average=3.0), r"Dice: declares a mean of 3, but 20000 draws have \[3\.[45]\d+ +3\.[45]"),
    "a wrong tail": (Dice(rest=1.0), r"Dice: quantile\(0\.1\) is 2, but shares"),
    "a short tail": (Dice(rest=-1.0), r"Dice: quantile\(0\.\d+\) is "),
    "losses": (Dice(lost=0.01), "Dice: loses values, so its mean must be infinite, got 3.5"),
    "not joint": (Joined(), "Joined: is joint, but values of one point arrive apart"),
    "a small pair": (Dice(pair=(0.5, 0.0)), r"Dice: declares E exp\(h \(tau - mean\)\) <= "),
}


@pytest.mark.full(but=("a wrong mean",))
@pytest.mark.parametrize(("delay", "words"), DELAYS.values(), ids=DELAYS)
def test_wrong_delays_are_found(delay: Any, words: str) -> None:
    with pytest.raises(AssertionError, match=words):
        testing.check_delay(delay)


@pytest.mark.full
def test_right_delays_pass() -> None:
    testing.check_delay(Dice)
    testing.check_delay(Dice(lost=0.2, average=math.inf, pair=None))


# Problems.


@jb.pytree
class Tabled(problems.Problem):
    """A problem whose optimum and noise may be wrong."""

    best: Any = jb.static(default=None)
    shift: float = 0.0
    factor: float = 1.0

    def optimum(self) -> Optimum:
        right = super().optimum()
        return right if self.best is None else jb.replace(right, index=jnp.int32(self.best), value=jnp.asarray(self.means)[0, self.best])

    def observe(self, index: Any, drawn: Any) -> Any:
        return jnp.asarray(self.means)[:, index] + self.factor * drawn + self.shift


DOMAIN = jb.domains.grid([0.0], [1.0], 5)
MEANS = np.array([[0.0, 1.0, 2.0, 3.0, 4.0], [-1.0, -1.0, -1.0, 1.0, 1.0]])
PROBLEMS = {
    "an infeasible optimum": ({"best": 4}, r"Tabled 'user': optimum at point 4 must be feasible, its constraints are \[1\.\]"),
    "an optimum that is beaten": ({"best": 1}, "Tabled 'user': optimum 1 is beaten by a feasible point with 2"),
    "draws off the means": ({"shift": 0.1}, "Tabled 'user': draws must be centred on means: off by 0.0995"),
    "noise of another variance": (
        {"factor": 1.2},
        r"Tabled 'user': declares noise of variance \[0\.25 0\.25\], but 4000 draws have \[0\.3",
    ),
}


@pytest.mark.full(but=("an infeasible optimum",))
@pytest.mark.parametrize(("fields", "words"), PROBLEMS.values(), ids=PROBLEMS)
def test_wrong_problems_are_found(fields: Any, words: str) -> None:
    with pytest.raises(AssertionError, match=words):
        testing.check_problem(Tabled(domain=DOMAIN, means=MEANS, noise=problems.Gaussian(variance=0.25), **fields))


@jb.pytree
class Same(problems.Family):
    """A family whose instances are all the same, or not."""

    domain: Any
    noise: Any = problems.Gaussian(variance=0.25)
    name: str = jb.static(default="same")
    spread: float = 0.0

    def sample(self, key: Any) -> Any:
        moved = MEANS + self.spread * jax.random.normal(key, MEANS.shape)
        return Tabled(domain=self.domain, means=jnp.asarray(moved), noise=self.noise)


@pytest.mark.full
def test_right_problems_pass() -> None:
    testing.check_problem(Tabled(domain=DOMAIN, means=MEANS, noise=problems.Gaussian(variance=0.25)))
    testing.check_problem(Same(domain=DOMAIN, spread=1.0))
    with pytest.raises(AssertionError, match="Same 'same': must sample another instance for another key"):
        testing.check_problem(Same(domain=DOMAIN))


# Plots.


def scatter(*, x: str = "x", y: str = "y", file: str = "", size: float = 0.0, ax: Any = None, given: bool = True) -> Any:
    """Draw points, with what is asked."""
    axis = ax if ax is not None and given else plt.figure().subplots()
    axis.plot([1, 2], [3, 4])
    axis.set(xlabel=x, ylabel=y)
    if file:
        axis.figure.savefig(file)
    if size:
        mpl.rcParams["font.size"] = size
    return axis


PLOTS = {
    "no label": ({"x": ""}, "scatter: must label the x axis of panel 0"),
    "no label of y": ({"y": ""}, "scatter: must label the y axis of panel 0"),
    "a file": ({"file": "points.png"}, "scatter: must write no file, wrote points.png"),
    "settings": ({"size": 3.0}, "scatter: must leave matplotlib's settings"),
    "other axes": ({"given": False}, "scatter: must draw on the Axes that it is given"),
}


@pytest.mark.full(but=("no label",))
@pytest.mark.parametrize(("options", "words"), PLOTS.values(), ids=PLOTS)
def test_wrong_plots_are_found(options: Any, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with mpl.rc_context(), pytest.raises(AssertionError, match=words):
        testing.check_plot(scatter, **options)
    assert not list(tmp_path.iterdir())
    plt.close("all")


def test_right_plots_pass() -> None:
    assert testing.check_plot(scatter).get_xlabel() == "x"
    for wrong, words in ((lambda: None, "must return a figure or Axes, got None"), (lambda: plt.figure(), "must draw data on Axes")):
        with pytest.raises(AssertionError, match=words):
            testing.check_plot(wrong)
    plt.close("all")


# Algorithms.

COUNTED = list[int]()


def counting(t: Any, key: Any) -> Any:
    COUNTED.append(1)
    return jnp.int32(len(COUNTED) % 30)


def counting_seldom(t: Any, key: Any) -> Any:
    COUNTED.append(1)
    return jnp.int32(len(COUNTED) // 3 % 30)


@jb.pytree
class Chooser(jb.Algorithm):
    """Algorithm that chooses by a function, perhaps wrongly."""

    name = "chooser"
    scale: float = 1.0
    choose: Any = jb.static(default=lambda t, key: jax.random.randint(key, (), 0, 30))
    late: Any = jb.static(default=lambda state, arena: state)
    width: Any = jb.static(default=lambda arena: jnp.zeros(arena.constraints + 1, arena.dtype))

    def select(self, arena: Any, state: Any, t: Any, key: Any) -> Any:
        return jb.algorithms.Decision(index=self.choose(t, key), widths=self.width(arena)), state

    def update(self, arena: Any, state: Any, observation: Any, t: Any) -> Any:
        return self.late(super().update(arena, state, observation, t), arena)


def noisy(state: Any, arena: Any) -> Any:
    return jb.replace(state, posterior=jax.tree.map(lambda x: x + jnp.asarray(random.random(), x.dtype), state.posterior))


ALGORITHMS = {
    "a count in Python": (Chooser(choose=counting), "Chooser: select must be a pure function, but gives another program each time"),
    "a count that moves seldom": (Chooser(choose=counting_seldom), "Chooser: select must be a pure function"),
    "random numbers of NumPy": (
        Chooser(choose=lambda t, key: jnp.argmax(np.random.default_rng().random(8, np.float32)).astype(jnp.int32)),
        "Chooser: select must be a pure function, .* keep what changes in the state",
    ),
    "random numbers in update": (Chooser(late=noisy), "Chooser: update must be a pure function"),
    "an index of float32": (Chooser(choose=lambda t, key: jnp.float32(1)), r"Chooser: select must give index as integer \[\], got float32"),
    "a width too few": (Chooser(width=lambda arena: jnp.zeros(2, arena.dtype)), r"Chooser: select must give widths as float32 \[3\]"),
    "another state": (Chooser(late=lambda state, arena: (state,)), "Chooser: update must keep the structure of the state"),
    "no such point": (Chooser(choose=lambda t, key: jnp.int32(77)), "Chooser: must play 4 rounds without a fault"),
}


@pytest.mark.full(but=("a count in Python",))
@pytest.mark.parametrize(("algorithm", "words"), ALGORITHMS.values(), ids=ALGORITHMS)
def test_wrong_algorithms_are_found(algorithm: Any, words: str) -> None:
    with pytest.raises(AssertionError, match=words):
        testing.check_algorithm(algorithm)


@pytest.mark.full
def test_right_algorithms_pass() -> None:
    assert testing.check_algorithm(Chooser).name == "chooser"
