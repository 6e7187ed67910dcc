"""The figures that the chapter's statements call for; it prints none itself."""

from __future__ import annotations

from functools import partial

from dpfl.papers.vandijk2023 import accounting_figures, messages, training_figures
from dpfl.reporting.figures import FigureRecipe

_KINDS = {
    "delay": "a fixed delay",
    "broadcast_loss": "lost broadcasts",
    "update_loss": "lost updates",
    "speed_spread": "unequal speeds",
    "window": "a server's window",
    "participation": "few clients asked",
}
_WITH_GUARANTEE = ("normalised", "dp_pca", "layer_normalised")
"""Preparations of which all is covered by the epsilon."""

FIGURES = {
    "tradeoff": FigureRecipe(
        accounting_figures.tradeoff_data,
        accounting_figures.draw_tradeoff,
        partial(messages.tradeoff, names=accounting_figures.APPROXIMATIONS),
    ),
    "epochs_not_rounds": FigureRecipe(accounting_figures.epochs_data, accounting_figures.draw_epochs, messages.epochs),
    "group_privacy": FigureRecipe(accounting_figures.group_data, accounting_figures.draw_groups, messages.groups),
    "fixed_against_poisson": FigureRecipe(
        accounting_figures.sampler_data, accounting_figures.draw_samplers, messages.samplers
    ),
    "last_epoch_noise": FigureRecipe(
        accounting_figures.last_epoch_data, accounting_figures.draw_last_epoch, messages.last_epoch
    ),
    "asynchrony": FigureRecipe(
        training_figures.asynchrony_data,
        training_figures.draw_asynchrony,
        partial(messages.asynchrony, names=_KINDS),
    ),
    "delay_loop": FigureRecipe(training_figures.delay_data, training_figures.draw_delay, messages.delay),
    "mixing": FigureRecipe(training_figures.mixing_data, training_figures.draw_mixing, messages.mixing),
    "batch_scaling": FigureRecipe(training_figures.scaling_data, training_figures.draw_scaling, messages.scaling),
    "samplers": FigureRecipe(
        training_figures.samplers_data, training_figures.draw_samplers_trained, messages.samplers_trained
    ),
    "strategies": FigureRecipe(
        training_figures.strategies_data,
        training_figures.draw_strategies,
        partial(messages.strategies, names=training_figures.STRATEGIES),
    ),
    "settings_grid": FigureRecipe(training_figures.grid_data, training_figures.draw_grid, messages.grid),
    "preparation": FigureRecipe(
        training_figures.preparation_data,
        training_figures.draw_preparation,
        partial(messages.preparation, names=training_figures.PREPARATIONS, private=_WITH_GUARANTEE),
    ),
}
