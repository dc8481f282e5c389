"""A run of a study while it lasts: what is finished and where that is kept, in memory or in a directory, and its results in the end."""

from __future__ import annotations

import contextlib
import functools
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated

import numpy as np
import xarray as xr

from jaxbandit.core.checks import InvalidArgument
from jaxbandit.core.declare import checked
from jaxbandit.core.fields import Words, of_class
from jaxbandit.core.fields import path as path_check
from jaxbandit.core.types import FilePath
from jaxbandit.core.workers import VERSIONS_AND_DEVICE
from jaxbandit.results.dataset import assembled, pieces_of
from jaxbandit.results.files import check_results, hidden, open_results, read_results, stream_results
from jaxbandit.results.regions import begin_regions, finish_regions, put_in
from jaxbandit.results.schema import Arrays, Variable
from jaxbandit.study.dataset import contents_of, study_header
from jaxbandit.study.files import CheckpointMismatch, Files, identity, interrupted
from jaxbandit.study.hold import HeldDirectory, hold_directory
from jaxbandit.study.memory import check_disk
from jaxbandit.study.plan import Batch, Options, Plan
from jaxbandit.study.play import Played, Player
from jaxbandit.study.so_far import Meter, SoFar, Summary, summarise
from jaxbandit.study.workers import cut_by_worker


class Store:
    """Finished batches of a run.

    Attributes:
      plan: plan of the run; of one that goes on with the batches that it began with.
      around: surroundings of the workers ``[versions, device]``, once they are known; ``None`` for those of this process.
      files: files of the run, ``None`` where nothing outlives this process.
      regions: Zarr directory that whoever plays a batch writes it to.
      meter: what has been played.
      so_far: moments of the finished batches.
    """

    def __init__(self, plan: Plan, options: Options, files: Files | None = None, around: Mapping[str, str] | None = None) -> None:
        self.plan, self.options, self.files, self.around = plan, options, files, around
        self.regions = options.results if options.results is not None and options.results.suffix == ".zarr" else None
        self.parts: dict[Batch, Arrays | None] = {}  # finished batches: their arrays where neither a file takes the results
        self.seconds: dict[Batch, np.ndarray] = {}
        if files is not None:
            (self._resume if options.resume else self._begin)(files)
        self.meter, self.so_far = Meter(self.plan, options.report, self.parts), SoFar(self.plan, self.files)
        for batch in self.parts:
            part = self._part(batch)
            self._keep(batch, part, summarise(self.plan, batch, part) if self.regions is None else Summary.of_arrays(part))

    @staticmethod
    @contextlib.contextmanager
    def of(directory: str | Path | HeldDirectory | None, plan: Plan, options: Options) -> Iterator[Store]:
        """Give the store of a run, which holds its directory meanwhile; in memory without a directory.

        Raises:
          InvalidArgument: when results could not be written, a worker cannot plan the study, or the directory holds the run of another.
          DirectoryInUse: when a run that is going on holds the directory.
        """
        if options.results is not None:
            check_results(study_header(plan, (), trials=1), options.results)
        around = None
        if options.executor is not None and not options.resume:
            plan, around = cut_by_worker(plan, options.executor, options)
        if directory is None:
            yield Store(plan, options, None, around)
            return
        with held(directory) as path:
            yield Store(plan, options, Files(path, options.note), around)

    def _begin(self, files: Files) -> None:
        """Write down a new run in its directory."""
        files.clear()
        check_disk(files.directory, self.plan.disk_bytes(self.options.results is not None))
        own = identity(self.plan.study.fingerprint(), self.around)
        files.start({"identity": own, "batches": self.plan.layout, "regions": self.regions is not None})
        self._begin_regions()

    def _resume(self, files: Files) -> None:
        """Go on with the run of the directory: take its batches, and those that are finished."""
        if self.options.executor is not None:  # whose surroundings are compared when it plays
            known = files.record()["identity"]
            self.around = {name: str(known.get(name)) for name in VERSIONS_AND_DEVICE}
        record = files.resume(identity(self.plan.study.fingerprint(), self.around))
        if record["regions"] != (self.regions is not None):
            raise CheckpointMismatch(
                f"resume: {files.directory} holds a run with results {'' if record['regions'] else 'not '}in Zarr; resume it as it was"
            )
        self.plan = self.plan.with_layout(record["batches"])
        if self.regions is not None and not hidden(self.regions).is_dir():  # it was cut off before, or the results have moved
            files.forget_parts()
            self._begin_regions()
        sizes = {batch: files.verified(*batch.place) for batch in self.plan.batches}
        self.parts = {batch: None for batch, size in sizes.items() if size}
        check_disk(files.directory, self.plan.disk_bytes(self.options.results is not None) - sum(sizes.values()))

    def _begin_regions(self) -> None:
        if self.regions is not None:
            begin_regions(self.regions, study_header(self.plan, self.variables), self.variables)

    @functools.cached_property
    def variables(self) -> dict[str, Variable]:
        """Variables of results that go to a Zarr directory."""
        return Player(self.plan).variables

    def missing(self) -> list[Batch]:
        """Return the batches that are still to be played."""
        return [batch for batch in self.plan.batches if batch not in self.parts]

    def finish(self, batch: Batch, played: Played) -> None:
        """Keep a batch that was played: its arrays, or what is left of them beside regions, and then its summary."""
        if self.files is not None:
            self.files.finish(*batch.place, played.arrays if self.regions is None else {**played.arrays, **played.summary.arrays()})
        self.seconds[batch] = played.seconds
        self._keep(batch, played.arrays, played.summary)

    def _keep(self, batch: Batch, arrays: Arrays, summary: Summary) -> None:
        self.so_far.add(summary)
        self.parts[batch] = arrays if self.options.results is None else None  # which is read again, so that memory holds one at a time

    def _part(self, batch: Batch) -> Arrays:
        """Return what is kept of a finished batch."""
        found = self.parts[batch]
        if found is None and self.files is not None:
            found = self.files.part(*batch.place)
        if found is None:
            raise CheckpointMismatch(f"resume: {batch} was altered while the study ran; run again with --resume")
        return found

    def gather(self) -> xr.Dataset:
        """Return the results of all batches, read from their file if they are written to one."""
        plan, file, attributes = self.plan, self.options.results, dict(self.options.attributes)
        if self.options.executor is not None:
            attributes["devices"] = json.dumps([(self.around or {}).get("device", "")])
        of_runs = self._seconds_of_runs()
        if self.regions is not None:
            put_in(self.regions, ({name: x for name, x in self._part(batch).items() if "|" in name} for batch in plan.batches))
            finish_regions(self.regions, study_header(plan, self.variables, of_runs).assign_attrs(attributes))
            return open_results(self.regions)
        variables = contents_of(plan).variables([self._part(next(cell.batches)) for cell in plan.cells])
        head = study_header(plan, variables, of_runs).assign_attrs(attributes)
        pieces = (piece for batch in plan.batches for piece in pieces_of(variables, batch.cell.number, self._part(batch), batch.rows))
        if file is None:
            return assembled(head, variables, pieces)
        stream_results(head, variables, pieces, file)
        return open_results(file)  # no need to look at its seal, which is of this moment

    def _seconds_of_runs(self) -> np.ndarray:
        """Return the seconds of each run ``[runs, 2]``, with and without compilation; NaN unless all of it was played in this run."""
        seconds, unknown = np.empty((len(self.plan.runs), 2)), np.full(2, np.nan)
        for cell in self.plan.cells:
            seconds[list(cell.runs)] = np.sum([self.seconds.get(batch, unknown) for batch in cell.batches], axis=0) / len(cell.runs)
        return seconds


@contextlib.contextmanager
def held(directory: str | Path | HeldDirectory) -> Iterator[Path]:
    """Hold a directory, unless the caller does already."""
    if isinstance(directory, HeldDirectory):
        yield directory.path
    else:
        with hold_directory(directory, force=True) as own:
            yield own.path


@checked
def forget(
    directory: Annotated[str | Path | HeldDirectory, path_check | of_class(HeldDirectory, "a directory of hold_directory(...)")],
) -> None:
    """Drop the checkpoints and batches of a run, once its results are kept elsewhere; raises ``DirectoryInUse`` while a run goes on."""
    with held(directory) as path:
        Files(path).clear()


@checked
def made_before(path: FilePath, attributes: Annotated[Mapping[str, str], Words("a mapping from names to text")]) -> xr.Dataset | None:
    """Return the results that a run has left at ``path`` earlier, to be read as they are used; ``None`` where there are none such.

    Args:
      path: NetCDF file or Zarr directory.
      attributes: what the results must say of their run, such as the study's fingerprint.
    """
    path = Path(path)
    if not path.exists() or interrupted(path.parent):
        return None
    with contextlib.suppress(InvalidArgument):  # no results, or damaged ones
        dataset = read_results(path, load=False)
        if all(str(dataset.attrs.get(name)) == value for name, value in attributes.items()):
            return dataset
        dataset.close()
    return None
