"""A plain MLP fitted to y and dy/dx: what the audit says, and what a swap and a scale bring.

y is a potential-like function of two variables with a large offset, as total energies have: its interesting part is
a millionth of its size. Four networks see the same 256 points and the same number of steps:

    as is           ReLU and BatchNorm, labels as they come
    + scale         labels through dcnn.LabelScale: reference removed in float64, one unit for y and dy/dx
    + denormalize   dcnn.denormalize: BatchNorm removed
    + swap          dcnn.swap_activations: ReLU replaced by SiLU

Run:  python examples/sobolev.py        (about a minute; writes sobolev.png)
"""

import statistics

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import rich
import torch
from torch import nn

import dcnn

OFFSET, SEEDS, STEPS = -4.0e5, 3, 1500


def potential(x):
    """y (N, 1) in float64; its gradient is the label of the derivative."""
    a, b = x[:, :1], x[:, 1:]
    return OFFSET + torch.sin(3 * a) * torch.cos(2 * b) + 0.5 * a * b


def labelled(n, seed):
    x = torch.rand(n, 2, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * 2 - 1
    return x, potential(x), dcnn.derivatives.gradient(potential, x, create_graph=False)


def network():
    return nn.Sequential(
        nn.Linear(2, 64),
        nn.BatchNorm1d(64),
        nn.ReLU(),
        nn.Linear(64, 64),
        nn.BatchNorm1d(64),
        nn.ReLU(),
        nn.Linear(64, 1),
    )


def train(net, x, y, slope, seed):
    """Squared errors of value and derivative, Adam; everything in float32, as people train."""
    x, y, slope = x.float(), y.float(), slope.float()
    terms = (dcnn.losses.Term("value"), dcnn.losses.Term("slope"))
    loss = dcnn.losses.Fixed(terms)
    adam = torch.optim.Adam(net.parameters(), 3e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(adam, STEPS)
    generator = torch.Generator().manual_seed(seed)
    for step in range(STEPS):
        rows = torch.randperm(len(x), generator=generator)[:64]
        points = x[rows].requires_grad_()
        prediction = net(points)
        residuals = {
            "value": prediction - y[rows],
            "slope": dcnn.derivatives.gradient(prediction, points) - slope[rows],
        }
        adam.zero_grad()
        loss.combine(dcnn.losses.term_values(terms, residuals), list(net.parameters()), step).backward()
        adam.step()
        schedule.step()


def errors(net, scale, x, y, slope):
    """Root mean square errors of value and derivative on fresh points, in the labels' own unit."""
    net.eval()
    points = x.float().requires_grad_()
    prediction = net(points)
    found = dcnn.derivatives.gradient(prediction, points, create_graph=False)
    value = scale.unscale_energy(prediction.detach()[:, 0], z=[1]) - y[:, 0]
    return float(value.square().mean().sqrt()), float((scale.unscale_forces(found) - slope).square().mean().sqrt())


def main():
    x, y, slope = labelled(256, seed=0)
    test = labelled(2000, seed=1)
    unit = float(slope.square().mean().sqrt())
    raw, scaled = dcnn.LabelScale(1.0), dcnn.LabelScale(unit, references=float(y.mean()))

    def prepare(kind, seed):
        torch.manual_seed(seed)
        net = network()
        if kind in ("+ denormalize", "+ swap"):
            dcnn.denormalize(net)
        if kind == "+ swap":
            dcnn.swap_activations(net, "silu")
        return net, (raw if kind == "as is" else scaled)

    print("The audit of the network as it is:")
    rich.print(dcnn.audit(prepare("as is", 0)[0], x.float(), labels={"y": y, "dy/dx": slope}, target_error={"y": 1e-3}))

    results = {}
    print(f"\n{'':14} {'rms error of y':>24} {'rms error of dy/dx':>24}   ({SEEDS} seeds)")
    for kind in ("as is", "+ scale", "+ denormalize", "+ swap"):
        runs = []
        for seed in range(SEEDS):
            net, scale = prepare(kind, seed)
            train(net, x, scale.scale_energy(y, z=[1]), scale.scale_forces(slope), seed)
            runs.append(errors(net, scale, *test))
        results[kind] = np.array(runs)
        columns = [f"{statistics.mean(c):.4g} ± {statistics.stdev(c):.2g}" for c in zip(*runs, strict=True)]
        print(f"{kind:14} {columns[0]:>24} {columns[1]:>24}")
    spread = [float((label - label.mean(0)).square().mean().sqrt()) for label in test[1:]]
    print(f"{'constant':14} {spread[0]:>24.4g} {spread[1]:>24.4g}   (the mean as prediction)")

    figure, axes = plt.subplots(1, 2, figsize=(10, 3), layout="constrained")
    for axis, column, title in zip(axes, (0, 1), ("y", "dy/dx"), strict=True):
        means = [results[k][:, column].mean() for k in results]
        axis.bar(list(results), means, yerr=[results[k][:, column].std(ddof=1) for k in results], color="#3b6ea5")
        axis.axhline(spread[column], color="grey", linestyle=":", label="constant predictor")
        axis.set(yscale="log", title=f"rms error of {title} on fresh points")
    axes[0].legend(fontsize=8)
    figure.savefig("sobolev.png", dpi=120)
    print("\nsobolev.png shows the errors.")


if __name__ == "__main__":
    main()
