"""Bundles of studies: packed, checked, run again and compared."""

import zipfile
from pathlib import Path

import pytest

from jaxbandit import InvalidArgument
from jaxbandit.cli import main
from jaxbandit.study import bundle, read_results, verify, write_results

STUDY = """
name = "small"
horizon = 6
trials = 4
[model]
kernel = {type = "SquaredExponential", length_scale = 1.0}
noise_variance = 0.05
[problem.sine]
type = "sine"
points_per_axis = 10
[algorithm.rpol]
type = "Rpol"
"""


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("bundle")
    (place / "study.toml").write_text(STUDY)
    assert main(["run", str(place / "study.toml"), "--out", str(place / "out"), "--no-cache", "--no-figure"]) == 0
    return place / "out"


def test_a_bundle_holds_all_that_checks_it_and_runs_to_the_same_bits(directory: Path, tmp_path: Path) -> None:
    file = bundle(directory, tmp_path / "paper.zip", scripts=[directory.parent / "study.toml"])
    with zipfile.ZipFile(file) as archive:
        held = set(archive.namelist())
        assert b"jaxbandit==" in archive.read("requirements.txt") and b"@" in archive.read("citations.bib")
    assert held == {
        "results.nc",
        "results.nc.sha256",
        "summary.csv",
        "scripts/study.toml",
        "requirements.txt",
        "citations.bib",
        "SHA256SUMS",
    }
    compared = verify(file)
    assert {"regret", "hard_violation", "status"} <= {one.name for one in compared}
    assert all(one.equal and one.share == 0 and one.largest == 0 for one in compared)


def test_results_of_another_run_differ(directory: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = tmp_path / "other"
    other.mkdir()
    dataset = read_results(directory)
    dataset.regret.loc[{"trial": 1}] *= 1.5
    write_results(dataset, other / "results.nc")
    file = bundle(other, tmp_path / "other.zip")
    (regret,) = [one for one in verify(file) if one.name == "regret"]
    assert not regret.equal and regret.share == 0.25 and 0.1 < regret.largest <= 1 / 3 + 1e-6
    assert main(["verify", str(file)]) == 1
    assert "regret: 25.0% of the trials differ" in capsys.readouterr().out


def test_an_altered_bundle_is_refused(directory: Path, tmp_path: Path) -> None:
    file, altered = bundle(directory, tmp_path / "paper.zip"), tmp_path / "altered.zip"
    with zipfile.ZipFile(file) as old, zipfile.ZipFile(altered, "w") as new:
        for name in old.namelist():
            new.writestr(name, old.read(name) + (b" " if name == "summary.csv" else b""))
    with pytest.raises(InvalidArgument, match=r"'summary.csv' of .* was altered"):
        verify(altered)
    (tmp_path / "none.zip").write_text("no zip")
    with pytest.raises(InvalidArgument, match="cannot read"):
        verify(tmp_path / "none.zip")
    with pytest.raises(InvalidArgument, match="exists"):
        bundle(directory, file)
    with pytest.raises(InvalidArgument, match=r"scripts: there is no file"):
        bundle(directory, tmp_path / "more.zip", scripts=[tmp_path / "script.py"])
    (tmp_path / "empty").mkdir()
    with pytest.raises(InvalidArgument, match="holds no results"):
        bundle(tmp_path / "empty", tmp_path / "empty.zip")
