"""A plain MLP fitted to y and its gradient: what each step of mending it brings.

y is a potential-like function of two variables with a large offset, as total energies have: its interesting part is
a millionth of its size. Four networks see the same points and the same number of steps. Run: python examples/sobolev.py
"""

import tempfile

import torch
from torch import nn

import dcnn

KINDS = ("as is", "+ scale", "+ denormalize", "+ swap")


def potential(p):
    return torch.sin(3 * p[:, :1]) * torch.cos(2 * p[:, 1:]) + 0.5 * p[:, :1] * p[:, 1:] - 4e5


def network(kind):
    hidden = [nn.Linear(2, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 64), nn.BatchNorm1d(64), nn.ReLU()]
    net = nn.Sequential(*hidden, nn.Linear(64, 1))
    if kind in ("+ denormalize", "+ swap"):
        dcnn.denormalize(net)
    if kind == "+ swap":
        dcnn.swap_activations(net, "silu")
    return net


def points():
    x = torch.rand(320, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 2 - 1
    return x, dcnn.derivatives.partials(potential, x, ["", "x", "y"])


def measured(kind, steps=1500, seeds=3):
    """Test errors of y and dy/dx, a row a seed, and those of the mean as prediction."""
    x, labels = points()
    runs = []
    for seed in range(seeds):
        torch.manual_seed(seed)
        settings, folder = {"scale": kind != "as is"}, tempfile.mkdtemp()
        run = dcnn.fit(network(kind), f"{folder}/run", x=x, labels=labels, steps=steps, seed=seed, settings=settings)
        runs.append([run.test["rmse_value"], run.test["rmse_x"]])
    return torch.tensor(runs), [run.test["constant_rmse_value"], run.test["constant_rmse_x"]]


def main(steps=1500, seeds=3):
    x, labels = points()
    wanted = {"y": labels[""], "dy/dx": labels["x"]}
    print(dcnn.audit(network("as is"), x.float(), labels=wanted, target_error={"y": 1e-3}))
    print(f"{'':14} {'rms error of y':>24} {'rms error of dy/dx':>24}   ({seeds} seeds)")
    for kind in KINDS:
        errors, constant = measured(kind, steps, seeds)
        columns = [f"{mean:.4g} ± {spread:.2g}" for mean, spread in zip(errors.mean(0), errors.std(0), strict=True)]
        print(f"{kind:14} {columns[0]:>24} {columns[1]:>24}")
    print(f"{'constant':14} {constant[0]:>24.4g} {constant[1]:>24.4g}   (the mean as prediction)")


if __name__ == "__main__":
    main()
