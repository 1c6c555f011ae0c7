"""Frames a second of two processes against one, each on its own core: python benchmarks/processes.py FRAMES.npz.

Whole runs of `dcnn train` in turns (recipe `best`, compiled steps; other options are given to it), and of each the
fastest epochs: making graphs, validation and other work of the machine are left out. A batch of two processes is twice
one of one (`same share`), or the same (`same batch`).
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np


def frames_per_second(options: argparse.Namespace, devices: int, batch_size: int, more: list[str]) -> float:
    """Of the fastest quarter of the epochs of a run."""
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        frames = f"data.train={options.frames} data.validation=1 data.test=1"
        budget = f"training.epochs={options.epochs} training.evaluate_every={options.epochs} training.step=compiled"
        processes = f"training.devices={devices} training.accelerator=cpu training.threads=1"
        words = f"{frames} {budget} {processes} training.batch_size={batch_size}".split()
        command = [sys.executable, "-m", "dcnn.cli", "train", options.data, "--model", options.model, "--no-page"]
        quiet = {"env": {**os.environ, "OMP_NUM_THREADS": "1"}, "capture_output": True, "text": True}
        done = subprocess.run([*command, "-o", str(run), *words, *more], **quiet, check=False)
        if done.returncode:
            raise SystemExit(done.stderr)
        with (run / "metrics.csv").open() as file:
            seconds = np.array([float(row["seconds"]) for row in csv.DictReader(file)])
    epochs = np.sort(np.diff(seconds))
    return options.frames / float(epochs[: max(1, len(epochs) // 4)].mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data")
    parser.add_argument("--model", default="tensornet")
    parser.add_argument("--batch-size", type=int, default=10, help="of one process")
    parser.add_argument("--frames", type=int, default=200)
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=2)
    options, more = parser.parse_known_args()
    batch = options.batch_size
    sides = {"one": (1, batch), "same share": (2, 2 * batch), "same batch": (2, batch)}
    found: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(options.rounds):
        for name, (devices, size) in sides.items():
            found[name].append(frames_per_second(options, devices, size, more))
            print(f"{name}: {found[name][-1]:.1f} frames/s", flush=True)
    best = {name: max(values) for name, values in found.items()}
    ratios = {f"ratio, {name}": round(best[name] / best["one"], 2) for name in ("same share", "same batch")}
    print(json.dumps({"model": options.model, "batch_size": batch, "frames_per_s": best, **ratios}))


if __name__ == "__main__":
    main()
