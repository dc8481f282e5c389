"""Directories belong to one run, whatever other files lie there."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jaxbandit.cli import main
from jaxbandit.study import CheckpointMismatch, DirectoryInUse, ExistingOutput, forget, hold_directory, make_plan, run_study
from jaxbandit.study.files import Files, identity
from tests.support.paths import ROOT
from tests.support.small_study import assert_same, in_python, one_block, one_block_in_python, one_cell_in_python, written

# Who holds it.


def test_one_holder_at_a_time(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with hold_directory(out):
        with pytest.raises(DirectoryInUse, match=rf"in use by process {os.getpid()} on .*; wait for its end") as caught:
            hold_directory(out)
        assert "\n" not in str(caught.value)
        for take in (lambda: hold_directory(out, force=True), lambda: run_study(in_python(), out), lambda: forget(out)):
            with pytest.raises(DirectoryInUse):
                take()
    assert list(out.iterdir()) == []
    (out / "file").write_text("")
    with pytest.raises(ExistingOutput, match="not empty"):
        hold_directory(out)
    assert [file.name for file in out.iterdir()] == ["file"]
    with hold_directory(out, force=True) as held:
        held.release()
        hold_directory(out, force=True).release()


HOLD = """
import sys, time
from pathlib import Path
from jaxbandit.study import hold_directory
held = hold_directory(sys.argv[1])
print("held", flush=True)
time.sleep(600)
"""


@pytest.mark.full
def test_a_dead_holder_holds_nothing_and_a_living_one_keeps_all_out(tmp_path: Path, capsys: Any) -> None:
    study, out = str(written(tmp_path)), tmp_path / "out"
    other = subprocess.Popen([sys.executable, "-c", HOLD, str(out)], stdout=subprocess.PIPE, text=True, cwd=ROOT)
    try:
        assert other.stdout is not None and other.stdout.readline() == "held\n"
        before = sorted(file.name for file in out.iterdir())
        for options in ([], ["--force"], ["--resume"]):
            assert main(["run", study, "--out", str(out), "--no-cache", *options]) == 2
            said = capsys.readouterr().err
            assert f"in use by process {other.pid} on " in said and said.count("\n") == 1
        assert sorted(file.name for file in out.iterdir()) == before == ["run.lock"]
    finally:
        other.kill()
        other.communicate()
    assert (out / "run.lock").exists()
    hold_directory(out).release()


# Files in a directory.

RECORD: dict[str, Any] = {"identity": identity("study"), "batches": [[4, 2, 10, 4]]}
PART = {"regret": np.arange(12, dtype=np.float32).reshape(3, 4), "end_status": np.zeros(3, np.int32), "empty": np.zeros((3, 0), np.float32)}


def truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-30])


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def no_archive(path: Path) -> None:
    path.write_text("nothing of the kind")


def without_seal(path: Path) -> None:
    np.savez(path, **PART)


def of_another_place(path: Path) -> None:
    path.write_bytes(path.with_name("0-1.npz").read_bytes())


def of_another_run(path: Path) -> None:
    other = Files(path.parent.parent.parent / "other")
    other.start(RECORD | {"identity": identity("another study")})
    other.write("parts/0-0.npz", PART)
    path.write_bytes((other.directory / "parts" / "0-0.npz").read_bytes())


DAMAGE = [truncated, emptied, no_archive, without_seal, of_another_place, of_another_run]


@pytest.mark.parametrize("damage", DAMAGE, ids=lambda damage: damage.__name__)
def test_a_part_that_does_not_fit_is_dropped_and_said_so_in_a_line(damage: Callable[[Path], None], tmp_path: Path) -> None:
    said: list[str] = []
    store = Files(tmp_path / "run", note=said.append)
    store.directory.mkdir()
    store.start(RECORD)
    for batch in range(2):
        store.write(f"parts/0-{batch}.npz", PART)
    for name, array in (store.read("parts/0-0.npz") or {}).items():
        np.testing.assert_array_equal(array, PART[name])
        assert array.dtype == PART[name].dtype
    damage(store.directory / "parts" / "0-0.npz")
    again = Files(tmp_path / "run", note=said.append)
    again.resume(RECORD["identity"])
    assert again.read("parts/0-0.npz") is None and again.read("parts/0-1.npz") is not None
    assert len(said) == 1 and "\n" not in said[0] and "0-0.npz does not fit" in said[0] and "is run again" in said[0]


def test_every_byte_of_a_part_counts(tmp_path: Path) -> None:
    """A turned bit is noticed, or changes nothing in the archive's head."""
    store = Files(tmp_path)
    store.start(RECORD)
    store.write("parts/0-0.npz", PART)
    path = store.directory / "parts" / "0-0.npz"
    good = path.read_bytes()
    dropped = 0
    for place in range(0, len(good), 7):
        path.write_bytes(good[:place] + bytes([good[place] ^ 4]) + good[place + 1 :])
        found = store.read("parts/0-0.npz")
        dropped += found is None
        for name, array in (found or {}).items():
            np.testing.assert_array_equal(array, PART[name])
    assert dropped > len(good) / 7 / 2


def test_a_checkpoint_that_does_not_fit_is_dropped(tmp_path: Path) -> None:
    said: list[str] = []
    store = Files(tmp_path, note=said.append)
    store.start(RECORD)
    store.write("at-work.npz", PART)
    assert set(store.read("at-work.npz") or ()) == set(PART)
    other = Files(tmp_path / "other", note=said.append)
    other.start(RECORD | {"batches": [[4, 1, 10, 4]]})
    path, copy = store.directory / "at-work.npz", other.directory / "at-work.npz"
    copy.write_bytes(path.read_bytes())
    assert other.read("at-work.npz") is None and "is run again" in said[-1]
    truncated(path)
    assert store.read("at-work.npz") is None and len(said) == 2 and store.read("at-work.npz") is None and len(said) == 2


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "3", '{"identity": 3}', '{"identity": {}}', '{"identity": []}', "\xff", "[" * 100_000, '{"batches": [[4, 2, 9, 4]]}'],
    ids=["empty", "cut off", "list", "number", "identity a number", "no identity", "identity a list", "bytes", "deep", "other batches"],
)
def test_a_broken_record_of_a_run_is_refused(text: str, tmp_path: Path) -> None:
    store = Files(tmp_path)
    store.start(RECORD)
    path = tmp_path / "study.json"
    known = json.loads(path.read_text())
    path.write_text(json.dumps(known | json.loads(text)) if "batches" in text else text, encoding="latin-1")
    with pytest.raises(CheckpointMismatch, match=r"^resume: ") as caught:
        store.resume(RECORD["identity"])
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 1000


def altered(path: Path, change: Callable[[dict[str, np.ndarray]], object], files: Files | None) -> None:
    """Change a file's arrays, with a new seal or the old one."""
    with np.load(path) as held:
        arrays = dict(held)
    seal = arrays.pop("seal")
    change(arrays)
    if files is None:
        np.savez(path, **arrays, seal=seal)
    else:
        files.write(f"parts/{path.name}" if path.parent.name == "parts" else path.name, arrays)


CHANGES: dict[str, Callable[[dict[str, np.ndarray]], object]] = {
    "no measure": lambda arrays: arrays.pop("regret"),
    "no flags": lambda arrays: arrays.pop("end_status"),
    "of fewer trials": lambda arrays: arrays.update({name: array[1:] for name, array in arrays.items()}),
    "a measure of fewer trials": lambda arrays: arrays.update(regret=arrays["regret"][1:]),
    "a measure of fewer rounds": lambda arrays: arrays.update(regret=arrays["regret"][:, 1:]),
    "a measure of more axes": lambda arrays: arrays.update(regret=arrays["regret"][..., None]),
    "a measure without axes": lambda arrays: arrays.update(regret=arrays["regret"][0, 0]),
    "a measure in words": lambda arrays: arrays.update(regret=arrays["regret"].astype(str)),
    "points outside": lambda arrays: arrays.update(seen_indices=arrays["seen_indices"] + 10**6),
    "points that are no whole numbers": lambda arrays: arrays.update(seen_indices=arrays["seen_indices"] + 0.5),
    "flags that there are not": lambda arrays: arrays.update(end_status=arrays["end_status"] - 1),
    "values of other outputs": lambda arrays: arrays.update(seen_values=arrays["seen_values"][..., 1:]),
}


@pytest.fixture(scope="module")
def interrupted_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a run with all batches and no results, and a checkpoint."""
    folder = tmp_path_factory.mktemp("run")
    run_study(one_block_in_python(), folder, segment=5, checkpoint_share=1.0)
    assert (folder / "at-work.npz").exists()
    return folder


def files_of(folder: Path) -> Files:
    """Files as the run itself writes them."""
    files = Files(folder)
    files.resume(files.record()["identity"])
    return files


def resumed(folder: Path) -> tuple[Any, list[str]]:
    said: list[str] = []
    return run_study(one_block_in_python(), folder, resume=True, segment=5, note=said.append), said


@pytest.mark.full(but=("no measure", "points outside"))
@pytest.mark.parametrize("change", CHANGES)
def test_a_part_that_is_none_of_the_study_is_run_again_whatever_its_seal(change: str, interrupted_run: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(interrupted_run, tmp_path / "run")
    altered(folder / "parts" / "0-0.npz", CHANGES[change], files_of(folder))
    found, said = resumed(folder)
    assert_same(found, one_block())
    assert sum("0-0.npz does not fit" in line and "is run again" in line for line in said) == 1


def test_numbers_of_a_part_that_were_changed_are_noticed(interrupted_run: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(interrupted_run, tmp_path / "run")
    altered(folder / "parts" / "0-0.npz", lambda arrays: arrays.update(regret=arrays["regret"] + 1), None)
    found, said = resumed(folder)
    assert_same(found, one_block())
    assert sum("was altered since it was written" in line for line in said) == 1


LEAVES: dict[str, Callable[[dict[str, np.ndarray]], object]] = {
    "no place": lambda arrays: arrays.pop("place"),
    "a place in two numbers": lambda arrays: arrays.update(place=arrays["place"][:2]),
    "a round where no part begins": lambda arrays: arrays.update(place=arrays["place"] + np.asarray([0, 0, 1])),
    "a round beyond the last": lambda arrays: arrays.update(place=arrays["place"] + np.asarray([0, 0, 1000])),
    "no leaf": lambda arrays: arrays.pop("c1"),
    "a leaf of another shape": lambda arrays: arrays.update(c1=np.repeat(arrays["c1"][..., None], 2, axis=-1)),
    "a leaf of another type": lambda arrays: arrays.update(c1=arrays["c1"].astype(np.complex64)),
    "a leaf of no trials": lambda arrays: arrays.update(c1=arrays["c1"][:0]),
    "no measure": lambda arrays: arrays.pop("g_regret"),
    "a measure of fewer rounds": lambda arrays: arrays.update(g_regret=arrays["g_regret"][:, 1:]),
    "values of other outputs": lambda arrays: arrays.update(g_seen_values=arrays["g_seen_values"][..., 1:]),
    "points outside": lambda arrays: arrays.update(g_seen_indices=arrays["g_seen_indices"] - 10**6),
}


@pytest.mark.full(but=("no leaf", "a leaf of another shape"))
@pytest.mark.parametrize("change", LEAVES)
def test_a_checkpoint_that_is_none_of_the_study_is_left_whatever_its_seal(change: str, interrupted_run: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(interrupted_run, tmp_path / "run")
    with np.load(folder / "at-work.npz") as held:
        cell, batch, _ = held["place"].tolist()
    (folder / "parts" / f"{cell}-{batch}.npz").unlink()
    assert any("resumed at round" in line for line in resumed(shutil.copytree(folder, tmp_path / "good"))[1])
    altered(folder / "at-work.npz", LEAVES[change], files_of(folder))
    found, said = resumed(folder)
    assert_same(found, one_block())
    assert sum("at-work.npz does not fit" in line for line in said) == 1 and not [line for line in said if "resumed" in line]


def test_batches_of_a_cell_that_hold_different_quantities_are_refused(tmp_path: Path) -> None:
    study = one_cell_in_python(trials=60)
    (cell,) = make_plan(study).cells
    memory = cell.batch_bytes - 50 * cell.trial_bytes
    run_study(study, tmp_path, memory=memory)
    assert len(list((tmp_path / "parts").iterdir())) > 1
    altered(tmp_path / "parts" / "0-1.npz", lambda arrays: arrays.update(end_more=arrays["end_status"]), files_of(tmp_path))
    with pytest.raises(CheckpointMismatch, match=r"^resume: batch 1 of cell 1 and batch 2 of cell 1 hold different quantities"):
        run_study(study, tmp_path, resume=True, memory=memory)
