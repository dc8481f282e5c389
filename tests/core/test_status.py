"""Status flags and their words."""

from jaxbandit import Status, explain
from jaxbandit.core.status import FAILED, MESSAGES


def test_flags_are_single_bits_with_words():
    flags = [flag for flag in Status if flag]
    assert all(flag.value.bit_count() == 1 for flag in flags)
    assert set(MESSAGES) == set(flags)
    assert len(set(MESSAGES.values())) == len(flags)
    for flag in flags:
        assert explain(flag) == explain(int(flag)) == MESSAGES[flag]


def test_explain_lists_every_flag():
    assert explain(0) == "ok"
    both = explain(Status.NONFINITE_SCORE | Status.DECLARED_INFEASIBLE)
    assert both == f"{MESSAGES[Status.NONFINITE_SCORE]}; {MESSAGES[Status.DECLARED_INFEASIBLE]}"


def test_failures_are_numbers_and_points_without_meaning():
    nonfinite = Status.NONFINITE_FEEDBACK | Status.NONFINITE_SCORE | Status.NONFINITE_TRUTH
    wrong = Status.NEGATIVE_DELAY | Status.NO_SUCH_POINT | Status.NEGATIVE_WIDTH | Status.NONFINITE_STATE | Status.OUT_OF_RANGE
    assert nonfinite | wrong == FAILED
