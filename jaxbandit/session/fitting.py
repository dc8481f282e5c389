"""Fitting of a session's model to all that has been told."""

from __future__ import annotations

from collections.abc import Mapping

from jaxbandit.session.specification import Specification
from jaxbandit.session.tickets import Record
from jaxbandit.study.specify.grid import Model


def fitted_model(specification: Specification, model: Model, records: Mapping[int, Record]) -> Model:
    """Return the model whose hyper-parameters have been fitted to the values of all tickets."""
    raise NotImplementedError
