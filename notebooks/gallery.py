"""Draw the figures of the papers' studies by the lines that their page shows: ``python notebooks/gallery.py [NAME ...]``, or all.

They take some minutes each, on one core, and have few colours, so that they are small.
"""

import os
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from papers import FIGURES, lines_of
from PIL import Image

from experiments.common.experiment import find_experiments
from jaxbandit import enable_cache

LARGEST = 60_000  # bytes
NEARLY_GREY, GREYS = 12, np.repeat(np.linspace(0, 255, 12).round(), 3).reshape(-1, 3)  # of letters, axes and paper


def write_small(drawn: Image.Image, file: Path) -> None:
    """Write an image with as many of its colours and points as ``LARGEST`` allows."""
    colours, counts = np.unique(np.asarray(drawn).reshape(-1, 3).astype(int), axis=0, return_counts=True)
    bright = np.ptp(colours, axis=1) > NEARLY_GREY
    common = colours[bright][np.argsort(-counts[bright])]
    for most, share in ((128, 1.0), (64, 1.0), (32, 1.0), (32, 0.8), (32, 0.6)):
        kept = np.concatenate([GREYS, common[:most]])
        pixels = np.asarray(drawn.resize((round(share * drawn.width), round(share * drawn.height)), Image.Resampling.LANCZOS))
        found, where = np.unique(pixels.reshape(-1, 3).astype(int), axis=0, return_inverse=True)
        nearest = ((found[:, None] - kept) ** 2).sum(-1).argmin(1).astype(np.uint8)
        few = Image.fromarray(nearest[where].reshape(pixels.shape[:2]), "P")
        few.putpalette(kept.astype(np.uint8).tobytes())
        few.save(file, optimize=True)
        if file.stat().st_size <= LARGEST:
            return


if __name__ == "__main__":
    enable_cache()
    for name in sys.argv[1:] or find_experiments():
        experiment, began, here = find_experiments()[name], time.process_time(), Path.cwd()
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            exec(lines_of(experiment), {})
            os.chdir(here)
            write_small(Image.open(Path(folder) / "figure.png").convert("RGB"), FIGURES / f"{experiment.name}.png")
        print(f"{name}: {time.process_time() - began:.0f} CPU s")
