"""The figures that the chapter's statements call for; it prints none itself."""

from __future__ import annotations

from dpfl.papers.vandijk2023 import epoch_figures, sampling_figures, strategy_figures, training_figures
from dpfl.reporting.figures import FigureRecipe

FIGURES = {
    "tradeoff": FigureRecipe(sampling_figures.tradeoff_data, sampling_figures.draw_tradeoff),
    "epochs_not_rounds": FigureRecipe(epoch_figures.epochs_data, epoch_figures.draw_epochs),
    "group_privacy": FigureRecipe(epoch_figures.group_data, epoch_figures.draw_groups),
    "fixed_against_poisson": FigureRecipe(sampling_figures.sampler_data, sampling_figures.draw_samplers),
    "last_epoch_noise": FigureRecipe(epoch_figures.last_epoch_data, epoch_figures.draw_last_epoch),
    "asynchrony": FigureRecipe(training_figures.asynchrony_data, training_figures.draw_asynchrony),
    "delay_loop": FigureRecipe(training_figures.delay_data, training_figures.draw_delay),
    "mixing": FigureRecipe(strategy_figures.mixing_data, strategy_figures.draw_mixing),
    "batch_scaling": FigureRecipe(training_figures.scaling_data, training_figures.draw_scaling),
    "samplers": FigureRecipe(training_figures.samplers_data, training_figures.draw_samplers_trained),
    "strategies": FigureRecipe(strategy_figures.strategies_data, strategy_figures.draw_strategies),
    "settings_grid": FigureRecipe(strategy_figures.grid_data, strategy_figures.draw_grid),
    "preparation": FigureRecipe(strategy_figures.preparation_data, strategy_figures.draw_preparation),
}
