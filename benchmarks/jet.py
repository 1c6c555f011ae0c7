"""Milliseconds of a loss of PDE residuals and its parameter gradients: Taylor mode, nested autograd, compiled.

    python benchmarks/jet.py [--points 7000] [--threads 1] [--repeats 20] [--clock wall|cpu] [--no-compile] [--json]

The network is an MLP of 6 × 40; the three ways are run in turn on the same points, and the smallest time of
each is printed (`--clock cpu` counts CPU time: for one thread on a shared machine). "compiled" is the step that
`partials` picks by itself, traced with make_fx, then compiled by torch.compile.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.fx.experimental.proxy_tensor import make_fx

from dcnn import activations
from dcnn.derivatives import partials

Derivatives = dict[str, Tensor]
Step = Callable[[Tensor, dict[str, Tensor]], tuple[Tensor, ...]]


def advection(u: Derivatives) -> Tensor:
    return (u["t"] + 0.1 * u["x"]).square().mean()


def compressible(u: Derivatives) -> Tensor:
    density, v, p = u[""].unbind(1)
    (density_t, v_t, p_t), (density_x, v_x, p_x) = u["t"].unbind(1), u["x"].unbind(1)
    mass = density_t + density_x * v + density * v_x
    momentum = density * (v_t + v * v_x) + p_x
    energy = p_t + v * p_x + 5 / 3 * p * v_x
    return mass.square().mean() + momentum.square().mean() + energy.square().mean()


def diffusion_reaction(u: Derivatives) -> Tensor:
    a, b = u[""].unbind(1)
    diffused = (u["xx"] + u["yy"]) * torch.tensor([1e-3, 5e-3])
    reaction = torch.stack([a - a**3 - 5e-3 - b, a - b], 1)
    return (u["t"] - diffused - reaction).square().mean()


CASES: dict[str, tuple[tuple[str, ...], int, list[str], Callable[[Derivatives], Tensor]]] = {
    "advection": (("x", "t"), 1, ["x", "t"], advection),
    "compressible": (("x", "t"), 3, ["", "x", "t"], compressible),
    "diffusion_reaction": (("x", "y", "t"), 2, ["", "t", "xx", "yy"], diffusion_reaction),
}


def mlp(inputs: int, outputs: int, activation: str) -> nn.Sequential:
    layers: list[nn.Module] = [nn.Linear(inputs, 40), activations.get(activation)]
    for _ in range(5):
        layers += [nn.Linear(40, 40), activations.get(activation)]
    return nn.Sequential(*layers, nn.Linear(40, outputs))


def step_of(case: str, net: nn.Module, mode: str) -> Step:
    coordinates, _, wanted, residual = CASES[case]

    def step(x: Tensor, weights: dict[str, Tensor]) -> tuple[Tensor, ...]:
        u = partials(partial(functional_call, net, weights), x, wanted, coordinates, mode=mode)
        loss = residual(u)
        # the bias of the last layer has no gradient when a loss holds derivatives alone
        return (loss, *torch.autograd.grad(loss, list(weights.values()), materialize_grads=True))

    return step


def compiled(step: Step, x: Tensor, weights: dict[str, Tensor]) -> Step:
    traced = torch.compile(make_fx(step)(x, weights))

    def run(x: Tensor, weights: dict[str, Tensor]) -> tuple[Tensor, ...]:
        with torch.no_grad():
            return traced(x, weights)

    return run


def measure(
    case: str, activation: str, n: int, repeats: int, compile_too: bool, clock: Callable[[], float]
) -> dict[str, object]:
    torch.manual_seed(0)
    net = mlp(len(CASES[case][0]), CASES[case][1], activation)
    weights = dict(net.named_parameters())
    x = torch.rand(n, len(CASES[case][0]))
    steps = {"taylor": step_of(case, net, "taylor"), "nested": step_of(case, net, "nested")}
    steps["auto"] = step_of(case, net, "auto")
    started = time.perf_counter()
    if compile_too:
        steps["compiled"] = compiled(steps["auto"], x, weights)
        steps["compiled"](x, weights)
    compile_seconds = time.perf_counter() - started

    expected = steps["nested"](x, weights)
    for name, step in steps.items():
        for a, b in zip(step(x, weights), expected, strict=True):
            error = float(((a - b).norm() / b.norm().clamp(min=1e-12)).detach())
            if error > 1e-4:
                raise SystemExit(f"{name} differs from nested autograd by {error:.1e} in {case}")

    best = dict.fromkeys(steps, float("inf"))
    for _ in range(repeats):
        for name, step in steps.items():
            started = clock()
            step(x, weights)
            best[name] = min(best[name], 1e3 * (clock() - started))
    row: dict[str, object] = {"case": case, "activation": activation, "points": n}
    row |= {f"{name}_ms": round(ms, 2) for name, ms in best.items()}
    row["nested_over_taylor"] = round(best["nested"] / best["taylor"], 2)
    if compile_too:
        row["nested_over_compiled"] = round(best["nested"] / best["compiled"], 2)
        row["compile_seconds"] = round(compile_seconds, 1)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, default=7000)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--activations", nargs="+", default=["tanh", "irelu"])
    parser.add_argument("--clock", choices=["wall", "cpu"], default="wall")
    parser.add_argument("--no-compile", action="store_true")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    clock = time.perf_counter if options.clock == "wall" else time.process_time
    compile_too = not options.no_compile
    rows = []
    for case in CASES:
        for activation in options.activations:
            rows.append(measure(case, activation, options.points, options.repeats, compile_too, clock))
            if not options.json:
                print("  ".join(f"{key} {value}" for key, value in rows[-1].items()), flush=True)
    if options.json:
        print(json.dumps({"results": rows}, indent=2))


if __name__ == "__main__":
    main()
