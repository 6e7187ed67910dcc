"""The arrays folder of the synthetic problems: a description without arrays, since records are drawn when used."""

from __future__ import annotations

from pathlib import Path

from dpfl.data.arrays import write_dataset
from dpfl.data.synthetic import NAME


def build_synthetic(out_folder: Path) -> Path:
    """Write about.json of the synthetic problems (dpfl.data.synthetic) to `out_folder`; return it.

    Raises InputError where it cannot be written.
    """
    about = {
        "name": NAME,
        "title": "Synthetic convex problems with known optimum",
        "stand_in_for": None,
        "note": "",
        "licence": "none needed: drawn by this package",
        "records": {},
    }
    write_dataset(Path(out_folder), {}, about)
    return Path(out_folder)
