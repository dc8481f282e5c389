"""Study files with mistakes are refused by their key, or work."""

import copy
import datetime
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import jaxbandit
from jaxbandit import InvalidArgument, kernels
from jaxbandit.results.dataset import header
from jaxbandit.study import Run, Study, from_table, from_toml, make_plan, run_study, runs
from jaxbandit.study import plan as planning
from jaxbandit.study.run import attributes, contents_of

TEXT = """\
name = "all"
trials = 3
horizon = 8
seed = 1
trajectories = true
common_random_numbers = true
metrics = ["regret", "hard_violation"]
keep = {every = 2}
initial = {random = 2, counted = true}
parameters = {set = "any"}

[model]
kernel = {type = "SquaredExponential", length_scale = 1.0}
noise_variance = 0.05
prior_mean = 0.0
form = "features"
tolerance = 1e-6
rank = 25

[problem.sine]
type = "sine"
points_per_axis = 5
noise_variance = 0.05

[delay.late]
type = "Poisson"
mean = 2.0

[delay.own]
type = "PerOutput"
delays = [{type = "Poisson", mean = 2.0}, {type = "NoDelay"}]

[algorithm.rpol]
type = "Rpol"
initial_penalty = 1.0
estimator = {type = "Bounds", reward_width = 3.0, cost_width = {type = "SqrtLog", a = 3.0}}
sweep = {"estimator.reward_width" = [1.0, 2.5], "model.noise_variance" = [0.05, 0.1]}
zipped = true
model = {kernel = {type = "Matern52", length_scale = [1.0, 1.0]}, noise_variance = [0.1, 0.2]}
feedback = {type = "Censor", window = 5}
informed = {type = "SafestSeeds", count = 2}

[algorithm.cbo]
type = "Cbo"
reward_clip = 7.0
cost_clip = [2.0]
"""
BASE = tomllib.loads(TEXT)

WRONG: list[Any] = [True, -1, 2**70, 10**400, 0.5, float("nan"), "", "no", "3.0", "\x00", [], ["a"], [[1], [2, 3]], {}, {"a": 1}]
WRONG += [{"type": "Nope"}, {"type": 3}, {"type": "Matern12"}, [{"type": "Nope"}], [True, 1.0], datetime.date(2020, 1, 1)]
Keys = tuple[str | int, ...]


def paths(item: Any, path: Keys = ()) -> Iterator[Keys]:
    """All keys of nested tables and lists."""
    for key, value in item.items() if isinstance(item, dict) else enumerate(item) if isinstance(item, list) else ():
        yield (*path, key)
        yield from paths(value, (*path, key))


def at(table: Any, path: Keys) -> Any:
    for key in path:
        table = table[key]
    return table


def mistakes(path: Keys) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the study with a mistake at each key."""
    for value in WRONG:
        changed = copy.deepcopy(BASE)
        at(changed, path[:-1])[path[-1]] = value
        yield f"{value!r:.40}", changed
    without = copy.deepcopy(BASE)
    del at(without, path[:-1])[path[-1]]
    yield "missing", without
    if isinstance(at(BASE, path), dict):
        more = copy.deepcopy(BASE)
        at(more, path)["unheard_of"] = 3
        yield "one more", more


@pytest.fixture(autouse=True)
def models_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Build one model of each size, because building takes most time."""
    known: dict[Any, Any] = {}
    real = runs.surrogate

    def quick(domain: Any, given: Any, *, outputs: int, horizon: int, noise_variance: Any, prior_mean: Any, **_: Any) -> Any:
        for kernel in given if isinstance(given, list) else [given]:
            kernel.validate("kernel")
            kernel.validate(points=domain.size, axes=domain.dimension)
        for name, values in (("kernel", given), ("noise_variance", noise_variance), ("prior_mean", prior_mean)):
            if np.ndim(values) and len(values) != outputs:
                raise InvalidArgument(f"{name}: expected one for each of the {outputs} outputs")
        if (domain.size, outputs) not in known:
            one = kernels.SquaredExponential()
            known[domain.size, outputs] = real(domain, one, outputs=outputs, noise_variance=0.1, form="features")
        return known[domain.size, outputs]

    monkeypatch.setattr(runs, "surrogate", quick)


def load(table: Mapping[str, Any]) -> Study:
    """The study of a table, checked as a plan checks it."""
    study = from_table(table)
    for run in study.named_runs():
        planning.group_runs(study, [run], jax.devices()[0])
    return study


def test_the_study_itself_is_right() -> None:
    assert [run.label for run in load(BASE).runs][:2] == [
        "rpol reward_width=1 noise_variance=0.05 delay late",
        "rpol reward_width=2.5 noise_variance=0.1 delay late",
    ]


@pytest.mark.full(but=("trials", "metrics", "keep"))
@pytest.mark.parametrize("table", list(BASE))
def test_every_mistake_is_refused_by_its_key_or_works(table: str) -> None:
    unnamed, refused = [], 0
    for path in [path for path in paths(BASE) if path[0] == table]:
        names = [key.rpartition(".")[2] for key in path if isinstance(key, str)][-2:]
        for what, changed in mistakes(path):
            try:
                load(changed)
            except InvalidArgument as error:
                refused += 1
                if "\n" in str(error) or len(str(error)) > 1500 or not any(name in str(error) for name in names):
                    unnamed.append((path, what, str(error)))
    assert not unnamed and (refused >= 5 or table == "parameters")


@pytest.mark.parametrize(
    "path",
    [("common_random_numbers",), ("trajectories",), ("algorithm", "rpol", "zipped"), ("initial", "counted")],
    ids=lambda path: ".".join(path),
)
def test_true_and_false_are_no_text_and_no_number(path: Keys) -> None:
    for value in ("no", "false", "true", 0, 1, [], {}):
        changed = copy.deepcopy(BASE)
        at(changed, path[:-1])[path[-1]] = value
        with pytest.raises(InvalidArgument, match=rf"{path[-1]}: must be true or false, got"):
            load(changed)


@pytest.mark.parametrize(
    "path",
    [
        ("trials",),
        ("seed",),
        ("keep", "every"),
        ("initial", "random"),
        ("model", "noise_variance"),
        ("model", "kernel", "length_scale"),
        ("problem", "sine", "points_per_axis"),
        ("delay", "late", "mean"),
        ("algorithm", "cbo", "reward_clip"),
        ("algorithm", "rpol", "estimator", "cost_width", "a"),
        ("algorithm", "rpol", "sweep", "model.noise_variance", 0),
    ],
    ids=lambda path: ".".join(map(str, path)),
)
def test_text_is_no_number(path: Keys) -> None:
    changed = copy.deepcopy(BASE)
    at(changed, path[:-1])[path[-1]] = "3.0"
    with pytest.raises(InvalidArgument, match=[str(key).rpartition(".")[2] for key in path if isinstance(key, str)][-1]):
        load(changed)


# Contents of files.


def test_files_that_end_anywhere_are_refused_or_hold_a_study(tmp_path: Path) -> None:
    file = tmp_path / "cut.toml"
    for end in range(0, len(TEXT), 23):
        file.write_text(TEXT[:end])
        try:
            load({"name": "cut"} | tomllib.loads(TEXT[:end]))
        except (InvalidArgument, tomllib.TOMLDecodeError):
            with pytest.raises(InvalidArgument) as caught:
                load(from_toml(file).table())
            assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (TEXT.encode() + b"\xff\xfe", "cannot read"),
        (b"\x00\x01\x02", "is no TOML"),
        (TEXT.encode() + b"\n[problem.sine]\ntype = 'sine'\n", "is no TOML"),
        (b"trials = 3\n" + TEXT.encode(), "is no TOML"),
        (b"x = " + b"[" * 100_000, "is no TOML"),
        (b"trials = " + b"9" * 5000 + b"\n", "is no TOML"),
        (TEXT.encode("utf-16"), "cannot read"),
    ],
    ids=["no UTF-8", "bytes", "a table twice", "a key twice", "too deep", "too many digits", "UTF-16"],
)
def test_files_that_are_no_study(content: bytes, words: str, tmp_path: Path) -> None:
    (tmp_path / "wrong.toml").write_bytes(content)
    with pytest.raises(InvalidArgument, match=words) as caught:
        from_toml(tmp_path / "wrong.toml")
    assert "\n" not in str(caught.value)


def test_a_byte_order_mark_is_no_mistake(tmp_path: Path) -> None:
    (tmp_path / "marked.toml").write_bytes(b"\xef\xbb\xbf" + TEXT.encode())
    assert from_toml(tmp_path / "marked.toml").fingerprint() == from_table(BASE).fingerprint()


# Labels and sizes.


def relabelled(**changes: Any) -> Study:
    run = from_table(BASE).runs[0]
    return Study("labels", runs=[Run(**{"label": "a", "problem": run.problem, "algorithm": run.algorithm, "model": run.model} | changes)])


@pytest.mark.parametrize("label", ["", " ", "a\0b", "two\nlines", "\ud800", 3, None, "x" * 2000], ids=repr)
def test_labels_that_no_file_of_results_holds(label: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"^Run\.label: "):
        relabelled(label=label)
    if isinstance(label, str) and label.strip():
        with pytest.raises(InvalidArgument, match=r"^Run\.problem_label: "):
            relabelled(problem_label=label)
        with pytest.raises(InvalidArgument, match=r"^name: "):
            Study(label, runs=relabelled().runs)


def test_values_that_print_alike_and_values_that_stand_twice_get_labels_of_their_own() -> None:
    changed = copy.deepcopy(BASE)
    changed["algorithm"]["cbo"]["sweep"] = {"reward_clip": [1.0, 1.0000001, 1.0]}
    labels = [run.label for run in load(changed).runs if run.algorithm_label == "cbo" and run.delay_label == "late"]
    assert labels == ["cbo reward_clip=1 delay late", "cbo reward_clip=1 delay late #2", "cbo reward_clip=1 delay late #3"]


def test_a_swept_field_that_is_called_like_a_variable_has_a_name_of_its_own() -> None:
    changed = copy.deepcopy(BASE)
    changed["algorithm"] = {"oracle": {"type": "Oracle", "sweep": {"index": [3, 4]}}}
    plan = make_plan(load(changed))
    head = header(contents_of(plan), attributes(plan))
    assert head["algorithm.index"].values.tolist() == [3, 4, 3, 4] and head.attrs["swept"] == '["algorithm.index"]'


def test_names_in_results_that_no_file_holds_are_found_before_the_run(tmp_path: Path) -> None:
    """NetCDF takes the slash in a field's name for a group."""
    study = relabelled(swept={"a/../b\0": 1.0})
    with pytest.raises(InvalidArgument, match=r"results: cannot be written to results\.nc"):
        run_study(study, tmp_path / "out", results=tmp_path / "out" / "results.nc")
    assert not (tmp_path / "out").exists()


def test_functions_of_whole_numbers() -> None:
    domain = jaxbandit.domains.grid([0.0], [4.0], 5)
    problem = jaxbandit.problems.from_functions(domain, lambda x: x[0].astype(int), [lambda x: 1], noise_variance=1.0)
    assert problem.means.dtype == np.float64 and problem.means.tolist() == [[0, 1, 2, 3, 4], [1] * 5]
