"""Sessions on the command line, from an experiment file to a report."""

import csv
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jaxbandit import InvalidArgument
from jaxbandit.cli import main, sessions
from jaxbandit.delays import Constant, NoDelay
from jaxbandit.session import Axis, Session, Specification, forecast, read_toml
from jaxbandit.study import from_toml

EXPERIMENT = """
objective = "maximise yield"
constraints = ["cost <= 2.5", "pH = 7 +- 0.2"]
horizon = 12
seed = 3

[axis.temperature]
low = 20
high = 90
points = 6

[axis.catalyst]
values = [0.1, 0.2, 0.5, 1.0]
scale = "logarithmic"

[initial]
random = 2

[algorithm]
type = "Rpol"

[model]
kernel = {type = "SquaredExponential", length_scale = 0.3}
noise_variance = [0.01, 0.02, 0.03]
"""


def said(capsys: Any, *words: Any) -> Any:
    """Return what a command prints as JSON."""
    assert main(["session", *map(str, words), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def refused(capsys: Any, *words: Any) -> str:
    """Return what a command says when it is refused."""
    try:
        assert main(["session", *map(str, words)]) == 2
    except SystemExit as ended:
        assert ended.code == 2
    return str(capsys.readouterr().err)


def test_a_session_from_a_file_to_a_report(tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "trial.toml").write_text(EXPERIMENT)
    made, where = said(capsys, "new", tmp_path / "trial.toml"), tmp_path / "trial"
    assert made["points"] == 24 and made["outputs"] == ["maximise yield", "cost <= 2.5", "pH = 7 +- 0.2"]
    tickets = [said(capsys, "ask", where) for _ in range(2)]
    assert [ticket["round"] for ticket in tickets] == [0, 0] and set(tickets[0]["point"]) == {"temperature", "catalyst"}
    assert said(capsys, "tell", where, 1, "--reward", 1.3, "--constraint", 2.2, "--constraint", "-")["told"] == ["yield", "cost"]
    for option, one, other in (("--reward", "1", "2"), ("--value", "pH=1", "pH=2")):
        assert "must be given once, got 1.0 and 2.0" in refused(capsys, "tell", where, 1, option, one, option, other)
    assert said(capsys, "tell", where, 1, "--value", "pH=7.1")["told"] == ["yield", "cost", "pH"]
    assert said(capsys, "drop", where, 2)["state"] == "dropped"
    assert said(capsys, "ask", where)["round"] == 1
    assert "session tell with --correct replaces it" in refused(capsys, "tell", where, 1, "--reward", 1.4)
    assert said(capsys, "tell", where, 1, "--reward", 1.4, "--correct")["ticket"] == 1
    status = said(capsys, "status", where)
    assert [status[name] for name in ("tickets", "complete", "pending", "dropped", "best so far")] == [3, 1, 1, 1, 1.4]
    assert status["under way"][0]["told"] == [] and status["under way"][0]["ticket"] == 3
    tickets_now = said(capsys, "list", where)["tickets"]
    assert [row["state"] for row in tickets_now] == ["complete", "dropped", "pending"] and tickets_now[0]["pH"] == 7.1
    assert tickets_now[2]["yield"] is None and tickets_now[2]["told_at"] is None and tickets_now[0]["told_at"] > "2026"
    [row] = said(capsys, "history", where)["measured"]
    assert row == {"ticket": 1, **tickets[0]["point"], "yield": 1.4, "cost": 2.2, "pH": 7.1, "best_so_far": 1.4} | {
        "violation of cost": 0.0,
        "violation of pH": 0.0,
    }
    assert said(capsys, "history", where, "--csv", tmp_path / "all.csv")["tickets"] == 3
    with (tmp_path / "all.csv").open(encoding="utf-8", newline="") as file:
        lines = list(csv.DictReader(file))
    assert float(lines[0]["catalyst"]) == tickets[0]["point"]["catalyst"] and lines[2]["cost"] == "" and "index" not in lines[0]
    assert [line["state"] for line in lines] == ["told", "dropped", "asked"]
    assert "exists; choose another name or add --force" in refused(capsys, "history", where, "--csv", tmp_path / "all.csv")
    assert Path(said(capsys, "plot", where)["wrote"]).read_bytes().startswith(b"\x89PNG")
    assert "out: must end in one of" in refused(capsys, "plot", where, "--out", tmp_path / "figure.doc")
    printed = said(capsys, "plot", where, "--format", "pdf", "--style", "paper")
    assert printed["wrote"].endswith("belief.pdf") and Path(printed["wrote"]).read_bytes().startswith(b"%PDF")
    assert printed["caption"].startswith("(a) yield")
    best = said(capsys, "recommend", where)
    assert best["point"] == tickets[0]["point"] and best["mean"]["yield"] == pytest.approx(1.4, abs=0.1)

    for command, pattern in (("status", r"told +1\n"), ("list", r"\n3 +asked .* - +- +- "), ("recommend", r"catalyst +[0-9.]+\n")):
        assert main(["session", command, str(where)]) == 0
        text = capsys.readouterr().out
        assert re.search(pattern, text) and not re.search("index|round|pending|partial|complete", text), text
    lines = Path(said(capsys, "export", where)["wrote"]).read_text().splitlines()
    kinds = [json.loads(line)["kind"] for line in lines if json.loads(line)["kind"] != "fitted"]
    assert kinds == ["created", "asked", "asked", "told", "told", "dropped", "asked", "corrected"]
    # A report and a status need no claim of the session.
    with Session.open(where) as session, session._claimed():
        page = Path(said(capsys, "report", where)["wrote"]).read_text()
        assert said(capsys, "status", where) == status
        assert "is in use by a call that takes longer than 0 s" in refused(capsys, "ask", where, "--wait", 0)
    assert page.count('<figure><img alt="') == 2 and "http" not in page.replace("http-equiv", "")
    assert all(
        f"<h2>{heading}</h2>" in page for heading in ("Recommendation", "History", "Beliefs", "Under way", "Tickets", "Specification")
    )


def test_what_was_measured_before_is_told_from_a_file(tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "trial.toml").write_text(EXPERIMENT)
    lines = ["date,temperature,catalyst,yield,cost,pH", "2026-11-02,34,0.1,1.5,2.0,7.1", "2026-11-03,50,0.2,1.1,,7.0"]
    (tmp_path / "runs.csv").write_text("\n".join(lines))
    where, rows = tmp_path / "trial", tmp_path / "runs.csv"
    assert "--history: the columns 'date' are neither axes nor outputs" in refused(
        capsys, "new", tmp_path / "trial.toml", "--history", rows
    )
    words = r"1 of 2 points lie off the grid, by up to 0.029 of an axis \(temperature=50 for 48\)"
    assert re.search(words, refused(capsys, "new", tmp_path / "trial.toml", "--history", rows, "--ignore", "date"))
    assert not where.exists()
    new = ("new", tmp_path / "trial.toml", "--history", rows, "--ignore", "date", "--off-grid", "round")
    assert main(["session", *map(str, new)]) == 0
    assert re.search(f"^warning: --history: {words}", capsys.readouterr().err)
    status = said(capsys, "status", where)
    assert [status[name] for name in ("complete", "partial", "best so far")] == [1, 1, 1.5]
    assert said(capsys, "tell", where, 2, "--value", "cost=2.2")["told"] == ["yield", "cost", "pH"]
    rows.write_text("\n".join([lines[0], "2026-11-04,20,1.0,0.7,1.0,7.2"]))
    assert said(capsys, "tell", where, "--csv", rows, "--ignore", "date") == {"tickets": [3]}
    assert "these rows were told before, as ticket 3" in refused(capsys, "tell", where, "--csv", rows, "--ignore", "date")
    assert "--csv: the rows of the file are told" in refused(capsys, "tell", where, 3, "--csv", rows)
    assert "ticket: say which, or --csv FILE" in refused(capsys, "tell", where, "--reward", 1)
    assert said(capsys, "ask", where)["ticket"] == 4
    said(capsys, "history", where, "--csv", tmp_path / "all.csv")
    blank = (tmp_path / "all.csv").read_text()
    (tmp_path / "all.csv").write_text(filled := re.sub(r"\n(4,asked,[^,]*,[^,]*),,", r"\n\1,1.25,", blank))
    assert filled != blank and said(capsys, "tell", where, "--csv", tmp_path / "all.csv") == {"tickets": [4]}
    assert said(capsys, "status", where)["partial"] == 1


WRONG = {
    "an unknown word": ("horizon = 12", "horizons = 12", "horizons: unknown field, did you mean 'horizon'?"),
    "an unknown algorithm": ('"Rpol"', '"Rpoll"', "algorithm: there is no algorithm 'Rpoll', did you mean 'Rpol'?"),
    "an unknown field of the model": ("noise_variance", "noise", "model.noise: unknown field"),
    "too few noise variances": ("[0.01, 0.02, 0.03]", "[0.01, 0.02]", "model.noise_variance: must hold one for each of the 3 outputs"),
    "an axis without values": ("values = [0.1, 0.2, 0.5, 1.0]", "", "axis.catalyst.low: give values"),
    "a negative seed": ("seed = 3", "seed = -3", "seed: must be a whole number"),
    "no TOML": ("seed = 3", "seed = ", "is no TOML"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_no_session_has_is_refused_by_name(case: str, tmp_path: Path, capsys: Any) -> None:
    old, new, words = WRONG[case]
    assert old in EXPERIMENT
    (tmp_path / "wrong.toml").write_text(EXPERIMENT.replace(old, new))
    assert words in refused(capsys, "new", tmp_path / "wrong.toml")
    assert not (tmp_path / "wrong").exists()


def test_numbers_that_are_none_are_refused(tmp_path: Path, capsys: Any) -> None:
    assert "holds no session" in refused(capsys, "ask", tmp_path)
    assert "--value: must be NAME=X" in refused(capsys, "tell", tmp_path, 1, "--value", "3")
    for option, text in (("--value", "y=1_0"), ("--reward", "1_0"), ("--constraint", "1_0")):
        assert f"{option}: must be a number, got '1_0'" in refused(capsys, "tell", tmp_path, 1, option, text)
    for option, text in (("--value", "y=1.0."), ("--reward", "1.0."), ("--constraint", "x")):
        assert f"{option}: must be a number, got '{text.removeprefix('y=')}'" in refused(capsys, "tell", tmp_path, 1, option, text)
    assert "experiment: cannot read" in refused(capsys, "new", "")


def test_a_value_is_told_without_a_model(tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Models of many points are slow to build."""
    (tmp_path / "trial.toml").write_text(EXPERIMENT)
    said(capsys, "new", tmp_path / "trial.toml")
    where, built = tmp_path / "trial", []
    ticket = said(capsys, "ask", where)["ticket"]
    monkeypatch.setattr(Specification, "setting_with", lambda self, *parts: built.append(parts))
    assert said(capsys, "tell", where, ticket, "--value", "yield=2")["told"] == ["yield"]
    assert said(capsys, "tell", where, ticket, "--value", "yield=3", "--correct") and said(capsys, "drop", where, ticket)
    assert said(capsys, "list", where)["tickets"][0]["yield"] == 3 and said(capsys, "status", where)["dropped"] == 1 and built == []


def test_an_example_is_written_to_start_from(tmp_path: Path, capsys: Any) -> None:
    file = tmp_path / "plant.toml"
    assert "--example writes one" in refused(capsys, "new", file)
    assert said(capsys, "new", file, "--example") == {"wrote": str(file)} and file.read_bytes() == sessions.EXPERIMENT.read_bytes()
    assert "exists" in refused(capsys, "new", file, "--example")
    assert said(capsys, "new", file)["points"] == 144, "nothing has to be chosen, of the model neither"
    assert "recommend: nothing has been told yet" in refused(capsys, "recommend", tmp_path / "plant")
    assert main(["session", "ask", str(tmp_path / "plant")]) == 0
    assert re.search(r"temperature \(°C\)  \d+\n  catalyst \(mol/L\)  [0-9.]+\n", capsys.readouterr().out)


@pytest.mark.full
def test_the_example_finds_a_yield_in_percent(tmp_path: Path, capsys: Any) -> None:
    """Its values are nowhere near 0 and 1."""
    for number in range(1, 13):
        if number == 1:
            said(capsys, "new", sessions.EXPERIMENT, "--out", tmp_path / "plant")
        point = said(capsys, "ask", tmp_path / "plant")["point"]
        heat, dose = point["temperature"], np.log10(point["catalyst"])
        values = {"yield": 80 - ((heat - 60) / 10) ** 2 - 5 * (dose + 1) ** 2, "cost": 2.2 + dose / 10, "purity": 95 - heat / 20, "pH": 7.0}
        said(capsys, "tell", tmp_path / "plant", number, *(f"--value={name}={value}" for name, value in values.items()))
    assert said(capsys, "status", tmp_path / "plant")["best so far"] > 79


def test_the_examples_of_the_help_can_be_run() -> None:
    assert len(from_toml(sessions.EXPERIMENT.with_name("study.toml")).runs) == 3
    assert read_toml(sessions.EXPERIMENT).outputs.names == ("yield", "cost", "purity", "pH")


ON_A_BOX = """
objective = "maximise yield"

[axis.dose]
low = 0
high = 1

[algorithm]
type = "Rpol"
"""


@pytest.mark.full
def test_commands_on_a_box_find_the_programs_of_the_commands_before(tmp_path: Path) -> None:
    """Programs have the same names in every process."""
    (tmp_path / "plant.toml").write_text(ON_A_BOX)
    surroundings = {name: value for name, value in os.environ.items() if not name.startswith("JAX_COMPILATION_CACHE")}
    surroundings |= {"XDG_CACHE_HOME": str(tmp_path / "cache")}

    def run(*words: str) -> set[str]:
        """Run a command and return the programs that are kept after it."""
        command = [sys.executable, "-m", "jaxbandit", "session", *words]
        done = subprocess.run(command, cwd=tmp_path, env=surroundings, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return {file.name for file in (tmp_path / "cache").rglob("*") if file.suffix != ".lockfile" and not file.name.endswith("-atime")}

    run("new", "plant.toml", "--out", "plant")
    with Session.open(tmp_path / "plant") as session:
        for ticket in session.ask(len(session._state.design)):
            session.tell(ticket, {"yield": float(ticket.point["dose"]) / 2})
    kept = set[str]()
    for number in range(5, 8):
        before, kept = kept, run("ask", "plant") | run("tell", "plant", str(number), "--value", f"yield=0.{number}")
        kept |= run("recommend", "plant")
    assert len(before) > 5 and kept == before, "the third ask, tell and recommend have compiled nothing"


@pytest.mark.full
def test_a_forecast_is_printed_and_drawn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    x = np.linspace(0, 1, 6)
    Session.create(tmp_path / "plant", [Axis("x", x)], key=0, history={"x": x[:5], "reward": x[:5] * (1 - x[:5])}).close()
    command = [
        "session",
        "forecast",
        str(tmp_path / "plant"),
        "2",
        "--trials",
        "8",
        "--in-flight",
        "1",
        "2",
        "--out",
        str(tmp_path / "f.png"),
    ]
    assert main([*command, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert {(row["algorithm"], row["in flight"]) for row in said["forecast"]} == {
        (name, flight) for name in ("Cei", "ConstrainedThompson", "Config", "Rpol") for flight in (1, 2)
    }
    assert said["recommended"]["algorithm"] == said["forecast"][0]["algorithm"] and Path(said["wrote"]).stat().st_size > 5000
    assert said["in words"].startswith(f"{said['recommended']['algorithm']} with ")
    assert main(["session", "report", str(tmp_path / "plant"), "--forecast", "0"]) == 2
    assert "--forecast: must be a whole number >= 1, got 0" in capsys.readouterr().err
    assert main(["session", "report", str(tmp_path / "plant"), "--forecast", "2"]) == 0
    page = (tmp_path / "plant" / "report.html").read_text()
    section = page[page.index('<section id="forecast">') :].split("</section>")[0]
    assert "is recommended: after 2 further evaluations" in section and section.count("<img") == 1 and section.count("<tr>") == 5
    assert main(["session", "report", str(tmp_path / "plant")]) == 0
    assert "further evaluations" not in (tmp_path / "plant" / "report.html").read_text()
    assert main(["session", "status", str(tmp_path / "plant"), "--within", "0.5"]) == 0 and "probability" in capsys.readouterr().out
    assert main(["session", "ask", str(tmp_path / "plant"), "--within", "0.5"]) == 0 and "settled" in capsys.readouterr().out


DELAYED = {"NoDelay": NoDelay(), "Constant rounds=1": Constant(rounds=1)}


@pytest.fixture
def to_forecast(tmp_path: Path) -> list[str]:
    """Return a command that forecasts a small session, without delays."""
    x = np.linspace(0, 1, 6)
    Session.create(tmp_path / "plant", [Axis("x", x)], key=0, history={"x": x[:5], "reward": x[:5] * (1 - x[:5])}).close()
    return ["session", "forecast", str(tmp_path / "plant"), "2", "--trials", "8", "--delay"]


@pytest.mark.full
def test_a_forecast_has_a_part_for_each_delay(to_forecast: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*to_forecast, *DELAYED, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["forecast"]
    assert {row["delay"] for row in rows} == set(DELAYED) and len(rows) == 8
    with Session.open(to_forecast[2], read_only=True) as session:
        found = forecast(session, 2, delays=DELAYED, trials=8)
    assert rows == json.loads(json.dumps(found.table.to_dict("records"))), "the delay of the same name is that of Python"


def test_delays_of_a_forecast_are_read(to_forecast: list[str], capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def read(session: Session, evaluations: int, **given: Any) -> None:
        raise InvalidArgument(f"{evaluations} {given}")

    with monkeypatch.context() as patch:
        patch.setattr(sessions, "forecast", read)
        assert main([*to_forecast, *DELAYED]) == 2
    assert f"2 { {'in_flight': [1], 'delays': DELAYED, 'trials': 8} }" in capsys.readouterr().err
    for text, words in (
        ("Poisson mean", "must be a model with its numbers, such as 'Poisson mean=3', got 'Poisson mean'"),
        ("Poisson mean=-1", "--delay: Poisson.mean: must lie in"),
        ("Poison mean=1", "did you mean 'Poisson'?"),
    ):
        assert main([*to_forecast, text]) == 2
        error = capsys.readouterr().err
        assert words.casefold() in " ".join(error.split()).casefold() and error.startswith("error: --delay"), error


def test_check_and_why_print_words_or_plain_values(tmp_path: Path, capsys: Any) -> None:
    directory = tmp_path / "run"
    with Session.create(directory, [Axis.between("a", 0, 1, 41)], key=0, objective="maximise y", constraints=["c <= 2"]) as session:
        for number in range(8):
            ticket = session.ask()
            a = float(ticket.point["a"])
            session.tell(ticket, {"y": float(np.sin(5 * a)), "c": (20.0 if number == 3 else 0.02) * (50 + a)})
        session.observe({"a": 0.5}, {"y": 0.6, "c": 1.0})
        reason = session.why(7).text
        events = len(session.events)
    assert main(["session", "check", str(directory)]) == 0
    words = capsys.readouterr().out
    assert words.startswith("- c of ticket 4 seems to have a value 1000 times too large beside the other values; check the unit, and")
    assert "correct it by session tell with --correct." in words and "The least expected runs are tickets 4" in words
    found = said(capsys, "check", directory)
    assert [row["output"] for row in found["outputs"]] == ["y", "c"] and len(found["mistakes"]) == 1
    assert main(["session", "why", str(directory), "7"]) == 0
    assert capsys.readouterr().out == f"{reason}\n"
    assert said(capsys, "why", directory, 7)["text"] == reason
    assert "ticket 9 was told without being asked for" in refused(capsys, "why", directory, 9)
    with Session.open(directory, read_only=True) as session:
        assert len(session.events) == events
    assert main(["session", "report", str(directory)]) == 0
    page = (directory / "report.html").read_text(encoding="utf-8")
    assert "Is the model right?" in page and "1000 times too large" in page
