"""Public names and the cost of importing them."""

import ast
import importlib
import inspect
import json
import pkgutil
import subprocess
import sys
import typing
from pathlib import Path

import pytest

import jaxbandit
from tests.support.declared import signatures
from tests.support.parsed import tree_of

ROOT = Path(jaxbandit.__file__).parent
# They need the extra [study].
OPTIONAL = {"jaxbandit.study", "jaxbandit.session", "jaxbandit.report"}


def names():
    """Return every module of the package, from the files."""
    return ["jaxbandit", *sorted(m.name for m in pkgutil.walk_packages([str(ROOT)], "jaxbandit.") if not m.name.endswith("__main__"))]


def public(name):
    return not any(word.startswith("_") for word in name.split(".")[1:])


PUBLIC = [name for name in names() if public(name)]

LOADED = """
import json, sys, time
import jax
before = time.process_time()
import jaxbandit
own = time.process_time() - before
from jax._src import xla_bridge
found = {"modules": sorted(sys.modules), "started": xla_bridge.backends_are_initialized(), "seconds": own}
for name in ("simulat", "Axs", "RBF", "optimize", "Studdy", "create_study", "zzz", "_zzz"):
    assert not hasattr(jaxbandit, name)
found["misspelt"] = sorted(sys.modules.keys() - found["modules"])
import jaxbandit.cli
print(json.dumps(found | {"with a command": sorted(sys.modules)}))
"""


@pytest.fixture(scope="module")
def loaded():
    """Return modules and time of ``import jaxbandit`` and a command."""
    result = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True, check=True, timeout=120)
    return json.loads(result.stdout)


@pytest.mark.parametrize(
    "module", ["matplotlib", "xarray", "zarr", "scipy", "sklearn", "pandas", "rich", "IPython", "optuna", "experiments"]
)
def test_import_loads_nothing_it_does_not_need(module, loaded):
    assert [name for name in loaded["modules"] if name == module or name.startswith(module + ".")] == []


def test_a_misspelt_name_loads_nothing(loaded):
    assert loaded["misspelt"] == []


@pytest.mark.parametrize("module", jaxbandit.LATER)
def test_names_of_modules_that_load_later_are_known_before(module):
    assert sorted(jaxbandit.LATER[module].split()) == sorted(getattr(jaxbandit, module).__all__)


def test_import_loads_the_engine_and_no_report(loaded):
    assert {"jax", "numpy", "jaxbandit.engine.simulation", "jaxbandit.algorithms.rpol"} <= set(loaded["modules"])
    assert [
        name for name in loaded["modules"] if name.startswith(("jaxbandit.report", "jaxbandit.study", "jaxbandit.session", "jaxbandit.cli"))
    ] == []


def test_a_step_of_a_session_loads_nothing_that_only_tables_and_figures_need(loaded):
    assert "jaxbandit.cli.sessions" in loaded["with a command"]
    assert {"xarray", "pandas", "h5py", "matplotlib", "rich"} & set(loaded["with a command"]) == set()


def test_import_takes_less_than_a_second_of_its_own(loaded):
    assert loaded["seconds"] < 1.0


@pytest.mark.parametrize("name", ["gradients", "optuna", "report", "sklearn", "session", "study", "report.plots", "report.tables"])
def test_modules_are_loaded_when_they_are_asked_for(name):
    place = f"jaxbandit.{name}"
    load(place)
    found = jaxbandit
    for word in name.split("."):
        assert word in dir(found)
        found = getattr(found, word)
    assert found is sys.modules[place]
    with pytest.raises(AttributeError, match="no_such_module"):
        _ = jaxbandit.no_such_module


def test_completion_shows_public_names_only():
    load("jaxbandit.report")
    assert dir(jaxbandit) == sorted([*jaxbandit.__all__, *jaxbandit.FROM, *jaxbandit.LATER])
    left, seen = [jaxbandit], set()
    while left:
        module = left.pop()
        seen.add(module.__name__)
        assert module is jaxbandit or dir(module) == sorted(module.__all__), module.__name__
        left += [value for name in dir(module) if inspect.ismodule(value := getattr(module, name)) and value.__name__ not in seen]
    assert {"jaxbandit.results.metrics", "jaxbandit.core.status", "jaxbandit.report.plots"} <= seen and len(seen) > 25


def test_import_starts_no_device(loaded):
    """A process can then still choose its devices."""
    assert loaded["started"] is False


def load(name):
    if any(name == root or name.startswith(root + ".") for root in OPTIONAL):
        for needed in ("xarray", "matplotlib", *(word for word in ("optuna", "sklearn") if name == f"jaxbandit.session.{word}")):
            pytest.importorskip(needed)
    return importlib.import_module(name)


def declared(name):
    """Return ``__all__`` as written, or ``None``, without importing."""
    path = ROOT.joinpath(*name.split(".")[1:])
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    for node in tree_of(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == "__all__" for t in node.targets):
            return [ast.literal_eval(item) for item in node.value.elts if not isinstance(item, ast.Starred)]
    return None


WITH_ALL = [name for name in PUBLIC if declared(name) is not None]


def one_line(doc):
    """Return whether a text opens with a line of its own."""
    lines = inspect.cleandoc(doc or "").splitlines()
    return bool(lines) and len(lines[0].split()) >= 2 and (len(lines) == 1 or not lines[1].strip())


def test_what_counts_as_a_summary():
    assert one_line("Say what it does.") and one_line("\n  Say what it does.\n\n  More.\n")
    assert not one_line(None) and not one_line("") and not one_line("Word.") and not one_line("Two lines\nof summary.")


def test_the_main_modules_declare_their_names():
    main = {"jaxbandit", "jaxbandit.kernels", "jaxbandit.domains", "jaxbandit.problems", "jaxbandit.surrogates", "jaxbandit.rules.widths"}
    main |= {"jaxbandit.rules.estimators", "jaxbandit.numerics", "jaxbandit.algorithms", "jaxbandit.engine", "jaxbandit.results.metrics"}
    assert main <= set(WITH_ALL)


def test_every_declared_name_exists_once_and_is_documented():
    for name in WITH_ALL:
        module = load(name)
        listed = module.__all__
        assert set(declared(name)) <= set(listed), name
        assert len(listed) == len(set(listed)), f"{name}: a name comes twice"
        for attribute in listed:
            assert hasattr(module, attribute), f"{name}.{attribute} does not exist"
            value = getattr(module, attribute)
            # Others are documented where they stand.
            if (callable(value) and typing.get_origin(value) is None) or inspect.ismodule(value):
                assert inspect.getdoc(value), f"{name}.{attribute} has no docstring"


def test_every_public_function_and_class_has_a_one_line_summary():
    for name in PUBLIC:
        module = load(name)
        assert inspect.getdoc(module), f"{name} has no docstring"
        for attribute, value in vars(module).items():
            own = getattr(value, "__module__", None) == name and not attribute.startswith("_")
            if not own or not (inspect.isclass(value) or inspect.isroutine(value)):
                continue
            # A class inherits no docstring.
            doc = value.__dict__.get("__doc__") if inspect.isclass(value) else value.__doc__
            assert one_line(doc), f"{name}.{attribute}: {doc!r}"
            if inspect.isclass(value) and hasattr(value, "__dataclass_fields__"):
                assert not doc.startswith(f"{attribute}("), f"{name}.{attribute} has only the dataclass's own text"


def test_golden_signatures(golden):
    """Every public name, how it is called, and its methods."""
    load("jaxbandit.report")
    load("jaxbandit.optuna")
    load("jaxbandit.sklearn")
    golden("public").check_whole(signatures())


def test_the_version_is_the_distributions():
    from importlib.metadata import version

    assert jaxbandit.__version__ == version("jaxbandit")


def test_the_example_of_the_package_docstring_runs():
    """The three lines at the top of ``jaxbandit``, at a smaller size."""
    code = "\n".join(line.strip() for line in jaxbandit.__doc__.splitlines() if line.startswith("    "))
    assert code.count("\n") == 2
    code = code.replace("sine(50)", "sine(5)").replace("horizon=1000, trials=100", "horizon=4, trials=2")
    import jax

    scope = {"jaxbandit": jaxbandit, "jax": jax, "kernels": jaxbandit.kernels}
    exec(compile(code, "docstring", "exec"), scope)
    assert scope["run"].indices.shape == (2, 4)
