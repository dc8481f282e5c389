"""Pages of studies that run."""

import contextlib
import json
import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest

import jaxbandit
from jaxbandit.cli import main
from jaxbandit.report import watching
from jaxbandit.report.watching import page_so_far, watch, watched
from jaxbandit.session import Axis, Model, Session
from jaxbandit.study import forget, from_toml, hold_directory, run_study, write_results
from jaxbandit.study.files import Names
from tests.support.small_study import ONE_CELL, one_cell_in_python
from tests.support.small_study import written as written_study
from tests.support.synthetic_results import results

# Two lines of a study that compiles in little time.
AT_RANDOM = (
    ONE_CELL.split("[algorithm.rpol]")[0]
    + """
[algorithm.first]
type = "RandomSearch"

[algorithm."the second line"]
type = "RandomSearch"
"""
)

MALICIOUS = '<script>alert("x")</script>&amp;$\\frac$'
ROUNDS = [5, 10]
FOREVER = 60.0  # seconds


def run(label: str, trials: int = 0, failed: int = 0, mean: float = 1.0, **further: Any) -> dict[str, Any]:
    counts = trials - failed
    means = {"regret": [mean, 2 * mean], "violating_rounds": [3.0, 7.0]} if counts else {}
    deviations = {"regret": [1.0, 4.0], "violating_rounds": [0.0, 0.0]} if counts > 1 else {}
    return {"label": label, "trials": trials, "failed": failed, "mean": means, "deviation": deviations, **further}


def said(*runs: dict[str, Any], **further: Any) -> dict[str, Any]:
    """Return ``progress.json`` of runs of 20 trials over 10 rounds."""
    return {
        "study": "widths",
        "trials": 20,
        "horizon": 10,
        "rounds": ROUNDS,
        "runs": list(runs),
        "work": 200 * len(runs),
        "done": 10 * sum(own["trials"] for own in runs),
        "seconds": 100.0,
        "left": 733.0,
        "workers": 4,
        "dashboard": "http://127.0.0.1:8787/status",
        "updated": "2026-11-23T08:15:48+00:00",
        **further,
    }


def words_of(page: str) -> str:
    """The text of a page outside of its figures."""
    return " ".join(re.sub(r"<[^>]*>", " ", re.sub(r"<style.*?</style>", "", page, flags=re.DOTALL)).split())


def test_a_page_says_how_far_a_study_is() -> None:
    page = page_so_far(said(run("wide", 20), run("narrow", 18, failed=2, mean=0.5), run("lost", 1, failed=1), run("late")))
    words = words_of(page)
    for phrase in (
        "runs: 4, trials of each: 20, rounds: 10",
        "48% done, 12 minutes left",
        "390 of 800 trial-rounds; workers: 4; updated 2026-11-23 08:15:48+00:00; dashboard of the workers",
        "3 of 39 finished trials failed",
        "run finished failed R/t N wide 20 of 20 0 0.20 ± 0.18 7.000 ± 0.000",
        # The half-width is 1.96 * 4 / sqrt(16) / 10 rounds.
        "narrow 18 of 20 2 0.10 ± 0.20",
        "lost 1 of 20 1 undefined undefined",
        "Runs without a finished trial, 1 of 4: late.",
    ):
        assert phrase in words, phrase
    assert '<progress value="0.48" max="1">' in page and '<meta http-equiv="refresh" content="5">' in page
    assert 'href="http://127.0.0.1:8787/status"' in page and page.count("<img") == 1
    assert "cut off" not in page and "trial-rounds/s" not in page


def test_rounds_before_the_first_count_and_problems_have_figures_of_their_own() -> None:
    runs = [run("a", 20, problem="sine"), run("b", 20, problem="peaks")]
    page = page_so_far(said(*runs, counted_before=10, rate=12345.6))
    assert page.count("<img") == 2 and "problem sine." in page and "problem peaks." in page
    words = words_of(page)
    assert "a 20 of 20 0 0.100 ± 0.088" in words and "12,346 trial-rounds/s" in words


@pytest.mark.full
def test_a_page_of_many_runs_has_few_figures_and_a_row_for_each() -> None:
    page = page_so_far(said(*(run(f"run {number}", 20) for number in range(95))))
    assert page.count("<img") == 4 and page.count('scope="row"') == 95 and len(page) < 2_000_000
    assert "67 more runs are in the tables only." in page


def test_a_page_before_the_first_trial_and_of_a_run_that_was_cut_off() -> None:
    page = page_so_far(said(run("a"), run("b"), left=None, dashboard=""), cut_off=True)
    words = words_of(page)
    assert "0% done" in words and "left" not in words and "2 of 2: a, b." in words and "This run was cut off" in words
    assert "<img" not in page and "dashboard" not in page
    assert "left" not in words_of(page_so_far(said(run("a", 3)), cut_off=True))


def test_one_trial_has_no_band() -> None:
    assert "a 1 of 20 0 0.200 7.000 Means" in words_of(page_so_far(said(run("a", 1))))


def test_labels_and_addresses_are_text_and_nothing_else() -> None:
    runs = [run(MALICIOUS, 20, problem=MALICIOUS), run(MALICIOUS), run("other", 20, problem="sine")]
    page = page_so_far(said(*runs, study=MALICIOUS, dashboard="javascript:alert(1)", updated=MALICIOUS))
    assert "<script" not in page and page.count("&lt;script&gt;") >= 5 and "href=" not in page


@pytest.mark.parametrize(
    ("seconds", "words"), [(0.4, "1 s"), (119, "119 s"), (120, "2 minutes"), (7199, "120 minutes"), (7200, "2 hours"), (172800, "2 days")]
)
def test_times_are_in_words(seconds: float, words: str) -> None:
    assert f"done, {words} left" in words_of(page_so_far(said(run("a"), left=seconds)))


# Following a directory.


class Told:
    """Watcher's output and pages, with words to wait for or forbid."""

    def __init__(self, page: Path, never: str = "no such words") -> None:
        self.page, self.never = page, never
        self.lines: list[str] = []
        self.pages: list[str] = []
        self.news = threading.Condition()

    def __call__(self, line: str) -> None:
        assert self.never not in line
        with self.news:
            self.lines.append(line)
            self.pages.append(self.page.read_text(encoding="utf-8") if self.page.exists() else "")
            self.news.notify_all()

    def wait(self, words: str) -> bool:
        with self.news:
            return self.news.wait_for(lambda: any(words in line for line in self.lines), FOREVER)


@contextlib.contextmanager
def beside(work: Callable[[], None]) -> Iterator[None]:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    yield
    thread.join(FOREVER)
    assert not thread.is_alive()


@pytest.mark.full
def test_a_study_is_followed_from_its_first_batch_to_its_report(tmp_path: Path) -> None:
    out = tmp_path / "out"
    told, held = Told(out / "report.html", never="cut off"), hold_directory(out)

    def play() -> None:
        with held:
            run_study(from_toml(written_study(tmp_path, AT_RANDOM)), held, results=out / "results.nc")
            told.wait("while it runs")
            forget(held)

    with beside(play):
        assert watch(out, seconds=0.02, say=told) == out / "report.html"
    # The run may have begun already.
    told_now = [line for line in told.lines if line != f"the run in {out} has finished no batch yet"]
    assert told_now[0] == f"the study while it runs: {out / 'report.html'}; a browser that shows it loads it again every 5 s"
    assert told_now[1:] == [f"wrote {out / 'report.html'}"]
    first, last = told.pages[-2], told.pages[-1]
    assert "the second line" in first and 'http-equiv="refresh"' in first
    assert 'id="differences"' in last and 'http-equiv="refresh"' not in last
    assert sorted(file.name for file in out.iterdir()) == ["report.html", "results.nc", "results.nc.sha256"]


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out the report, because the test above checks it."""

    def write(folder: Path) -> Path:
        (folder / "report.html").write_text("a report", encoding="utf-8")
        return folder / "report.html"

    monkeypatch.setattr(watching, "write_report", write)


@pytest.mark.full
@pytest.mark.usefixtures("undrawn")
def test_a_run_that_was_cut_off_is_waited_for(tmp_path: Path) -> None:
    (tmp_path / Names.record).write_text("{}")
    (tmp_path / Names.progress).write_text(json.dumps(said(run("a", 3))))
    told = Told(tmp_path / "report.html")

    def progress(text: str) -> None:
        (tmp_path / "new").write_text(text)
        (tmp_path / "new").replace(tmp_path / Names.progress)

    def go_on() -> None:
        told.wait("cut off")
        with hold_directory(tmp_path, force=True) as held:
            progress("{")
            told.wait("cannot be read")
            progress("[]")
            told.wait("damaged")
            progress(json.dumps(said(run("a", 3), study="\ud800")))
            told.wait("surrogates")
            write_results(results(labels=["a"], trials=2, rounds=4), tmp_path / "results.nc")
            forget(held)

    with beside(go_on):
        watch(tmp_path, seconds=0.02, say=told)
    assert [line.partition(tmp_path.name)[0] for line in told.lines if "cut off" in line] == [f"the run in {tmp_path.parent}/"]
    assert "This run was cut off" in told.pages[1] and told.pages[-1] == "a report"
    assert len(told.lines) == 6 and told.lines[-1].startswith("wrote")


@pytest.mark.full
@pytest.mark.usefixtures("undrawn")
def test_results_of_a_run_before_do_not_end_it(tmp_path: Path) -> None:
    write_results(results(labels=["a"], trials=2, rounds=4), tmp_path / "results.nc")
    told = Told(tmp_path / "report.html")
    assert watch(tmp_path, say=told) == tmp_path / "report.html" and len(told.lines) == 1
    # The old results stay until the new ones are there.
    held = hold_directory(tmp_path, force=True)

    def run_again() -> None:
        told.wait("no batch")
        (tmp_path / Names.record).write_text("{}")
        held.release()
        told.wait("cut off")
        write_results(results(labels=["a"], trials=2, rounds=4), tmp_path / "results.nc")

    with beside(run_again):
        watch(tmp_path, seconds=0.02, say=told)
    assert len(told.lines) == 4 and told.pages[-1] == "a report"


def test_directories_of_nothing_are_refused(tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "run.lock").write_text("")
    for place in (tmp_path, tmp_path / "missing", tmp_path / "run.lock"):
        assert main(["watch", str(place)]) == 2
        error = capsys.readouterr().err
        assert "holds no run and no results" in error and error.count("\n") == 1
    (tmp_path / "results.nc").write_text("none")
    assert main(["watch", str(tmp_path)]) == 2 and capsys.readouterr().err.count("\n") == 1
    assert sorted(file.name for file in tmp_path.iterdir()) == ["results.nc", "run.lock"]


def test_whoever_has_seen_enough_ends_it_quietly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    def interrupted(seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(watching.time, "sleep", interrupted)
    with hold_directory(tmp_path / "out"):
        assert main(["watch", str(tmp_path / "out")]) == 0
    captured = capsys.readouterr()
    assert captured.out.count("\n") == 1 and captured.err == ""


def test_the_page_of_a_session_follows_its_journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    pages: list[str] = []
    with Session.create(tmp_path, [Axis("dose", (1, 2))], jaxbandit.RandomSearch(), Model(), key=jax.random.key(0)) as session:
        steps = iter([lambda: None, session.ask, lambda: session.tell(1, {"reward": 1.5})])

        def look(seconds: float) -> None:
            file = tmp_path / "report.html"
            pages.append(file.read_text(encoding="utf-8"))
            file.write_text("seen")
            if (step := next(steps, None)) is None:
                raise KeyboardInterrupt
            step()

        # Other threads of the process may sleep meanwhile.
        monkeypatch.setattr(watching, "time", SimpleNamespace(sleep=look))
        assert main(["session", "watch", str(tmp_path)]) == 0
    assert capsys.readouterr().out.count("report.html") == 1 and pages[1] == "seen", "nothing had happened"
    begun, _, asked, told = pages
    assert all('http-equiv="refresh"' in page and "<h2>Under way</h2>" in page for page in (begun, asked, told))
    for page, tickets in ((begun, "0 of at most 1,000 tickets"), (asked, "1 of at most")):
        assert "No value has been told yet" in page and tickets in page and "<h2>Recommendation</h2>" not in page
    assert "No value has been told yet" not in told and "<h2>Recommendation</h2>" in told and told.count("<figure>") == 2


@pytest.mark.full
def test_a_run_keeps_its_own_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    pages: list[str] = []
    written = watching.write_whole
    monkeypatch.setattr(watching, "write_whole", lambda path, write: (written(path, write), pages.append(path.read_text(encoding="utf-8"))))
    out = tmp_path / "out"
    assert main(["run", str(written_study(tmp_path, AT_RANDOM)), "--out", str(out), "--no-cache", "--no-figure", "--watch"]) == 0
    assert f"wrote {out / 'report.html'}" in capsys.readouterr().out
    assert len(pages) == 1 and "the second line" in pages[0] and 'http-equiv="refresh"' in pages[0]
    assert 'id="differences"' in (out / "report.html").read_text(encoding="utf-8")


def test_the_page_of_a_run_that_fails_says_so_and_one_that_cannot_be_written_ends_nothing(tmp_path: Path) -> None:
    (tmp_path / Names.progress).write_text(json.dumps(said(run("a", 3))))
    told, seen = Told(tmp_path / "report.html"), list[Any]()
    with pytest.raises(KeyError), watched(tmp_path, seen.append, told) as report:
        report(3)
        assert seen == [3] and "This run was cut off" not in told.page.read_text(encoding="utf-8")
        raise KeyError
    assert "This run was cut off" in told.page.read_text(encoding="utf-8")
    told.page.unlink()
    told.page.mkdir()
    told = Told(tmp_path / "other")
    with watched(tmp_path, seen.append, told) as report:
        report(4)
        report(5)
    assert len(told.lines) == 1 and "cannot write" in told.lines[0] and seen == [3, 4, 5]


def test_a_page_agrees_with_the_results(tmp_path: Path) -> None:
    """Means and half-widths count the initial design."""
    dataset = run_study(one_cell_in_python(), tmp_path)
    found = json.loads((tmp_path / Names.progress).read_text()) | {"counted_before": 2}
    rows = re.findall(r"reward_width=(\S+) 11 of 11 0 (\S+) ± (\S+)", words_of(page_so_far(found)))
    assert [width for width, *_ in rows] == ["1", "2.5"]
    final = dataset.regret.isel(round=-1).values / 22
    for (_, mean, half), own in zip(rows, final, strict=True):
        expected = [own.mean(), 1.96 * own.std(ddof=1) / np.sqrt(11)]
        np.testing.assert_allclose([float(mean), float(half)], expected, atol=0.06 * expected[1])
