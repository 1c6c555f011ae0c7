"""The errors of a result: name, unit, and which way is better."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Metric:
    """An error of a result: its key in result.json, what to call it, its unit, and which way is better."""

    name: str
    title: str
    unit: str = ""
    lower_is_better: bool = True

    @property
    def label(self) -> str:
        return f"{self.title} ({self.unit})" if self.unit else self.title


#: The errors that tables compare, most telling first: the first one that a run has is the one it is ranked by.
METRICS = (
    Metric("force_mae_kcal_mol_A", "force MAE", "kcal/mol/Å"),
    Metric("energy_mae_kcal_mol", "energy MAE", "kcal/mol"),
    Metric("efwt", "EFwT", lower_is_better=False),
    Metric("nrmse", "nRMSE"),
    Metric("nrmse_domain", "nRMSE, all times"),
    Metric("mse", "MSE"),
    Metric("constant_nrmse", "nRMSE of the constant"),
)
