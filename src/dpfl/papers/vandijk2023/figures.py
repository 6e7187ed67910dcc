"""The figures that the chapter's statements call for; it prints none itself."""

from __future__ import annotations

from functools import partial

from dpfl.papers.vandijk2023 import accounting_figures, training_figures
from dpfl.reporting.figures import FigureRecipe

_KINDS = {
    "delay": "a fixed delay",
    "reordered": "delays with which messages overtake each other",
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
        partial(accounting_figures.tradeoff_message, names=accounting_figures.APPROXIMATIONS),
    ),
    "epochs_not_rounds": FigureRecipe(
        accounting_figures.epochs_data, accounting_figures.draw_epochs, accounting_figures.epochs_message
    ),
    "group_privacy": FigureRecipe(
        accounting_figures.group_data, accounting_figures.draw_groups, accounting_figures.groups_message
    ),
    "fixed_against_poisson": FigureRecipe(
        accounting_figures.sampler_data, accounting_figures.draw_samplers, accounting_figures.samplers_message
    ),
    "last_epoch_noise": FigureRecipe(
        accounting_figures.last_epoch_data, accounting_figures.draw_last_epoch, accounting_figures.last_epoch_message
    ),
    "asynchrony": FigureRecipe(
        training_figures.asynchrony_data,
        training_figures.draw_asynchrony,
        partial(training_figures.asynchrony_message, names=_KINDS),
    ),
    "delay_loop": FigureRecipe(
        training_figures.delay_data, training_figures.draw_delay, training_figures.delay_message
    ),
    "mixing": FigureRecipe(training_figures.mixing_data, training_figures.draw_mixing, training_figures.mixing_message),
    "batch_scaling": FigureRecipe(
        training_figures.scaling_data, training_figures.draw_scaling, training_figures.scaling_message
    ),
    "samplers": FigureRecipe(
        training_figures.samplers_data,
        training_figures.draw_samplers_trained,
        training_figures.samplers_trained_message,
    ),
    "strategies": FigureRecipe(
        training_figures.strategies_data,
        training_figures.draw_strategies,
        partial(training_figures.strategies_message, names=training_figures.STRATEGIES),
    ),
    "settings_grid": FigureRecipe(
        training_figures.grid_data, training_figures.draw_grid, training_figures.grid_message
    ),
    "preparation": FigureRecipe(
        training_figures.preparation_data,
        training_figures.draw_preparation,
        partial(training_figures.preparation_message, names=training_figures.PREPARATIONS, private=_WITH_GUARANTEE),
    ),
}
