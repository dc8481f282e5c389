"""How a study is run, and who is told of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from jaxbandit.core.executors import AnyExecutor
from jaxbandit.core.types import Device
from jaxbandit.study.plan import Plan, make_plan
from jaxbandit.study.progress import Compiling, Progress
from jaxbandit.study.specify.study import Study

CHECKPOINT_SHARE = 0.04  # of the time that checkpoints may take


@dataclasses.dataclass(frozen=True)
class Options:
    """How a study is run and who is told; see :func:`~jaxbandit.study.run_study`."""

    resume: bool = False
    results: Path | None = None
    attributes: Mapping[str, str] = dataclasses.field(default_factory=dict)
    memory: str | int | None = None
    segment: int | None = None
    devices: Sequence[Device] | None = None
    checkpoint_share: float = CHECKPOINT_SHARE
    executor: AnyExecutor | None = None
    report: Callable[[Progress], None] = lambda progress: None
    note: Callable[[str], None] = lambda line: None
    compiling: Callable[[Compiling], None] = lambda compiling: None

    def plan(self, study: Study) -> Plan:
        """Return the plan of a study as this process would play it."""
        return make_plan(
            study,
            memory=self.memory,
            segment=self.segment,
            devices=self.devices,
            streamed=self.results is not None,
            by_workers=self.executor is not None,
        )
