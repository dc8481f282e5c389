"""Tests of samplers that come with Optuna."""

from collections.abc import Callable

import pytest

import jaxbandit as jb

pytest.importorskip("optuna.testing.pytest_samplers")
from optuna.testing.pytest_samplers import BasicSamplerTestCase, RelativeSamplerTestCase, SingleOnlySamplerTestCase

pytestmark = pytest.mark.full


class TestSampler(BasicSamplerTestCase, RelativeSamplerTestCase, SingleOnlySamplerTestCase):
    """The whole suite, by the algorithm that compiles least."""

    @pytest.fixture
    def sampler(self) -> Callable[[], jb.optuna.Sampler]:
        return lambda: jb.optuna.Sampler(jb.RandomSearch(), key=0)
