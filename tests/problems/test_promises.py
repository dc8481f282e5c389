"""Every problem that a study file can name keeps the promises of its role, with its defaults."""

import pytest

from jaxbandit import problems, testing
from tests.support.study_files import names

GIVEN = {"artificial": lambda: problems.artificial("P3")}
# Those that read a file are tested in test_data_tables.py.
PROBLEMS = {name: GIVEN.get(name, make) for name, make in names("problem").items() if name != "from_csv"}


@pytest.mark.full(but=("sine", "sine_delayed"))
@pytest.mark.parametrize("name", PROBLEMS)
def test_every_problem_keeps_its_promises(name: str) -> None:
    testing.check_problem(PROBLEMS[name])
