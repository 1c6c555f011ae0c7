"""Prices of options and their Greeks: derivative labels where they are worth money.

A network learns the Black–Scholes price of a call and its derivatives by the price of the stock, the time left and the
volatility, from 512 points. Which activation, which start, with normalization or without?
Run: python examples/options.py      (about a minute)
"""

import tempfile
from itertools import pairwise

import torch
from torch import nn

import dcnn

STRIKE, RATE = 100.0, 0.05


def price(p):
    """C(S, T, σ) = S Φ(d₁) − K e^{−rT} Φ(d₂), (N, 1)."""
    s, t, v = p[:, :1], p[:, 1:2], p[:, 2:]
    d1 = (torch.log(s / STRIKE) + (RATE + v**2 / 2) * t) / (v * t**0.5)
    normal = torch.special.ndtr
    return s * normal(d1) - STRIKE * torch.exp(-RATE * t) * normal(d1 - v * t**0.5)


def points(n, seed):
    """S from 50 to 150, T from 0.1 to 2 years, σ from 0.1 to 0.5, with price and Greeks."""
    low, high = torch.tensor([50.0, 0.1, 0.1]).double(), torch.tensor([150.0, 2.0, 0.5]).double()
    x = low + (high - low) * torch.rand(n, 3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return x, {"": price(x), "grad": dcnn.derivatives.gradient(price, x, create_graph=False)}


def network(activation, batch_norm):
    sizes = [3, 64, 64, 64, 64]
    layers = []
    for a, b in pairwise(sizes):
        layers += [nn.Linear(a, b), *([nn.BatchNorm1d(b)] if batch_norm else []), activation()]
    return nn.Sequential(*layers, nn.Linear(64, 1))


VARIANTS = {  # activation, BatchNorm, dcnn.activations.init_
    "ReLU + BatchNorm": (nn.ReLU, True, False),
    "ReLU": (nn.ReLU, False, False),
    "SiLU": (nn.SiLU, False, False),
    "SiLU, init_": (nn.SiLU, False, True),
    "IReLU": (dcnn.activations.IReLU, False, False),
    "IReLU, init_": (dcnn.activations.IReLU, False, True),
}


def main(steps=700, seeds=3):
    x, labels = points(640, 0)
    test = points(2000, 1)
    print(f"{'':18} {'price':>20} {'Greeks':>20}   (rms errors, mean ± standard deviation of {seeds} seeds)")
    for name, (activation, batch_norm, init) in VARIANTS.items():
        found = []
        for seed in range(seeds):
            torch.manual_seed(seed)
            net = network(activation, batch_norm)
            if init:
                dcnn.activations.init_(net, ((x - x.mean(0)) / x.std(0)).float())
            folder = tempfile.mkdtemp()
            run = dcnn.fit(net, f"{folder}/run", x=x, labels=labels, test=test, steps=steps, seed=seed)
            found.append([run.test["rmse_value"], run.test["rmse_grad"]])
        errors = torch.tensor(found)
        columns = [f"{m:.3g} ± {s:.2g}" for m, s in zip(errors.mean(0), errors.std(0), strict=True)]
        print(f"{name:18} {columns[0]:>20} {columns[1]:>20}")


if __name__ == "__main__":
    main()
