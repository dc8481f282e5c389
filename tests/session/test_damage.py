"""Damage to the files of a session, at random and of every kind: no event that was acknowledged is lost without a word."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from jaxbandit.session.journal import HEAD, JOURNAL, DamagedSession, SessionError, create_journal, open_journal, salvage_journal

EVENTS = 24
BODY = {"ticket": 1, "values": {"yield": 0.1 + 0.2}}


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of a session as a process that was killed leaves them: some events are in the write-ahead log alone."""
    live, left = tmp_path_factory.mktemp("live"), tmp_path_factory.mktemp("left") / "session"
    with contextlib.closing(create_journal(live, {"horizon": 12})) as journal:
        filled(journal, EVENTS - 1)
        shutil.copytree(live, left)
    assert {file.name for file in left.iterdir()} == {JOURNAL, f"{JOURNAL}-wal", f"{JOURNAL}-shm", HEAD, "session.lock"}
    with contextlib.closing(open_journal(shutil.copytree(left, left.with_name("whole")))) as journal:
        assert len(journal.events) == EVENTS
    return left


@pytest.fixture(scope="module")
def closed(killed: Path) -> Path:
    """The files of the same session once a process has closed it."""
    place = shutil.copytree(killed, killed.with_name("closed"))
    open_journal(place).close()
    assert not (place / f"{JOURNAL}-wal").exists()
    return place


def filled(journal: object, count: int) -> None:
    with journal.claim():  # type: ignore[attr-defined]
        for _ in range(count):
            journal.append("told", BODY)  # type: ignore[attr-defined]


def damages(seed: int, count: int, files: list[Path]) -> Iterator[tuple[str, Callable[[Path], object]]]:
    """Yield damages at random of what a disk, a careless copy or a broken tool does, each with its words."""
    draw = random.Random(seed)
    for _ in range(count):
        file = draw.choice(files)
        size, kind = file.stat().st_size, draw.choice(("flip", "flip", "cut", "insert", "zero", "remove", "swap"))
        place, length = draw.randrange(max(size, 1)), draw.choice((1, 3, 24, 512, 4096))
        bits, garbage = 1 << draw.randrange(8), draw.randbytes(length)

        def harm(
            path: Path, kind: str = kind, place: int = place, length: int = length, bits: int = bits, garbage: bytes = garbage
        ) -> None:
            whole = path.read_bytes()
            match kind:
                case "flip":
                    found = whole[:place] + bytes([whole[place] ^ bits] if whole else []) + whole[place + 1 :]
                case "cut":
                    found = whole[:place]
                case "insert":
                    found = whole[:place] + garbage + whole[place:]
                case "zero":
                    found = whole[:place] + bytes(len(whole[place : place + length])) + whole[place + length :]
                case "swap":
                    found = whole[:place] + garbage[: len(whole) - place] + whole[place + length :]
                case _:
                    path.unlink()
                    return
            path.write_bytes(found)

        yield f"{kind} of {file.name} at {place} of {size}, {length} bytes", lambda folder, file=file, harm=harm: harm(folder / file.name)


@pytest.mark.parametrize("state", ["killed", "closed"])
def test_no_damage_at_random_loses_an_event_without_a_word(state: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    source = request.getfixturevalue(state)
    files = sorted(file for file in source.iterdir() if file.name != "session.lock")
    said, silent = 0, list[str]()
    for number, (words, harm) in enumerate(damages(seed=len(files), count=200, files=files)):
        folder = shutil.copytree(source, tmp_path / str(number))
        harm(folder)
        try:
            with contextlib.closing(open_journal(folder)) as journal:
                if len(journal.events) != EVENTS:
                    silent.append(words)
        except SessionError as error:
            said += 1
            assert "\n" not in str(error)
        shutil.rmtree(folder)
    assert not silent and said > 50


@pytest.mark.parametrize("state", ["killed", "closed"])
def test_an_older_copy_is_noticed(state: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """Of the journal alone, by whoever opens it and by whoever has it open; a whole older session is none of this."""
    folder = shutil.copytree(request.getfixturevalue(state), tmp_path / "session")
    older = shutil.copytree(folder, tmp_path / "older")
    with contextlib.closing(open_journal(folder)) as journal:
        filled(journal, 3)
    newer = shutil.copytree(folder, tmp_path / "newer")
    for name in (JOURNAL, f"{JOURNAL}-wal"):
        if (older / name).exists():
            shutil.copy(older / name, newer / name)
    with pytest.raises(DamagedSession, match=r"holds 24 events .* is not the journal of 27 that session.head knows"):
        open_journal(newer)
    with pytest.raises(DamagedSession, match=r"is not the journal of 27"):
        open_journal(newer, read_only=True)
    with contextlib.closing(open_journal(older)) as journal:
        assert len(journal.events) == EVENTS


def test_another_journal_of_as_many_events_is_noticed(closed: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(closed, tmp_path / "session")
    with contextlib.closing(create_journal(tmp_path / "other", {"horizon": 12})) as journal:
        filled(journal, EVENTS + 5)
    shutil.copy(tmp_path / "other" / JOURNAL, folder / JOURNAL)
    with pytest.raises(DamagedSession, match="is not the journal of 24"):
        open_journal(folder)


def test_a_journal_of_an_earlier_version_is_opened_and_guarded_from_then_on(closed: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(closed, tmp_path / "session")
    (folder / HEAD).unlink()
    with contextlib.closing(open_journal(folder)) as journal:
        assert len(journal.events) == EVENTS
        filled(journal, 1)
    shutil.copy(closed / JOURNAL, folder / JOURNAL)
    with pytest.raises(DamagedSession, match="is not the journal of 25"):
        open_journal(folder)


def test_what_is_left_of_a_damaged_journal_is_gone_on_with(killed: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(killed, tmp_path / "session")
    log = folder / f"{JOURNAL}-wal"
    log.write_bytes(log.read_bytes()[:-20_000])
    with pytest.raises(DamagedSession, match=r"python -m jaxbandit session salvage"):
        open_journal(folder)
    kept, aside = salvage_journal(folder)
    assert 0 < kept < EVENTS and aside == folder / "damaged-1" and {JOURNAL, HEAD} <= {file.name for file in aside.iterdir()}
    with contextlib.closing(open_journal(folder)) as journal:
        assert len(journal.events) == kept
        filled(journal, 1)
    assert salvage_journal(folder) == (kept + 1, None), "nothing is damaged"
    (folder / JOURNAL).write_bytes(b"nothing of it is left")
    with pytest.raises(DamagedSession, match="not even its first event"):
        salvage_journal(folder)
    assert not (folder / "damaged-2").exists()


def test_what_is_left_of_a_journal_that_was_cut_off_is_gone_on_with(tmp_path: Path) -> None:
    with contextlib.closing(create_journal(tmp_path, {"horizon": 12})) as journal:
        filled(journal, 200)
    path = tmp_path / JOURNAL
    for size, least in ((path.stat().st_size - 9_000, 50), (path.stat().st_size // 2, 20)):
        os.truncate(path, size)
        with pytest.raises(DamagedSession, match="malformed"):
            open_journal(tmp_path)
        kept, aside = salvage_journal(tmp_path)
        assert least < kept < 201 and aside is not None
        open_journal(tmp_path).close()


def test_a_new_session_where_an_earlier_one_was_removed(closed: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(closed, tmp_path / "session")
    (folder / JOURNAL).unlink()
    with contextlib.closing(create_journal(folder, {"horizon": 13})) as journal:
        assert len(journal.events) == 1


def test_a_head_that_cannot_be_written_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from jaxbandit.session.journal import CannotRecord

    with contextlib.closing(create_journal(tmp_path, {"horizon": 12})) as journal:
        (tmp_path / HEAD).unlink()
        (tmp_path / HEAD).mkdir()
        with pytest.raises(SessionError, match=r"cannot read .*session.head"), journal.claim():
            pass
        (tmp_path / HEAD).rmdir()
        with journal.claim(), pytest.raises(CannotRecord, match="the event has happened, and its loss would not be noticed"):
            (tmp_path / HEAD).mkdir()
            journal.append("told", BODY)
        (tmp_path / HEAD).rmdir()
        with journal.claim():
            assert len(journal.events) == 2


NAMES: dict[str, Callable[[Path, Path], object]] = {
    "a link to the directory": lambda folder, other: other.symlink_to(folder),
    "a link to the journal": lambda folder, other: (other.mkdir(), (other / JOURNAL).symlink_to(folder / JOURNAL)),
    "a hard link to the journal": lambda folder, other: (other.mkdir(), os.link(folder / JOURNAL, other / JOURNAL)),
}
WRITER = """
import sys
import time
from pathlib import Path
from jaxbandit.session.journal import open_journal
print("ready", flush=True)
start = float(sys.stdin.readline())
while time.time() < start:
    pass
journal = open_journal(Path(sys.argv[1]))
for _ in range(40):
    with journal.claim():
        number = sum(event.kind == "asked" for event in journal.events) + 1
        journal.append("asked", {"ticket": number})
        print(number, flush=True)
journal.close()
"""


@pytest.mark.parametrize("kind", NAMES)
def test_a_session_reached_by_two_paths_has_one_writer(kind: str, tmp_path: Path) -> None:
    """Two processes open it and ask at once, each by a path of its own: no ticket is given out twice, and both see all of them."""
    folder, other = tmp_path / "session", tmp_path / "other"
    create_journal(folder, {"horizon": 12}).close()
    NAMES[kind](folder, other)
    command = [sys.executable, "-c", WRITER]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    writers = [subprocess.Popen([*command, str(place)], **pipes) for place in (folder, other)]
    assert [writer.stdout.readline() for writer in writers] == ["ready\n"] * 2
    start = time.time() + 0.2
    for writer in writers:
        writer.stdin.write(f"{start}\n")
        writer.stdin.flush()
    tickets = [list(map(int, writer.communicate()[0].split())) for writer in writers]
    assert [writer.returncode for writer in writers] == [0, 0]
    assert sorted(tickets[0] + tickets[1]) == list(range(1, 81))
    for place in (folder, other):
        with contextlib.closing(open_journal(place, read_only=True)) as journal:
            assert [event.body["ticket"] for event in journal.events[1:]] == list(range(1, 81))


def test_a_hard_link_to_a_journal_that_is_open_is_refused_until_it_is_closed(tmp_path: Path) -> None:
    folder, other = tmp_path / "session", tmp_path / "other"
    with contextlib.closing(create_journal(folder, {"horizon": 12})) as journal:
        filled(journal, 2)
        other.mkdir()
        os.link(folder / JOURNAL, other / JOURNAL)
        with pytest.raises(SessionError, match="has several names"):
            open_journal(other)
    with pytest.raises(SessionError, match="has several names"):
        open_journal(other, read_only=True)
    with contextlib.closing(open_journal(other)) as journal:
        assert len(journal.events) == 3
