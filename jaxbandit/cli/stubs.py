"""Stubs of additions to the library: ``python -m jaxbandit new KIND NAME``."""

import re
import textwrap
import tomllib
from pathlib import Path
from string import Template

from jaxbandit.core.checks import InvalidArgument

STUBS = tomllib.loads((Path(__file__).parents[1] / "examples" / "stubs.toml").read_text(encoding="utf-8"))


def write_stubs(kind: str, name: str, checkout: Path) -> str:
    """Write the stubs of an addition, and return the next steps."""
    if not (checkout / "jaxbandit" / "algorithms" / "registry.py").exists():
        raise InvalidArgument(f"new: {checkout} is no checkout of jaxbandit; clone the repository and run the command in its folder")
    is_class = kind in ("algorithm", "kernel", "policy")
    if not re.fullmatch("[A-Z][A-Za-z0-9]+" if is_class else "[a-z][a-z0-9_]+", name):
        allowed = "a capital, then letters and digits, such as Matern72" if is_class else "small letters, digits and _, such as two_valleys"
        raise InvalidArgument(f"name: must be {allowed}, got {name!r}")
    words = {"name": name, "word": name.lower(), "command": name.replace("_", "-")}
    written = {}
    for template, stub in STUBS[kind].items():
        path = checkout / Template(template).substitute(words)
        text, stub = path.read_text(encoding="utf-8") if path.exists() else "", Template(stub).substitute(words)
        is_named = re.search(rf"\b(class|def|import) {name}\b", text) and not template.startswith("tests")
        if is_named or (text and "$" in template):
            raise InvalidArgument(f"name: {path.relative_to(checkout)} has {name} already; choose another name")
        before = in_all(text, name) + "\n" * (2 if path.suffix == ".py" else 1) if text else ""
        written[path] = before + stub
        if path.name == "registry.py":
            imports = re.findall(r"^from jaxbandit\.algorithms\..*\n", text, re.MULTILINE)
            written[path] = text.replace("".join(imports), "".join(sorted([*imports, stub])))
    for path, text in written.items():
        path.write_text(text, encoding="utf-8")
    steps = [
        "Fill in these files, which say where, then run",
        '  python -m pytest -n 0 -m "full or not full" --write-golden -k golden',
        f'  python -m pytest -n auto -m "full or not full" -k {words["word"]}',
        "The table in .github/CONTRIBUTING.md says what the tests ask.",
    ]
    return "\n".join([*(str(path.relative_to(checkout)) for path in written), *steps])


def in_all(text: str, name: str) -> str:
    """Return a module's text with a name in its ``__all__``, if any."""

    def longer(found: re.Match[str]) -> str:
        names = sorted({*re.findall(r"\w+", found[1]), name}, key=lambda other: (not other.isupper(), other[0].islower(), other))
        listed = ", ".join(f'"{other}"' for other in names)
        if len(listed) < 128:
            return f"__all__ = [{listed}]"
        return f"__all__ = [\n{textwrap.indent(textwrap.fill(listed, 135), '    ')},\n]  # fmt: skip"

    return re.sub(r"^__all__ = \[(.*?)\](  # fmt: skip)?$", longer, text, count=1, flags=re.MULTILINE | re.DOTALL)
