"""Figures follow users' settings, and have a style for papers."""

import argparse
import io

import matplotlib.pyplot as plt
import numpy as np
import pytest

from jaxbandit import report
from jaxbandit.cli import show
from jaxbandit.host.figures import figure_of
from jaxbandit.report import plots
from tests.support.figures import texts_outside
from tests.support.synthetic_results import results


@pytest.fixture(autouse=True)
def closed():
    with plt.rc_context():
        yield
    plt.close("all")


def widths(axis):
    return [line.get_linewidth() for line in axis.get_lines() if len(line.get_xdata()) > 2]


def test_settings_of_a_user_are_left_as_they_are():
    data = results()
    usual = plots.curves(data)[1]
    assert usual.figure.get_size_inches() == pytest.approx([12.6, 3.6]) and usual.xaxis.label.get_fontsize() == 10
    plt.rcParams.update({"lines.linewidth": 0.5, "font.size": 6, "axes.spines.top": True, "figure.figsize": (2, 2)})
    own = plots.curves(data)[1]
    np.testing.assert_allclose(widths(own), np.asarray(widths(usual)) / 3)
    assert own.xaxis.label.get_fontsize() == 6 and own.figure.get_figwidth() == 4
    assert plt.rcParams["axes.spines.right"] and not own.spines["right"].get_visible(), "what is not set follows the library"


def test_the_style_of_papers_has_the_width_of_columns_and_no_sentences_above_figures():
    with report.style("paper"):
        one, many = plots.cumulative(results(), "regret"), plots.curves(results())
        drawn = [[lambda ax: ax.set_title("a heading that is a whole sentence"), lambda ax: ax.set_title("short")]]
        whole = plots.compose("Two lines:\na headline", drawn)
        assert plots.caption_of(whole) == "Two lines: a headline; (a) a heading that is a whole sentence; (b) short"
    assert (one.figure.get_figwidth(), many[0].figure.get_figwidth()) == (3.35, 6.7) and one.xaxis.label.get_fontsize() == 8
    assert [axis.get_title() for axis in whole.axes] == ["(a)", "(b)"] and whole.get_suptitle() == ""
    assert plt.rcParams["font.size"] == 10
    assert plots.caption_of(plots.compose("", [[lambda ax: ax.set_title("short")]])) == ""


@pytest.mark.parametrize("name", ["paper", "screen"])
def test_labels_of_axes_are_whole_in_files(name):
    """Lines break between words and never in a formula."""
    words = r"average positive regret $R^+ (t) / t$ of all"
    with report.style(name):
        own, many = plots.curves(results())[1].figure, figure_of(2, 3)
        for axis in many[1].flat:
            axis.set(xlabel=words, ylabel=words)
        for figure in (own, many[0]):
            figure.savefig(io.BytesIO(), format="png", dpi=figure.dpi)
            assert texts_outside(figure) == []
        labels = [label.get_text() for axis in many[1].flat for label in (axis.xaxis.label, axis.yaxis.label)]
        assert {" ".join(label.split("\n")) for label in labels} == {words}
        assert any("\n" in label for label in labels) == (name == "paper")
    plt.close("all")


def test_commands_write_figures_of_a_format_and_say_their_captions(tmp_path, capsys):
    how = argparse.Namespace(no_figure=False, report=False, watch=False, format=["nc", "pdf"], style="paper")
    show(results(), tmp_path / "results.nc", how, "wrote {}")
    printed = capsys.readouterr().out
    assert (tmp_path / "curves.pdf").read_bytes().startswith(b"%PDF") and "summary.csv and curves.pdf" in printed
    assert "curves.pdf: Averages over rounds, means over trials with 95% confidence bands" in printed
    assert printed.count("R regret, R+ positive regret") == 1 and max(map(len, printed.splitlines()[:15])) <= 80


def test_bars_stay_above_what_a_measure_can_be_and_points_are_joined_where_asked():
    data = results(trials=2)
    lowest = [np.min(bar.get_segments()) for bar in plots.cumulative(data, "hard_violation").collections]
    assert lowest and min(lowest) >= 0
    plain, joined = plots.trade_off(data), plots.trade_off(data, joined=True)
    assert len(widths(joined)) == len(widths(plain)) + 1
