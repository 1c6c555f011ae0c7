"""Jacobians of residuals by rows, and runs that use them."""

import pytest
import torch

from dcnn.errors import InputError
from dcnn.pde.build import build_pde
from dcnn.pde.config import PdeConfig
from dcnn.train.config import merge
from dcnn.train.console import Console
from dcnn.train.gauss_newton import jacobian
from dcnn.train.settings import validated

SMALL = {
    "kind": "pde",
    "network": {"width": 7, "depth": 2},
    "points": {"interior": 30, "boundary": 12, "initial": 10},
    "training": {"steps": 3, "stages": [{"optimizer": "gauss_newton", "dtype": "float64"}], "select": "last"},
    "steps_per_epoch": 1,
}
CASES = {
    "reverse mode elsewhere, periodic pairs": {"problem": {"name": "advection"}},
    "hard constraints": {"problem": {"name": "wave"}, "network": {"hard": True, "scale_inputs": True}},
    "waves": {"problem": {"name": "allen_cahn"}, "network": {"modes": 2, "hard": True}},
    "several fields": {"problem": {"name": "navier_stokes", "parameters": {"resolution": 16}}},
    "normals": {"problem": {"name": "diffusion_reaction", "parameters": {"resolution": 8}}},
    "causal": {"problem": {"name": "heat"}, "points": {"causal": 2.0}},
    "a learnt parameter": {"problem": {"name": "heat", "trainable": ["alpha"], "parameters": {"measured": 9}}},
    "windows": {"problem": {"name": "advection"}, "points": {"time_windows": 2}},
}


def built(case):
    torch.manual_seed(0)
    task = build_pde(validated(PdeConfig, merge(SMALL, case)))
    task.cast(torch.float64)
    return task


@pytest.mark.parametrize("case", CASES)
def test_rows_of_the_jacobian_are_the_gradients_of_single_residuals(case):
    task = built(CASES[case])
    batch = next(iter(task.batches(0)))
    found, residuals = task.linearise(task.network, batch), task.residuals(task.network, batch)
    assert found.keys() == residuals.keys()
    weights = [p for p in task.network.parameters() if p.requires_grad]
    for name, r in residuals.items():
        torch.testing.assert_close(found[name][0], r.detach(), rtol=1e-10, atol=1e-12)
        torch.testing.assert_close(found[name][1], jacobian(r, weights), rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("optimizer", ["gauss_newton", "broyden", "lbfgs"])
def test_a_run_lowers_its_loss_and_resumes_exactly(tmp_path, optimizer):
    from dcnn.results import fit_config, resume_run

    stage = {"optimizer": optimizer, "dtype": "float64", "learning_rate": 1.0, "inner_iterations": 2}
    points = {"resample_every": 3, "adaptive": True}
    config = merge(
        SMALL, {"problem": {"name": "poisson"}, "training": {"steps": 8, "stages": [stage]}, "points": points}
    )
    config["network"] = {"width": 7, "depth": 2, "hard": True}
    whole = fit_config(config, tmp_path / "whole")
    assert whole.test["nrmse"] < 0.5

    class KilledError(Exception):
        pass

    class StopsAfter(Console):
        def row(self, row, status):
            if row["epoch"] == 5:  # points that were drawn by residual at step 3 are in use
                raise KilledError

    with pytest.raises(KilledError):
        fit_config(config, tmp_path / "stopped", console=StopsAfter())
    assert resume_run(tmp_path / "stopped").test == whole.test


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"loss": {"norm": "l1"}}, "needs fixed weights and the norm l2"),
        ({"loss": {"weighting": "uncertainty"}}, "needs fixed weights"),
        ({"training": {"stages": [{"optimizer": "gauss_newton"}]}}, "dtype: float64"),
        ({"network": {"batch_norm": True}}, "needs residuals of single points"),
    ],
)
def test_what_gauss_newton_cannot_do_is_said(tmp_path, change, message):
    from dcnn.results import fit_config

    with pytest.raises(InputError, match=message):
        fit_config(merge(merge(SMALL, {"problem": {"name": "poisson"}}), change), tmp_path / "run")
