"""Write src/dcnn/atoms/element_table.json: properties and radii of the elements 1 to 100, from `mendeleev`.

Run it as `python tools/make_element_tables.py` after a new release of mendeleev; the result is committed.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from mendeleev import element

TARGET = Path(__file__).parents[1] / "src" / "dcnn" / "atoms" / "element_table.json"
# mendeleev now derives volumes from densities, which for gases are those of the gas; these are the condensed-phase
# values of the published ForceNet table (Open Catalyst Project)
CONDENSED_CM3_MOL = {
    1: 14.1,
    2: 31.8,
    7: 17.3,
    8: 14.0,
    9: 17.1,
    10: 16.8,
    17: 18.7,
    18: 24.2,
    36: 32.2,
    54: 42.9,
    86: 50.5,
}


def row(number: int) -> list[float | str | None]:
    """The properties of one element, in the order of COLUMNS; None where mendeleev has no value."""
    atom = element(number)
    sanderson = atom.electronegativity_sanderson()
    values = [
        atom.group_id,
        atom.period,
        atom.en_pauling,
        None if sanderson is None else float(np.squeeze(sanderson)),
        atom.covalent_radius_cordero,
        atom.covalent_radius_pyykko,
        2 if atom.block == "f" else atom.nvalence(),  # f electrons do not bind
        atom.ionenergies.get(1),
        atom.electron_affinity,
        atom.block,
        CONDENSED_CM3_MOL.get(number, atom.atomic_volume),
        atom.atomic_radius,
    ]
    return [round(value, 6) if isinstance(value, float) else value for value in values]


COLUMNS = [
    "group",
    "period",
    "electronegativity_pauling",
    "electronegativity_sanderson",
    "covalent_radius_cordero_pm",
    "covalent_radius_pyykko_pm",
    "valence_electrons",
    "ionization_energy_eV",
    "electron_affinity_eV",
    "block",
    "atomic_volume_cm3_mol",
    "atomic_radius_pm",
]


def main() -> None:
    """Write the table, one element a line so that changes are readable."""
    rows = ",\n".join(json.dumps(row(number)) for number in range(1, 101))
    TARGET.write_text(f'{{"columns": {json.dumps(COLUMNS)},\n"rows": [\n{rows}\n]}}\n')


if __name__ == "__main__":
    main()
