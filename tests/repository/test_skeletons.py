"""Skeletons of scripts that a page of the site writes."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

PAGE = Path(__file__).parents[2] / "notebooks" / "skeletons.py"


@pytest.fixture(scope="module")
def page() -> ModuleType:
    pytest.importorskip("sphinx")
    spec = importlib.util.spec_from_file_location("skeletons", PAGE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_combination_is_a_script_of_its_own(page: ModuleType) -> None:
    scripts = dict(page.skeletons())
    assert len(scripts) == len(set(scripts.values())) == 48
    for chosen, script in scripts.items():
        compile(script, " ".join(chosen), "exec")


@pytest.mark.full
@pytest.mark.parametrize(
    "chosen",
    [
        ("function", "ranges", "yes", "yes", "one"),
        ("function", "steps", "no", "yes", "four"),
        ("hand", "parts", "yes", "no", "four"),
        ("hand", "steps", "no", "yes", "one"),
    ],
    ids=" ".join,
)
def test_a_script_runs_and_keeps_its_values(
    page: ModuleType, chosen: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    script = page.skeleton(*chosen)
    small = script.replace("evaluations=40", "evaluations=7").replace("left = 36", "left = 1")
    assert (small != script) == (chosen[0] == "function")
    exec(compile(small, "script", "exec"), {"__name__": "__main__"})
    assert ("Optimised(" if chosen[0] == "function" and chosen[4] == "one" else "Recommendation(") in capsys.readouterr().out
    assert list((tmp_path / "runs").iterdir())
