"""Bad input to the sampler and to the export is refused by the name of the argument."""

from __future__ import annotations

from typing import Any

import pytest

import jaxbandit as jb
from jaxbandit.session import Axis, Session
from tests.support.refusals import refused

optuna = pytest.importorskip("optuna")
from jaxbandit.session.optuna import Sampler, export  # noqa: E402


def constrained(values: Any) -> None:
    study = optuna.create_study(sampler=Sampler(jb.Cei(), key=0, constraints=lambda trial: values))
    study.optimize(lambda trial: trial.suggest_float("x", 0, 1), n_trials=1)


def exported(**changes: Any) -> None:
    session = Session.create(None, [Axis.between("x", 0.0, 1.0, 3)], jb.Rpol(), key=0)
    export(**{"session": session, "storage": optuna.storages.InMemoryStorage()} | changes)


REFUSED: dict[str, tuple[str, Any, dict[str, Any]]] = {
    "constraints": (
        "constraints",
        lambda given: Sampler(jb.Cei(), key=0, constraints=given),
        {
            "no argument": lambda: [0.0],
            "two arguments": lambda one, other: [0.0],
            "a class": list,
            "a number": 3,
            "a text": "c <= 1",
            "the objective": ["objective <= 1"],
        },
    ),
    "values": (
        "constraints",
        constrained,
        {"None": None, "a number": 1.0, "a text": ["a"], "endless": [10**400], "nested": [[1.0]], "true": [True]},
    ),
    "a session": ("session", lambda given: exported(session=given), {"None": None, "a class": Session}),
    "a storage": (
        "storage",
        lambda given: exported(storage=given),
        {"None": None, "blank": " ", "unknown": "foo://bar", "a directory": "/"},
    ),
    "a name": ("name", lambda given: exported(name=given), {"blank": " ", "a line break": "a\nb", "a number": 3}),
}


@pytest.mark.parametrize("case", REFUSED)
def test_bad_input_is_refused_by_name(case: str) -> None:
    argument, call, wrong = REFUSED[case]
    found = [refused(case, argument, what, lambda value=value: call(value), limit=60.0) for what, value in wrong.items()]
    assert [words for words in found if words] == []


def test_labels_of_choices_can_be_shown() -> None:
    study = optuna.create_study(sampler=Sampler(jb.Cei(), key=0))
    study.optimize(lambda trial: len(trial.suggest_categorical("c", ["a\nb", "\0"])), n_trials=3)
    assert len(study.trials) == 3
