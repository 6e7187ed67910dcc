"""The theory part of lowy2021: its figures and tables, one module per theorem."""

from __future__ import annotations

from dpfl.papers.lowy2021 import (
    theory_acceleration,
    theory_availability,
    theory_noise,
    theory_one_pass,
    theory_rates,
    theory_shuffle,
)
from dpfl.reporting.figures import FigureRecipe
from dpfl.reporting.tables import TableRecipe

FIGURES = {
    **theory_rates.FIGURES,
    theory_acceleration.FIGURE: FigureRecipe(theory_acceleration.data, theory_acceleration.draw),
    theory_one_pass.FIGURE: FigureRecipe(theory_one_pass.data, theory_one_pass.draw),
    theory_shuffle.FIGURE: FigureRecipe(theory_shuffle.data, theory_shuffle.draw),
    theory_availability.FIGURE: FigureRecipe(theory_availability.data, theory_availability.draw),
}
TABLES = {
    "theory_slopes": TableRecipe(theory_rates.slopes, theory_rates.slopes_page),
    "theory_noise": TableRecipe(theory_noise.data, theory_noise.page),
}
