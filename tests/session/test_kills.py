"""A session survives that its process is killed; ``kill_session.py`` does it as often as one likes."""

import pytest

from tests.session.kill_session import kill_and_compare


@pytest.mark.full
def test_nothing_told_is_lost_and_the_choices_are_the_same() -> None:
    said: list[str] = []
    assert kill_and_compare(kills=1, last=40, seconds=0.1, seed=0, report=said.append, begun=30) == 0, "\n".join(said)
