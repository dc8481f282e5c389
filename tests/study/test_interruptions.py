"""What a run leaves when something takes it: a full disk, a place that cannot be written, a process that has gone, an impatient user."""

from __future__ import annotations

import json
import os
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import xarray as xr

import jaxbandit.study.files
from jaxbandit import InvalidArgument
from jaxbandit.cli import main
from jaxbandit.study import CannotWrite, prepare_directory, run_study, write_whole
from jaxbandit.study.files import Files
from tests.support.small_study import ONE_BLOCK, assert_same, one_block, one_block_in_python, written


class FullDisk:
    """Files of more than a few bytes cannot be written while it is full, as the operating system says."""

    def fill(self) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (64, resource.RLIM_INFINITY))

    def empty(self) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


@pytest.fixture
def disk() -> Iterator[FullDisk]:
    if resource.getrlimit(resource.RLIMIT_FSIZE)[0] != resource.RLIM_INFINITY:
        pytest.skip("the size of files is limited here already")
    disk = FullDisk()
    yield disk
    disk.empty()


@pytest.mark.full
def test_a_full_disk_ends_a_run_and_leaves_the_last_checkpoint(tmp_path: Path, disk: FullDisk) -> None:
    def fill_after_ten_rounds(progress: Any) -> None:
        if progress.round == 10:
            disk.fill()

    with pytest.raises(CannotWrite, match="File too large; what was there before is as it was") as caught:
        run_study(one_block_in_python(), tmp_path, segment=5, checkpoint_share=1.0, report=fill_after_ten_rounds)
    assert "\n" not in str(caught.value)
    disk.empty()
    store = Files(tmp_path)
    store.resume(json.loads((tmp_path / "study.json").read_text())["identity"])
    checkpoint = store.read("at-work.npz") or pytest.fail("no checkpoint")
    assert checkpoint["place"].tolist() == [0, 0, 6]
    said: list[str] = []
    assert_same(run_study(one_block_in_python(), tmp_path, resume=True, checkpoint_share=1.0, note=said.append), one_block())
    assert any("resumed at round 6" in line for line in said)


@pytest.mark.full
def test_results_that_cannot_be_written_can_be_had_later(tmp_path: Path, disk: FullDisk, monkeypatch: Any, capsys: Any) -> None:
    """The run is kept until its results are on disk."""
    study, out = str(written(tmp_path, ONE_BLOCK)), tmp_path / "out"
    real = jaxbandit.study.files.Files.write

    def last_part_fits(store: Files, name: str, part: Any) -> None:
        real(store, name, part)
        if name.startswith("parts"):
            disk.fill()

    monkeypatch.setattr(jaxbandit.study.files.Files, "write", last_part_fits)
    assert main(["run", study, "--out", str(out), "--no-cache", "--segment", "5"]) == 1
    disk.empty()
    assert "results.nc: " in capsys.readouterr().err and not (out / "results.nc").exists()
    assert main(["run", study, "--out", str(out), "--no-cache", "--no-figure", "--resume"]) == 0
    assert_same(xr.load_dataset(out / "results.nc", engine="h5netcdf"), one_block(), tolerance=1e-5)


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path, disk: FullDisk) -> None:
    path = tmp_path / "numbers.txt"
    write_whole(path, lambda temporary: temporary.write_text("old"))
    disk.fill()
    with pytest.raises(CannotWrite, match=r"numbers\.txt"):
        write_whole(path, lambda temporary: temporary.write_text("new" * 100))
    disk.empty()
    assert path.read_text() == "old" and [file.name for file in tmp_path.iterdir()] == ["numbers.txt"]
    with pytest.raises(CannotWrite, match="nowhere"):
        write_whole(tmp_path / "nowhere" / "numbers.txt", lambda temporary: temporary.write_text("new"))


def test_places_that_cannot_be_directories(tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidArgument, match="cannot make the directory"):
        prepare_directory(tmp_path / "file" / "out")
    assert main(["run", str(written(tmp_path)), "--out", str(tmp_path / "file"), "--no-cache"]) == 2
    assert "is a file, not a directory" in capsys.readouterr().err


def test_a_user_who_stops_a_run_is_told_how_to_go_on(tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    def stop(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(jaxbandit.study.files.Files, "write", stop)
    command = ["run", str(written(tmp_path, ONE_BLOCK)), "--out", str(tmp_path / "out"), "--no-cache", "--segment", "5"]
    assert main(command) == 130 and "--resume" in capsys.readouterr().err
    assert main(command) == 2
    said = capsys.readouterr().err
    assert 0 < said.index("--resume") < said.index("--force"), "which would throw away what was done"


def test_a_file_takes_the_place_of_no_device(tmp_path: Path) -> None:
    """Renamed over ``/dev/full``, a report would end the device."""
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(CannotWrite, match="pipe: it is there and is no regular file"):
        write_whole(tmp_path / "pipe", lambda temporary: temporary.write_text("new"))
    assert (tmp_path / "pipe").is_fifo() and [path.name for path in tmp_path.iterdir()] == ["pipe"]
