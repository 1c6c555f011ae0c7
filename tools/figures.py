"""Draws the figures of docs/methods.md into docs/figures, and docs/sobolev.png of examples/sobolev.py.

Run: python tools/figures.py      (two minutes, for the networks of the last)
"""

import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import torch
from torch import nn

import dcnn

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "figures"
sys.path.insert(0, str(ROOT / "examples"))
WIDTH, DEPTH = 64, 10


def activations() -> plt.Figure:
    """ReLU, IReLU and SiLU with their first three derivatives, each as declared by the activation."""
    x = torch.linspace(-4, 4, 401, dtype=torch.float64)
    figure, axes = plt.subplots(1, 3, figsize=(10, 2.8), layout="constrained")
    for axis, name in zip(axes, ("relu", "irelu", "silu"), strict=True):
        activation = dcnn.activations.get(name)
        for order, label in enumerate(("σ", "σ′", "σ″", "σ‴")):
            y = activation(x) if order == 0 else activation.derivative(x, order)
            axis.plot(x, y, label=label)
        axis.set(title=type(activation).__name__, ylim=(-1, 3))
    axes[0].legend(fontsize=8)
    return figure


def depth() -> plt.Figure:
    """Root mean square of the signal in a stack of IReLU layers, at usual initialisations and after init_."""
    torch.manual_seed(0)
    x = torch.randn(512, WIDTH)
    figure, axis = plt.subplots(figsize=(6, 2.8), layout="constrained")
    for name in ("Glorot", "He", "dcnn.activations.init_"):
        layers = [part for _ in range(DEPTH) for part in (nn.Linear(WIDTH, WIDTH), dcnn.activations.IReLU())]
        net = nn.Sequential(*layers)
        for layer in net[::2]:
            nn.init.xavier_normal_(layer.weight) if name == "Glorot" else nn.init.kaiming_normal_(layer.weight)
        if name.startswith("dcnn"):
            dcnn.activations.init_(net, x)
        sizes, h = [], x.double()
        for part in net.double():
            h = part(h)
            if isinstance(part, nn.Linear):
                sizes.append(float(h.detach().square().mean().sqrt()))
        axis.semilogy(range(1, DEPTH + 1), np.clip(sizes, 1e-12, 1e12), marker=".", label=name)
    axis.set(xlabel="layer", ylabel="rms before the activation", ylim=(1e-12, 1e12))
    axis.legend(fontsize=8)
    return figure


def float32() -> plt.Figure:
    """What float32 makes of energies 0.01 kcal/mol apart, with and without the offset of aspirin."""
    energies = -406_737 + np.arange(0, 0.3, 0.01)  # kcal/mol
    kept = {
        "as they are": energies.astype(np.float32).astype(float) + 406_737,
        "divided by 10⁶": (energies / 1e6).astype(np.float32).astype(float) * 1e6 + 406_737,
        "offset removed in float64": (energies + 406_737).astype(np.float32).astype(float),
    }
    figure, axis = plt.subplots(figsize=(6, 2.8), layout="constrained")
    for (name, values), style in zip(kept.items(), ("s", "x", "."), strict=True):
        axis.plot(energies + 406_737, values, style, label=name, markersize=5)
    axis.set(xlabel="energy + 406,737 kcal/mol", ylabel="in float32")
    axis.legend(fontsize=8)
    return figure


def sobolev() -> plt.Figure:
    """What each step brings on y and dy/dx: means and spreads of three seeds, and the mean as prediction."""
    import sobolev as example

    found = {kind: example.measured(kind) for kind in example.KINDS}
    figure, axes = plt.subplots(1, 2, figsize=(10, 3), layout="constrained")
    for column, (axis, name) in enumerate(zip(axes, ("y", "dy/dx"), strict=True)):
        errors = [errors[:, column].numpy() for errors, _ in found.values()]
        axis.bar(list(found), [e.mean() for e in errors], yerr=[e.std(ddof=1) for e in errors], color="#3a6ea5")
        constant = found["+ swap"][1][column]
        axis.axhline(constant, color="grey", linestyle=":", label="the mean as prediction")
        axis.set(yscale="log", title=f"rms error of {name} on test points")
    axes[0].legend(fontsize=8)
    return figure


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    plt.rcParams["svg.hashsalt"] = "dcnn"  # the same file every time
    for draw in (activations, depth, float32):
        draw().savefig(FOLDER / f"{draw.__name__}.svg", metadata={"Date": None})
    sobolev().savefig(ROOT / "docs" / "sobolev.png", dpi=120, metadata={"Software": None})
