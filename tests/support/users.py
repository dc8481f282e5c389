"""Users of the operating system whom permissions bind, whoever runs the tests."""

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

NOBODY = 65534


@contextlib.contextmanager
def read_only(*files: Path) -> Iterator[Path]:
    """Act as a user who may read files but not write.

    Root is another user meanwhile.
    """
    root = os.geteuid() == 0
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        for file in files:
            Path(shutil.copy(file, directory)).chmod(0o644)
        directory.chmod(0o555)
        if root:
            os.setresuid(NOBODY, NOBODY, 0)
        try:
            yield directory
        finally:
            if root:
                os.setresuid(0, 0, 0)
            directory.chmod(0o755)
