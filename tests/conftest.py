"""What several test folders share: one small potential, trained for a few seconds."""

import pytest

from dcnn.results import fit_config as fit

TINY = {"features": 16, "filters": 16, "blocks": 1, "gaussians": 12}


@pytest.fixture(scope="session")
def ethanol_run(tmp_path_factory):
    """Run folder of a tiny SchNet on the shipped ethanol frames."""
    folder = tmp_path_factory.mktemp("runs") / "ethanol"
    config = {
        "kind": "atoms",
        "data": {"path": "demo", "train": 60, "validation": 10, "test": 20},
        "model": {"name": "schnet", "overrides": TINY},
        "training": {"epochs": 20, "batch_size": 5, "accelerator": "cpu", "evaluate_every": 10},
    }
    fit(config, folder)
    return folder
