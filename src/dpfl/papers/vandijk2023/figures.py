"""The figures that the chapter's statements call for; it prints none itself."""

from __future__ import annotations

from dpfl.papers.vandijk2023 import accounting_figures, training_figures
from dpfl.reporting.figures import FigureRecipe

FIGURES = {
    "tradeoff": FigureRecipe(accounting_figures.tradeoff_data, accounting_figures.draw_tradeoff),
    "epochs_not_rounds": FigureRecipe(accounting_figures.epochs_data, accounting_figures.draw_epochs),
    "group_privacy": FigureRecipe(accounting_figures.group_data, accounting_figures.draw_groups),
    "fixed_against_poisson": FigureRecipe(accounting_figures.sampler_data, accounting_figures.draw_samplers),
    "last_epoch_noise": FigureRecipe(accounting_figures.last_epoch_data, accounting_figures.draw_last_epoch),
    "asynchrony": FigureRecipe(training_figures.asynchrony_data, training_figures.draw_asynchrony),
    "delay_loop": FigureRecipe(training_figures.delay_data, training_figures.draw_delay),
    "mixing": FigureRecipe(training_figures.mixing_data, training_figures.draw_mixing),
    "batch_scaling": FigureRecipe(training_figures.scaling_data, training_figures.draw_scaling),
    "samplers": FigureRecipe(training_figures.samplers_data, training_figures.draw_samplers_trained),
    "strategies": FigureRecipe(training_figures.strategies_data, training_figures.draw_strategies),
    "settings_grid": FigureRecipe(training_figures.grid_data, training_figures.draw_grid),
    "preparation": FigureRecipe(training_figures.preparation_data, training_figures.draw_preparation),
}
