"""Results on disk: NetCDF and Zarr hold the same, can be run again and reported on, and are written whole or not at all."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest
import xarray as xr

from jaxbandit import InvalidArgument
from jaxbandit.cli import main
from jaxbandit.study import CannotWrite, read_results, rerun, write_results
from tests.support.small_study import ONE_CELL, assert_same, one_cell, written

ONLY_REPORT = ["--report", "--no-figure"]
LINE = "rpol reward_width=2.5"


@pytest.mark.parametrize("name", ["results.nc", "results.zarr"])
def test_what_is_written_is_what_is_read(name: str, tmp_path: Path) -> None:
    write_results(one_cell(), tmp_path / name)
    write_results(one_cell(), tmp_path / name)  # in place of itself
    assert [file.name for file in tmp_path.iterdir()] == [name]
    for place in (tmp_path, tmp_path / name):
        found = read_results(place)
        assert_same(found, one_cell())
        assert found.attrs["fingerprint"] == one_cell().attrs["fingerprint"]
        assert found.algorithm.values.tolist() == one_cell().algorithm.values.tolist()
    again = rerun(found, 4, label=LINE)
    assert again.regret.values[0, 0].tolist() == one_cell().regret.sel(algorithm=LINE, trial=4).values.tolist()


def test_a_study_in_zarr_from_the_command_line(tmp_path: Path, capsys: Any) -> None:
    out = tmp_path / "out"
    assert (
        main(["run", str(written(tmp_path, ONE_CELL)), "--out", str(out), "--no-cache", "--segment", "5", "--format", "zarr", *ONLY_REPORT])
        == 0
    )
    assert "report.html" in capsys.readouterr().out
    assert sorted(file.name for file in out.iterdir()) == ["report.html", "results.zarr", "summary.csv"]
    (out / "report.html").unlink()
    assert main(["rerun", str(out), "--trial", "3"]) == 0 and "the same bits" in capsys.readouterr().out
    assert main(["report", str(out)]) == 0 and (out / "report.html").stat().st_size > 10_000


def test_files_that_are_no_results(tmp_path: Path, monkeypatch: Any) -> None:
    with pytest.raises(InvalidArgument, match="there is no"):
        read_results(tmp_path / "none.nc")
    with pytest.raises(InvalidArgument, match=r"holds no results\.nc or results\.zarr"):
        read_results(tmp_path)
    for name in ("results.zarr", "results.nc"):
        (tmp_path / name).write_text("no results")
        with pytest.raises(InvalidArgument, match="cannot read"):
            read_results(tmp_path / name)
    (tmp_path / "results.zarr").unlink()
    monkeypatch.setattr(xr.Dataset, "to_zarr", lambda *_, **__: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(CannotWrite, match="No space left on device"):
        write_results(one_cell(), tmp_path / "results.zarr")
    assert not (tmp_path / "results.zarr").exists()
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(InvalidArgument, match="zarr is not installed"):
        write_results(one_cell(), tmp_path / "results.zarr")
