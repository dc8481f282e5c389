"""The sampler's package for OptunaHub."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

pytest.importorskip("optuna")
from experiments.__main__ import main


@pytest.mark.full
def test_the_package_s_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["hub", "--out", str(tmp_path)]) == 0
    package = tmp_path / "package" / "samplers" / "jaxbandit"
    assert {path.name for path in package.iterdir()} == {"README.md", "__init__.py", "example.py", "LICENSE", "images"}
    assert main(["hub", "--out", str(tmp_path)]) == 2 and "add --force" in capsys.readouterr().err

    def load_module(name: str) -> ModuleType:
        assert name == "samplers/jaxbandit"
        spec = importlib.util.spec_from_file_location("hub_package", package / "__init__.py")
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    # OptunaHub loads a package from its own repository, which is out of reach.
    monkeypatch.setitem(sys.modules, "optunahub", SimpleNamespace(load_module=load_module))  # type: ignore[arg-type]
    example = (package / "example.py").read_text()
    assert f"```python\n{example}```" in (package / "README.md").read_text()
    exec(compile(example.replace("n_trials=30", "n_trials=8"), "example", "exec"), {"__name__": "__main__"})
    value, _, params = capsys.readouterr().out.strip().splitlines()[-1].partition(" ")
    assert float(value) >= 0 and "'x'" in params
